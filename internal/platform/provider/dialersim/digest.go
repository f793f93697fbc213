package dialersim

import (
	"crypto/sha256"
	"fmt"
	"hash/crc32"
)

// The ways to sum up an import.
const (
	digestSHA256 = "sha256"
	digestCRC32C = "crc32c"
	digestNone   = "none"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// digestOf sums up the bytes of rows as "<way>:<hex>"; empty for none.
func digestOf(way string, rows []byte) string {
	switch way {
	case digestCRC32C:
		return fmt.Sprintf("crc32c:%08x", crc32.Checksum(rows, castagnoli))
	case digestNone:
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(rows))
}

func checkDigest(way string) error {
	if way != digestSHA256 && way != digestCRC32C && way != digestNone {
		return fmt.Errorf("digest %q is not one of sha256, crc32c, none", way)
	}
	return nil
}

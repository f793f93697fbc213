package recordset

import (
	"crypto/sha256"
	"encoding/hex"
)

// Digest is SHA-256 over the rows of one chunk, each followed by a newline.
type Digest [sha256.Size]byte

// HashRows returns the digest of a chunk that holds rows (each the bytes of one JSON object as they are uploaded, from
// brace to brace) in this order.
func HashRows(rows [][]byte) Digest {
	h := sha256.New()
	var buf []byte
	for _, row := range rows {
		buf = append(append(buf[:0], row...), '\n')
		h.Write(buf)
	}
	return Digest(h.Sum(nil))
}

// ContentHash returns the content_hash of a record set whose chunks 0, 1, 2, ... have these digests.
func ContentHash(digests []Digest) string {
	h := sha256.New()
	for _, d := range digests {
		h.Write(d[:])
	}
	return contentHash(h.Sum(nil))
}

func contentHash(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

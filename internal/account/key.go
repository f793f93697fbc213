package account

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"io"
	"math/big"
	"regexp"

	"flowlane/internal/cell"
)

// The text of a key is KeyPrefix, the cell in which it was made unless that is 0, 256 random bits and a checksum, both
// in base 62:
//
//	flow_ [c<number of the cell>_] <43 characters of secret> <6 characters of CRC-32 over what stands before>
//
// The fixed form lets scanners of source code recognize a leaked key without asking anyone, proxies send a request to
// the cell of its key by a rule, and us refuse most made-up keys without asking the database. The cell says where a key
// was made; its organization may have moved since.
const (
	// KeyPrefix is what every API key starts with.
	KeyPrefix = "flow_"

	secretBytes  = 32
	secretChars  = 43 // 62^43 > 2^256
	sumChars     = 6  // 62^6 > 2^32
	bodyChars    = secretChars + sumChars
	base62Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// newKey makes the text of a key from a source of randomness.
func newKey(random io.Reader) (string, error) {
	secret := make([]byte, secretBytes)
	if _, err := io.ReadFull(random, secret); err != nil {
		return "", fmt.Errorf("read randomness: %w", err)
	}
	text := newPrefix() + base62(new(big.Int).SetBytes(secret), secretChars)
	return text + checksum(text), nil
}

// newPrefix is what keys start with that are made here.
func newPrefix() string {
	if n := cell.Here(); n != 0 {
		return fmt.Sprintf("%sc%d_", KeyPrefix, n)
	}
	return KeyPrefix
}

// prefixes are those of all cells: a number has one form.
var prefixes = regexp.MustCompile(`^` + KeyPrefix + `(?:c[1-9][0-9]{0,3}_)?`)

// prefixOf is what the text of a key starts with; empty where it does not have the form of one, checksum included.
func prefixOf(text string) string {
	prefix := prefixes.FindString(text)
	if prefix == "" || len(text) != len(prefix)+bodyChars {
		return ""
	}
	if body := text[:len(text)-sumChars]; checksum(body) != text[len(body):] {
		return ""
	}
	return prefix
}

func checksum(text string) string {
	return base62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(text)))), sumChars)
}

// base62 writes n with exactly width digits.
func base62(n *big.Int, width int) string {
	out := make([]byte, width)
	n, digit, base := new(big.Int).Set(n), new(big.Int), big.NewInt(int64(len(base62Digits)))
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = base62Digits[digit.Int64()]
	}
	return string(out)
}

// keyHash is what the database knows of a key. Without hashKey a copy of the table is of no use, not even to test
// guesses.
func keyHash(hashKey []byte, text string) []byte {
	mac := hmac.New(sha256.New, hashKey)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

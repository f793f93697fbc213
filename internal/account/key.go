package account

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"io"
	"math/big"
	"strings"
)

// The text of a key is KeyPrefix, 256 random bits and a checksum, both in base 62:
//
//	flow_ <43 characters of secret> <6 characters of CRC-32 over what stands before>
//
// The fixed form lets scanners of source code recognize a leaked key without asking anyone, and lets us refuse most
// made-up keys without asking the database.
const (
	// KeyPrefix is what every API key starts with.
	KeyPrefix = "flow_"

	secretBytes  = 32
	secretChars  = 43 // 62^43 > 2^256
	sumChars     = 6  // 62^6 > 2^32
	keyChars     = len(KeyPrefix) + secretChars + sumChars
	base62Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// newKey makes the text of a key from a source of randomness.
func newKey(random io.Reader) (string, error) {
	secret := make([]byte, secretBytes)
	if _, err := io.ReadFull(random, secret); err != nil {
		return "", fmt.Errorf("read randomness: %w", err)
	}
	text := KeyPrefix + base62(new(big.Int).SetBytes(secret), secretChars)
	return text + checksum(text), nil
}

// wellFormed reports whether text has the form of a key, checksum included.
func wellFormed(text string) bool {
	if len(text) != keyChars || !strings.HasPrefix(text, KeyPrefix) {
		return false
	}
	body := text[:keyChars-sumChars]
	return checksum(body) == text[keyChars-sumChars:]
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

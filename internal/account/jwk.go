package account

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

const (
	// minKeyBits is what RS256 asks for at least; maxKeyBits keeps the check of a signature cheap.
	minKeyBits = 2048
	maxKeyBits = 8192
	// maxExponentBits keeps the check cheap too. Nearly all keys have the exponent 65537.
	maxExponentBits = 31
)

// jwk is a key of a JWK Set, as far as RS256 needs it.
type jwk struct {
	ID        string `json:"kid"`
	Type      string `json:"kty"`
	Use       string `json:"use"`
	Algorithm string `json:"alg"`
	Modulus   string `json:"n"`
	Exponent  string `json:"e"`
}

// parseKeys reads the keys of a JWK Set that can check RS256 signatures, by their ids. Other keys, of which a provider may
// have any, are passed over; the first of two with one id counts.
func parseKeys(text []byte) (map[string]*rsa.PublicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("the key set is no JSON: %w", err)
	}
	if set.Keys == nil {
		return nil, errors.New(`the key set has no "keys"`)
	}
	out := map[string]*rsa.PublicKey{}
	for _, raw := range set.Keys {
		var k jwk
		if json.Unmarshal(raw, &k) != nil || k.ID == "" || out[k.ID] != nil {
			continue
		}
		if key := k.public(); key != nil {
			out[k.ID] = key
		}
	}
	return out, nil
}

// public returns the key, nil for one that must not or cannot check RS256 signatures.
func (k jwk) public() *rsa.PublicKey {
	if k.Type != "RSA" || k.Use != "" && k.Use != "sig" || k.Algorithm != "" && k.Algorithm != "RS256" {
		return nil
	}
	modulus, err := base64.RawURLEncoding.DecodeString(k.Modulus)
	if err != nil {
		return nil
	}
	exponent, err := base64.RawURLEncoding.DecodeString(k.Exponent)
	if err != nil {
		return nil
	}
	n, e := new(big.Int).SetBytes(modulus), new(big.Int).SetBytes(exponent)
	if bits := n.BitLen(); bits < minKeyBits || bits > maxKeyBits {
		return nil
	}
	if e.BitLen() > maxExponentBits || e.Int64() < 3 || e.Bit(0) == 0 {
		return nil
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}
}

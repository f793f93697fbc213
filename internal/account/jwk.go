package account

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/MicahParks/jwkset"
)

const (
	// minKeyBits is what RS256 asks for at least; maxKeyBits keeps the check of a signature cheap.
	minKeyBits = 2048
	maxKeyBits = 8192
)

// parseKeys reads the keys of a JWK Set that can check RS256 signatures. Other keys, of which a provider may have any,
// are passed over; the first of two with one id counts.
func parseKeys(text []byte) ([]jwkset.JWK, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("the key set is no JSON: %w", err)
	}
	if set.Keys == nil {
		return nil, errors.New(`the key set has no "keys"`)
	}
	var out []jwkset.JWK
	seen := map[string]bool{}
	for _, raw := range set.Keys {
		key, err := jwkset.NewJWKFromRawJSON(raw, jwkset.JWKMarshalOptions{},
			jwkset.JWKValidateOptions{StrictPadding: true})
		if err != nil || !checksRS256(key) || seen[key.Marshal().KID] {
			continue
		}
		seen[key.Marshal().KID] = true
		out = append(out, key)
	}
	return out, nil
}

// checksRS256 tells whether a key has an id, and may and can check RS256 signatures.
func checksRS256(key jwkset.JWK) bool {
	said := key.Marshal()
	public, ok := key.Key().(*rsa.PublicKey)
	if !ok || said.KID == "" || said.USE != "" && said.USE != jwkset.UseSig || said.ALG != "" &&
		said.ALG != jwkset.AlgRS256 {
		return false
	}
	bits := public.N.BitLen()
	return bits >= minKeyBits && bits <= maxKeyBits && public.E >= 3 && public.E <= math.MaxInt32 && public.E%2 == 1
}

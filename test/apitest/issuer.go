package apitest

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// TokenIssuer and TokenAudience are those of an Issuer's good tokens.
	TokenIssuer   = "https://login.test/"
	TokenAudience = "flowlane-test"
	// GoodKey is the id of the key that signs an Issuer's good tokens, StrangeKey one that nobody can find.
	GoodKey    = "good"
	StrangeKey = "strange"
)

// signingKey and strangeKey are shared by all tests: making one takes long.
var (
	signingKey = sync.OnceValue(newSigningKey)
	strangeKey = sync.OnceValue(newSigningKey)
)

func newSigningKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
}

// Issuer is an identity provider: it serves its key set over HTTP and signs tokens.
type Issuer struct {
	// KeysURL is the address of the key set.
	KeysURL string
	// Reads counts how often it was read.
	Reads atomic.Int64
	// Private signs good tokens; Strange signs what nobody should believe.
	Private, Strange *rsa.PrivateKey
}

// NewIssuer starts an identity provider.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{Private: signingKey(), Strange: strangeKey()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.Reads.Add(1)
		w.Header().Set("Content-Type", "application/jwk-set+json")
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{JWK(GoodKey, &i.Private.PublicKey)}})
	}))
	t.Cleanup(server.Close)
	i.KeysURL = server.URL + "/keys"
	return i
}

// JWK is a public key as key sets hold it.
func JWK(id string, key *rsa.PublicKey) map[string]any {
	number := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	return map[string]any{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": id, "n": number(key.N),
		"e": number(big.NewInt(int64(key.E)))}
}

// Claims are those of a good token of a member of an organization, with changes: nil takes a claim away.
func Claims(organization string, changes map[string]any) jwt.MapClaims {
	now := time.Now()
	c := jwt.MapClaims{
		"iss": TokenIssuer, "aud": TokenAudience, "sub": "user-1", "org_id": organization, "name": "Ada",
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// Token is a good token of a member of an organization, with changes to its claims.
func (i *Issuer) Token(organization string, changes map[string]any) string {
	return Sign(jwt.SigningMethodRS256, GoodKey, i.Private, Claims(organization, changes))
}

// Sign makes any token.
func Sign(method jwt.SigningMethod, keyID string, key any, claims jwt.Claims) string {
	token := jwt.NewWithClaims(method, claims)
	if keyID != "" {
		token.Header["kid"] = keyID
	}
	text, err := token.SignedString(key)
	if err != nil {
		panic(err)
	}
	return text
}

// Bearer returns a client that comes with this token instead of a key.
func (c *Client) Bearer(token string) *Client {
	other := *c
	other.Key, other.Token = "", token
	return &other
}

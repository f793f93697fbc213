package expr

import (
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // other systems ask for it; nothing of ours relies on it
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"strings"

	"github.com/google/uuid"
)

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func md5Hex(s string) string {
	sum := md5.Sum([]byte(s)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// hmacSha256 takes the text first, so that it can follow "|".
func hmacSha256(r *run, name string, a []any) (any, error) {
	s, err := stringArgs(r, name, a)
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, []byte(s[1]))
	h.Write([]byte(s[0]))
	return hex.EncodeToString(h.Sum(nil)), nil
}

// urlEncode escapes a space as %20, which is right in a path and in a query.
func urlEncode(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

var namespaces = map[string]uuid.UUID{"dns": uuid.NameSpaceDNS, "url": uuid.NameSpaceURL}

func uuid5(r *run, name string, a []any) (any, error) {
	s, err := stringArgs(r, name, a)
	if err != nil {
		return nil, err
	}
	space, ok := namespaces[s[0]]
	if !ok {
		// The length leaves out the forms with braces and without dashes.
		if space, err = uuid.Parse(s[0]); err != nil || len(s[0]) != len(uuid.UUID{}.String()) {
			return nil, errors.New(`the namespace given to uuid5 is neither a UUID nor "dns" or "url"`)
		}
	}
	return uuid.NewSHA1(space, []byte(s[1])).String(), nil
}

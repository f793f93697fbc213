package provider

import (
	"context"
	"crypto/elliptic"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

// assertionLife is how long a signed assertion is good for.
const assertionLife = 5 * time.Minute

// minSharedKey is the least length of a key for HS256 in bytes: that of its digest (RFC 7518, 3.2).
const minSharedKey = 32

// newAssertion is the secret of jwt: assertions that are signed here and sent as bearer tokens.
func newAssertion(spec Spec) (secret, error) {
	sign, err := newSigner(&spec)
	if err != nil {
		return secret{}, err
	}
	return bearer(spec.key(), func(_ context.Context, s *Sender, _ bool) (*token, error) {
		now := s.now()
		text, err := sign(now)
		if err != nil {
			return nil, err
		}
		return &token{value: text, until: now.Add(assertionLife - tokenEarly), mask: newMask(text)}, nil
	}), nil
}

// newSigner signs assertions of a credential. The error wraps ErrSecretShape; those of the signer are *ProbeError.
func newSigner(spec *Spec) (func(now time.Time) (string, error), error) {
	method, key, err := signingKey(spec.Fields["algorithm"], spec.Fields["key"])
	if err != nil {
		return nil, err
	}
	issuer, subject, keyID, audience := spec.Fields["issuer"], spec.Fields["subject"], spec.Fields["key_id"],
		spec.Audience
	if issuer == "" {
		return nil, fmt.Errorf("%w: an assertion needs an issuer", ErrSecretShape)
	}
	return func(now time.Time) (string, error) {
		claims := jwt.MapClaims{"iss": issuer, "iat": now.Unix(), "exp": now.Add(assertionLife).Unix(),
			"jti": uuid.NewString()}
		if subject != "" {
			claims["sub"] = subject
		}
		if audience != "" {
			claims["aud"] = audience
		}
		assertion := jwt.NewWithClaims(method, claims)
		if keyID != "" {
			assertion.Header["kid"] = keyID
		}
		text, err := assertion.SignedString(key)
		if err != nil {
			return "", probeError(InvalidShape, nil, "The key cannot sign; rotate the credential.")
		}
		return text, nil
	}, nil
}

// signingKey reads the key of an algorithm. The errors of parsers are not passed on: they could quote the key.
func signingKey(algorithm, key string) (jwt.SigningMethod, any, error) {
	switch algorithm {
	case "RS256":
		parsed, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(key))
		if err != nil || parsed.N.BitLen() < 2048 {
			return nil, nil, fmt.Errorf("%w: RS256 needs a key that is an RSA private key in PEM of at least 2048 bits",
				ErrSecretShape)
		}
		return jwt.SigningMethodRS256, parsed, nil
	case "ES256":
		parsed, err := jwt.ParseECPrivateKeyFromPEM([]byte(key))
		if err != nil || parsed.Curve != elliptic.P256() {
			return nil, nil, fmt.Errorf("%w: ES256 needs a key that is a P-256 private key in PEM", ErrSecretShape)
		}
		return jwt.SigningMethodES256, parsed, nil
	case "HS256":
		if len(key) < minSharedKey {
			return nil, nil, fmt.Errorf("%w: HS256 needs a key of at least %d bytes", ErrSecretShape, minSharedKey)
		}
		return jwt.SigningMethodHS256, []byte(key), nil
	}
	return nil, nil, fmt.Errorf("%w: algorithm must be RS256, ES256 or HS256", ErrSecretShape)
}

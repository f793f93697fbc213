package credential

import (
	"encoding/json"
	"errors"
	"fmt"

	"flowlane/internal/provider"
)

const redacted = "[redacted]"

// secret is the material of a credential with where it goes. It prints as [redacted].
type secret struct {
	method    string
	fields    map[string]string
	placement *Placement
}

// String hides the fields from logs and errors.
func (secret) String() string { return redacted }

// GoString hides the fields from %#v.
func (secret) GoString() string { return redacted }

// MarshalJSON refuses: only encode writes a secret, for the vault.
func (secret) MarshalJSON() ([]byte, error) { return nil, errors.New("a secret has no JSON form") }

// outgoing is the secret as a request carries it. The error wraps provider.ErrSecretShape.
func (s secret) outgoing() (provider.Secret, error) {
	return provider.NewSecret(s.method, s.fields, s.placement.outgoing())
}

func (p *Placement) outgoing() provider.Placement {
	if p == nil {
		return provider.Placement{}
	}
	return provider.Placement{HeaderName: textOf(p.HeaderName), Scheme: textOf(p.Scheme), QueryParam: textOf(p.QueryParam)}
}

// encode returns the plaintext that the vault encrypts.
func (s secret) encode() ([]byte, error) {
	plain, err := json.Marshal(s.fields)
	if err != nil {
		return nil, fmt.Errorf("encode a secret: %w", err)
	}
	return plain, nil
}

func decodeFields(plain []byte) (map[string]string, error) {
	var fields map[string]string
	if json.Unmarshal(plain, &fields) != nil {
		// The decoder's error could quote the text.
		return nil, errors.New("a stored secret is not an object of strings")
	}
	return fields, nil
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

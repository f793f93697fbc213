package credential

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

const redacted = "[redacted]"

// Secret is what goes with an outgoing request. It prints as [redacted].
type Secret struct {
	// AuthMethod is basic_auth or api_key.
	AuthMethod string
	// Fields are the secret's fields by name, for example username and password.
	Fields map[string]string
	// Placement is set for api_key.
	Placement *Placement
}

// String hides the fields from logs and errors.
func (Secret) String() string { return redacted }

// GoString hides the fields from %#v.
func (Secret) GoString() string { return "credential.Secret{" + redacted + "}" }

// MarshalJSON hides the fields from JSON and structured logs.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// scrub takes the values of the named fields out of a text that a platform wrote.
func (s Secret) scrub(text string, hidden func(field string) bool) string {
	for name, value := range s.Fields {
		if value == "" || !hidden(name) {
			continue
		}
		for _, form := range []string{value, url.QueryEscape(value), url.PathEscape(value)} {
			text = strings.ReplaceAll(text, form, redacted)
		}
	}
	return text
}

// encode returns the plaintext that the vault encrypts.
func (s Secret) encode() ([]byte, error) {
	plain, err := json.Marshal(s.Fields)
	if err != nil {
		return nil, fmt.Errorf("encode a secret: %w", err)
	}
	return plain, nil
}

func decodeFields(plain []byte) (map[string]string, error) {
	var fields map[string]string
	if json.Unmarshal(plain, &fields) != nil {
		// The decoder's error could quote the text.
		return nil, fmt.Errorf("a stored secret is not an object of strings")
	}
	return fields, nil
}

package provider

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"flowlane/internal/catalog"
)

const redacted = "[redacted]"

// ErrSecretShape is wrapped by the errors about secrets that cannot work: fields are missing or hold impossible characters.
var ErrSecretShape = errors.New("the credential does not have the shape that its method needs")

// Placement says where an API key goes: into a header, behind a scheme such as Bearer, or into a query parameter. Exactly
// one of HeaderName and QueryParam is set.
type Placement struct {
	HeaderName string
	Scheme     string
	QueryParam string
}

// Secret is what authenticates a call. However it is printed, logged or encoded, nothing of it shows. The zero value
// authenticates nothing.
//
// The values stand behind a function, because package fmt prints what a pointer in an unexported field leads to.
type Secret struct{ reveal func() secret }

func hide(in secret) Secret { return Secret{func() secret { return in }} }

type secret struct {
	// header carries value; with query set, the query parameter of that name does.
	header, query, value string
}

// NewSecret prepares the secret of a method: basic_auth takes the fields username and password, api_key takes api_key and
// a placement. The error wraps ErrSecretShape and names fields, never values.
func NewSecret(method string, fields map[string]string, p Placement) (Secret, error) {
	switch method {
	case "basic_auth":
		user, password := fields["username"], fields["password"]
		if user == "" || password == "" {
			return Secret{}, fmt.Errorf("%w: basic_auth needs username and password", ErrSecretShape)
		}
		if strings.Contains(user, ":") {
			return Secret{}, fmt.Errorf("%w: a username must not hold a colon", ErrSecretShape)
		}
		token := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		return hide(secret{header: "Authorization", value: "Basic " + token}), nil
	case "api_key":
		return newKey(fields["api_key"], p)
	}
	return Secret{}, fmt.Errorf("%w: method %q is not supported", ErrSecretShape, method)
}

// Shown stands in a Placeholder where the secret would.
const Shown = "CREDENTIAL"

// Placeholder goes where the secret of a method goes and holds Shown instead of it, for showing a call.
func Placeholder(method string, p Placement) Secret {
	switch method {
	case "api_key":
		if key, err := newKey(Shown, p); err == nil {
			return key
		}
	case "basic_auth":
		return hide(secret{header: "Authorization", value: "Basic " + Shown})
	}
	return hide(secret{header: "Authorization", value: Shown})
}

func newKey(key string, p Placement) (Secret, error) {
	switch {
	case key == "":
		return Secret{}, fmt.Errorf("%w: api_key is empty", ErrSecretShape)
	case (p.HeaderName == "") == (p.QueryParam == ""):
		return Secret{}, fmt.Errorf("%w: api_key needs either a header or a query parameter to stand in", ErrSecretShape)
	case p.QueryParam != "":
		return hide(secret{query: p.QueryParam, value: key}), nil
	}
	value := key
	if p.Scheme != "" {
		value = p.Scheme + " " + key
	}
	name := textproto.CanonicalMIMEHeaderKey(p.HeaderName)
	if !httpguts.ValidHeaderFieldName(name) || reserved(name) {
		return Secret{}, fmt.Errorf("%w: %q cannot carry an API key", ErrSecretShape, p.HeaderName)
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		return Secret{}, fmt.Errorf("%w: api_key holds characters that no header can carry", ErrSecretShape)
	}
	return hide(secret{header: name, value: value}), nil
}

// apply adds the secret to a request that is otherwise complete.
func (s Secret) apply(svc *catalog.Service, r *Request) error {
	if s.reveal == nil {
		if svc.AuthMethod != "none" {
			return fmt.Errorf("%w: service %s needs a credential", ErrSecretShape, svc.ID)
		}
		return nil
	}
	in := s.reveal()
	if in.query == "" {
		if r.Header.Get(in.header) != "" {
			return fmt.Errorf("%w: header %s is set by the credential; leave it out of the headers", ErrParams, in.header)
		}
		r.Header.Set(in.header, in.value)
		return nil
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return fmt.Errorf("%w: the address is malformed", ErrParams)
	}
	if u.Query().Has(in.query) {
		return fmt.Errorf("%w: query parameter %s is set by the credential; leave it out of the address", ErrParams, in.query)
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += url.QueryEscape(in.query) + "=" + url.QueryEscape(in.value)
	r.URL = u.String()
	return nil
}

// String hides the secret.
func (Secret) String() string { return redacted }

// GoString hides the secret from %#v.
func (Secret) GoString() string { return "provider.Secret{" + redacted + "}" }

// LogValue hides the secret from structured logs.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON refuses: a secret must not end up in a document.
func (Secret) MarshalJSON() ([]byte, error) { return nil, errors.New("a secret has no JSON form") }

// reservedHeaders belong to the connection or to the way in which a call is sent.
var reservedHeaders = map[string]bool{
	"Accept-Encoding": true, "Connection": true, "Content-Length": true, "Expect": true, "Host": true, "Http2-Settings": true, "Keep-Alive": true,
	"Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true,
	"Upgrade": true,
}

func reserved(name string) bool { return reservedHeaders[http.CanonicalHeaderKey(name)] }

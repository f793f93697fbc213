package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"flowlane/internal/platform/catalog"
)

const redacted = "[redacted]"

// ErrSecretShape is wrapped by the errors about secrets that cannot work: fields are missing or hold impossible
// characters.
var ErrSecretShape = errors.New("the credential does not have the shape that its method needs")

// Placement says where an API key goes: into a header, behind a scheme such as Bearer, into a query parameter or into a
// cookie. Exactly one of HeaderName, QueryParam and CookieName is set.
type Placement struct {
	HeaderName string
	Scheme     string
	QueryParam string
	CookieName string
}

// Secret is what authenticates a call. However it is printed, logged or encoded, nothing of it shows. The zero value
// authenticates nothing.
//
// The values stand behind a function, because package fmt prints what a pointer in an unexported field leads to.
type Secret struct{ reveal func() secret }

func hide(in secret) Secret { return Secret{func() secret { return in }} }

// User is who signs in, as far as names are compared without regard to case; empty where the way to sign in knows no
// user.
func (s Secret) User() string { return SameKey(s.open().user) }

// open returns what is hidden; the zero value has nothing.
func (s Secret) open() secret {
	if s.reveal == nil {
		return secret{}
	}
	return s.reveal()
}

type secret struct {
	// header carries value; with query set, the query parameter of that name does.
	header, query, value string
	// user and password are those of basic_auth.
	user, password string
	// sign adds what must be fresh when the request goes out; it sets the headers that signed names.
	sign   signer
	signed []string
	// issued: sign asks a token endpoint, which knows the secret.
	issued bool
	// place changes where the request goes, and says what it is signed for; nil for what needs neither.
	place func(r *Request) error
	// defaults are parameters of calls that the credential knows.
	defaults map[string]string

	// tls is how its connections are made; nil for any.
	tls *clientTLS

	// mask has what is sent of it.
	mask *mask

	// key names the secret without telling it; empty for one that is not stored.
	key string

	platformID string
	origins    []string
	// known fills the labels of addresses.
	known catalog.Known
}

// signer makes a request ready to be sent. Errors are *ProbeError: nothing was sent then.
type signer func(ctx context.Context, s *Sender, r *Request) error

// Spec is what a Secret is made of.
type Spec struct {
	// Method is basic_auth, api_key, jwt, oauth2, aws_access_key or mutual_tls; Fields are what the method needs.
	Method string
	Fields map[string]string
	// PlatformID is the platform whose services take the secret at their base URLs. Any other address gets it only at
	// one of Origins, as Origin writes them.
	PlatformID string
	Origins    []string
	// Placement is for api_key.
	Placement Placement
	// SignIn is how the catalog has user and password of basic_auth made of Fields; empty where it does not.
	SignIn catalog.SignIn
	// Grant, TokenURL and Scopes are for oauth2, Audience for oauth2 and jwt. An empty Grant is ClientCredentials.
	Grant    string
	TokenURL string
	Scopes   []string
	Audience string
	// Region, Service, Endpoint and Bucket are for aws_access_key; all may be empty.
	Region, Service, Endpoint, Bucket string
	// Version changes with every rotation: tokens are kept by it. Without one they are not kept.
	Version string
	// Share has the tokens of oauth2 that processes share; nil for a secret that is not stored.
	Share Share
}

// NewSecret prepares the secret of a method. The error wraps ErrSecretShape and names fields, never values.
func NewSecret(spec Spec) (Secret, error) {
	own, err := newClientTLS(&spec)
	if err != nil {
		return Secret{}, err
	}
	in, err := newSecret(spec, own)
	if err != nil {
		return Secret{}, err
	}
	in.tls = own
	in.key, in.platformID, in.origins, in.known = spec.key(), spec.PlatformID, spec.Origins, spec.known()
	return hide(in), nil
}

func newSecret(spec Spec, own *clientTLS) (secret, error) {
	switch spec.Method {
	case "basic_auth":
		user, password := spec.Fields["username"], spec.Fields["password"]
		if spec.SignIn.Username != "" {
			user, password = catalog.Fill(spec.SignIn.Username, spec.Fields), catalog.Fill(spec.SignIn.Password,
				spec.Fields)
		}
		if user == "" || password == "" {
			return secret{}, fmt.Errorf("%w: basic_auth needs username and password", ErrSecretShape)
		}
		if strings.Contains(user, ":") {
			return secret{}, fmt.Errorf("%w: a username must not hold a colon", ErrSecretShape)
		}
		token := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		return secret{header: "Authorization", value: "Basic " + token, user: user, password: password,
			mask: newMask(password, token)}, nil
	case "api_key":
		return newKey(spec.Fields["api_key"], spec.Placement)
	case "jwt":
		return newAssertion(spec)
	case "oauth2":
		return newClient(spec, own)
	case "aws_access_key":
		return newAWSKey(spec)
	case "mutual_tls":
		if own == nil || own.certificate == nil {
			return secret{}, fmt.Errorf("%w: mutual_tls needs client_certificate and client_key", ErrSecretShape)
		}
		return secret{}, nil
	}
	return secret{}, fmt.Errorf("%w: method %q is not supported", ErrSecretShape, spec.Method)
}

// Shown stands in a Placeholder where the secret would.
const Shown = "CREDENTIAL"

// Placeholder goes where the secret of spec goes, which needs no fields, and holds Shown instead of it, for showing a
// call.
func Placeholder(spec Spec) Secret {
	in := secret{header: "Authorization", value: Shown}
	switch spec.Method {
	case "api_key":
		if key, err := newKey(Shown, spec.Placement); err == nil {
			in = key
		}
	case "basic_auth":
		in.value, in.user = "Basic "+Shown, Shown
	case "jwt", "oauth2":
		in.value = "Bearer " + Shown
	case "mutual_tls":
		in = secret{}
	case "aws_access_key":
		in.value = awsAlgorithm + " " + Shown
		in.place, in.defaults = awsPlace(&spec), awsDefaults(spec)
	}
	in.key, in.platformID, in.origins, in.known = spec.key(), spec.PlatformID, spec.Origins, spec.known()
	return hide(in)
}

// one reports whether exactly one place is named.
func (p Placement) one() bool {
	n := 0
	for _, name := range []string{p.HeaderName, p.QueryParam, p.CookieName} {
		if name != "" {
			n++
		}
	}
	return n == 1
}

func newKey(key string, p Placement) (secret, error) {
	switch {
	case key == "":
		return secret{}, fmt.Errorf("%w: api_key is empty", ErrSecretShape)
	case !p.one():
		return secret{}, fmt.Errorf("%w: api_key needs either a header, a query parameter or a cookie to stand in",
			ErrSecretShape)
	case p.CookieName != "":
		c := http.Cookie{Name: p.CookieName, Value: key}
		if c.Valid() != nil || strings.ContainsAny(key, " ,") {
			return secret{}, fmt.Errorf("%w: the cookie or api_key holds characters that no cookie can carry",
				ErrSecretShape)
		}
		return secret{header: "Cookie", value: p.CookieName + "=" + key, mask: newMask(key)}, nil
	case p.QueryParam != "":
		return secret{query: p.QueryParam, value: key, mask: newMask(key, url.QueryEscape(key))}, nil
	}
	value := key
	if p.Scheme != "" {
		value = p.Scheme + " " + key
	}
	name := textproto.CanonicalMIMEHeaderKey(p.HeaderName)
	if !httpguts.ValidHeaderFieldName(name) || reserved(name) {
		return secret{}, fmt.Errorf("%w: %q cannot carry an API key", ErrSecretShape, p.HeaderName)
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		return secret{}, fmt.Errorf("%w: api_key holds characters that no header can carry", ErrSecretShape)
	}
	return secret{header: name, value: value, mask: newMask(key)}, nil
}

// errNoAWS: a call says what it is to be signed for, and is not signed.
var errNoAWS = fmt.Errorf("%w: aws_service and aws_region are for calls with a credential of aws_access_key", ErrParams)

// apply adds the secret to a request that is otherwise complete.
func (s Secret) apply(svc *catalog.Service, r *Request) error {
	if s.reveal == nil {
		if r.aws != (awsScope{}) {
			return errNoAWS
		}
		if svc.AuthMethod != "none" {
			return fmt.Errorf("%w: service %s needs a credential", ErrSecretShape, svc.ID)
		}
		return nil
	}
	in := s.reveal()
	base, err := s.base(svc)
	if err != nil {
		return err
	}
	if err := in.mayGo(svc, base, r.URL); err != nil {
		return err
	}
	for _, name := range append(slices.Clone(in.signed), in.header) {
		if name != "" && r.Header.Get(name) != "" {
			return fmt.Errorf("%w: header %s is set by the credential; leave it out of the headers", ErrParams, name)
		}
	}
	if in.place != nil {
		if err := in.place(r); err != nil {
			return err
		}
	} else if r.aws != (awsScope{}) {
		return errNoAWS
	}
	if err := in.tls.onlyTLS(r.URL); err != nil {
		return err
	}
	r.tls = in.tls
	if in.mask != nil {
		r.masks = append(r.masks, in.mask)
	}
	if r.security != "" {
		return in.secure(r)
	}
	if r.tool != nil {
		r.tool.secret = in.key
		r.tool.shared = in.key != ""
	}
	if in.sign != nil {
		r.sign = in.locate(svc, r)
		return nil
	}
	return in.put(r)
}

// put puts the value of a secret into a request; one that the connection shows has none.
func (in *secret) put(r *Request) error {
	if in.query == "" {
		if in.header != "" {
			r.Header.Set(in.header, in.value)
		}
		return nil
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return fmt.Errorf("%w: the address is malformed", ErrParams)
	}
	if u.Query().Has(in.query) {
		return fmt.Errorf("%w: query parameter %s is set by the credential; leave it out of the address", ErrParams,
			in.query)
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += url.QueryEscape(in.query) + "=" + url.QueryEscape(in.value)
	r.URL = u.String()
	return nil
}

// fill adds the parameters that the credential knows and the call leaves out.
func (s Secret) fill(params json.RawMessage) json.RawMessage {
	defaults := s.open().defaults
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		fields := map[string]json.RawMessage{}
		if given := gjson.GetBytes(params, name); given.Exists() && given.Type != gjson.Null || json.Unmarshal(params,
			&fields) != nil {
			continue
		}
		fields[name] = json.RawMessage(quote(defaults[name]))
		if text, err := json.Marshal(fields); err == nil {
			params = text
		}
	}
	return params
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
	"Accept-Encoding": true, "Connection": true, "Content-Length": true, "Expect": true, "Host": true,
	"Http2-Settings": true, "Keep-Alive": true,
	"Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true,
	"Upgrade":           true,
}

func reserved(name string) bool { return reservedHeaders[http.CanonicalHeaderKey(name)] }

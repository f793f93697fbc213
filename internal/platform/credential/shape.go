package credential

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"flowlane/internal/fault"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
)

// maxFieldBytes bounds one field of a secret.
const maxFieldBytes = 16 << 10

// validInput is an Input that fits the catalog.
type validInput struct {
	platform *catalog.Platform
	service  *catalog.Service
	// in is the Input as it is stored.
	in Input
	// secret is nil where the stored one is kept.
	secret *secret
	// version is that of the stored secret when it was looked at; 0 for a new credential.
	version int64
}

// check compares in with the catalog. Faults: NotFound for an unknown platform; Unprocessable with every bad field,
// none of which echoes a value.
func (s *Service) check(in Input) (validInput, error) {
	platform, ok := s.catalog.Platform(in.PlatformID)
	if !ok {
		return validInput{}, s.catalog.MissingPlatform(in.PlatformID)
	}
	service, err := serviceFor(platform, in.AuthMethod, textOf(in.GrantType))
	if err != nil {
		return validInput{}, err
	}
	in.Placement, err = placed(service, in)
	if err != nil {
		return validInput{}, err
	}
	bad := fixOAuth(service, &in)
	bad = append(bad, checkPlacement(in.AuthMethod, in.Placement)...)
	bad = append(bad, checkSettings(service, in)...)
	origins, wrongOrigins := s.checkOrigins(platform, in)
	in.Origins = origins
	bad = append(bad, wrongOrigins...)
	out := validInput{platform: platform, service: service, in: in}
	if in.Secret != nil {
		fields, wrong := readFields(fieldsOf(service, in.AuthMethod, textOf(in.GrantType)), in.AuthMethod, in.Secret)
		bad = append(bad, wrong...)
		out.secret = &secret{settings: in.settings(), fields: fields}
	}
	if len(bad) > 0 {
		return validInput{}, fault.Invalidated(bad...)
	}
	if out.secret != nil {
		if err := s.checkAddresses(platform, *out.secret); err != nil {
			return validInput{}, err
		}
		made, err := s.outgoing(*out.secret)
		if err == nil {
			err = provider.CheckCertificate(made, s.now())
		}
		if err != nil {
			return validInput{}, fault.Invalidated(wrong("value_error", err.Error(), "credentials"))
		}
	}
	return out, nil
}

// checkAddresses refuses a secret whose fields do not lead to the platform's addresses.
func (s *Service) checkAddresses(platform *catalog.Platform, in secret) error {
	spec := s.spec(in.settings, in.fields)
	for _, service := range platform.Services {
		auth, ok := service.Auth(in.method, in.grant)
		if !ok {
			continue
		}
		_, err := spec.OriginOf(service)
		for _, pattern := range append([]string{auth.TokenURL, auth.AuthorizeURL},
			slices.Collect(maps.Values(service.Headers))...) {
			if err == nil {
				err = spec.Fits(service, pattern)
			}
		}
		var label *catalog.LabelError
		if errors.As(err, &label) && label.Field != "" {
			return fault.Invalidated(wrong("value_error", err.Error(), "credentials", label.Field))
		}
		if err != nil {
			return fault.Invalidated(wrong("value_error", err.Error(), "credentials"))
		}
	}
	return nil
}

// methods are those that are carried out.
var methods = []string{BasicAuth, APIKey, JWT, OAuth2, AWSAccessKey, MutualTLS}

// serviceFor returns the platform's first service that takes the method, and the grant where one is named; it is the
// one that is asked who a credential belongs to.
func serviceFor(platform *catalog.Platform, method, grant string) (*catalog.Service, error) {
	var taken, grants []string
	for _, service := range platform.Services {
		for _, m := range methods {
			if !takes(service, m) {
				continue
			}
			if m == method && takesGrant(service, method, grant, &grants) {
				return service, nil
			}
			if !slices.Contains(taken, m) {
				taken = append(taken, m)
			}
		}
	}
	if len(grants) > 0 {
		return nil, fault.Value([]string{"body", "grant_type"}, "Platform %s takes %s", platform.ID,
			strings.Join(grants, " or "))
	}
	if len(taken) == 0 {
		return nil, fault.Value([]string{"body", "platform_id"},
			"Platform %s takes no credentials of a supported method (%s)", platform.ID, strings.Join(methods, ", "))
	}
	return nil, fault.Value([]string{"body", "auth_method"}, "Platform %s takes %s", platform.ID,
		strings.Join(taken, " or "))
}

// takes tells whether a service's calls can carry a secret of the method. A service that calls whatever address the
// flow names, such as plain HTTP, takes any.
func takes(service *catalog.Service, method string) bool {
	_, ok := service.Auth(method, "")
	return ok || anyAddress(service)
}

// takesGrant tells whether a service that takes the method does by the grant; those that it takes instead are added to
// other.
func takesGrant(service *catalog.Service, method, grant string, other *[]string) bool {
	if _, ok := service.Auth(method, grant); ok || anyAddress(service) {
		return true
	}
	for _, a := range service.Auths() {
		if a.Method == method && !slices.Contains(*other, a.Grant) {
			*other = append(*other, a.Grant)
		}
	}
	return false
}

func anyAddress(service *catalog.Service) bool {
	// reads files, without a secret
	bound := func(a *catalog.Action) bool { return a.Call != nil && len(a.Call.Origins) > 0 }
	return service.Kind == "api" && service.AuthMethod == "none" && service.BaseURL == "" &&
		(len(service.Actions) == 0 || !slices.ContainsFunc(service.Actions, bound))
}

// fieldsOf returns the fields of a secret of this method for the service: those of the catalog or, where the service
// takes any method, what the method always needs.
func fieldsOf(service *catalog.Service, method, grant string) []catalog.CredentialField {
	fields := methodFields[method]
	if own, ok := grantFields[grant]; ok && method == OAuth2 {
		fields = own
	}
	if auth, ok := service.Auth(method, grant); ok {
		fields = auth.Fields
	}
	return slices.Concat(fields, slices.DeleteFunc(slices.Clone(connectionFields),
		func(f catalog.CredentialField) bool {
			return slices.ContainsFunc(fields, func(own catalog.CredentialField) bool { return own.Name == f.Name })
		}))
}

// connectionFields go with any method: how connections are made.
var connectionFields = []catalog.CredentialField{
	{Name: provider.ClientCertificate, Secret: true}, {Name: provider.ClientKey, Secret: true},
	{Name: provider.ServerCA, Secret: true},
}

var methodFields = map[string][]catalog.CredentialField{
	BasicAuth: {{Name: "username", Required: true}, {Name: "password", Required: true, Secret: true}},
	APIKey:    {{Name: "api_key", Required: true, Secret: true}},
	JWT: {
		{Name: "algorithm", Required: true}, {Name: "key", Required: true, Secret: true},
		{Name: "issuer", Required: true},
		{Name: "subject"}, {Name: "key_id"},
	},
	AWSAccessKey: {
		{Name: "access_key_id", Required: true}, {Name: "secret_access_key", Required: true, Secret: true},
		{Name: "session_token", Secret: true},
	},
	MutualTLS: {{Name: provider.ClientCertificate, Required: true, Secret: true}, {Name: provider.ClientKey,
		Required: true, Secret: true}},
	OAuth2: {{Name: "client_id", Required: true}, {Name: "client_secret", Required: true, Secret: true}},
}

// grantFields are those of oauth2 by the grant, where they are not those of methodFields.
var grantFields = map[string][]catalog.CredentialField{
	provider.RefreshToken: {{Name: "client_id", Required: true}, clientSecret, {Name: "refresh_token",
		Required: true, Secret: true}},
	provider.AuthorizationCode: {{Name: "client_id", Required: true}, clientSecret},
	provider.Password: {
		{Name: "client_id", Required: true}, clientSecret, {Name: "username", Required: true},
		{Name: "password", Required: true, Secret: true},
	},
	provider.JWTBearer: append([]catalog.CredentialField{{Name: "client_id"}, clientSecret}, methodFields[JWT]...),
}

// clientSecret is left out for a client that cannot keep one.
var clientSecret = catalog.CredentialField{Name: "client_secret", Secret: true}

func namesOf(fields []catalog.CredentialField) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// readFields takes the fields out of a JSON object and names every one that is missing, unknown or unusable.
func readFields(want []catalog.CredentialField, method string, object []byte) (map[string]string, []fault.Field) {
	var raw map[string]json.RawMessage
	if json.Unmarshal(object, &raw) != nil {
		return nil, []fault.Field{wrong("object_type", "Must be an object", "credentials")}
	}
	fields := make(map[string]string, len(raw))
	var bad []fault.Field
	for _, field := range want {
		text, given := raw[field.Name]
		delete(raw, field.Name)
		if !given || string(text) == "null" && !field.Required {
			if field.Required {
				bad = append(bad, wrong("missing", "Field required", "credentials", field.Name))
			}
			continue
		}
		value, problem := readField(field, method, text)
		if problem != nil {
			bad = append(bad, *problem)
			continue
		}
		fields[field.Name] = value
	}
	for _, name := range sortedKeys(raw) {
		bad = append(bad, wrong("extra_forbidden", "Not a field of this platform's credentials: they are "+
			namesOf(want), "credentials", name))
	}
	return fields, bad
}

func readField(field catalog.CredentialField, method string, text json.RawMessage) (string, *fault.Field) {
	refuse := func(slug, msg string) (string, *fault.Field) {
		f := wrong(slug, msg, "credentials", field.Name)
		return "", &f
	}
	var value *string
	if json.Unmarshal(text, &value) != nil {
		return refuse("string_type", "Must be a string")
	}
	switch {
	case value == nil:
		return refuse("null_not_allowed", "Must not be null")
	case *value == "" && field.Required:
		return refuse("string_too_short", "Must not be empty")
	case len(*value) > maxFieldBytes:
		return refuse("string_too_long", fmt.Sprintf("Must have at most %d bytes", maxFieldBytes))
	case strings.ContainsFunc(*value, func(r rune) bool {
		return (r < ' ' || r == 0x7f) && (r != '\n' && r != '\r' || !inLines(method, field))
	}):
		return refuse("value_error", "Must not contain control characters such as line breaks")
	case method == BasicAuth && field.Name == "username" && strings.Contains(*value, ":"):
		return refuse("value_error", "A user name of basic_auth must not contain a colon")
	}
	return *value, nil
}

// inLines tells whether a field is a text of lines: a key in PEM.
func inLines(method string, field catalog.CredentialField) bool {
	return (method == JWT || method == OAuth2) && field.Name == "key" ||
		slices.ContainsFunc(connectionFields, func(f catalog.CredentialField) bool { return f.Name == field.Name })
}

// missingFields names the required fields that a stored secret lacks, for example after a change of the catalog.
func missingFields(service *catalog.Service, s secret) []string {
	var missing []string
	for _, field := range fieldsOf(service, s.method, s.grant) {
		if field.Required && s.fields[field.Name] == "" {
			missing = append(missing, field.Name)
		}
	}
	return missing
}

// renewed are the fields that are no secret and yet change with it.
var renewed = []string{"access_key_id", "algorithm", "key_id"}

// sameIdentity tells whether two secrets name the same user: all fields that are neither secret nor renewed are equal.
func sameIdentity(fields []catalog.CredentialField, a, b map[string]string) bool {
	for _, field := range fields {
		if !field.Secret && !slices.Contains(renewed, field.Name) && a[field.Name] != b[field.Name] {
			return false
		}
	}
	return true
}

// wrong is an entry at body.<loc>, without the value.
func wrong(slug, msg string, loc ...string) fault.Field {
	return fault.Field{Loc: append([]string{"body"}, loc...), Msg: msg, Type: slug}
}

func sortedKeys(m map[string]json.RawMessage) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

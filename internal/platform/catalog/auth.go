package catalog

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Auth is one way to sign in to a service.
type Auth struct {
	Method string            `yaml:"auth_method"`
	Fields []CredentialField `yaml:"credential_fields"`
	SignIn `yaml:",inline"`
}

// SignIn says how a service wants what a method sends, where the method leaves that open.
type SignIn struct {
	// One of Header, Query and Cookie carries the key of api_key, in the header behind Scheme and a space; none where
	// each credential says it.
	Header string `yaml:"header"`
	Scheme string `yaml:"scheme"`
	Query  string `yaml:"query"`
	Cookie string `yaml:"cookie"`
	// Username and Password are what basic_auth sends: texts in which {name} is a field of the credential, for example
	// "{email}/token". Both are empty where fields of these names are sent.
	Username string `yaml:"username"`
	Password string `yaml:"password"`
	// Grant, TokenURL, AuthorizeURL, Scopes and Audience are those of oauth2; what is empty each credential says.
	// Labels stand in the addresses as in base URLs. Scopes are asked for where a credential names none.
	Grant        string   `yaml:"grant_type"`
	TokenURL     string   `yaml:"token_url"`
	AuthorizeURL string   `yaml:"authorize_url"`
	Scopes       []string `yaml:"scopes"`
	Audience     string   `yaml:"audience"`
	// ClientIn is where the token endpoint takes the client's secret: header or body. Empty for the header, and the
	// body where that is refused.
	ClientIn string `yaml:"client_in"`
	// AWSService is the service that signatures of aws_access_key are made for; empty where the credential or the
	// address says it.
	AWSService string `yaml:"aws_service"`
}

// Auths are the ways to sign in to the service, the first one first; none for a service that takes no credential.
func (s *Service) Auths() []Auth {
	if s.AuthMethod == "none" {
		return nil
	}
	return append([]Auth{{Method: s.AuthMethod, Fields: s.CredentialFields, SignIn: s.SignIn}}, s.OtherAuth...)
}

// Auth is the way to sign in by a method, and by a grant of oauth2 where one is named; ok is false where the service
// does not take it.
func (s *Service) Auth(method, grant string) (auth Auth, ok bool) {
	for _, a := range s.Auths() {
		if a.Method == method && (a.Grant == "" || grant == "" || a.Grant == grant) {
			return a, true
		}
	}
	return Auth{}, false
}

// Placed reports whether the service says where a key goes.
func (in *SignIn) Placed() bool { return in.Header+in.Query+in.Cookie != "" }

// Fill puts the fields of a credential in place of their names in a text of SignIn.
func Fill(text string, fields map[string]string) string {
	return fieldPlace.ReplaceAllStringFunc(text, func(place string) string { return fields[place[1:len(place)-1]] })
}

var (
	fieldPlace = regexp.MustCompile(`\{[a-z][a-z0-9_]*\}`)
	tokenText  = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	awsName    = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	scopeText  = regexp.MustCompile(`^[!#-\[\]-~]+$`)
	headerText = regexp.MustCompile(`^[ -~]*$`)
)

// auths checks the ways to sign in to a service.
func (ch *checker) auths(s *Service, at path) {
	if s.AuthMethod == "none" && (len(s.OtherAuth) > 0 || !reflect.ValueOf(s.SignIn).IsZero()) {
		ch.fail(at.to("auth_method"), "a service with auth_method none has no other way to sign in")
	}
	ch.auth(s, &Auth{Method: s.AuthMethod, Fields: s.CredentialFields, SignIn: s.SignIn}, at, at.to("sign_in"))
	type way struct{ method, grant string }
	seen := []way{{s.AuthMethod, s.SignIn.Grant}}
	for i := range s.OtherAuth {
		a, here := &s.OtherAuth[i], at.to("other_auth", i)
		oneOf(ch, here, "auth_method", a.Method, authMethods[1:])
		if slices.ContainsFunc(seen, func(w way) bool {
			return w.method == a.Method && (w.grant == "" || a.Grant == "" || w.grant == a.Grant)
		}) {
			ch.fail(here.to("auth_method"),
				"auth_method %s stands twice; only oauth2 may, each with a grant_type of its own", a.Method)
		}
		seen = append(seen, way{a.Method, a.Grant})
		ch.auth(s, a, here, here)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		value, here := s.Headers[name], at.to("headers", name)
		if !tokenText.MatchString(name) || !headerText.MatchString(value) {
			ch.fail(here, "%q is no header with a text of printable ASCII", name)
		}
		ch.places(s, value, here, "headers", false)
	}
}

func (ch *checker) auth(s *Service, a *Auth, at, signIn path) {
	ch.oauth(s, a, signIn)
	names := ch.credentialFields(a, at)
	places := 0
	for _, place := range []string{a.Header, a.Query, a.Cookie} {
		if place == "" {
			continue
		}
		places++
		if !tokenText.MatchString(place) {
			ch.fail(signIn, "%q is no name of a header, query parameter or cookie", place)
		}
	}
	switch {
	case a.AWSService != "" && (a.Method != "aws_access_key" || !awsName.MatchString(a.AWSService)):
		ch.fail(signIn, "aws_service is a name such as sqs, for auth_method aws_access_key")
	case places > 1 || a.Scheme != "" && a.Header == "":
		ch.fail(signIn, "a key goes into one of header, query and cookie, and a scheme only with header")
	case places > 0 && a.Method != "api_key":
		ch.fail(signIn, "header, query and cookie are for auth_method api_key")
	case !headerText.MatchString(a.Scheme) || a.Scheme != strings.TrimSpace(a.Scheme):
		ch.fail(signIn, "scheme must be printable ASCII without spaces around it")
	case a.Username+a.Password != "" && (a.Method != "basic_auth" || a.Username == "" || a.Password == ""):
		ch.fail(signIn, "username and password go together, and are for auth_method basic_auth")
	}
	for _, place := range fieldPlace.FindAllString(a.Username+a.Password, -1) {
		if !slices.Contains(names, place[1:len(place)-1]) {
			ch.fail(signIn, "there is no credential field for %s", place)
		}
	}
}

// credentialFields checks the fields of a way to sign in and returns their names.
func (ch *checker) credentialFields(a *Auth, at path) (names []string) {
	required := map[string]bool{}
	for i, f := range a.Fields {
		here := at.to("credential_fields", i)
		ch.need(here, "name", f.Name)
		ch.need(here, "label", f.Label)
		oneOf(ch, here, "type", f.Type, fieldTypes)
		if slices.Contains(names, f.Name) {
			ch.fail(here, "credential field %q stands twice", f.Name)
		}
		names = append(names, f.Name)
		required[f.Name] = f.Required
	}
	if a.Username != "" {
		return names
	}
	for _, name := range SecretFields(a.Method, a.Grant) {
		if !required[name] {
			ch.fail(at.to("credential_fields"), "auth_method %s needs the required credential field %q", a.Method, name)
		}
	}
	return names
}

// SecretFields names the fields that a credential of a method always has; of oauth2 by its grant, which may be empty.
func SecretFields(method, grant string) []string {
	if grant != "" {
		return slices.Clone(grantFields[grant])
	}
	return slices.Clone(secretFields[method])
}

// grantFields are the fields that a credential of oauth2 always has, by its grant. A client that keeps no secret has
// none, but for one that signs in as itself.
var grantFields = map[string][]string{
	"client_credentials": {"client_id", "client_secret"}, "refresh_token": {"client_id", "refresh_token"},
	"authorization_code": {"client_id"},
	"password":           {"client_id", "username", "password"}, "jwt_bearer": {"algorithm", "issuer", "key"},
}

// oauth checks what a service says of oauth2.
func (ch *checker) oauth(s *Service, a *Auth, at path) {
	if a.Method != "oauth2" {
		if a.Grant+a.TokenURL+a.AuthorizeURL+a.Audience+a.ClientIn != "" || len(a.Scopes) > 0 {
			ch.fail(at, "grant_type, token_url, authorize_url, scopes, "+
				"audience and client_in are for auth_method oauth2")
		}
		return
	}
	if a.Grant != "" {
		oneOf(ch, at, "grant_type", a.Grant, slices.Sorted(maps.Keys(grantFields)))
	}
	if a.ClientIn != "" {
		oneOf(ch, at, "client_in", a.ClientIn, []string{"header", "body"})
	}
	if a.Grant == "authorization_code" && (a.TokenURL == "") != (a.AuthorizeURL == "") {
		ch.fail(at, "grant_type authorization_code has both token_url and authorize_url, or each credential says both")
	}
	if a.Grant != "" && a.Grant != "authorization_code" && a.AuthorizeURL != "" {
		ch.fail(at.to("authorize_url"), "authorize_url is for grant_type authorization_code")
	}
	ch.pattern(s, a.TokenURL, at, "token_url", false)
	page, query, _ := strings.Cut(a.AuthorizeURL, "?") // some issuers want more in it
	ch.pattern(s, page, at, "authorize_url", false)
	if labelPlace.MatchString(query) {
		ch.fail(at.to("authorize_url"), "authorize_url: no label can stand in its query")
	}
	for _, scope := range a.Scopes {
		if !scopeText.MatchString(scope) {
			ch.fail(at.to("scopes"), "%q is no scope: one word of printable ASCII", scope)
		}
	}
}

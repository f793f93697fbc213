package provider

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The grants by which a token is asked for (RFC 6749; RFC 7523 for assertions). With AuthorizationCode a person agrees
// once, in a browser; from then on there is a refresh token.
const (
	ClientCredentials = "client_credentials"
	RefreshToken      = "refresh_token"
	Password          = "password"
	JWTBearer         = "jwt_bearer"
	AuthorizationCode = "authorization_code"
)

// sendPerson says how a credential of AuthorizationCode comes to tokens.
const sendPerson = "send a person to the address that POST /v1/credentials/{credential_id}/authorize gives."

// jwtBearerGrant is what JWTBearer is called on the wire.
const jwtBearerGrant = "urn:ietf:params:oauth:grant-type:jwt-bearer"

// Tokens are what an issuer gave. However they are printed or logged, nothing of them shows.
type Tokens struct {
	Access, Refresh string
	// Fields are the other texts of the answer.
	Fields map[string]string
	// Life is how long Access may be used from now on, a little less than its issuer says. Unlimited: it does not say,
	// and Life is when it is time for another one, where there is a way to ask for that.
	Life      time.Duration
	Unlimited bool
	// Generation counts the tokens that a credential had; 0 for those that are not stored.
	Generation int64
	// Shared: they come from where processes share them, and not from the issuer.
	Shared bool
}

// String hides the tokens.
func (Tokens) String() string { return redacted }

// GoString hides the tokens from %#v.
func (Tokens) GoString() string { return redacted }

// LogValue hides the tokens from structured logs.
func (Tokens) LogValue() slog.Value { return slog.StringValue(redacted) }

// Share gives the tokens of a credential that all processes share: those that are there, where they are good and of a
// later generation than after, else those that ask gets, once for all who want them. These are stored before anybody
// has them. ask is given the refresh token that is stored; empty for none. Errors are *ProbeError, or wrap
// ErrNotTried where the credential was replaced meanwhile.
type Share func(ctx context.Context, after int64, ask func(ctx context.Context,
	refresh string) (Tokens, error)) (Tokens, error)

// Always is an after that makes Share ask, where there is anything to ask with.
const Always = math.MaxInt64

// grant asks the issuer of a credential for tokens.
type grant struct {
	address    string
	id, secret string
	// form is what is asked, and refresh the token that a credential was made with.
	form    url.Values
	refresh string
	// renews: it is asked with a refresh token. There is none before somebody has agreed. again says how to come to
	// another.
	renews bool
	again  string
	// clientIn is where the secret goes, as catalog.SignIn has it.
	clientIn string
	// tls is how connections to the issuer are made; nil for any.
	tls *clientTLS
	// assert signs the assertion of JWTBearer; nil for other grants.
	assert func(time.Time) (string, error)
	hidden *mask
}

// newGrant reads what a credential of oauth2 says.
func newGrant(spec *Spec, own *clientTLS) (*grant, error) {
	fields := spec.Fields
	g := &grant{address: spec.TokenURL, id: fields["client_id"], secret: fields["client_secret"], form: url.Values{},
		clientIn: spec.SignIn.ClientIn, tls: own}
	if Origin(spec.TokenURL) == "" {
		return nil, fmt.Errorf("%w: oauth2 needs a token_url", ErrSecretShape)
	}
	if len(spec.Scopes) > 0 {
		g.form.Set("scope", strings.Join(spec.Scopes, " "))
	}
	if spec.Audience != "" && spec.Grant != JWTBearer {
		g.form.Set("audience", spec.Audience)
	}
	need := func(names ...string) error {
		for _, name := range names {
			if fields[name] == "" {
				return fmt.Errorf("%w: oauth2 with %s needs %s", ErrSecretShape, spec.Grant,
					strings.Join(names, " and "))
			}
		}
		return nil
	}
	g.form.Set("grant_type", spec.Grant)
	var err error
	switch spec.Grant {
	case "", ClientCredentials:
		g.form.Set("grant_type", ClientCredentials)
		if g.id == "" || g.secret == "" {
			err = fmt.Errorf("%w: oauth2 needs client_id and client_secret", ErrSecretShape)
		}
	case Password:
		err = need("client_id", "username", "password")
		g.form.Set("username", fields["username"])
		g.form.Set("password", fields["password"])
	case RefreshToken:
		err = need("client_id", "refresh_token")
		g.refresh, g.renews = fields["refresh_token"], true
		g.again = "The refresh token is good no longer: replace the credential with another one."
	case AuthorizationCode:
		err = need("client_id")
		g.renews = true
		g.again = "The credential must be authorized again: " + sendPerson
		g.form.Set("grant_type", RefreshToken)
	case JWTBearer:
		g.form.Set("grant_type", jwtBearerGrant)
		signed := *spec
		if signed.Audience == "" {
			signed.Audience = spec.TokenURL
		}
		g.assert, err = newSigner(&signed)
	default:
		err = fmt.Errorf("%w: grant_type %q is not supported", ErrSecretShape, spec.Grant)
	}
	if err != nil {
		return nil, err
	}
	g.hide(fields["password"])
	return g, nil
}

// hide has what is secret in requests for a token masked wherever it is told of them.
func (g *grant) hide(password string) {
	escaped := url.QueryEscape(g.secret)
	basic := base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(g.id) + ":" + escaped))
	words := []string{g.secret, escaped, basic}
	for _, word := range []string{password, g.refresh} {
		words = append(words, word, url.QueryEscape(word))
	}
	g.hidden = newMask(slices.DeleteFunc(words, func(w string) bool { return w == "" })...)
}

// requestTokens asks for tokens once. Errors are *ProbeError.
func (g *grant) requestTokens(ctx context.Context, s *Sender, refresh string) (Tokens, error) {
	form := maps.Clone(g.form)
	masks := []*mask{g.hidden}
	if g.renews {
		if refresh == "" {
			refresh = g.refresh
		}
		if refresh == "" {
			return Tokens{}, ErrLost("Nobody has authorized the credential yet: " + sendPerson)
		}
		form.Set("refresh_token", refresh)
		masks = append(masks, newMask(refresh, url.QueryEscape(refresh)))
	}
	if g.assert != nil {
		assertion, err := g.assert(s.now())
		if err != nil {
			return Tokens{}, err
		}
		form.Set("assertion", assertion)
		masks = append(masks, newMask(assertion))
	}
	return g.exchange(ctx, s, form, masks)
}

// exchange sends a form as the client, and reads the answer.
func (g *grant) exchange(ctx context.Context, s *Sender, form url.Values, masks []*mask) (Tokens, error) {
	inBody := maps.Clone(form)
	if g.id != "" {
		inBody.Set("client_id", g.id)
	}
	if g.secret != "" { // a public client only says who it is
		inBody.Set("client_secret", g.secret)
	}
	var ans Answer
	if g.secret == "" || g.clientIn == "body" {
		ans = s.request(ctx, g.request(inBody))
	} else {
		r := g.request(form)
		(&http.Request{Header: r.Header}).SetBasicAuth(url.QueryEscape(g.id), url.QueryEscape(g.secret))
		ans = s.request(ctx, r)
		refused := ans.Status == http.StatusUnauthorized || ans.Status == http.StatusBadRequest &&
			oauthError(&ans) == "invalid_client"
		if refused && g.clientIn == "" { // issuers that do not take the header take the same in the body
			ans = s.request(ctx, g.request(inBody))
		}
	}
	tokens, err := readTokens(&ans)
	if err != nil { // what is no token may be quoted
		for _, m := range masks {
			m.answer(&ans)
		}
		_, err = readTokens(&ans)
	}
	var refused *ProbeError
	if errors.As(err, &refused) {
		refused.said = excerpt(&ans)
		if refused.lost = g.renews && oauthError(&ans) == "invalid_grant"; refused.lost {
			refused.Details = fmt.Sprintf("The token endpoint refused the refresh token (%s). %s",
				statusAnd(&ans, "invalid_grant"), g.again)
		}
	}
	return tokens, err
}

// Code is what an issuer sends a person back with, and what it was asked with (RFC 6749, 4.1; RFC 7636).
type Code struct{ Code, Verifier, RedirectURI string }

// Redeem exchanges a code for the tokens of a credential of AuthorizationCode. Errors are *ProbeError, or wrap
// ErrSecretShape.
func (s *Sender) Redeem(ctx context.Context, spec Spec, code Code) (Tokens, error) {
	own, err := newClientTLS(&spec)
	if err != nil {
		return Tokens{}, err
	}
	g, err := newGrant(&spec, own)
	if err != nil {
		return Tokens{}, err
	}
	g.renews = false // what is refused now is the code
	form := url.Values{
		"grant_type": {AuthorizationCode}, "code": {code.Code}, "redirect_uri": {code.RedirectURI},
		"code_verifier": {code.Verifier},
	}
	return g.exchange(ctx, s, form, []*mask{g.hidden, newMask(code.Code, url.QueryEscape(code.Code), code.Verifier)})
}

// Lost reports whether an issuer takes the refresh token of a credential no longer: somebody must authorize it again.
func Lost(err error) bool {
	var known *ProbeError
	return errors.As(err, &known) && known.lost
}

// ErrEnded returns what whoever needs a token of a credential is told whose access token is good no longer, and came
// without a refresh token.
func ErrEnded() error {
	return ErrLost("The access token is good no longer, and the issuer gave no refresh token. " +
		"The credential must be authorized again: " + sendPerson)
}

// ErrLost returns what whoever needs a token of a credential is told that must be authorized again.
func ErrLost(details string) error {
	return &ProbeError{Class: AuthFailed, Details: details, lost: true}
}

// newClient is the secret of oauth2: what an issuer at TokenURL gives tokens for.
func newClient(spec Spec, own *clientTLS) (secret, error) {
	g, err := newGrant(&spec, own)
	if err != nil {
		return secret{}, err
	}
	share := spec.Share
	if share == nil {
		share = func(ctx context.Context, _ int64, ask func(context.Context, string) (Tokens, error)) (Tokens, error) {
			return ask(ctx, "")
		}
	}
	key := spec.key()
	client := bearer(key, func(ctx context.Context, s *Sender, renew bool) (*token, error) {
		after := s.tokens.refusedOf(key)
		if renew {
			after = Always
		}
		got, err := share(ctx, after, func(ctx context.Context, refresh string) (Tokens, error) {
			return g.requestTokens(ctx, s,
				refresh)
		})
		if err != nil {
			return nil, err
		}
		t := &token{
			value: got.Access, fields: got.Fields, generation: got.Generation, mask: newMask(got.Access),
			until: s.now().Add(got.Life),
		}
		t.proven.Store(got.Shared)
		return t, nil
	})
	client.issued = true
	return client, nil
}

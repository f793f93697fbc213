package api_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/test/apitest"
)

// traveller is a browser that signs in: it follows where it is sent to, with the cookies of this service, until it is
// back.
type traveller struct {
	t *testing.T
	s *stack
	// own are the cookies of the service, which are for encrypted connections and this machine.
	own   []*http.Cookie
	their *http.Client
}

func newTraveller(t *testing.T, s *stack) *traveller {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &traveller{t: t, s: s, their: &http.Client{Jar: jar, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}}
}

// ask asks for an address, and returns where that leads and what is there.
func (b *traveller) ask(method, address string, form url.Values) (to, page string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, address, strings.NewReader(form.Encode()))
	require.NoError(b.t, err)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	ours := strings.HasPrefix(address, b.s.URL)
	if ours {
		for _, c := range b.own {
			req.AddCookie(c)
		}
	}
	res, err := b.their.Do(req)
	require.NoError(b.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	if ours {
		assert.Equal(b.t, "no-store", res.Header.Get("Cache-Control"))
		for _, c := range res.Cookies() {
			assert.True(b.t, c.Secure && c.HttpOnly && c.SameSite == http.SameSiteLaxMode && c.Path == "/" &&
				c.Domain == "", c.Name)
			if b.own = nil; c.MaxAge > 0 {
				b.own = []*http.Cookie{c}
			}
		}
	}
	at, err := url.Parse(address)
	require.NoError(b.t, err)
	if to = res.Header.Get("Location"); to != "" {
		where, err := at.Parse(to)
		require.NoError(b.t, err)
		to = where.String()
	}
	return to, string(text)
}

// pageStatus is how a service answers whether people sign in at a provider.
func pageStatus(t *testing.T, service string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, service+"/console/sign-in", nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}

// form is where the pages of the provider send what somebody types in.
var form = regexp.MustCompile(`action="([^"]+)"[^>]*>\s*<input type="hidden" name="prompt" value="([^"]+)"`)

// depart goes to the provider, signs in there as somebody, and returns the address that it is sent back to.
func (b *traveller) depart(name string) string {
	b.t.Helper()
	at, _ := b.ask(http.MethodGet, b.s.URL+"/console/sign-in", nil)
	for range 20 {
		if strings.HasPrefix(at, b.s.URL) {
			return at
		}
		to, page := b.ask(http.MethodGet, at, nil)
		if to == "" {
			found := form.FindStringSubmatch(page)
			require.NotNil(b.t, found, page)
			to, _ = b.ask(http.MethodPost, found[1], url.Values{"prompt": {found[2]}, "login": {name},
				"password": {"x"}})
		}
		at = to
	}
	b.t.Fatal("the provider led nowhere")
	return ""
}

// TestSession_OfAnIdentityProvider signs people in at an OpenID provider, which nobody here wrote.
func TestSession_OfAnIdentityProvider(t *testing.T) {
	t.Parallel()
	issuer := identityProvider(t)
	s := serveStack(t, false, func(c *app.Config) {
		c.Tokens = app.Tokens{
			Issuer: issuer, Audience: "https://api.flowlane.test", KeysURL: issuer + "/jwks", ClientID: "console",
			ClientSecret: "console-test-secret",
		}
	})
	org := s.orgID(s.Key)
	_, err := s.owner.Exec(t.Context(), `UPDATE flow.organization SET external_id = 'acme' WHERE id = $1`, org)
	require.NoError(t, err)
	login := s.URL + "/console/login"

	assert.Equal(t, http.StatusNoContent, pageStatus(t, s.URL),
		"the page where one signs in is told that there is a provider")
	assert.Equal(t, http.StatusOK, pageStatus(t, serveStack(t, false).URL), "and that there is none")

	for name, role := range map[string]string{"ada": "admin", "member": "member"} {
		b := newTraveller(t, s)
		back := b.depart(name)
		link, _ := b.ask(http.MethodGet, back, nil)
		require.True(t, strings.HasPrefix(link, login+"#login_"), link)
		assert.Empty(t, b.own, "the way there is over")
		text := strings.TrimPrefix(link, login+"#")
		session := signIn(t, s.Bearer(text))
		s.Bearer(text).Do(http.MethodPost, sessions, nil).Want(http.StatusUnauthorized)
		me := s.As("").Do(http.MethodGet, whoami, nil, "Cookie", session, fromPage,
			"same-origin").Want(http.StatusOK).JSON()
		assert.Equal(t, []any{role, name + " of Acme", org}, []any{me["role"], me["account"].(map[string]any)["name"],
			me["organization"].(map[string]any)["id"]})

		again, _ := b.ask(http.MethodGet, back, nil)
		assert.Equal(t, login+"?failed=expired", again, "a second time")
	}

	b := newTraveller(t, s)
	back := b.depart("ada")
	thief := newTraveller(t, s)
	to, _ := thief.ask(http.MethodGet, back, nil)
	assert.Equal(t, login+"?failed=expired", to, "a browser that did not set out")
	thief.depart("stranger")
	to, _ = thief.ask(http.MethodGet, back, nil)
	assert.Equal(t, login+"?failed=expired", to, "a browser that set out for something else")

	stranger := newTraveller(t, s)
	to, _ = stranger.ask(http.MethodGet, stranger.depart("stranger"), nil)
	assert.Equal(t, login+"?failed=unknown", to)

	declined := newTraveller(t, s)
	at, err := url.Parse(declined.depart("ada"))
	require.NoError(t, err)
	q := at.Query()
	q.Del("code")
	q.Set("error", "access_denied")
	to, _ = declined.ask(http.MethodGet, s.URL+at.Path+"?"+q.Encode(), nil)
	assert.Equal(t, login+"?failed=cancelled", to)

	forged := newTraveller(t, s)
	at, err = url.Parse(forged.depart("ada"))
	require.NoError(t, err)
	q = at.Query()
	q.Set("code", "guessed")
	to, _ = forged.ask(http.MethodGet, s.URL+at.Path+"?"+q.Encode(), nil)
	assert.Equal(t, login+"?failed=unavailable", to)
}

// TestSession_OfIDTokens takes ID tokens for the console and for the sign-in that is under way, and no others.
func TestSession_OfIDTokens(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false, func(c *app.Config) {
		c.Tokens.ClientID = "console"
	})
	org := s.orgID(s.Key)
	link := func(nonce string, changes map[string]any) string {
		claims := map[string]any{"aud": "console", "nonce": "n-1"}
		maps.Copy(claims, changes)
		got, err := s.app.Accounts.LinkOfIDToken(t.Context(), s.issuer.Token(org, claims), nonce, "", "r")
		if err != nil {
			var refusal *account.RefusalError
			require.ErrorAs(t, err, &refusal)
		}
		return got.Text
	}
	s.Bearer(link("n-1", nil)).Do(http.MethodPost, sessions, nil).Want(http.StatusCreated)
	assert.NotEmpty(t, link("n-1", map[string]any{"aud": []string{"console", "other"}, "azp": "console"}))
	for name, changes := range map[string]map[string]any{
		"of another sign-in": {"nonce": "n-2"}, "without a nonce": {"nonce": nil},
		"for the API":        {"aud": apitest.TokenAudience},
		"for another client": {"aud": []string{"console", "other"}, "azp": "other"},
		"of another issuer":  {"iss": "https://elsewhere.test/"},
		"expired":            {"exp": 1}, "of an unknown organization": {"org_id": "nobody"}, "of nobody": {"sub": nil},
	} {
		assert.Empty(t, link("n-1", changes), name)
	}
	assert.Empty(t, link("", map[string]any{"nonce": ""}), "an empty nonce")
	s.Bearer(s.issuer.Token(org, map[string]any{"aud": "console"})).Do(http.MethodGet, whoami,
		nil).Want(http.StatusUnauthorized)
}

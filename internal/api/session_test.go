package api_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/account"
	"flowlane/test/apitest"
)

const (
	sessions  = "/account/session"
	whoami    = "/account/me"
	fromPage  = "Sec-Fetch-Site"
	ofConsole = "X-Flowlane-Console"
)

// signIn signs a browser in as who speaks for c, and returns its cookie as it sends it back.
func signIn(t *testing.T, c *apitest.Client) string {
	t.Helper()
	res := c.Do(http.MethodPost, sessions, nil).Want(http.StatusCreated)
	cookies := (&http.Response{Header: res.Header}).Cookies()
	require.Len(t, cookies, 1)
	got := cookies[0]
	assert.Equal(t, "__Host-flowlane", got.Name)
	assert.True(t, got.Secure && got.HttpOnly && got.SameSite == http.SameSiteStrictMode && got.Path == "/" &&
		got.Domain == "")
	assert.Equal(t, 12*3600, got.MaxAge)
	assert.NotContains(t, string(res.Body), got.Value, "a script could read it")
	return got.Name + "=" + got.Value
}

func TestSession(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	cookie := signIn(t, s.Client)
	browser := s.As("")
	read := browser.Do(http.MethodGet, whoami, nil, "Cookie", cookie, fromPage,
		"same-origin").Want(http.StatusOK).JSON()
	assert.Equal(t, s.Do(http.MethodGet, whoami, nil).Want(http.StatusOK).JSON(), read, "it is who signed in")
	browser.Do(http.MethodPost, "/account/api-keys", `{"name":"x"}`, "Cookie", cookie, fromPage, "same-origin",
		ofConsole, "1").Want(http.StatusCreated)
	browser.Do(http.MethodGet, whoami, nil, "Cookie", cookie, fromPage, "none").Want(http.StatusOK)

	// Whoever has stolen a session gets no other one, which would outlast the sign-out.
	for _, path := range []string{sessions, sessions + "/link"} {
		browser.Do(http.MethodPost, path, nil, "Cookie", cookie, fromPage, "same-origin", ofConsole, "1").
			Detail(http.StatusForbidden, "A session makes no other one: sign in with an API key, a token or a link")
	}

	// Another page, another server on this machine, a program: the cookie says nothing.
	for _, site := range []string{"cross-site", "same-site", ""} {
		browser.Do(http.MethodGet, whoami, nil, "Cookie", cookie, fromPage, site).Detail(http.StatusUnauthorized,
			"Authentication required")
		browser.Do(http.MethodPost, "/account/api-keys", `{"name":"x"}`, "Cookie", cookie, fromPage, site, ofConsole,
			"1").
			Detail(http.StatusUnauthorized, "Authentication required")
	}
	browser.Do(http.MethodPost, "/account/api-keys", `{"name":"x"}`, "Cookie", cookie, fromPage, "same-origin").
		Detail(http.StatusUnauthorized, "Authentication required")
	browser.Do(http.MethodPost, "/account/api-keys", `{"name":"x"}`, "Cookie", cookie, fromPage, "none", ofConsole,
		"1").
		Detail(http.StatusUnauthorized, "Authentication required")
	other := s.other.Do(http.MethodGet, whoami, nil, "Cookie", cookie, fromPage,
		"same-origin").Want(http.StatusOK).JSON()
	assert.NotEqual(t, read, other, "a key comes before the cookie")

	dump := ""
	require.NoError(t, s.owner.QueryRow(t.Context(), `SELECT string_agg(l::text, ' ') FROM flow.audit_log l`).Scan(
		&dump))
	assert.NotContains(t, dump, strings.SplitN(cookie, "=", 2)[1])
}

func TestSession_Ends(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	browser := s.As("")
	works := func(cookie string) bool {
		res := browser.Do(http.MethodGet, whoami, nil, "Cookie", cookie, fromPage, "same-origin")
		return res.Status == http.StatusOK
	}
	end := func(cookie, query string) {
		res := browser.Do(http.MethodDelete, sessions+query, nil, "Cookie", cookie, fromPage, "same-origin", ofConsole,
			"1").Want(http.StatusNoContent)
		cleared := (&http.Response{Header: res.Header}).Cookies()
		require.Len(t, cleared, 1)
		assert.Negative(t, cleared[0].MaxAge)
	}
	first, second, third := signIn(t, s.Client), signIn(t, s.Client), signIn(t, s.Client)
	elsewhere := signIn(t, s.other)
	end(first, "")
	assert.False(t, works(first), "it was signed out")
	assert.True(t, works(second) && works(third))
	end(second, "?everywhere=true")
	assert.False(t, works(second) || works(third), "they were signed out with another")
	assert.True(t, works(elsewhere), "another organization was signed out")

	created := s.Do(http.MethodPost, "/account/api-keys", `{"name":"x"}`).Want(http.StatusCreated).JSON()
	ofKey := signIn(t, s.As(created["key"].(string)))
	require.True(t, works(ofKey))
	s.Do(http.MethodDelete, "/account/api-keys/"+created["id"].(string), nil).Want(http.StatusNoContent)
	assert.False(t, works(ofKey), "its key was revoked")

	idle, old := signIn(t, s.Client), signIn(t, s.Client)
	change(t, s, `UPDATE flow.session SET last_used_at = flow.clock() - interval '2 hours' WHERE id = (SELECT max(id::text)::uuid FROM flow.session WHERE opened)`)
	assert.False(t, works(old), "nobody used it for two hours")
	change(t, s, `UPDATE flow.session SET expires_at = flow.clock()`)
	assert.False(t, works(idle), "its time was over")
	s.Do(http.MethodDelete, sessions, nil).Want(http.StatusNoContent)

	var ended, signedOut int
	require.NoError(t, s.owner.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT resource_id) FROM flow.audit_log
		WHERE action = 'endSession' AND resource_type = 'session' AND api_key_id IS NOT NULL`).Scan(&ended, &signedOut))
	assert.Equal(t, []int{3, 3}, []int{ended, signedOut}, "the audit log names every session that was ended")
}

func TestSession_KeepsToItsGrant(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	created := s.Do(http.MethodPost, "/account/api-keys",
		`{"name":"x","role":"member","scopes":["account:read"]}`).Want(http.StatusCreated).JSON()
	cookie := signIn(t, s.As(created["key"].(string)))
	browser := s.As("")
	browser.Do(http.MethodGet, "/account/api-keys", nil, "Cookie", cookie, fromPage, "same-origin").Want(http.StatusOK)
	browser.Do(http.MethodGet, "/flows/batches", nil, "Cookie", cookie, fromPage,
		"same-origin").Want(http.StatusForbidden)
	browser.Do(http.MethodPost, "/account/api-keys", `{"name":"x"}`, "Cookie", cookie, fromPage, "same-origin",
		ofConsole, "1").
		Want(http.StatusForbidden)

	person := s.As("")
	person.Token = s.issuer.Token(s.orgID(s.Key), nil)
	read := browser.Do(http.MethodGet, whoami, nil, "Cookie", signIn(t, person), fromPage,
		"same-origin").Want(http.StatusOK).JSON()
	assert.Equal(t, person.Do(http.MethodGet, whoami, nil).Want(http.StatusOK).JSON(), read)
}

// TestSession_Link: what `flowlane dev` prints signs in once, and does nothing else.
func TestSession_Link(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	link := func() string {
		caller, err := s.app.Accounts.Authenticate(t.Context(), s.Key, netip.Addr{})
		require.NoError(t, err)
		made, err := s.app.Accounts.CreateLink(t.Context(), caller)
		require.NoError(t, err)
		return made.Text
	}
	follow := s.As("")
	follow.Token = link()
	follow.Do(http.MethodGet, whoami, nil).Detail(http.StatusForbidden, "The link signs in and does nothing else")
	s.As("").Do(http.MethodGet, whoami, nil, "Cookie", "__Host-flowlane="+follow.Token, fromPage,
		"same-origin").Want(http.StatusForbidden)
	cookie := signIn(t, follow)
	s.As("").Do(http.MethodGet, whoami, nil, "Cookie", cookie, fromPage, "same-origin").Want(http.StatusOK)
	follow.Do(http.MethodPost, sessions, nil).Detail(http.StatusUnauthorized, "Authentication required")
	elsewhere := s.replica().Bearer(follow.Token) // which remembers nothing of it
	elsewhere.Do(http.MethodPost, sessions, nil).Detail(http.StatusUnauthorized, "Authentication required")

	address := s.Do(http.MethodPost, sessions+"/link", nil).Want(http.StatusCreated).JSON()["url"].(string)
	page, text, _ := strings.Cut(address, "#")
	assert.True(t, strings.HasSuffix(page, "/console/login"), page)
	follow.Token = text
	signIn(t, follow)

	follow.Token = link()
	change(t, s, `UPDATE flow.session SET expires_at = flow.clock() WHERE NOT opened`)
	follow.Do(http.MethodPost, sessions, nil).Detail(http.StatusUnauthorized, "Authentication required")
	assert.Equal(t, 10*time.Minute, account.LinkLife)
}

// TestSession_PlainHTTP: a cookie that others on the way could read is not given.
func TestSession_PlainHTTP(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	for host, status := range map[string]int{
		"flowlane.example.com": http.StatusConflict, "10.0.0.7:8080": http.StatusConflict,
		"localhost.example.com": http.StatusConflict,
		"localhost:8080":        http.StatusCreated, "flowlane.localhost": http.StatusCreated,
		"[::1]:8080": http.StatusCreated, "127.0.0.1": http.StatusCreated,
	} {
		s.Do(http.MethodPost, sessions, nil, "Host", host).Want(status)
	}
}

func change(t *testing.T, s *stack, statement string) {
	t.Helper()
	_, err := s.owner.Exec(t.Context(), statement)
	require.NoError(t, err)
}

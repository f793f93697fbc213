package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider"
	"flowlane/test/pgtest"
)

// manyPlatform tells the accounts of tokens; it is served by accountIssuer.
const manyPlatform = `
id: many
name: Many
description: Has many accounts.
status: active
account:
  time_zone: Europe/Berlin
  whoami: {path: /me, account_number: id}
services:
  - id: many__api
    name: API
    description: Things.
    kind: api
    protocol: REST
    auth_method: oauth2
    sign_in: {grant_type: authorization_code}
    base_url: https://api.many.example
    requires_connection: true
    status: active
    credential_fields: [&client {name: client_id, label: Client id, type: string, required: true, secret: false}]
    other_auth:
      - auth_method: oauth2
        grant_type: refresh_token
        credential_fields: [*client, {name: refresh_token, label: Token, type: password, required: true, secret: true}]
    actions: []
`

// accountIssuer is an issuer of tokens for many accounts, and the platform that says whose they are. Whoever comes to
// its consent page agrees for account. Codes and refresh tokens are good once.
type accountIssuer struct {
	*httptest.Server

	mu      sync.Mutex
	account string
	// codes, refresh and access have the account of each that is good.
	codes, refresh, access map[string]string
	made, asked            int
	// without are the fields that answers lack.
	without []string
	// silent answers questions about accounts with this status; 0 says whose they are.
	silent int
}

func newAccountIssuer(t *testing.T) *accountIssuer {
	t.Helper()
	i := &accountIssuer{account: "a", codes: map[string]string{}, access: map[string]string{},
		refresh: map[string]string{needle + "-a": "a", needle + "-a2": "a", needle + "-b": "b"}}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

func (i *accountIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch r.URL.Path {
	case "/authorize":
		i.made++
		code := fmt.Sprintf("%s-code-%d", needle, i.made)
		i.codes[code] = i.account
		http.Redirect(w, r, r.URL.Query().Get("redirect_uri")+"?"+url.Values{"code": {code},
			"state": {r.URL.Query().Get("state")}}.Encode(), http.StatusFound)
	case "/token":
		i.give(w, r)
	default:
		account, ok := i.access[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		switch {
		case !ok:
			w.WriteHeader(http.StatusUnauthorized)
		case i.silent != 0:
			w.WriteHeader(i.silent)
		}
		_ = json.NewEncoder(w).Encode(object{"id": account})
	}
}

// give takes a code or a refresh token, and gives the tokens of its account.
func (i *accountIssuer) give(w http.ResponseWriter, r *http.Request) {
	i.asked++
	good, given := i.codes, r.FormValue("code")
	if r.FormValue("grant_type") == "refresh_token" {
		good, given = i.refresh, r.FormValue("refresh_token")
	}
	account, ok := good[given]
	if !ok {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(w, `{"error":"invalid_grant"}`)
		return
	}
	if r.FormValue("code") != "" {
		delete(good, given)
	}
	i.made++
	access := fmt.Sprintf("%s-access-%d", needle, i.made)
	next := fmt.Sprintf("%s-refresh-%d", needle, i.made)
	i.access[access] = account
	answer := object{"access_token": access, "token_type": "bearer", "expires_in": 3600, "refresh_token": next}
	for _, field := range i.without {
		delete(answer, field)
	}
	if !slices.Contains(i.without, "refresh_token") {
		delete(good, given)
		i.refresh[next] = account
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (i *accountIssuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// requests counts those for tokens.
func (i *accountIssuer) requests() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

type accountsBundle struct {
	*stack
	many *accountIssuer
}

func setupAccounts(t *testing.T) *accountsBundle {
	t.Helper()
	b := &accountsBundle{many: newAccountIssuer(t)}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "many.yaml"), []byte(manyPlatform), 0o600))
	b.stack = serveStack(t, false, func(c *app.Config) {
		c.AllowHosts, c.CatalogDir = append(c.AllowHosts, hostOf(b.many.URL)), dir
		c.BaseURLs["many"] = b.many.URL
	})
	return b
}

// body is a credential of a grant with these fields besides the client's id.
func (b *accountsBundle) body(grant string, fields ...any) object {
	out := object{"name": "many", "platform_id": "many", "auth_method": "oauth2", "grant_type": grant,
		"token_url": b.many.URL + "/token", "credentials": with(object{"client_id": "app"}, fields...)}
	if grant == "authorization_code" {
		out["authorize_url"] = b.many.URL + "/authorize"
	}
	return out
}

// agree has a person authorize a credential, and returns the page that they come back to.
func (b *accountsBundle) agree(path string, status int) string {
	b.t.Helper()
	consent := b.Do(http.MethodPost, path+"/authorize", nil).Want(http.StatusOK).JSON()
	return browse(b.t, consent["url"].(string), status)
}

// call makes a call with a credential from a process that holds nothing yet.
func (b *accountsBundle) call(made object) provider.Answer {
	b.t.Helper()
	return callWith(b.t.Context(), b.second(), uuid.MustParse(made["org_id"].(string)),
		uuid.MustParse(made["id"].(string)), b.many.URL)
}

// works tests a credential, which must be of this account.
func (b *accountsBundle) works(path, account string) {
	b.t.Helper()
	tested := b.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK).JSON()
	assert.Equal(b.t, []any{true, "Connected to account " + account}, []any{tested["success"], tested["details"]})
}

// TestOAuthAccount_Authorized: a person who agrees for another account of the platform changes nothing, and neither
// does one of whom the platform does not say whose account it is.
func TestOAuthAccount_Authorized(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	path := "/credentials/" + b.made("/credentials", b.body("authorization_code"))
	assert.Contains(t, b.agree(path, http.StatusOK), "The credential is authorized.")
	bound := b.get(path)
	assert.NotNil(t, bound["tenancy_id"], "who authorizes it says whose it is")
	assert.NotNil(t, bound["last_verified"])
	assert.Equal(t, 1, b.many.requests())

	b.many.set(func() { b.many.account = "b" })
	assert.Contains(t, b.agree(path, http.StatusConflict), "belong to another provider account")
	assert.Equal(t, bound, b.get(path))
	b.works(path, "a")

	b.many.set(func() { b.many.account, b.many.silent = "a", http.StatusServiceUnavailable })
	bound = b.get(path)
	assert.Contains(t, b.agree(path, http.StatusBadRequest), "not certain that this is still the account")
	assert.Equal(t, bound, b.get(path))
	b.many.set(func() { b.many.silent = 0 })
	b.agree(path, http.StatusOK)
	b.works(path, "a")
	assert.Equal(t, 2, b.count("flow.audit_log WHERE action = 'returnAuthorization'"))
}

// TestOAuthAccount_Rotated: a refresh token of another account takes the place of none. Each is used once, and what
// replaced it is stored with it.
func TestOAuthAccount_Rotated(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	made := b.Do(http.MethodPost, "/credentials", b.body("refresh_token", "refresh_token", needle+"-a")).
		Want(http.StatusCreated).JSON()
	path := "/credentials/" + made["id"].(string)
	assert.NotNil(t, made["tenancy_id"])
	assert.Equal(t, "authorized", made["authorization"].(object)["state"])
	b.works(path, "a")
	before := b.get(path)
	rotated := func(token string) object { return b.body("refresh_token", "refresh_token", needle+token) }

	const another = "The credentials belong to another provider account; create a new credential for it"
	b.Do(http.MethodPut, path, rotated("-b")).Detail(http.StatusConflict, another)
	b.Do(http.MethodPut, path, rotated("-none")).Invalid("body.credentials value_error")
	b.Do(http.MethodPut, path, with(rotated("-a2"), "credentials",
		object{"client_id": "another", "refresh_token": needle + "-a2"})).Want(http.StatusConflict)
	assert.Equal(t, before, b.get(path))
	b.works(path, "a")

	asked := b.many.requests()
	after := b.Do(http.MethodPut, path, rotated("-a2")).Want(http.StatusOK).JSON()
	assert.Equal(t, asked+1, b.many.requests())
	assert.Equal(t, []any{before["tenancy_id"], "authorized"},
		[]any{after["tenancy_id"], after["authorization"].(object)["state"]})
	b.works(path, "a")
	for _, table := range []string{"flow.credential", "flow.credential_token", "flow.secret"} {
		assert.Zero(t, b.count(table+" t WHERE t::text LIKE '%"+needle+"%'"), table)
	}
}

// TestOAuthAccount_Endless: an access token that is neither limited nor renewed is used until the platform refuses it.
func TestOAuthAccount_Endless(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	b.many.set(func() { b.many.without = []string{"expires_in", "refresh_token"} })
	made := b.Do(http.MethodPost, "/credentials", b.body("authorization_code")).Want(http.StatusCreated).JSON()
	path := "/credentials/" + made["id"].(string)
	b.agree(path, http.StatusOK)
	for range 2 {
		b.works(path, "a")
		assert.Equal(t, http.StatusOK, b.call(made).Status)
		pgtest.MoveClock(t, b.reader(), 300*24*time.Hour)
	}
	assert.Equal(t, object{"state": "authorized", "failure": nil, "expires_at": nil}, b.authorization(path))

	b.many.set(func() { clear(b.many.access) })
	process := b.second()
	call := func() provider.Answer {
		return callWith(t.Context(), process, uuid.MustParse(made["org_id"].(string)),
			uuid.MustParse(made["id"].(string)), b.many.URL)
	}
	assert.Equal(t, http.StatusUnauthorized, call().Status)
	require.ErrorContains(t, call().Err, "The credential must be authorized again")
	assert.Equal(t, 1, b.many.requests(), "there is nothing to ask with")
	assert.Equal(t, "lost", b.authorization(path)["state"])
	b.agree(path, http.StatusOK)
	b.works(path, "a")
}

// TestOAuthAccount_NotRenewed: an access token that came without a refresh token is good until its end; then the
// credential must be authorized again.
func TestOAuthAccount_NotRenewed(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	b.many.set(func() { b.many.without = []string{"refresh_token"} })
	made := b.Do(http.MethodPost, "/credentials", b.body("authorization_code")).Want(http.StatusCreated).JSON()
	path := "/credentials/" + made["id"].(string)
	b.agree(path, http.StatusOK)
	b.works(path, "a")
	assert.NotNil(t, b.authorization(path)["expires_at"])
	pgtest.MoveClock(t, b.reader(), 2*time.Hour)
	require.ErrorContains(t, b.call(made).Err, "The credential must be authorized again")
	lost := b.authorization(path)
	assert.Equal(t, "lost", lost["state"])
	assert.Contains(t, lost["failure"], "the issuer gave no refresh token")
	b.agree(path, http.StatusOK)
	b.works(path, "a")
	assert.Equal(t, 2, b.many.requests())
}

// TestOAuthAccount_RefreshKept: who agrees again need not be given a refresh token again.
func TestOAuthAccount_RefreshKept(t *testing.T) {
	t.Parallel()
	b := setupAccounts(t)
	path := "/credentials/" + b.made("/credentials", b.body("authorization_code"))
	b.agree(path, http.StatusOK)
	for _, without := range [][]string{{"refresh_token"}, {"refresh_token", "expires_in"}} {
		b.many.set(func() { b.many.without = without })
		b.agree(path, http.StatusOK)
		pgtest.MoveClock(t, b.reader(), 2*time.Hour)
		b.works(path, "a")
		assert.Equal(t, "authorized", b.authorization(path)["state"])
	}
	assert.Equal(t, 5, b.many.requests())
	// One that the issuer takes no longer does not come back.
	b.many.set(func() { clear(b.many.refresh) })
	pgtest.MoveClock(t, b.reader(), 2*time.Hour)
	b.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK)
	require.Equal(t, "lost", b.authorization(path)["state"])
	b.agree(path, http.StatusOK)
	pgtest.MoveClock(t, b.reader(), 2*time.Hour)
	b.works(path, "a")
}

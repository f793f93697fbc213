package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider"
)

// tokenAPI is an issuer of tokens, and an API that takes them; both count.
type tokenAPI struct {
	*httptest.Server

	mu     sync.Mutex
	secret string
	valid  string
	issued int
	calls  int
	log    []string
}

func newTokenAPI(t *testing.T) *tokenAPI {
	t.Helper()
	a := &tokenAPI{secret: needle}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *tokenAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/token" {
		a.issued++
		if id, secret, _ := r.BasicAuth(); id != "app" || secret != a.secret {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, `{"error":"invalid_client"}`)
			return
		}
		a.valid = fmt.Sprintf("%s-token-%d", needle, a.issued)
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"bearer","expires_in":3600}`, a.valid)
		return
	}
	a.calls++
	a.log = append(a.log, r.Header.Get("Authorization"))
	if r.Header.Get("Authorization") != "Bearer "+a.valid {
		w.WriteHeader(http.StatusUnauthorized)
	}
	_, _ = fmt.Fprint(w, `{"ok":true}`)
}

// revoke makes the API refuse the token that it takes now.
func (a *tokenAPI) revoke() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.valid = "another"
}

func (a *tokenAPI) use(secret string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.secret = secret
}

func (a *tokenAPI) counts() [2]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return [2]int{a.issued, a.calls}
}

func (a *tokenAPI) body(secret string) map[string]any {
	return map[string]any{
		"name": "app", "platform_id": "core", "auth_method": "oauth2", "token_url": a.URL + "/token",
		"scopes":      []string{"read"},
		"credentials": map[string]any{"client_id": "app", "client_secret": secret}, "allowed_origins": []string{a.URL},
	}
}

const getSteps = `[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","credential_id":"CRED","retry":{"max_attempts":2,"initial_seconds":0.1},
	"params":{"url":"%s/things"}}]}]`

func TestCredentials_OAuth2(t *testing.T) {
	t.Parallel()
	api := newTokenAPI(t)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, hostOf(api.URL)) })
	s.credential = s.Do(http.MethodPost, "/credentials", api.body(needle)).Want(http.StatusCreated).
		JSON()["id"].(string)
	path := "/credentials/" + s.credential
	assert.Equal(t, [2]int{1, 0}, api.counts(), "tokens and calls: the secret is tried before it is stored")
	flow := s.define(fmt.Sprintf(getSteps, api.URL))
	run := func(records int) string {
		return s.await(s.trigger(flow, `{"records":[`+strings.TrimSuffix(strings.Repeat(`{},`, records), ",")+
			`]}`))["status"].(string)
	}
	assert.Equal(t, "completed", run(40))
	assert.Equal(t, [2]int{2, 40}, api.counts(), "tokens and calls: one token serves all")
	assert.NotNil(t, s.use("core__http")["last_succeeded_at"])

	// A token that the API takes no longer is replaced, and no record is lost.
	api.revoke()
	assert.Equal(t, "completed", run(5))
	assert.Equal(t, 3, api.counts()[0], "tokens after one was revoked")

	// A test fetches a token of its own: an old one says nothing of the secret.
	assert.Equal(t, true, s.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK).JSON()["success"])
	assert.Equal(t, 4, api.counts()[0])
	assert.NotNil(t, s.get(path)["last_verified"])
	api.use(needle + "2")
	tested := s.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK).JSON()
	assert.Equal(t, []any{false, "AUTH_FAILED"}, []any{tested["success"], tested["error"]})

	// A rotation leaves the old token behind at once.
	s.Do(http.MethodPut, path, api.body(needle+"2")).Want(http.StatusOK)
	assert.Nil(t, s.get(path)["last_verified"])
	before := api.counts()[0]
	assert.Equal(t, "completed", run(1))
	assert.Equal(t, before+1, api.counts()[0], "tokens after the rotation")

	// Without a token nothing is sent.
	s.Do(http.MethodPut, path+"?verify=false", api.body(needle+"3")).Want(http.StatusOK)
	calls := api.counts()[1]
	assert.Equal(t, "failed", run(1))
	assert.Equal(t, calls, api.counts()[1])
	use := s.use("core__http")
	assert.Equal(t, "AUTH_FAILED", use["last_failure_class"])

	tested = s.Do(http.MethodPost, "/credentials/test", api.body(needle+"2")).Want(http.StatusOK).JSON()
	assert.Equal(t, true, tested["success"])
	tested = s.Do(http.MethodPost, "/credentials/test", api.body(needle)).Want(http.StatusOK).JSON()
	assert.Equal(t, "AUTH_FAILED", tested["error"])
	for _, table := range []string{"flow.call", "flow.fragment", "flow.job", "flow.secret", "flow.credential",
		"river.river_job"} {
		assert.Zero(t, s.count(table+" t WHERE t::text LIKE '%"+needle+"%'"), table)
	}
}

func TestCredentials_MethodsRefused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	api := newTokenAPI(t)
	ok := with(api.body(needle), "allowed_origins", []string{"https://api.example"})
	aws := object{
		"name": "store", "platform_id": "aws", "auth_method": "aws_access_key", "aws_region": "eu-central-1",
		"aws_default_bucket": "stock",
		"credentials":        object{"access_key_id": "AKIA", "secret_access_key": needle},
	}
	jwt := object{
		"name": "signed", "platform_id": "core", "auth_method": "jwt",
		"allowed_origins": []string{"https://api.example"},
		"credentials":     object{"algorithm": "HS256", "key": strings.Repeat(needle, 8), "issuer": "me"},
	}
	for name, tc := range map[string]struct {
		body object
		want []string
	}{
		"no token_url":     {with(ok, "token_url", nil), []string{"body.token_url missing"}},
		"bad token_url":    {with(ok, "token_url", "ftp://x"), []string{"body.token_url value_error"}},
		"user in it":       {with(ok, "token_url", "https://a:b@x/token"), []string{"body.token_url value_error"}},
		"other grant":      {with(ok, "grant_type", "implicit"), []string{"body.grant_type value_error"}},
		"no authorize_url": {with(ok, "grant_type", "authorization_code"), []string{"body.authorize_url missing"}},
		"no user": {with(ok, "grant_type", "password"), []string{"body.credentials.username missing",
			"body.credentials.password missing"}},
		"two scopes": {with(ok, "scopes", []string{"a b"}), []string{"body.scopes value_error"}},
		"no secret": {with(ok, "credentials", object{"client_id": "app"}),
			[]string{"body.credentials.client_secret missing"}},
		"aws region": {with(aws, "aws_region", "evil.example/"), []string{"body.aws_region value_error"}},
		"aws endpoint": {with(aws, "aws_endpoint_url", "https://x/path"),
			[]string{"body.aws_endpoint_url value_error"}},
		"aws bucket": {with(aws, "aws_default_bucket", "a/b"), []string{"body.aws_default_bucket value_error"}},
		"aws on core": {with(aws, "platform_id", "core", "allowed_origins", []string{"https://api.example"}),
			[]string{"body.aws_default_bucket value_error"}},
		"jwt short key": {with(jwt, "credentials", object{"algorithm": "HS256", "key": "n33dle", "issuer": "me"}),
			[]string{"body.credentials value_error"}},
		"jwt no PEM": {with(jwt, "credentials", object{"algorithm": "RS256", "key": "n33dle\nn33dle",
			"issuer": "me"}), []string{"body.credentials value_error"}},
		"jwt other field": {with(jwt, "credentials", object{"algorithm": "HS256", "key": strings.Repeat(needle, 8)}),
			[]string{"body.credentials.issuer missing"}},
	} {
		res := s.Do(http.MethodPost, "/credentials", tc.body).Invalid(tc.want...)
		assert.NotContains(t, string(res.Body), needle, name)
		tested := s.Do(http.MethodPost, "/credentials/test", tc.body)
		assert.Equal(t, "INVALID_CREDENTIALS_SHAPE", tested.Want(http.StatusOK).JSON()["error"], name)
	}
	for _, body := range []object{ok, aws, jwt} {
		created := s.Do(http.MethodPost, "/credentials?verify=false", body).Want(http.StatusCreated).JSON()
		path := "/credentials/" + created["id"].(string)
		assert.Equal(t, created, s.get(path))
		// What was read can be sent back, and keeps the secret.
		assert.Equal(t, created, s.Do(http.MethodPut, path, created).Want(http.StatusOK).JSON())
		if body["auth_method"] == "oauth2" {
			for name, value := range map[string]any{
				"token_url": "https://evil.example/token", "scopes": []string{"write"},
				"audience":        "https://evil.example",
				"allowed_origins": []string{"https://api.example", "https://evil.example"},
			} {
				refused := s.Do(http.MethodPut, path, with(created, name, value)).Invalid("body.credentials missing")
				assert.Contains(t, string(refused.Body), "Another "+name+" needs the secret again")
			}
			s.Do(http.MethodPut, path, with(created, "allowed_origins", absent)).Want(http.StatusOK)
		}
		if body["auth_method"] == "aws_access_key" {
			s.Do(http.MethodPut, path, with(created, "aws_endpoint_url", "https://evil.example", "allowed_origins",
				absent)).
				Invalid("body.credentials missing")
		}
	}
	assert.Zero(t, api.counts()[0], "tokens: nothing was asked of an address that is not allowed")
}

// TestCredentials_OtherHosts: a platform's secret goes to no address that a flow names but its own.
func TestCredentials_OtherHosts(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 10)
	evil := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		seen <- r.Header.Get("Authorization")
	}))
	t.Cleanup(evil.Close)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, hostOf(evil.URL)) })
	flow := s.define(fmt.Sprintf(getSteps, evil.URL))
	batch := s.trigger(flow, `{"records":[{}]}`)
	assert.Equal(t, "failed", s.await(batch)["status"])
	job := s.pages("/flows/jobs?batch_id="+batch, 10)[0]
	failure := field[map[string]any](t, job, "error")
	assert.Equal(t, "invalid_parameters", failure["code"])
	assert.Contains(t, failure["message"], "the credential is of platform dialer and goes only to "+s.simURL)
	assert.Empty(t, seen)
	rehearsed := s.Do(http.MethodPost, "/flows/definitions/"+flow+"/dry-run", `{"input_data":{}}`).Want(http.StatusOK)
	assert.Contains(t, string(rehearsed.Body), "the credential is of platform dialer")
	assert.NotContains(t, string(rehearsed.Body), `"`+provider.Shown)
	require.True(t, json.Valid(rehearsed.Body))
}

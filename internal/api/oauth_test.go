package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/vault"
	"flowlane/test/pgtest"
)

// rotatingIssuer gives tokens for a refresh token, which is good once, and a new one of these; it is also the API that
// takes the newest access token.
type rotatingIssuer struct {
	*httptest.Server

	mu      sync.Mutex
	refresh string
	access  string
	asked   int
	calls   int
	// answering is called before each set of tokens goes out; nil for nothing.
	answering func()
	// down answers all with a 503.
	down bool
}

func newRotatingIssuer(t *testing.T) *rotatingIssuer {
	t.Helper()
	i := &rotatingIssuer{refresh: needle + "-r0"}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

func (i *rotatingIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/token" {
		i.calls++
		if r.Header.Get("Authorization") != "Bearer "+i.access {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = fmt.Fprint(w, `{}`)
		return
	}
	i.asked++
	_ = r.ParseForm()
	switch {
	case i.down:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.PostForm.Get("grant_type") != "refresh_token" || r.PostForm.Get("refresh_token") != i.refresh:
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(w, `{"error":"invalid_grant"}`)
	default:
		i.refresh, i.access = fmt.Sprintf("%s-r%d", needle, i.asked), fmt.Sprintf("%s-a%d", needle, i.asked)
		if i.answering != nil {
			i.answering()
		}
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"refresh_token":%q,"token_type":"bearer","expires_in":3600}`,
			i.access, i.refresh)
	}
}

func (i *rotatingIssuer) counts() [2]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return [2]int{i.asked, i.calls}
}

func (i *rotatingIssuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

func (i *rotatingIssuer) body(token string) object {
	return object{
		"name": "app", "platform_id": "core", "auth_method": "oauth2", "grant_type": "refresh_token",
		"token_url":   i.URL + "/token",
		"credentials": object{"client_id": "app", "refresh_token": token}, "allowed_origins": []string{i.URL},
	}
}

// callWith makes one call from a process with a credential, as the dispatcher does.
func callWith(ctx context.Context, process *app.App, org, id uuid.UUID, url string) provider.Answer {
	cred, err := process.Credentials.Resolve(ctx, org, id)
	if err != nil {
		return provider.Answer{Err: err}
	}
	svc, _ := process.Catalog.Service("core__http")
	act, _ := process.Catalog.Action("core__http__request")
	r, err := provider.Prepare(svc, act, []byte(`{"url":"`+url+`/things"}`), nil, cred.Secret, "")
	if err != nil {
		return provider.Answer{Err: err}
	}
	return process.Sender.Send(ctx, r)
}

// second starts another process on the same database.
func (s *stack) second() *app.App {
	s.t.Helper()
	process, err := app.New(s.t.Context(), s.config)
	require.NoError(s.t, err)
	s.t.Cleanup(process.Close)
	return process
}

func (s *stack) authorization(path string) object {
	s.t.Helper()
	return s.get(path)["authorization"].(object)
}

// TestOAuth_Storm: 500 callers in two processes meet one token that has ended, and the issuer is asked once; and once
// more when the platform refuses a token before its time.
func TestOAuth_Storm(t *testing.T) {
	t.Parallel()
	issuer := newRotatingIssuer(t)
	s := serveStack(t, false, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, hostOf(issuer.URL)) })
	processes := []*app.App{s.app, s.second()}
	made := s.Do(http.MethodPost, "/credentials", issuer.body(needle+"-r0")).Want(http.StatusCreated).JSON()
	assert.Equal(t, [2]int{0, 0}, issuer.counts(), "a token that may be good once is not tried before it is stored")
	assert.Equal(t, "pending", made["authorization"].(object)["state"])
	path := "/credentials/" + made["id"].(string)
	org, id := uuid.MustParse(made["org_id"].(string)), uuid.MustParse(made["id"].(string))
	storm := func(status int) {
		t.Helper()
		var group sync.WaitGroup
		for n := range 500 {
			group.Go(func() {
				if ans := callWith(t.Context(), processes[n%2], org, id, issuer.URL); ans.Status != status {
					t.Errorf("status %d, %v", ans.Status, ans.Err)
				}
			})
		}
		group.Wait()
	}
	storm(http.StatusOK)
	assert.Equal(t, [2]int{1, 500}, issuer.counts(), "tokens and calls")
	assert.Equal(t, "authorized", s.authorization(path)["state"])
	// What a process starts with, and what ended, is asked for once, too.
	pgtest.MoveClock(t, s.reader(), 2*time.Hour)
	processes = []*app.App{s.second(), s.second()}
	storm(http.StatusOK)
	assert.Equal(t, [2]int{2, 1000}, issuer.counts())
	// Both processes have the token that the platform refuses now.
	issuer.set(func() { issuer.access = "another" })
	for _, process := range processes {
		assert.Equal(t, http.StatusUnauthorized, callWith(t.Context(), process, org, id, issuer.URL).Status)
	}
	storm(http.StatusOK)
	assert.Equal(t, [2]int{3, 1502}, issuer.counts())
	// A test asks anew, and leaves what it got to all.
	assert.Equal(t, true, s.Do(http.MethodPost, path+"/test", nil).Want(http.StatusOK).JSON()["success"])
	assert.Equal(t, 4, issuer.counts()[0])
	for _, table := range []string{"flow.credential", "flow.credential_token", "flow.secret"} {
		assert.Zero(t, s.count(table+" t WHERE t::text LIKE '%"+needle+"%'"), table)
	}
	s.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
	assert.Equal(t, 1, s.count("flow.secret"), "secrets: the other credential's")
	assert.Zero(t, s.count("flow.credential_token"))
}

// TestOAuth_IssuerFails: an issuer that is down is left in peace, and one that takes the refresh token no longer is not
// asked again.
func TestOAuth_IssuerFails(t *testing.T) {
	t.Parallel()
	issuer := newRotatingIssuer(t)
	s := serveStack(t, false, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, hostOf(issuer.URL)) })
	made := s.Do(http.MethodPost, "/credentials", issuer.body(needle+"-r0")).Want(http.StatusCreated).JSON()
	path := "/credentials/" + made["id"].(string)
	org, id := uuid.MustParse(made["org_id"].(string)), uuid.MustParse(made["id"].(string))
	issuer.set(func() { issuer.down = true })
	var processes []*app.App // each would forget a failure after a second
	for range 8 {
		processes = append(processes, s.second())
	}
	for n, process := range processes {
		ans := callWith(t.Context(), process, org, id, issuer.URL)
		assert.Equal(t, provider.NotSent, ans.Sent)
		if n < 4 {
			pgtest.MoveClock(t, s.reader(), time.Minute)
		}
	}
	assert.Equal(t, [2]int{5, 0}, issuer.counts(), "after some failures others do not ask")
	pgtest.MoveClock(t, s.reader(), time.Minute)
	failing := s.authorization(path)
	assert.Equal(t, []any{"failing", "The token endpoint answered with status 503."}, []any{failing["state"],
		failing["failure"]})
	issuer.set(func() { issuer.down, issuer.refresh = false, "another" })
	for range 3 {
		ans := callWith(t.Context(), s.second(), org, id, issuer.URL)
		act, _ := s.app.Catalog.Action("core__http__request")
		assert.Equal(t, provider.Refused, provider.Read(act, ans, 0).Kind, "it is no use to try again")
		pgtest.MoveClock(t, s.reader(), time.Hour)
	}
	assert.Equal(t, [2]int{6, 0}, issuer.counts())
	assert.Equal(t, "lost", s.authorization(path)["state"])
	assert.Contains(t, s.authorization(path)["failure"],
		"The refresh token is good no longer: replace the credential with another one.")
	// Another refresh token opens it again.
	issuer.set(func() { issuer.refresh = needle + "-new" })
	s.Do(http.MethodPut, path, issuer.body(needle+"-new")).Want(http.StatusOK)
	assert.Equal(t, "pending", s.authorization(path)["state"])
	assert.Equal(t, http.StatusOK, callWith(t.Context(), s.second(), org, id, issuer.URL).Status)
}

// killedChild names the database, credential and address of TestOAuth_KilledChild.
const killedChild = "FLOWLANE_TEST_KILLED_CHILD"

const testKEK = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="

// TestOAuth_Killed: a process dies between the answer of the issuer and its own writing, and with it the only copy of a
// new refresh token. The credential says that it must be authorized again, and the issuer is not asked on and on.
func TestOAuth_Killed(t *testing.T) {
	t.Parallel()
	issuer := newRotatingIssuer(t)
	s := serveStack(t, false, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, hostOf(issuer.URL)) })
	made := s.Do(http.MethodPost, "/credentials", issuer.body(needle+"-r0")).Want(http.StatusCreated).JSON()
	path := "/credentials/" + made["id"].(string)
	org, id := uuid.MustParse(made["org_id"].(string)), uuid.MustParse(made["id"].(string))
	require.Equal(t, http.StatusOK, callWith(t.Context(), s.app, org, id, issuer.URL).Status)
	pgtest.MoveClock(t, s.reader(), 2*time.Hour)

	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOAuth_KilledChild$")
	child.Env = append(os.Environ(), killedChild+"="+strings.Join([]string{s.config.DatabaseURL, org.String(),
		id.String(), issuer.URL}, "\n"))
	issuer.set(func() { issuer.answering = func() { _ = child.Process.Kill() } })
	require.Error(t, child.Run(), "the child was not killed")
	issuer.set(func() { issuer.answering = nil })
	assert.Equal(t, [2]int{2, 1}, issuer.counts(), "the child got its tokens, and made no call")

	pgtest.MoveClock(t, s.reader(), time.Minute)
	for range 3 {
		ans := callWith(t.Context(), s.second(), org, id, issuer.URL)
		assert.ErrorContains(t, ans.Err, "good no longer")
		pgtest.MoveClock(t, s.reader(), time.Hour)
	}
	assert.Equal(t, [2]int{3, 1}, issuer.counts(), "one more try, and then no other")
	assert.Equal(t, "lost", s.authorization(path)["state"])
}

// TestOAuth_KilledChild is the process that is killed.
func TestOAuth_KilledChild(t *testing.T) { //nolint:paralleltest // it is alone in its process
	given := strings.Split(os.Getenv(killedChild), "\n")
	if len(given) != 4 {
		t.Skip("not tested: TestOAuth_Killed starts it")
	}
	kek, err := vault.LoadKEK(testKEK, "")
	require.NoError(t, err)
	process, err := app.New(t.Context(), app.Config{DatabaseURL: given[0], Pooled: pgtest.Pooled(), KEK: kek,
		AllowHosts: []string{hostOf(given[3])}})
	require.NoError(t, err)
	callWith(t.Context(), process, uuid.MustParse(given[1]), uuid.MustParse(given[2]), given[3])
	t.Fatal("it lives")
}

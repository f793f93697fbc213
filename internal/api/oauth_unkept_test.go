package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider"
	"flowlane/test/pgtest"
)

// refuseTokens has the database refuse all new tokens until allow is called.
func (s *stack) refuseTokens() (allow func()) {
	s.t.Helper()
	do := func(sql string) {
		s.t.Helper()
		_, err := s.owner.Exec(context.WithoutCancel(s.t.Context()), sql)
		require.NoError(s.t, err)
	}
	do(`CREATE FUNCTION flow.refuse_tokens() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'away'; END $$;
		CREATE TRIGGER refuse_tokens BEFORE UPDATE ON flow.credential_token FOR EACH ROW
		WHEN (NEW.generation > OLD.generation) EXECUTE FUNCTION flow.refuse_tokens()`)
	return func() { s.t.Helper(); do("DROP FUNCTION flow.refuse_tokens() CASCADE") }
}

// TestOAuth_KeptInMemory: tokens that cannot be stored when they come are stored when that can be done again, even if
// another process has asked with the old refresh token meanwhile. This process does not.
func TestOAuth_KeptInMemory(t *testing.T) {
	t.Parallel()
	issuer := newRotatingIssuer(t)
	s := serveStack(t, false, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, hostOf(issuer.URL)) })
	made := s.Do(http.MethodPost, "/credentials", issuer.body(needle+"-r0")).Want(http.StatusCreated).JSON()
	path := "/credentials/" + made["id"].(string)
	org, id := uuid.MustParse(made["org_id"].(string)), uuid.MustParse(made["id"].(string))
	allow := s.refuseTokens()
	assert.Equal(t, provider.NotSent, callWith(t.Context(), s.app, org, id, issuer.URL).Sent)
	assert.Equal(t, [2]int{1, 0}, issuer.counts())
	pgtest.MoveClock(t, s.reader(), 30*time.Second)
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	assert.Equal(t, provider.NotSent, callWith(brief, s.second(), org, id, issuer.URL).Sent)
	assert.Equal(t, [2]int{1, 0}, issuer.counts(), "who asks may do so slowly")
	pgtest.MoveClock(t, s.reader(), time.Minute)
	require.Eventually(t, func() bool { // a failure is the answer for a second
		brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		callWith(brief, s.app, org, id, issuer.URL)
		return brief.Err() != nil
	}, 60*time.Second, 20*time.Millisecond, "whoever has them in memory waits, and does not ask")
	require.ErrorContains(t, callWith(t.Context(), s.second(), org, id, issuer.URL).Err, "good no longer")
	require.Equal(t, "lost", s.authorization(path)["state"])

	allow()
	require.Eventually(t, func() bool { return s.authorization(path)["state"] == "authorized" }, 60*time.Second,
		20*time.Millisecond)
	for _, process := range []*app.App{s.app, s.second()} {
		require.Eventually(t, func() bool {
			return callWith(t.Context(), process, org, id, issuer.URL).Status == http.StatusOK
		}, 60*time.Second, 20*time.Millisecond)
	}
	assert.Equal(t, 2, issuer.counts()[0])
}

// TestOAuth_KeptAtStop: a process that is told to stop stores what it has before it does.
func TestOAuth_KeptAtStop(t *testing.T) {
	t.Parallel()
	issuer := newRotatingIssuer(t)
	s := serveStack(t, false, func(c *app.Config) { c.AllowHosts = append(c.AllowHosts, hostOf(issuer.URL)) })
	made := s.Do(http.MethodPost, "/credentials", issuer.body(needle+"-r0")).Want(http.StatusCreated).JSON()
	org, id := uuid.MustParse(made["org_id"].(string)), uuid.MustParse(made["id"].(string))
	other, allow := s.second(), s.refuseTokens()
	assert.Equal(t, provider.NotSent, callWith(t.Context(), s.app, org, id, issuer.URL).Sent)
	time.AfterFunc(500*time.Millisecond, allow)
	s.stop()
	assert.Equal(t, http.StatusOK, callWith(t.Context(), other, org, id, issuer.URL).Status)
	assert.Equal(t, [2]int{1, 1}, issuer.counts())
}

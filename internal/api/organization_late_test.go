package api_test

import (
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/pgtest"
)

// TestOrganization_DeleteLate: a request whose question to a provider takes longer than the deletion of its
// organization leaves nothing behind, nor does a transaction that was open before.
func TestOrganization_DeleteLate(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	org := s.orgID(s.Key)
	asked, open := make(chan struct{}), make(chan struct{})
	said, release := sync.OnceFunc(func() { close(asked) }), sync.OnceFunc(func() { close(open) })
	t.Cleanup(release)
	wait := func(*http.Request) {
		said()
		<-open
	}
	s.held.Store(&wait)
	answered := make(chan int, 1)
	go func() { answered <- s.Do(http.MethodPost, "/credentials", dialerCredential("88/ann")).Status }()
	<-asked
	late, err := s.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = late.Exec(t.Context(), `INSERT INTO flow.variable_set (id, org_id, name, keys, versions, created_by)
		VALUES (gen_random_uuid(), $1, 'late', '[]', '[]', '')`, org)
	require.NoError(t, err)

	deletions, err := app.Deletions(s.owner, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, deletions.Begin(t.Context(), uuid.MustParse(org)))
	pgtest.MoveClock(t, s.owner, 11*time.Second)
	s.eventually(func() bool {
		return s.count("flow.deletion WHERE ended_at IS NOT NULL OR awaited IS NOT NULL AND rows ? 'credential'") == 1
	})
	s.eventually(func() bool {
		return s.count("flow.due WHERE key = $1 AND (leased OR due_at <= flow.clock())", org) == 0
	})
	require.Zero(t, s.count("flow.deletion WHERE ended_at IS NOT NULL"), "a transaction is open")
	require.NoError(t, late.Commit(t.Context()))
	pgtest.MoveClock(t, s.owner, 3*time.Second)
	s.eventually(func() bool { return s.count("flow.deletion WHERE ended_at IS NOT NULL") == 1 })
	release()
	assert.Equal(t, http.StatusUnauthorized, <-answered)
	left := s.mentions(org)
	maps.DeleteFunc(left, outlasts)
	assert.Empty(t, left)
	s.aDayLater(31)
	s.aDayLater(1)
	assert.Zero(t, s.count("flow.organization WHERE id = $1", org))
}

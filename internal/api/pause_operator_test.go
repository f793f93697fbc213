package api_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/account"
	"flowlane/internal/pause"
)

// What the operator holds makes no call until the operator releases it, whatever the organization's people do; each
// reason holds for itself.
func TestHold_Operator(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	org := uuid.MustParse(s.orgID(s.Key))
	ctx := account.AsOperator(t.Context(), org, "org suspend")
	held, err := s.app.Pauses.PauseEverything(t.Context(), "The provider was breached")
	require.NoError(t, err)
	assert.Equal(t, 2, held, "every organization")
	again, err := s.app.Pauses.PauseEverything(t.Context(), "Once more")
	require.NoError(t, err)
	assert.Zero(t, again)

	send, inside := s.define(modifyOne), s.define(transformSteps)
	batch := s.laneTrigger(send, "interactive")
	own := s.openPause("/admin/dispatch", `{}`)
	waits := func(after string) {
		t.Helper()
		s.await(s.trigger(inside, `{"input_data":{"n":1}}`)) // makes no call
		assert.Equal(t, "queued", s.get("/flows/batches/" + batch)["status"], after)
		assert.Zero(t, s.number(`SELECT count(*) FROM flow.call`), after)
	}
	released := s.resumed("/admin/dispatch/resume")
	require.Len(t, released, 1, "people release their own")
	assert.Equal(t, own["id"], released[0]["id"])
	waits("the organization has released what it can")
	s.Do(http.MethodPost, s.domainPath()+"/resume", nil).Want(http.StatusOK)
	waits("the organization has released its Domain")

	ids := s.holdIDs("/admin/dispatch/pauses")
	require.Len(t, ids, 1)
	path := "/admin/dispatch/pauses/" + ids[0].(string)
	h := s.get(path)
	assert.Equal(t, []any{"global", "active", "admin_request", "The provider was breached", nil},
		[]any{h["scope"], h["status"], h["cause"], h["reason"], h["created_by"]})

	require.NoError(t, s.app.Pauses.PauseOrg(ctx, org, pause.Suspension, "The organization is suspended"))
	n, err := s.app.Pauses.ReleaseEverything(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	waits("the suspension goes on")
	assert.Equal(t, []any{"released", "operator"}, []any{s.get(path)["status"], s.get(path)["released_by"]})
	require.NoError(t, s.app.Pauses.ReleaseOrg(ctx, org, pause.Suspension))
	assert.Equal(t, "completed", s.await(batch)["status"])

	var log struct {
		Items []struct {
			Action, AccountName, RequestID string
			AuthMethod                     string  `json:"auth_method"`
			AccountID                      *string `json:"account_id"`
			ResourceType                   string  `json:"resource_type"`
		}
	}
	for _, action := range []string{"hold all", "release all", "org suspend"} {
		s.Do(http.MethodGet, "/account/audit-log?action="+url.QueryEscape(action), nil).Want(http.StatusOK).Into(&log)
		require.NotEmpty(t, log.Items, action)
		assert.Equal(t, "operator", log.Items[0].AuthMethod, action)
		assert.Nil(t, log.Items[0].AccountID, action)
	}
	s.other.Do(http.MethodGet, "/account/audit-log?action="+url.QueryEscape("hold all"),
		nil).Want(http.StatusOK).Into(&log)
	assert.Len(t, log.Items, 1, "each organization has its own row")
}

// TestHold_New: an organization that is made while all are held begins held. Whoever holds or releases all waits for
// those that are being made: none comes out as it would have been before.
func TestHold_New(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	create := func(want bool) pgx.Tx {
		t.Helper()
		tx, err := s.owner.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
		org, err := account.CreateOrg(t.Context(), tx, "New")
		require.NoError(t, err)
		held, err := s.app.Pauses.PauseNew(t.Context(), tx, org.ID)
		require.NoError(t, err)
		assert.Equal(t, want, held)
		return tx
	}
	number := func(do func() (int, error), commit pgx.Tx) int {
		t.Helper()
		done := make(chan int, 1)
		go func() {
			n, err := do()
			assert.NoError(t, err)
			done <- n
		}()
		s.blockedAt("OrgsOfPauseLock")
		require.NoError(t, commit.Commit(t.Context()))
		return <-done
	}
	active := func() int {
		return s.number(`SELECT count(*) FROM flow.pause WHERE operator = 'everything' AND status = 'active' AND reason = 'Breach'`)
	}
	holdAll := func() (int, error) { return s.app.Pauses.PauseEverything(t.Context(), "Breach") }
	release := func() (int, error) { return s.app.Pauses.ReleaseEverything(t.Context()) }

	org := uuid.MustParse(s.orgID(s.Key))
	require.NoError(t, s.app.Pauses.PauseOrg(account.AsOperator(t.Context(), org, "org suspend"), org, pause.Suspension,
		""))
	require.NoError(t, create(false).Commit(t.Context()))
	assert.Equal(t, 4, number(holdAll, create(false)), "the one included that was being made")
	require.NoError(t, create(true).Commit(t.Context()))
	assert.Equal(t, 5, active())
	assert.Equal(t, 6, number(release, create(true)), "the one included that was being made")
	assert.Zero(t, active())
	require.NoError(t, create(false).Commit(t.Context()))
	assert.Zero(t, active())
	assert.Equal(t, 6, s.number(`SELECT count(*) FROM flow.audit_log WHERE action = 'hold all'`), "each has a row")
}

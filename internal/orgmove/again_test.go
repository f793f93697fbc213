package orgmove

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/account"
	"flowlane/internal/app"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/test/apitest"
)

// exec does something in the cell that the organization leaves, or in the other one.
func (m *move) exec(t *testing.T, there bool, sql string, args ...any) {
	t.Helper()
	pool := m.From
	if there {
		pool = m.To
	}
	_, err := pool.Exec(m.ctx, sql, args...)
	require.NoError(t, err)
}

// back is the way back.
func (m *move) back(t *testing.T) *move {
	t.Helper()
	back := *m.Mover
	back.From, back.To, back.FromPauses, back.ToPauses = m.To, m.From, m.ToPauses, m.FromPauses
	var err error
	back.Deletions, err = app.Deletions(back.From, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return &move{Mover: &back, ctx: m.ctx, tenant: m.tenant}
}

// TestMove_Numbers: what comes next in a cell of lower numbers is behind what has come with the organization, in the
// order that it had.
func TestMove_Numbers(t *testing.T) {
	t.Parallel()
	m := setupCells(t, 2, 1)
	waits := func() {
		m.exec(t, false, `INSERT INTO flow.wait (org_id, batch_id, slice_no, beside, step_no, task_no, began_at, ends_at,
			event_kind) VALUES ($1, gen_random_uuid(), 0, false, 0, 0, flow.clock(), flow.clock(), 'k')`, m.OrgID)
	}
	arrives := func(there bool) {
		m.exec(t, there, `INSERT INTO flow.event_arrival (org_id, event_id, event_kind, payload, occurred_at)
			VALUES ($1, gen_random_uuid(), 'k', '{}', flow.clock())`, m.OrgID)
	}
	waits()
	arrives(false)
	waits()
	arrives(false)
	m.exec(t, false, `UPDATE flow.event_arrival SET done_upto = (SELECT max(no) FROM flow.wait)
		WHERE no = (SELECT max(no) FROM flow.event_arrival)`)
	m.exec(t, false, `UPDATE flow.wait SET event_no = (SELECT min(no) FROM flow.event_arrival)
		WHERE no = (SELECT min(no) FROM flow.wait)`)
	require.NoError(t, m.copyForTest(t))
	arrives(true)
	var order string
	require.NoError(t, m.To.QueryRow(m.ctx, `SELECT string_agg(what, ' ' ORDER BY no) FROM (
		SELECT no, 'wait' AS what FROM flow.wait UNION ALL SELECT no, 'arrival' FROM flow.event_arrival) n`).Scan(&order))
	assert.Equal(t, "wait arrival wait arrival arrival", order)
	var kept bool
	require.NoError(t, m.To.QueryRow(m.ctx, `SELECT (SELECT count(*) = 1 FROM flow.wait w
			JOIN flow.event_arrival a ON a.no = w.event_no AND a.done_upto = 0)
		AND (SELECT count(*) = 1 FROM flow.event_arrival a JOIN flow.wait w ON w.no = a.done_upto)`).Scan(&kept))
	assert.True(t, kept, "what refers to them does so")
}

// cutAt has the move be cut off at the beginning of a step.
func (m *move) cutAt(t *testing.T, at string) {
	t.Helper()
	ctx, cut := context.WithCancel(m.ctx)
	m.Say = func(step string) {
		if step == at {
			cut()
		}
	}
	require.ErrorIs(t, m.Run(ctx), context.Canceled)
	m.Say = nil
	m.unlocked(t)
}

// unlocked waits until a move that was cut off holds its lock no more: its connection may end a little later.
func (m *move) unlocked(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		var held bool
		err := m.From.QueryRow(m.ctx, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE l.locktype = 'advisory' AND d.datname = current_database())`).Scan(&held)
		return err == nil && !held
	}, 30*time.Second, 10*time.Millisecond)
}

// copyForTest copies without the steps before, which have no requests to end here.
func (m *move) copyForTest(t *testing.T) error {
	t.Helper()
	m.was = "active"
	m.exec(t, false, "UPDATE flow.organization SET status = 'moving' WHERE id = $1", m.OrgID)
	var err error
	m.from, err = m.From.Acquire(m.ctx)
	require.NoError(t, err)
	defer m.from.Release()
	return m.copyAll(m.ctx)
}

// TestMove_Everything: where everything is paused, an organization that comes is paused, too; that everything is paused
// where it comes from is no reason.
func TestMove_Everything(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		here, there bool
	}{{"here", true, false}, {"there", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := setup(t)
			if c.here {
				_, err := m.FromPauses.PauseEverything(m.ctx, "for a restore")
				require.NoError(t, err)
			}
			if c.there {
				other := uuid.New()
				m.exec(t, true, "INSERT INTO flow.organization (id, name) VALUES ($1, 'Other')", other)
				_, err := m.ToPauses.PauseEverything(m.ctx, "for a restore")
				require.NoError(t, err)
			}
			require.NoError(t, m.Run(m.ctx))
			var active []string
			require.NoError(t, m.To.QueryRow(m.ctx, `SELECT coalesce(array_agg(operator), '{}') FROM flow.pause
				WHERE org_id = $1 AND status = 'active'`, m.OrgID).Scan(&active))
			want := []string{}
			if c.there {
				want = []string{string(pause.Everything)}
			}
			assert.Equal(t, want, active)
		})
	}
}

// TestMove_Lost: an organization stays where a restore was as long as that cell alone knows what may have been sent.
func TestMove_Lost(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{false, true} {
		m := setup(t)
		m.exec(t, false, `INSERT INTO flow.event_delivery (subscription_id, org_id, event_id, event_kind, depth, root_id,
			payload, created_at) VALUES (gen_random_uuid(), $1, $2, 'k', 0, $2, '{}', flow.clock())`,
			m.OrgID, uuid.Must(uuid.NewV7()))
		m.exec(t, there, `INSERT INTO flow.identity (database_oid, confirmed_at, lost_since)
			VALUES (1, flow.clock() + interval '1 minute', flow.clock() - interval '1 hour')`)
		require.ErrorContains(t, m.Run(m.ctx), "a restore of one of the cells has lost", "there: %t", there)
		assert.Equal(t, "active", m.status(t, m.From))
		m.exec(t, false, "DELETE FROM flow.event_delivery")
		require.NoError(t, m.Run(m.ctx))
	}
}

// TestMove_LateBlob: what came while the move was under way keeps the organization where it is.
func TestMove_LateBlob(t *testing.T) {
	t.Parallel()
	m := setup(t)
	m.Say = func(step string) {
		if step == "copy" {
			m.exec(t, false, `INSERT INTO flow.blob (id, org_id, bytes, unnamed_at)
				VALUES (gen_random_uuid(), $1, 1, flow.clock())`, m.OrgID)
		}
	}
	err := m.Run(m.ctx)
	require.ErrorContains(t, err, "large bodies in a store")
	require.ErrorContains(t, err, "taken back with --abort")
	m.Say = nil
	require.NoError(t, m.Abort(m.ctx))
	assert.Equal(t, []string{"active", "none"}, []string{m.status(t, m.From), m.status(t, m.To)})
}

// TestMove_Back: an organization comes back to a cell that remembers a backoff and limits of before, and can be deleted
// there.
func TestMove_Back(t *testing.T) {
	t.Parallel()
	m := setup(t)
	m.exec(t, false, `INSERT INTO flow.domain (tenancy_id, platform_id, account_number, time_zone)
		VALUES ('dialer:1', 'dialer', '1', 'UTC')`)
	m.exec(t, false, "INSERT INTO flow.tenant (org_id, tenancy_id) VALUES ($1, 'dialer:1')", m.OrgID)
	limit := func(there bool, most int) {
		m.exec(t, there, `INSERT INTO flow.domain_limit (tenancy_id, bucket, window_seconds, cap, read_at)
			VALUES ('dialer:1', 'b', 60, $1, flow.clock()) ON CONFLICT (tenancy_id, bucket, window_seconds) DO UPDATE SET cap = $1`, most)
	}
	limit(false, 100)
	m.exec(t, false, `INSERT INTO flow.pause (id, scope, domain, bucket, cause, created_at)
		VALUES (gen_random_uuid(), 'bucket', 'dialer:1', 'b', 'backoff', flow.clock())`)
	require.NoError(t, m.Run(m.ctx))
	limit(true, 10)
	m.exec(t, true, "DELETE FROM flow.pause")
	// It is deleted here in the end, and its audit log has gone.
	m.exec(t, false, "UPDATE flow.deletion SET ended_at = flow.clock()")
	m.gone(t)

	back := m.back(t)
	require.NoError(t, back.Run(m.ctx))
	var most, backoffs int
	require.NoError(t, m.From.QueryRow(m.ctx, `SELECT cap, (SELECT count(*) FROM flow.pause WHERE scope = 'bucket')
		FROM flow.domain_limit`).Scan(&most, &backoffs))
	assert.Equal(t, []int{10, 0}, []int{most, backoffs})

	require.NoError(t, m.Deletions.Begin(account.AsOperator(m.ctx, m.OrgID, "org delete"), m.OrgID))
	var under bool
	require.NoError(t, m.From.QueryRow(m.ctx, "SELECT ended_at IS NULL FROM flow.deletion WHERE org_id = $1",
		m.OrgID).Scan(&under))
	assert.True(t, under, "the receipt of before is none of this deletion")
}

// gone takes away what the deletion of an organization would, with its audit log.
func (m *move) gone(t *testing.T) {
	t.Helper()
	for range 5 {
		_, err := m.owner.Exec(m.ctx, "SELECT flow.erase_organization($1, NULL, 1000)", m.OrgID)
		require.NoError(t, err)
	}
	_, err := m.owner.Exec(m.ctx, `BEGIN; SET LOCAL session_replication_role TO replica; DELETE FROM flow.audit_log;
		DELETE FROM flow.record_set; DELETE FROM flow.retention; DELETE FROM flow.organization; COMMIT`)
	require.NoError(t, err)
}

// TestAbort_Changed: what somebody changes in the other cell while a move is taken back goes, too.
func TestAbort_Changed(t *testing.T) {
	t.Parallel()
	m := setup(t)
	m.cutAt(t, "switch")
	other, err := m.To.Begin(m.ctx)
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Rollback(context.Background()) })
	_, err = other.Exec(m.ctx, "UPDATE flow.organization SET rolled_up_to = flow.clock() WHERE id = $1", m.OrgID)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- m.Abort(m.ctx) }()
	require.Eventually(t, func() bool {
		var waits bool
		err := m.To.QueryRow(m.ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND $1 = ANY(pg_blocking_pids(pid)))`, other.Conn().PgConn().PID()).Scan(&waits)
		return err == nil && waits
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, other.Commit(m.ctx))
	require.NoError(t, <-ended)
	assert.Equal(t, []string{"active", "none"}, []string{m.status(t, m.From), m.status(t, m.To)})
}

// TestAbort_Everything: that everything was paused while an organization was on its way is over with it.
func TestAbort_Everything(t *testing.T) {
	t.Parallel()
	m := setup(t)
	m.cutAt(t, "switch")
	_, err := m.ToPauses.PauseEverything(m.ctx, "for a while")
	require.NoError(t, err)
	require.NoError(t, m.Abort(m.ctx))
	_, err = m.ToPauses.ReleaseEverything(m.ctx)
	require.NoError(t, err)
	other := apitest.NewTenant(t, m.To, apitest.Accounts(t, m.To), "Other")
	var left int
	require.NoError(t, m.To.QueryRow(m.ctx, "SELECT count(*) FROM flow.pause WHERE status = 'active'").Scan(&left))
	assert.Zero(t, left)
	err = pg.InTx(m.ctx, m.To, func(ctx context.Context, tx pgx.Tx) error {
		paused, err := m.ToPauses.PauseNew(ctx, tx, other.ID)
		assert.False(t, paused)
		return err
	})
	require.NoError(t, err)
}

package orgmove

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/pg"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// TestTables: each table goes with the organization or is said to stay, and one of which nobody has said anything is
// found.
func TestTables(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.New(t)
	tables, err := tablesOf(ctx, pool, uuid.New())
	require.NoError(t, err)
	var all int
	require.NoError(t, pool.QueryRow(ctx, "SELECT count(*) FROM pg_tables WHERE schemaname = 'flow'").Scan(&all))
	assert.Equal(t, all, len(tables)+len(apart))
	for _, one := range tables {
		_, stays := apart[one.name]
		assert.False(t, stays, one.name)
		_, err := one.sum(ctx, pool)
		assert.NoError(t, err)
	}
	_, err = pool.Exec(ctx, "CREATE TABLE flow.stray (no int)")
	require.NoError(t, err)
	_, err = tablesOf(ctx, pool, uuid.New())
	assert.ErrorContains(t, err, "stray")
}

// move is two cells, of which one has an organization.
type move struct {
	*Mover

	ctx    context.Context //nolint:containedctx // of the test
	tenant apitest.Tenant
	// owner is the owner of the database that has it.
	owner *pgxpool.Pool
}

func setup(t *testing.T) *move {
	t.Helper()
	return setupCells(t, 1, 2)
}

// setupCells makes the two of these numbers; the first one has the organization.
func setupCells(t *testing.T, from, to int) *move {
	t.Helper()
	m := &move{ctx: t.Context()}
	cell := func(n int) *pgxpool.Pool {
		dsn, owner := pgtest.NewDatabase(t)
		if n == from {
			m.owner = owner
		}
		require.NoError(t, pg.SetCell(m.ctx, owner, n))
		// Row-level security binds it, as it does whoever is no superuser.
		pool, err := pg.Open(m.ctx, pgtest.RuntimeDSN(t, dsn), pg.Options{MaxConns: 3})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	log := slog.New(slog.DiscardHandler)
	m.Mover = &Mover{From: cell(from), To: cell(to), URL: "https://cell2.example.com", WaitLimit: time.Second}
	m.tenant = apitest.NewTenant(t, m.From, apitest.Accounts(t, m.From), "Acme")
	m.OrgID = m.tenant.ID
	var err error
	m.FromPauses, err = app.Pauses(m.From, log)
	require.NoError(t, err)
	m.ToPauses, err = app.Pauses(m.To, log)
	require.NoError(t, err)
	m.Deletions, err = app.Deletions(m.From, log)
	require.NoError(t, err)
	for _, sql := range []string{
		`INSERT INTO flow.record_set (id, org_id, chunk_size, staging_expires_at)
			VALUES (gen_random_uuid(), $1, 100, flow.clock() + interval '1 hour')`,
		`INSERT INTO flow.due (kind, key, due_at, lease_seconds)
			SELECT 'record_set_expiry', id::text, flow.clock() + interval '1 hour', 30 FROM flow.record_set WHERE org_id = $1`,
		`UPDATE flow.record_set SET status = 'sealed', expected_count = 0, sealed_at = flow.clock(),
			content_hash = repeat('0', 64) WHERE org_id = $1`,
	} {
		_, err := m.From.Exec(m.ctx, sql, m.OrgID)
		require.NoError(t, err)
	}
	return m
}

// rows are how many the organization has in a cell.
func (m *move) rows(t *testing.T, pool *pgxpool.Pool) (n int64) {
	t.Helper()
	tables, err := tablesOf(m.ctx, pool, m.OrgID)
	require.NoError(t, err)
	for _, one := range tables {
		s, err := one.sum(m.ctx, pool)
		require.NoError(t, err)
		n += s.Rows
	}
	return n
}

func (m *move) status(t *testing.T, pool *pgxpool.Pool) (status string) {
	t.Helper()
	err := pool.QueryRow(m.ctx, "SELECT status FROM flow.organization WHERE id = $1", m.OrgID).Scan(&status)
	if pg.IsNoRows(err) {
		return "none"
	}
	require.NoError(t, err)
	return status
}

// TestAbort: a move that was cut off before the switch is taken back, leaves nothing in the other cell, and can be made
// again; then it cannot be taken back.
func TestAbort(t *testing.T) {
	t.Parallel()
	m := setup(t)
	before := m.rows(t, m.From)
	m.cutAt(t, "switch")
	assert.Equal(t, []string{"moving", "moving"}, []string{m.status(t, m.From), m.status(t, m.To)})
	other := *m.Mover
	other.URL = "https://cell3.example.com"
	require.ErrorContains(t, other.Run(m.ctx), "on its way to https://cell2.example.com")

	require.NoError(t, m.Abort(m.ctx))
	assert.Equal(t, []string{"active", "none"}, []string{m.status(t, m.From), m.status(t, m.To)})
	assert.Zero(t, m.rows(t, m.To))
	var paused int
	require.NoError(t, m.From.QueryRow(m.ctx, "SELECT count(*) FROM flow.pause WHERE status = 'active'").Scan(&paused))
	assert.Zero(t, paused)

	require.NoError(t, m.Run(m.ctx))
	assert.Equal(t, []string{"deleting", "active"}, []string{m.status(t, m.From), m.status(t, m.To)})
	assert.GreaterOrEqual(t, m.rows(t, m.To), before)
	var due, hash int
	require.NoError(t, m.To.QueryRow(m.ctx, "SELECT count(*) FROM flow.due WHERE kind = 'record_set_expiry'").Scan(&due))
	require.NoError(t, m.From.QueryRow(m.ctx, `SELECT count(*) FROM flow.move_name n JOIN flow.api_key k ON k.hash = n.name
		JOIN flow.move m ON m.org_id = n.org_id AND m.moved_at IS NOT NULL`).Scan(&hash))
	assert.Equal(t, []int{1, 1}, []int{due, hash})
	require.ErrorContains(t, m.Abort(m.ctx), "has moved")
	require.NoError(t, m.Run(m.ctx), "once more")
}

// TestTransactionOpen: nothing is copied while a transaction is open that may have been let in before.
func TestTransactionOpen(t *testing.T) {
	t.Parallel()
	m := setup(t)
	var other pgx.Tx
	m.Say = func(step string) {
		if step != "close" {
			return
		}
		var err error
		other, err = m.From.Begin(m.ctx)
		require.NoError(t, err)
		_, err = other.Exec(m.ctx, "UPDATE flow.record_set SET metadata = '{\"late\": 1}' WHERE org_id = $1", m.OrgID)
		require.NoError(t, err)
	}
	err := m.Run(m.ctx)
	require.ErrorContains(t, err, "transactions have not ended")
	require.ErrorContains(t, err, fmt.Sprintf("process %d ", other.Conn().PgConn().PID()))
	require.NoError(t, other.Commit(m.ctx))
	m.Say = nil
	require.NoError(t, m.Run(m.ctx))
	var late bool
	require.NoError(t, m.To.QueryRow(m.ctx, "SELECT metadata::text LIKE '%late%' FROM flow.record_set").Scan(&late))
	assert.True(t, late)
}

// TestRefused: an organization that shares an account stays, and both go on.
func TestRefused(t *testing.T) {
	t.Parallel()
	m := setup(t)
	other := apitest.NewTenant(t, m.From, apitest.Accounts(t, m.From), "Bolt")
	_, err := m.From.Exec(m.ctx, `INSERT INTO flow.domain (tenancy_id, platform_id, account_number, time_zone)
		VALUES ('dialer:1', 'dialer', '1', 'UTC')`)
	require.NoError(t, err)
	for _, org := range []uuid.UUID{m.OrgID, other.ID} {
		_, err := m.From.Exec(m.ctx, "INSERT INTO flow.tenant (org_id, tenancy_id) VALUES ($1, 'dialer:1')", org)
		require.NoError(t, err)
	}
	require.ErrorContains(t, m.Run(m.ctx), "dialer:1")
	assert.Equal(t, "active", m.status(t, m.From))
	same := *m.Mover
	same.To = m.From
	require.ErrorContains(t, same.Run(m.ctx), "both databases are cell 1")
}

package pg_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

func names(t *testing.T, db pg.DB, sql string) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), sql)
	require.NoError(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return out
}

// TestMigrate_OpsRole: a member of the role reads every view of ops, and nothing else of ours.
func TestMigrate_OpsRole(t *testing.T) {
	t.Parallel()
	dsn, admin := pgtest.NewDatabase(t)
	_, member := pgtest.Login(t, admin, dsn, "IN ROLE "+pg.OpsRole)
	views := names(t, admin, "SELECT relname FROM pg_class WHERE relnamespace = 'ops'::regnamespace AND relkind = 'v'")
	require.Len(t, views, 13)
	for _, view := range views {
		_, err := member.Exec(t.Context(), "SELECT * FROM ops."+view)
		assert.NoError(t, err, view)
	}
	denied := func(sql string) {
		t.Helper()
		_, err := member.Exec(t.Context(), sql)
		var refused *pgconn.PgError
		if !assert.ErrorAs(t, err, &refused, sql) {
			return
		}
		assert.Equal(t, "42501", refused.Code, sql)
	}
	tables := names(t, admin, `SELECT relnamespace::regnamespace || '.' || quote_ident(relname) FROM pg_class
WHERE relnamespace IN ('flow'::regnamespace, 'river'::regnamespace) AND relkind IN ('r', 'p', 'v', 'S')`)
	require.Greater(t, len(tables), 40)
	for _, table := range tables {
		denied("SELECT * FROM " + table)
	}
	denied("SELECT flow.clock()")
	assert.Empty(t, names(t, member, "SELECT relname FROM pg_class WHERE relnamespace = 'ops'::regnamespace "+
		"AND has_table_privilege(oid, 'INSERT, UPDATE, DELETE, TRUNCATE')"))
	denied("CREATE TABLE ops.t ()")
	denied("CREATE TABLE flow.t ()")
}

// TestMigrate_OpsRoleMissing: a user that may make no roles migrates all the same, and is told what is to be done.
func TestMigrate_OpsRoleMissing(t *testing.T) {
	t.Parallel()
	dsn, admin := pgtest.NewEmpty(t)
	owner, pool := pgtest.Login(t, admin, dsn, "NOCREATEROLE")
	exec(t, admin, fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s", admin.Config().ConnConfig.Database, owner))
	require.NoError(t, pg.Migrate(t.Context(), pool))

	role := "flowlane_test_" + strings.ToLower(rand.Text()[:12])
	t.Cleanup(func() {
		exec(t, admin, "DROP OWNED BY "+role)
		exec(t, admin, "DROP ROLE "+role)
	})
	advice := func(db pg.DB) string {
		t.Helper()
		text, err := pg.OpsAdviceFor(t.Context(), db, role)
		require.NoError(t, err)
		return text
	}
	require.NoError(t, pg.GrantOps(t.Context(), pool, role))
	assert.Contains(t, advice(pool), "CREATE ROLE "+role+" NOLOGIN")
	exec(t, admin, "CREATE ROLE "+role+" NOLOGIN")
	_, stranger := pgtest.Login(t, admin, dsn, "")
	require.NoError(t, pg.GrantOps(t.Context(), stranger, role))
	assert.Contains(t, advice(stranger), "GRANT USAGE ON SCHEMA ops TO "+role)
	require.NoError(t, pg.GrantOps(t.Context(), pool, role))
	assert.Empty(t, advice(pool))
	assert.Equal(t, 1, count(t, admin, fmt.Sprintf(
		"SELECT (has_table_privilege('%s', 'ops.queue', 'SELECT') AND NOT has_table_privilege('%[1]s', "+
			"'flow.batch', 'SELECT'))::int", role)))
	require.NoError(t, pg.Migrate(t.Context(), pool), "again")
	_, err := pool.Exec(t.Context(), "SELECT count(*) FROM ops.river_backlog, ops.xmin_holder")
	require.NoError(t, err, "the owner reads them, too")
}

// TestOps_Postgres: what operators see of the server itself.
func TestOps_Postgres(t *testing.T) {
	t.Parallel()
	dsn, admin := pgtest.NewDatabase(t)
	_, member := pgtest.Login(t, admin, dsn, "IN ROLE "+pg.OpsRole)

	exec(t, admin, "INSERT INTO flow.due (kind, key, due_at, lease_seconds) SELECT 'k', n, now(), "+
		"1 FROM generate_series(1, 1000) n")
	exec(t, admin, "VACUUM ANALYZE flow.due")
	const due = "SELECT count(*) FROM ops.table_health WHERE table_schema = 'flow' AND table_name = 'due' " +
		"AND live_rows = 1000 AND dead_rows = 0 AND table_bytes > 0 AND index_bytes > 0 AND vacuumed_at IS NOT NULL " +
		"AND analyzed_at IS NOT NULL AND freeze_age >= 0"
	assert.Equal(t, 1, count(t, member, due))
	assert.Equal(t, count(t, admin, "SELECT count(*) FROM pg_class WHERE relnamespace IN ('flow'::regnamespace, "+
		"'river'::regnamespace) AND relkind = 'r'"),
		count(t, member, "SELECT count(*) FROM ops.table_health"))

	tx, err := admin.Begin(t.Context())
	require.NoError(t, err)
	var pid string
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_backend_pid()::text FROM txid_current()").Scan(&pid))
	holder := fmt.Sprintf("SELECT count(*) FROM ops.xmin_holder WHERE kind = 'session' AND name = '%s' AND held_by "+
		"LIKE '%% flowlane idle in transaction' AND began_at IS NOT NULL AND xmin_age >= 0", pid)
	assert.Equal(t, 1, count(t, member, holder))
	require.NoError(t, tx.Rollback(t.Context()))
	assert.Zero(t, count(t, member, holder))
}

// big fills the tables that grow with records and calls, as a database looks in which nearly everything is over.
const big = `
SET session_replication_role = replica;
INSERT INTO flow.budget (domain, bucket, service_id, metered, max_in_flight) SELECT 'd' || n, 'b', 's', true, 1 FROM generate_series(1, 50) n;
INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params, outcome_check, claimed_at, send_before, counts_in)
    SELECT gen_random_uuid(), gen_random_uuid(), 'd' || n % 50, 'b', 'bulk', 'a', CASE WHEN n % 4000 = 0 THEN 'unresolved' WHEN n % 4000 = 1 THEN 'unknown'
        WHEN n % 4000 = 2 THEN 'intent' ELSE 'settled' END, 'o', 1, '', '{}', 'none', now() - n * interval '10 seconds', now() - n * interval '10 seconds', '{}'
    FROM generate_series(1, 40000) n;
INSERT INTO flow.batch (id, org_id, definition_id, version, trigger_type, metadata, record_count, page_set, created_at)
    SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, 'api_call', '{}', 1, gen_random_uuid(), now()
    FROM generate_series(1, 20000) n;
INSERT INTO flow.batch_count (batch_id, org_id, status, record_count, completed, updated_at) SELECT id, org_id, 'completed', 1, 1, now() FROM flow.batch;
INSERT INTO flow.lane_batch (batch_id, step_no, task_no, org_id, definition_id, version, domain, bucket, lane, ready_parts, ready_records)
    SELECT id, 0, 0, org_id, definition_id, version, 'd1', 'b', 'bulk', CASE WHEN no % 1000 = 0 THEN 1 ELSE 0 END, CASE WHEN no % 1000 = 0 THEN 1 ELSE 0 END
    FROM (SELECT *, row_number() OVER () AS no FROM flow.batch) b;
INSERT INTO flow.ledger (domain, bucket, window_seconds, starts_at, ends_at, own, cap)
    SELECT 'd' || n % 50, 'b', 60, now() - n * interval '1 minute', now() - (n - 1) * interval '1 minute' + interval '1 second', 1, 10 FROM generate_series(0, 20000) n;
INSERT INTO flow.pause (id, scope, domain, bucket, status, cause, created_at) SELECT gen_random_uuid(), 'bucket', 'd' || n % 50, 'b', 'released', 'x', now() FROM generate_series(1, 20000) n;
INSERT INTO flow.slice (batch_id, no, first, records, state, completed) SELECT id, 0, 0, 1, 'done', 1 FROM flow.batch;
INSERT INTO flow.part (batch_id, step_no, task_no, slice_no, last_no, from_off, to_off) SELECT id, 0, 0, 0, 0, 0, 1 FROM flow.batch;
INSERT INTO flow.job (batch_id, position, slice_no, detached_step, step_no, status, updated_at) SELECT id, 0, 0, 0, 0, 'completed', now() FROM flow.batch;
SET session_replication_role = DEFAULT;
ANALYZE;`

// TestOps_Cheap: what a view reads does not grow with what is over.
func TestOps_Cheap(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.New(t).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, sql := range strings.Split(big, ";\n") {
		exec(t, conn, sql)
	}
	for _, plan := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin"} {
		exec(t, conn, "SET "+plan+" = on") // as operators have it
	}
	indexes := map[string][]string{
		"queue": {"lane_batch_", "batch_pkey"}, "call_in_flight": {"call_open"}, "unknown_outcome": {"call_open",
			"call_unresolved"},
		"hold": {"pause_"}, "budget_window": {"ledger_old"}, "retry_storm": {"call_recent"},
	}
	for _, view := range names(t, conn,
		"SELECT relname FROM pg_class WHERE relnamespace = 'ops'::regnamespace AND relkind = 'v'") {
		plan := strings.Join(names(t, conn, "EXPLAIN SELECT * FROM ops."+view), "\n")
		assert.NotRegexp(t, `Seq Scan on (call|batch|lane_batch|ledger|pause)\b`, plan, view)
		assert.NotRegexp(t, `(?i)\b(part|slice|job|fragment|page|record_chunk|store_record)\b`, strings.ReplaceAll(plan,
			"river_job", ""), view)
		for _, index := range indexes[view] {
			assert.Contains(t, plan, index, view)
		}
	}
}

package pg_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/internal/pg/ddl"
	"flowlane/test/pgtest"
)

// later is a migrator that knows one migration more than this program.
func later(t *testing.T, sql string) pg.Migrator {
	t.Helper()
	return pg.Migrator{Files: pgtest.Migrations(t, map[string]string{"90001_later.sql": sql}),
		LockTimeout: 200 * time.Millisecond}
}

const (
	addNote    = "ALTER TABLE flow.batch ADD COLUMN note text DEFAULT 'none'"
	buildIndex = "-- migrate: outside a transaction\n" +
		"CREATE INDEX CONCURRENTLY IF NOT EXISTS batch_later ON flow.batch (created_at, id)"
	hasNote = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'flow.batch'::regclass AND attname = 'note'"
	applied = "SELECT count(*) FROM flow.schema_version WHERE version_id = 90001"
)

// writing is a transaction that has changed a row of flow.batch, or none, until it is ended.
func writing(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	exec(t, tx, "UPDATE flow.batch SET id = id")
	return tx
}

// up runs a migrator beside the test.
func up(ctx context.Context, pool *pgxpool.Pool, m pg.Migrator) <-chan error {
	done := make(chan error, 1)
	go func() { done <- m.Up(ctx, pool) }()
	return done
}

func awaitCount(t *testing.T, db pg.DB, sql string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return count(t, db, sql) == n }, 60*time.Second, 10*time.Millisecond, sql)
}

// TestMigrator_Locked: a migration gives up a lock that it does not get, says who is in its way, and gets it later.
func TestMigrator_Locked(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	tx := writing(t, pool)
	m := later(t, addNote)
	m.LockWait = 1500 * time.Millisecond // two attempts
	err := m.Up(t.Context(), pool)
	locked, ok := errors.AsType[*pg.LockError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, 2, locked.Attempts)
	require.Len(t, locked.Blockers, 1)
	require.EqualValues(t, tx.Conn().PgConn().PID(), locked.Blockers[0].PID)
	for _, part := range []string{
		"90001_later.sql:1: ALTER TABLE flow.batch ADD COLUMN note", "idle in transaction", "UPDATE flow.batch SET id",
		"pg_terminate_backend(",
	} {
		require.ErrorContains(t, err, part)
	}
	require.Zero(t, count(t, pool, hasNote)+count(t, pool, applied))

	m.LockWait = 0
	done := up(t.Context(), pool, m)
	awaitCount(t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "+
		"AND application_name = 'flowlane migrate' AND wait_event_type = 'Lock'", 1)
	// others go on
	awaitCount(t, pool, "SELECT count(*) FROM pg_locks WHERE relation = 'flow.batch'::regclass AND NOT granted", 0)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-done)
	require.Equal(t, 2, count(t, pool, hasNote)+count(t, pool, applied))
}

// TestMigrator_Fails: nothing is left of a migration of which a statement fails.
func TestMigrator_Fails(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	err := later(t, addNote+";\nALTER TABLE flow.batch ADD COLUMN id text").Up(t.Context(), pool)
	require.ErrorContains(t, err, "90001_later.sql:2: ALTER TABLE flow.batch ADD COLUMN id text: ")
	require.Zero(t, count(t, pool, hasNote)+count(t, pool, applied))
}

// TestMigrator_Resumes: an index whose building was cut off is built anew, and who migrates at the same time is not in
// its way.
func TestMigrator_Resumes(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	m := later(t, buildIndex)
	const index = "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('flow.batch_later') AND indisvalid = "
	tx := writing(t, pool)
	ctx, cut := context.WithCancel(t.Context())
	done := up(ctx, pool, m)
	awaitCount(t, pool, index+"false", 1)
	cut()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Equal(t, 1, count(t, pool, index+"false"))
	require.Zero(t, count(t, pool, applied))
	require.NoError(t, tx.Rollback(t.Context()))

	tx = writing(t, pool)
	first, second := up(t.Context(), pool, m), up(t.Context(), pool, m)
	// It waits for longer than others, as nobody waits behind it.
	awaitCount(t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '% "+
		"INDEX CONCURRENTLY %' AND wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '500 ms'", 1)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-first)
	require.NoError(t, <-second)
	require.Equal(t, 2, count(t, pool, index+"true")+count(t, pool, applied))
}

// TestMigrator_Versions: a program runs on a database that a later one has migrated, until a migration says that it
// must not.
func TestMigrator_Versions(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	require.NoError(t, later(t, addNote).Up(t.Context(), pool))
	require.NoError(t, pg.CheckSchema(t.Context(), pool))
	require.NoError(t, pg.Migrate(t.Context(), pool))

	files := pgtest.Migrations(t, map[string]string{
		"90001_later.sql": addNote,
		"90002_end.sql":   "-- migrate: least program 90001\nALTER TABLE flow.batch DROP COLUMN note",
	})
	require.NoError(t, pg.Migrator{Files: files}.Up(t.Context(), pool))
	for _, err := range []error{pg.CheckSchema(t.Context(), pool), pg.Migrate(t.Context(), pool)} {
		newer, ok := errors.AsType[pg.SchemaNewerError](err)
		require.True(t, ok, "%v", err)
		require.EqualValues(t, []int64{90001, 90002}, []int64{newer.Needs, newer.Has})
	}
	exec(t, pool, "INSERT INTO river.river_migration (line, version) VALUES ('main', 90000)")
	require.NoError(t, later(t, addNote).Up(t.Context(), pool), "this one knows what is asked for")

	exec(t, pool, "DELETE FROM flow.schema_version WHERE version_id >= 18; "+
		"DELETE FROM river.river_migration WHERE version = 5")
	older, ok := errors.AsType[pg.SchemaOlderError](pg.CheckSchema(t.Context(), pool))
	require.True(t, ok)
	require.Equal(t, 2, older.Missing)
}

// TestMigrator_Plan: what a migration does to tables that are there is told, also of those that it does not name.
func TestMigrator_Plan(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	exec(t, pool, "INSERT INTO flow.organization (id, name) SELECT gen_random_uuid(), "+
		"n::text FROM generate_series(1, 40) n")
	exec(t, pool, "ANALYZE flow.organization")
	exec(t, pool, "CREATE TABLE flow.of (org uuid CONSTRAINT of_org REFERENCES flow.organization); "+
		"CREATE INDEX of_index ON flow.of (org)")
	files := pgtest.Migrations(t, map[string]string{
		"90001_a.sql": "-- migrate: least program 7\nCREATE TABLE flow.own (n int); CREATE INDEX ON flow.own (n); " +
			"ALTER TABLE flow.of DROP CONSTRAINT of_org; DROP INDEX flow.of_index",
		"90002_b.sql": "-- migrate: outside a transaction\n" +
			"CREATE INDEX CONCURRENTLY IF NOT EXISTS more ON flow.organization (name)",
		"90003_c.sql": "ALTER TABLE flow.of ADD CONSTRAINT there CHECK (org IS NOT NULL) NOT VALID",
		"90004_d.sql": "ALTER TABLE flow.of VALIDATE CONSTRAINT there",
		"90005_e.sql": "ALTER TABLE flow.of ALTER org SET NOT NULL",
		"90006_f.sql": "SELECT flow.clock()",
		"90007_g.sql": "COMMENT ON TABLE flow.batch IS 'x';\nALTER TABLE of ADD more int;\n" +
			"UPDATE flow.organization SET name = ''",
	})
	m := pg.Migrator{Files: files}
	plan, err := m.Plan(t.Context(), pool)
	require.NoError(t, err)
	require.Len(t, plan, 7)
	require.EqualValues(t, []any{7, true, false}, []any{int(plan[0].LeastProgram), plan[0].Transaction,
		plan[1].Transaction})
	type effect struct {
		table        string
		lock         string
		reads, write bool
	}
	var got [][]effect
	for _, p := range plan {
		for _, s := range p.Statements {
			var effects []effect
			for _, e := range s.Effects {
				effects = append(effects, effect{e.Table, e.Lock.String(), e.Scans, e.Rewrites})
			}
			got = append(got, effects)
		}
	}
	full := func(table string) effect { return effect{table, "AccessExclusive", false, false} }
	require.Equal(t, [][]effect{
		nil, nil, {full("flow.of"), full("flow.organization")}, {full("flow.of")},
		{{"flow.organization", "ShareUpdateExclusive", true, false}},
		{full("flow.of")},
		{{"flow.of", "ShareUpdateExclusive", true, false}, {"flow.organization", "ShareUpdateExclusive", false, false}},
		{full("flow.of")},
		{{"", "AccessExclusive", true, true}},
		{{"flow.batch", "ShareUpdateExclusive", false, false}}, {full("flow.of")},
		{{"flow.organization", "RowExclusive", true, false}},
	}, got)
	index := plan[1].Statements[0].Effects[0]
	require.Empty(t, plan[1].Holds())
	require.Equal(t, []pg.PlannedHold{{Table: "flow.of", Lock: ddl.AccessExclusive, From: 2, To: 3,
		Reads: index.Bytes}}, plan[6].Holds())
	require.EqualValues(t, 40, index.Rows)
	require.Greater(t, index.Bytes, int64(8000))
	require.EqualValues(t, -1, plan[2].Statements[0].Effects[0].Rows)
	require.Zero(t, count(t, pool, "SELECT count(*) FROM flow.schema_version WHERE version_id > 90000"))
}

package ddl_test

import (
	_ "embed"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg/ddl"
	"flowlane/schema"
	"flowlane/test/pgtest"
)

//go:embed testdata/things.sql
var things string

//go:embed testdata/statements.sql
var examples string

// TestMeaning: Postgres locks, reads and rewrites no more than is said of a statement.
func TestMeaning(t *testing.T) {
	t.Parallel()
	_, pool := pgtest.NewEmpty(t)
	_, err := pool.Exec(t.Context(), things)
	require.NoError(t, err)
	statements, err := ddl.Split(examples)
	require.NoError(t, err)
	require.Greater(t, len(statements), 80)
	for _, s := range statements {
		require.True(t, s.Meaning().Known, s.Text)
		compare(t, pool, s, "flow", false)
	}
}

// TestMeaning_Migrations does the same for the statements of migrations that there are, which are applied one after
// the other.
func TestMeaning_Migrations(t *testing.T) {
	t.Parallel()
	_, pool := pgtest.NewEmpty(t)
	_, err := pool.Exec(t.Context(), "CREATE SCHEMA river")
	require.NoError(t, err)
	count := 0
	apply := func(files fs.FS, pattern, in string) {
		paths, err := fs.Glob(files, pattern)
		require.NoError(t, err)
		for _, path := range paths {
			text, err := fs.ReadFile(files, path)
			require.NoError(t, err)
			statements, err := ddl.Split(strings.ReplaceAll(string(text), "/* TEMPLATE: schema */", in))
			require.NoError(t, err, path)
			for _, s := range statements {
				compare(t, pool, s, "flow", true)
				count++
			}
		}
	}
	apply(schema.FS, "*.sql", "")
	apply(riverpgxv5.New(nil).GetMigrationFS("main"), "*/main/*.up.sql", "river.")
	require.Greater(t, count, 200)
}

// did is what Postgres does to a relation.
type did struct {
	lock             ddl.Lock
	reads, rewritten bool
}

// compare runs a statement, and holds what it does to relations that were there against what is said of it.
func compare(t *testing.T, pool *pgxpool.Pool, s ddl.Statement, in string, keep bool) {
	t.Helper()
	said, related := map[string]ddl.Effect{}, false
	m := s.Meaning()
	for _, e := range m.Effects {
		name := e.Object
		if !strings.Contains(name, ".") {
			name = in + "." + name
		}
		if e.Index {
			var of string
			require.NoError(t, pool.QueryRow(t.Context(),
				"SELECT indrelid::regclass::text FROM pg_index WHERE indexrelid = $1::regclass", name).Scan(&of),
				s.Text)
			name = of
		}
		said[name], related = e, related || e.Related
	}
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	before := relations(t, tx)
	_, err = tx.Exec(t.Context(), s.Text)
	require.NoError(t, err, s.Text)
	for oid, is := range doneBy(t, tx, before) {
		e, ok := said[before[oid].name]
		switch {
		case !m.Known || related && !ok:
		case !ok && is.lock == ddl.RowExclusive && strings.HasPrefix(s.Text, "CREATE FUNCTION"):
			// Its text is looked at as it is made. That holds up no reads and no writes.
		case !ok && is.lock >= ddl.RowExclusive:
			t.Errorf("%s: nothing is said of %s, which is locked in mode %s", s.Short(), before[oid].name, is.lock)
		case is.lock > max(e.Lock, ddl.AccessShare) && is.lock > ddl.RowShare, is.reads && !e.Scans, is.rewritten &&
			!e.Rewrites:
			t.Errorf("%s: %+v happens to %s, and %+v is said", s.Short(), is, before[oid].name, e)
		}
	}
	if keep {
		require.NoError(t, tx.Commit(t.Context()))
	}
}

type relation struct {
	name string
	file uint32
	// scans counts; it goes on from one transaction to the next.
	scans int64
}

func relations(t *testing.T, tx pgx.Tx) map[uint32]relation {
	t.Helper()
	rows, err := tx.Query(t.Context(),
		`SELECT c.oid, c.oid::regclass::text, c.relfilenode, pg_stat_get_xact_numscans(c.oid) FROM pg_class c
		WHERE c.relkind IN ('r', 'p', 'v') AND c.relnamespace::regnamespace::text IN ('flow', 'ops', 'river')`)
	require.NoError(t, err)
	out := map[uint32]relation{}
	var oid uint32
	var r relation
	_, err = pgx.ForEachRow(rows, []any{&oid, &r.name, &r.file, &r.scans}, func() error {
		out[oid] = r
		return nil
	})
	require.NoError(t, err)
	return out
}

// doneBy is what a transaction has done to relations.
func doneBy(t *testing.T, tx pgx.Tx, before map[uint32]relation) map[uint32]did {
	t.Helper()
	out := map[uint32]did{}
	rows, err := tx.Query(t.Context(),
		"SELECT relation, mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation' AND granted")
	require.NoError(t, err)
	var oid uint32
	var mode string
	_, err = pgx.ForEachRow(rows, []any{&oid, &mode}, func() error {
		if _, ok := before[oid]; !ok {
			return nil
		}
		for l := ddl.AccessShare; l <= ddl.AccessExclusive; l++ {
			if l.String()+"Lock" == mode {
				is := out[oid]
				is.lock = max(is.lock, l)
				out[oid] = is
				return nil
			}
		}
		return fmt.Errorf("unknown mode %s", mode)
	})
	require.NoError(t, err)
	after := relations(t, tx)
	for oid, is := range out {
		is.reads = after[oid].scans > before[oid].scans
		is.rewritten = after[oid].file != 0 && after[oid].file != before[oid].file
		out[oid] = is
	}
	return out
}

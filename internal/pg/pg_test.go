package pg_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

func exec(t *testing.T, db pg.DB, sql string) {
	t.Helper()
	if _, err := db.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func count(t *testing.T, db pg.DB, sql string) (n int) {
	t.Helper()
	if err := db.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// setupTable returns a pool on a database with the table t(id), unique but checked only at commit.
func setupTable(t *testing.T) *pgxpool.Pool {
	t.Helper()
	_, pool := pgtest.NewEmpty(t)
	exec(t, pool, "CREATE TABLE t (id int CONSTRAINT t_once UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	return pool
}

func insert(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO t VALUES (1)")
	return err
}

// TestAfterCommit: what comes after a commit comes once it is there, and not where there is none.
func TestAfterCommit(t *testing.T) {
	t.Parallel()
	pool := setupTable(t)
	abort := errors.New("abort")
	var rows []int
	then := func() { rows = append(rows, count(t, pool, "SELECT count(*) FROM t")) }
	do := func(result error) error {
		return pg.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
			pg.AfterCommit(ctx, then)
			pg.AfterCommit(ctx, then)
			return errors.Join(insert(ctx, tx), result)
		})
	}
	require.ErrorIs(t, do(abort), abort)
	require.Empty(t, rows)
	require.NoError(t, do(nil))
	require.Equal(t, []int{1, 1}, rows)
	require.Error(t, do(nil), "of a row that is there")
	pg.AfterCommit(t.Context(), then)
	require.Len(t, rows, 2)
}

// TestAtEnd: who asks is told once of the end of a transaction, whatever becomes of it.
func TestAtEnd(t *testing.T) {
	t.Parallel()
	pool := setupTable(t)
	var ends []bool
	do := func(result error) error {
		return pg.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
			require.True(t, pg.AtEnd(ctx, func(committed bool) { ends = append(ends, committed) }))
			return errors.Join(insert(ctx, tx), result)
		})
	}
	require.NoError(t, do(nil))
	require.Error(t, do(errors.New("abort")))
	require.Panics(t, func() {
		_ = pg.InTx(t.Context(), pool, func(ctx context.Context, _ pgx.Tx) error {
			require.True(t, pg.AtEnd(ctx, func(committed bool) { ends = append(ends, committed) }))
			panic("oops")
		})
	})
	require.Equal(t, []bool{true, false, false}, ends)
	require.False(t, pg.AtEnd(t.Context(), func(bool) { t.Error("there was no transaction") }))
}

func TestInTx(t *testing.T) {
	t.Parallel()
	abort := errors.New("abort")
	cases := map[string]struct {
		do   func(ctx context.Context, tx pgx.Tx) error
		rows int
		err  error
	}{
		"Commit": {insert, 1, nil},
		"Rollback": {func(ctx context.Context, tx pgx.Tx) error { return errors.Join(insert(ctx, tx), abort) }, 0,
			abort},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := setupTable(t)
			err := pg.InTx(context.Background(), pool, c.do)
			if !errors.Is(err, c.err) || pg.CommitUnknown(err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if n := count(t, pool, "SELECT count(*) FROM t"); n != c.rows {
				t.Fatalf("%d rows, want %d", n, c.rows)
			}
		})
	}
}

// TestInTxKept: a statement has one plan whatever its arguments, in that transaction alone, which is as isolated as
// others.
func TestInTxKept(t *testing.T) {
	t.Parallel()
	pool := setupTable(t)
	mode, isolation := "", ""
	read := func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT current_setting('plan_cache_mode'), current_setting('transaction_isolation')").
			Scan(&mode, &isolation)
	}
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	require.NoError(t, pg.InTxGenericPlan(t.Context(), conn, read))
	require.Equal(t, []string{"force_generic_plan", "read committed"}, []string{mode, isolation})
	require.NoError(t, pg.InTx(t.Context(), conn, read))
	require.Equal(t, []string{"auto", "read committed"}, []string{mode, isolation})
}

func TestInTx_PanicRollsBackAndFreesTheConnection(t *testing.T) {
	t.Parallel()
	pool := setupTable(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = pg.InTx(context.Background(), pool, func(ctx context.Context, tx pgx.Tx) error {
			if err := insert(ctx, tx); err != nil {
				t.Error(err)
			}
			panic("broken")
		})
	}()
	if n := count(t, pool, "SELECT count(*) FROM t"); n != 0 || pool.Stat().AcquiredConns() != 0 {
		t.Fatalf("%d rows, %d connections in use", n, pool.Stat().AcquiredConns())
	}
}

func TestInTx_CallerGone(t *testing.T) {
	t.Parallel()
	pool := setupTable(t)
	ctx, cancel := context.WithCancel(context.Background())
	err := pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		defer cancel()
		return insert(ctx, tx)
	})
	if !errors.Is(err, context.Canceled) || pg.CommitUnknown(err) {
		t.Fatalf("error %v", err)
	}
	if n := count(t, pool, "SELECT count(*) FROM t"); n != 0 {
		t.Fatal("it was committed for a caller who had gone")
	}
}

func TestInTx_IsReadCommitted(t *testing.T) {
	t.Parallel()
	pool := setupTable(t)
	exec(t, pool, "ALTER DATABASE "+pool.Config().ConnConfig.Database+
		" SET default_transaction_isolation = 'serializable'")
	pool.Reset()
	err := pg.InTx(context.Background(), pool, func(ctx context.Context, tx pgx.Tx) error {
		var level string
		if err := tx.QueryRow(ctx, "SHOW transaction_isolation").Scan(&level); err != nil {
			return err
		}
		if level != "read committed" {
			t.Errorf("isolation %q", level)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCommitUnknown_Refused(t *testing.T) {
	t.Parallel()
	pool := setupTable(t)
	exec(t, pool, "INSERT INTO t VALUES (1)")
	err := pg.InTx(context.Background(), pool, insert)
	if !pg.IsUnique(err, "t_once") || !pg.IsUnique(err, "") || pg.IsUnique(err, "other") {
		t.Fatalf("error %v, want the unique constraint t_once", err)
	}
	if pg.CommitUnknown(err) {
		t.Fatalf("%v is an answer", err)
	}
}

// The server ends the connection while it commits: after the client sent the commit, before any answer.
func TestCommitUnknown_ConnectionEndsInCommit(t *testing.T) {
	t.Parallel()
	pool := setupTable(t)
	exec(t, pool, `CREATE FUNCTION hang_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$`)
	exec(t, pool, `CREATE CONSTRAINT TRIGGER hang_up AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hang_up()`)
	err := pg.InTx(context.Background(), pool, insert)
	if !pg.CommitUnknown(err) || !pg.IsConnection(err) {
		t.Fatalf("error %v, want an unknown outcome", err)
	}
}

func TestCommitUnknown_ConnectionEndedBefore(t *testing.T) {
	t.Parallel()
	pool := setupTable(t)
	err := pg.InTx(context.Background(), pool, func(ctx context.Context, tx pgx.Tx) error {
		return tx.Conn().PgConn().Conn().Close()
	})
	if err == nil {
		t.Fatal("committed over a closed connection")
	}
	err = pg.InTx(context.Background(), pool, func(ctx context.Context, tx pgx.Tx) error {
		_ = tx.Conn().Close(ctx)
		return nil
	})
	if err == nil || pg.CommitUnknown(err) {
		t.Fatalf("error %v: nothing was sent", err)
	}
}

func TestIsSerialization(t *testing.T) {
	t.Parallel()
	pool := setupTable(t)
	_, err := pool.Exec(context.Background(), "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40P01'; END $$")
	if !pg.IsSerialization(err) || pg.IsConnection(err) || pg.IsUnique(err, "") || pg.IsNoRows(err) {
		t.Fatalf("%v was taken for something else", err)
	}
	if pg.IsSerialization(nil) || pg.IsConnection(nil) || pg.IsUnique(nil, "") || pg.CommitUnknown(nil) {
		t.Fatal("no error was taken for one")
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewEmpty(t)
	pool, err := pg.Open(context.Background(), dsn, pg.Options{MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var name string
	var at time.Time
	if err := pool.QueryRow(context.Background(), "SELECT current_setting('application_name'), now()").Scan(&name,
		&at); err != nil {
		t.Fatal(err)
	}
	if name != "flowlane" || at.Location() != time.UTC || pool.Config().MaxConns != 3 {
		t.Fatalf("application %q, zone %s, %d connections", name, at.Location(), pool.Config().MaxConns)
	}
}

func TestOpen_Errors(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"Empty":       "",
		"Unreadable":  "postgres://u:topsecret@:what/db",
		"Unreachable": "postgres://u:topsecret@127.0.0.1:1/db",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := pg.Open(context.Background(), dsn, pg.Options{})
			if err == nil || !strings.Contains(err.Error(), "DATABASE_URL") || strings.Contains(err.Error(),
				"topsecret") {
				t.Fatalf("error %v must name DATABASE_URL and keep the password", err)
			}
		})
	}
}

// A database that cannot hold all text is refused, with what to do.
func TestOpen_Encoding(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewEmpty(t)
	pool, err := pg.Open(t.Context(), dsn, pg.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	name := pool.Config().ConnConfig.Database + "_ascii"
	if _, err := pool.Exec(t.Context(), "CREATE DATABASE "+name+
		" ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = pool.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)") }()
	ascii := strings.Replace(dsn, "/"+pool.Config().ConnConfig.Database, "/"+name, 1)
	_, err = pg.Open(t.Context(), ascii, pg.Options{})
	if err == nil || !strings.Contains(err.Error(), "is encoded in SQL_ASCII") ||
		!strings.Contains(err.Error(), "ENCODING 'UTF8'") {
		t.Errorf("a database of another encoding: %v", err)
	}
}

func TestMigrate_SeveralAtOnceOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn, pool := pgtest.NewEmpty(t)
	before, err := pg.Status(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range before {
		if m.Applied {
			t.Fatalf("%+v is applied to an empty database", m)
		}
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			own, err := pg.Open(ctx, dsn, pg.Options{MaxConns: 1})
			if err != nil {
				t.Error(err)
				return
			}
			defer own.Close()
			if err := pg.Migrate(ctx, own); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	after, err := pg.Status(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for _, m := range after {
		lines[m.Line]++
		if !m.Applied || m.Name == "" || m.Line == "flow" && time.Since(m.AppliedAt).Abs() > time.Hour {
			t.Errorf("%+v, want applied just now", m)
		}
	}
	if lines["flow"] == 0 || lines[pg.RiverSchema] == 0 || len(after) != len(before) {
		t.Fatalf("migrations by line: %v", lines)
	}
	if n := count(t, pool, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); n != 0 {
		t.Fatalf("%d tables in the schema public", n)
	}
}

// TestMigrate_Differs: tables that another version of the program made are left alone.
func TestMigrate_Differs(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"OtherFile": "UPDATE flow.schema_version SET content_sha256 = repeat('0', 64) WHERE version_id = 3",
		"OlderSchema": "ALTER TABLE flow.schema_version DROP COLUMN content_sha256, " +
			"DROP COLUMN least_program, DROP COLUMN applied_at",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			_, err := pool.Exec(t.Context(), "DELETE FROM flow.schema_version WHERE version_id > 3; "+change)
			require.NoError(t, err)
			differs, ok := errors.AsType[pg.SchemaDiffersError](pg.CheckSchema(t.Context(), pool))
			require.True(t, ok)
			require.Equal(t, map[string]string{"OtherFile": "00003_credential.sql",
				"OlderSchema": "00001_base.sql"}[name], differs.Name)
			require.ErrorAs(t, pg.Migrate(t.Context(), pool), &pg.SchemaDiffersError{}, "nothing is applied to it")
		})
	}
}

// BenchmarkMigrate_Nothing is what every start of a server pays.
func BenchmarkMigrate_Nothing(b *testing.B) {
	pool := pgtest.New(b)
	for b.Loop() {
		if err := pg.Migrate(b.Context(), pool); err != nil {
			b.Fatal(err)
		}
	}
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	_, pool := pgtest.NewEmpty(t)
	id, other := uuid.New(), uuid.New()
	var got uuid.UUID
	var list []uuid.UUID
	var absent, present *uuid.UUID
	var text string
	err := pool.QueryRow(t.Context(), "SELECT $1::uuid, $2::uuid[], NULL::uuid, $1::uuid, $1::text", id,
		[]uuid.UUID{id, other}).Scan(&got, &list, &absent, &present, &text)
	require.NoError(t, err)
	require.Equal(t, id, got)
	require.Equal(t, []uuid.UUID{id, other}, list)
	require.Nil(t, absent)
	require.Equal(t, id, *present)
	require.Equal(t, id.String(), text)
	require.Error(t, pool.QueryRow(t.Context(), "SELECT NULL::uuid").Scan(&got), "nothing is no id")
}

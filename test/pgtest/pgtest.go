// Package pgtest gives every test a database of its own, with the whole schema, in a few tens of milliseconds: a clone
// of a template. The server is the one that FLOWLANE_TEST_DATABASE_URL names, else an embedded one that all test
// processes share, else a container; which one is printed once. Only tests import it.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

const (
	// databasePrefix marks databases that may be dropped when no test runs.
	databasePrefix = "flowlane_test_"
	poolSize       = 10
	// endTimeout ends a test that would hang: to drop a database takes a checkpoint, which is slow where the machine is
	// busy.
	endTimeout = time.Minute
)

// New returns a pool on a new database that has every migration. It is closed, and the database dropped, when the test
// ends; by then the test must have stopped whatever uses it.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	dsn, pool := NewDatabase(t)
	if !Pooled() {
		return pool
	}
	pooled, err := pg.Open(t.Context(), dsn, pg.Options{MaxConns: poolSize, Pooled: true})
	if err != nil {
		t.Fatalf("pgtest: open the test's database through a pooler: %v", err)
	}
	t.Cleanup(pooled.Close)
	return pooled
}

// NewDatabase is New for tests that hand the address to another pool or process. Where tests are Pooled, the address is
// that of the pooler, and the pool is connected to Postgres itself.
func NewDatabase(t testing.TB) (dsn string, pool *pgxpool.Pool) {
	t.Helper()
	dsn, pool = create(t, true)
	if !Pooled() {
		return dsn, pool
	}
	pooler, err := sharedPooler()
	if err != nil {
		t.Fatalf("pgtest: no pooler for tests: %v", err)
	}
	for _, address := range []string{dsn, RuntimeDSN(t, dsn)} {
		if err := settle(t.Context(), address, pool.Config().ConnConfig.Database); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
	return pooler.DSN(t, dsn), pool
}

// NewEmpty returns the address of a new database without any migration.
func NewEmpty(t testing.TB) (dsn string, pool *pgxpool.Pool) {
	t.Helper()
	return create(t, false)
}

// NewCopy returns a copy of the files of the database of dsn, to which nobody may be connected.
func NewCopy(t testing.TB, dsn string) (string, *pgxpool.Pool) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("pgtest: the address is no URL: %v", err)
	}
	return createOf(t, strings.TrimPrefix(u.Path, "/"))
}

// settle gives the user of an address what its connections through a pooler lack, as an operator does, and in this
// database alone.
func settle(ctx context.Context, address, database string) error {
	pool, err := pg.Open(ctx, address, pg.Options{MaxConns: 1, Pooled: true})
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	defer pool.Close()
	unset, err := pg.Unset(ctx, pool)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	for _, sql := range unset {
		if _, err := pool.Exec(ctx, strings.Replace(sql, " SET ", " IN DATABASE "+database+" SET ", 1)); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func create(t testing.TB, migrated bool) (string, *pgxpool.Pool) {
	t.Helper()
	if migrated {
		return createOf(t, "")
	}
	return createOf(t, "template0")
}

// createOf makes a copy of a database; of the template where it is empty.
func createOf(t testing.TB, source string) (string, *pgxpool.Pool) {
	t.Helper()
	migrated := source == ""
	srv, err := connect()
	if err != nil {
		t.Fatalf("pgtest: no Postgres for tests: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if migrated {
		if source, err = srv.template(ctx); err != nil {
			t.Fatalf("pgtest: make the template: %v", err)
		}
	}
	name := databasePrefix + strings.ToLower(rand.Text()[:16])
	clone := func() error {
		// To copy files takes a third of the time that it takes to write all pages of the template to the log.
		_, err := srv.admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+source+" STRATEGY file_copy")
		return err
	}
	err = clone()
	var refused *pgconn.PgError
	// no such database: a program of another schema has removed it, as too old
	if migrated && errors.As(err, &refused) && refused.Code == "3D000" {
		if _, err = srv.ensureTemplate(ctx); err == nil {
			err = clone()
		}
	}
	if err != nil {
		t.Fatalf("pgtest: create a database: %v", err)
	}
	dsn := withDatabase(srv.dsn, name)
	pool, err := pg.Open(ctx, dsn, pg.Options{MaxConns: poolSize})
	if err != nil {
		t.Fatalf("pgtest: open the test's database: %v", err)
	}
	t.Cleanup(func() { drop(t, srv, pool, name) })
	if migrated { // the template may be of yesterday, and nobody saw the time pass since
		if _, err := pool.Exec(ctx, "UPDATE flow.retention_clock SET reached = now(), moved_at = now()"); err != nil {
			t.Fatalf("pgtest: set the clock of deletions: %v", err)
		}
	}
	return dsn, pool
}

func drop(t testing.TB, srv *server, pool *pgxpool.Pool, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		t.Errorf("pgtest: the test ended without giving back %d connections", pool.Stat().AcquiredConns())
	}
	ctx, cancel = context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if _, err := srv.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
		t.Errorf("pgtest: drop the test's database: %v", err)
	}
}

// MoveClock moves flow.clock() of this database ahead by d, on top of earlier moves: for whoever looks, so much time
// has passed.
func MoveClock(t testing.TB, db pg.DB, d time.Duration) {
	t.Helper()
	moveClock(t, db, "UPDATE flow.clock_offset SET ahead = ahead + make_interval(secs => $1)", d)
}

// StepClock has flow.clock() of this database step by d, ahead or back, as a clock does that is set: no time has
// passed.
func StepClock(t testing.TB, db pg.DB, d time.Duration) {
	t.Helper()
	moveClock(t, db, "UPDATE flow.clock_offset SET ahead = ahead + make_interval(secs => $1), "+
		"stepped = stepped + make_interval(secs => $1)", d)
}

func moveClock(t testing.TB, db pg.DB, sql string, d time.Duration) {
	t.Helper()
	tag, err := db.Exec(context.Background(), sql, d.Seconds())
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("pgtest: move the clock: %v (%d rows)", err, tag.RowsAffected())
	}
}

// withDatabase puts another database's name into an address.
func withDatabase(dsn, name string) string {
	if u, err := url.Parse(dsn); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		u.Path = "/" + name
		return u.String()
	}
	return fmt.Sprintf("%s dbname=%s", dsn, name)
}

// WriteOutParts writes the parts that stand in queues, and their slices, to their tables, where a test can change them.
func WriteOutParts(t testing.TB, conn pg.DB) {
	t.Helper()
	var ids []uuid.UUID
	err := conn.QueryRow(t.Context(),
		"SELECT coalesce(array_agg(batch_id), '{}') FROM flow.lane_batch WHERE part_id IS NOT NULL").Scan(&ids)
	if err == nil {
		_, err = db.New().SlicesWriteOut(t.Context(), conn, ids)
	}
	if err == nil {
		err = db.New().PartsWriteOut(t.Context(), conn, ids)
	}
	if err != nil {
		t.Fatalf("write out parts: %v", err)
	}
}

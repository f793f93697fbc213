package pg_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/pg"
	"flowlane/internal/pg/devpg"
	"flowlane/test/pgtest"
)

// named is a transaction that ended with this result.
func named(t *testing.T, db pg.Beginner, result error) (id string) {
	t.Helper()
	err := pg.InTx(t.Context(), db, func(ctx context.Context, tx pgx.Tx) (err error) {
		if _, err = tx.Exec(ctx, "SET LOCAL synchronous_commit = local"); err == nil {
			id, err = pg.TxID(ctx, tx)
		}
		return errors.Join(err, result)
	})
	if !errors.Is(err, result) {
		t.Fatal(err)
	}
	return id
}

func TestCommitted(t *testing.T) {
	t.Parallel()
	_, pool := pgtest.NewDatabase(t)
	did, did2 := named(t, pool, nil), named(t, pool, errors.ErrUnsupported)
	for id, want := range map[string]bool{did: true, did2: false} {
		if is, err := pg.Committed(t.Context(), pool, id); err != nil || is != want {
			t.Errorf("%s: %t, %v; want %t", id, is, err, want)
		}
	}
	// a standby that was promoted has given the number to another transaction
	number, _, _ := strings.Cut(did, "/")
	if is, err := pg.Committed(t.Context(), pool, number+"/77"); err == nil {
		t.Errorf("of another timeline: %t, and no error", is)
	}
}

// TestCommitted_NotOnTheStandby: who waits for a standby, and leaves, has the server show a commit that no standby has.
func TestCommitted_NotOnTheStandby(t *testing.T) {
	t.Parallel()
	server, err := devpg.Start(t.Context(), devpg.Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	pool, err := pg.Open(t.Context(), server.DSN(), pg.Options{MaxConns: 6})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pg.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	exec(t, pool, "SELECT pg_reload_conf()")
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	for err == nil { // until the server has read that
		_, err = pool.Exec(soon(), "SELECT pg_logical_emit_message(true, '', '')")
	}
	id := named(t, pool, nil)
	if is, err := pg.Committed(soon(), pool, id); err == nil {
		t.Errorf("%t, and no error", is)
	}
}

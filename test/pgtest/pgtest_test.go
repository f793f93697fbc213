package pgtest_test

import (
	"context"
	"testing"
	"time"

	"flowlane/test/pgtest"
)

func TestNew_IsMigratedAndApart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	one, two := pgtest.New(t), pgtest.New(t)
	if _, err := one.Exec(ctx,
		"INSERT INTO flow.due (kind, key, due_at, lease_seconds) VALUES ('k', 'x', now(), 1)"); err != nil {
		t.Fatal(err)
	}
	var inOne, inTwo, river int
	if err := one.QueryRow(ctx, "SELECT count(*) FROM flow.due").Scan(&inOne); err != nil {
		t.Fatal(err)
	}
	if err := two.QueryRow(ctx, "SELECT (SELECT count(*) FROM flow.due), (SELECT count(*) FROM river.river_job)").Scan(
		&inTwo, &river); err != nil {
		t.Fatal(err)
	}
	if inOne != 1 || inTwo != 0 || river != 0 {
		t.Fatalf("rows: %d in one, %d in the other, %d River jobs; want 1, 0, 0", inOne, inTwo, river)
	}
}

func TestMoveClock_AddsUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.New(t)
	pgtest.MoveClock(t, pool, time.Hour)
	pgtest.MoveClock(t, pool, 24*time.Hour)
	var ahead time.Duration
	if err := pool.QueryRow(ctx, "SELECT flow.clock() - clock_timestamp()").Scan(&ahead); err != nil {
		t.Fatal(err)
	}
	if off := ahead - 25*time.Hour; off < -time.Second || off > time.Second {
		t.Fatalf("the clock is ahead by %s, want 25h", ahead)
	}
}

func TestNewEmpty_HasNoSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, pool := pgtest.NewEmpty(t)
	var schemas int
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_namespace WHERE nspname IN ('flow', 'river')").Scan(
		&schemas); err != nil {
		t.Fatal(err)
	}
	if schemas != 0 {
		t.Fatalf("an empty database has %d of our schemas", schemas)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		pgtest.New(b)
	}
}

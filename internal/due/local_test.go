package due_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/due"
	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// TestLocal: what a process that works makes due, it begins without a job, as far as it has places; the rest waits for
// one.
func TestLocal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	began, goOn := make(chan string), make(chan struct{})
	s.Register(kind, hour, 2, func(_ context.Context, l *due.Lease) (time.Time, error) {
		began <- l.Key
		<-goOn
		return time.Time{}, nil
	})
	b.wake(s, "early", due.Now()) // before it works
	b.run(s)
	if got := receive(t, "what waited for the process", began); got != "early" || b.jobs() != 1 {
		t.Fatalf("%s ran, with %d jobs, want one", got, b.jobs())
	}
	abort := errors.New("abort")
	for range 3 { // a place whose transaction is rolled back is free again
		err := pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(s.Wake(ctx, tx, kind, "never", due.Now()), abort)
		})
		if !errors.Is(err, abort) {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		b.wake(s, key, due.Now())
		if key == "c" {
			break // both places are taken
		}
		if got := receive(t, "the call", began); got != key {
			t.Fatalf("%q ran, not %q", got, key)
		}
	}
	if r, n := b.row("c"), b.jobs(); !r.leased || n != 1 || len(began) != 0 {
		t.Fatalf("%+v with %d jobs: it waits in this process", r, n)
	}
	close(goOn)
	if got := receive(t, "the call", began); got != "c" {
		t.Fatalf("%q ran, not c", got)
	}
	b.eventually("all is done", func() bool { return b.count("SELECT count(*)::int FROM flow.due") == 0 })
}

// TestLocal_WhatFellDue: the scanner hands over, too.
func TestLocal_WhatFellDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: 5 * time.Millisecond})
	handler, calls := signals()
	s.Register(kind, hour, 1, handler)
	b.run(s)
	b.wake(s, "k", b.clock().Add(hour))
	pgtest.MoveClock(t, b.pool, hour)
	receive(t, "the call", calls)
	b.eventually("the row is gone", func() bool { return !b.row("k").exists })
	if n := b.jobs(); n != 0 {
		t.Fatalf("%d jobs, want none", n)
	}
}

// TestLocal_NothingBeforeTheCommit: work begins once its cause is there, once for all that one transaction wakes it
// for.
func TestLocal_NothingBeforeTheCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	committing, runs := make(chan struct{}), make(chan struct{}, 10)
	s.Register(kind, 2*hour, 3, func(context.Context, *due.Lease) (time.Time, error) {
		select {
		case <-committing:
		default:
			t.Error("it began before the commit")
		}
		runs <- struct{}{}
		return time.Time{}, nil
	})
	b.run(s)
	later := b.clock().Add(hour)
	err := pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		for _, at := range []time.Time{due.Now(), due.Now(), later} {
			if err := s.Wake(ctx, tx, kind, "k", at); err != nil {
				return err
			}
		}
		close(committing)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, "the run", runs)
	b.eventually("the row is given back", func() bool { return !b.row("k").leased })
	if r := b.row("k"); !r.exists || r.in < hour/2 || len(runs) != 0 {
		t.Fatalf("%+v after %d more runs; want none, and the later time kept", r, len(runs))
	}
}

// TestLocal_WakesOfOneTransactionForAnothersWork: a wake-up for now is not lost behind one for later.
func TestLocal_WakesOfOneTransactionForAnothersWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	began, goOn := make(chan struct{}), make(chan struct{})
	s.Register(kind, 2*hour, 1, func(context.Context, *due.Lease) (time.Time, error) {
		began <- struct{}{}
		<-goOn
		return time.Time{}, nil
	})
	b.run(s)
	b.wake(s, "k", due.Now())
	receive(t, "the first run", began)
	later := b.clock().Add(hour)
	err := pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		return errors.Join(s.Wake(ctx, tx, kind, "k", later), s.Wake(ctx, tx, kind, "k", due.Now()))
	})
	if err != nil {
		t.Fatal(err)
	}
	goOn <- struct{}{}
	receive(t, "the second run", began)
	close(goOn)
}

// TestLocal_Again: work that goes on, or was woken meanwhile, does so without a job, after what waits for its place.
func TestLocal_Again(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	began, goOn := make(chan string), make(chan time.Time)
	s.Register(kind, hour, 1, func(_ context.Context, l *due.Lease) (time.Time, error) {
		began <- l.Key
		return <-goOn, nil
	})
	s.Open(b.ctx)
	b.wake(s, "k", due.Now())
	for _, next := range []time.Time{{}, due.Now()} {
		if got := receive(t, "the run", began); got != "k" {
			t.Fatalf("%q ran, not k", got)
		}
		if next.IsZero() {
			b.wake(s, "k", due.Now())
		} else {
			b.wake(s, "other", due.Now())
		}
		goOn <- next
	}
	for _, want := range []string{"other", "k"} {
		if got := receive(t, "the run", began); got != want {
			t.Fatalf("%q ran, not %q", got, want)
		}
		goOn <- time.Time{}
	}
	b.eventually("all is done", func() bool { return b.count("SELECT count(*)::int FROM flow.due") == 0 })
	if n := b.jobs(); n != 0 {
		t.Fatalf("%d jobs, want none", n)
	}
}

// TestLocal_GroupsTakeTurns: who has much to do keeps nobody waiting but itself.
func TestLocal_GroupsTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	began, goOn := make(chan string), make(chan struct{})
	s.Register(kind, hour, 1, func(_ context.Context, l *due.Lease) (time.Time, error) {
		began <- l.Key
		<-goOn
		return time.Time{}, nil
	}, due.Grouped(func(key string) string { return key[:1] }))
	s.Open(b.ctx)
	for _, key := range []string{"a1", "a2", "a3", "a4", "b1", "c1", "c2"} {
		b.wake(s, key, due.Now())
	}
	for _, want := range []string{"a1", "a2", "b1", "c1", "a3", "c2", "a4"} {
		if got := receive(t, "the run", began); got != want {
			t.Fatalf("%q ran, not %q", got, want)
		}
		goOn <- struct{}{}
	}
}

// TestLocal_WaitsLongerThanALease: what waits for a place keeps its lease, and is begun once.
func TestLocal_WaitsLongerThanALease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: 20 * time.Millisecond})
	began, goOn := make(chan string), make(chan struct{})
	s.Register(kind, 600*time.Millisecond, 1, func(_ context.Context, l *due.Lease) (time.Time, error) {
		began <- l.Key
		<-goOn
		return time.Time{}, nil
	})
	b.run(s)
	b.wake(s, "first", due.Now())
	receive(t, "the first run", began)
	b.wake(s, "second", due.Now())
	var no int
	lease := func() int { return b.count("SELECT lease_no::int FROM flow.due WHERE key = 'second' AND leased") }
	no = lease()
	began2 := time.Now()
	b.eventually("a lease is over", func() bool { return time.Since(began2) > time.Second })
	if got := lease(); got != no || b.jobs() != 0 {
		t.Errorf("lease %d, then %d, with %d jobs", no, got, b.jobs())
	}
	close(goOn)
	if got := receive(t, "the second run", began); got != "second" {
		t.Fatalf("%q ran", got)
	}
	b.eventually("all is done", func() bool { return b.count("SELECT count(*)::int FROM flow.due") == 0 })
}

// TestLocal_CrashCostsALease: what was handed to a process that is gone has no job; another takes it over.
func TestLocal_CrashCostsALease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gone := b.scheduler(due.Options{ScanEvery: hour})
	stuck, never := make(chan struct{}), make(chan struct{})
	gone.Register(kind, time.Minute, 1, func(context.Context, *due.Lease) (time.Time, error) {
		close(stuck)
		<-never
		return time.Time{}, nil
	})
	gone.Open(b.ctx) // and nothing extends its lease before a third of it is over
	b.wake(gone, "k", due.Now())
	receive(t, "the work that dies", stuck)
	defer close(never)
	b.takenOver()
}

// TestLocal_Stop: a process that stops takes on no more, ends what it was handed over, and leaves the rest to the line.
func TestLocal_Stop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	began, goOn := make(chan struct{}), make(chan struct{})
	s.Register(kind, hour, 3, func(ctx context.Context, l *due.Lease) (time.Time, error) {
		began <- struct{}{}
		if l.Key == "deaf" {
			<-goOn
			return time.Time{}, nil
		}
		<-ctx.Done()
		return time.Time{}, ctx.Err()
	})
	over, cancel := context.WithCancel(b.ctx)
	cancel()
	s.Open(b.ctx)
	b.wake(s, "k", due.Now())
	receive(t, "the run", began)
	if err := s.Close(over, b.ctx); err != nil {
		t.Fatal(err)
	}
	if r := b.row("k"); !r.leased || r.failures != 0 || b.jobs() != 1 {
		t.Errorf("%+v and %d jobs; want it to wait for another process", r, b.jobs())
	}
	b.wake(s, "more", due.Now())
	if n := b.jobs(); n != 2 {
		t.Errorf("%d jobs, want one more", n)
	}
	s.Open(b.ctx)
	b.wake(s, "deaf", due.Now())
	receive(t, "the run", began)
	if err := s.Close(over, over); err == nil {
		t.Error("it stopped while work was under way")
	}
	close(goOn)
	if err := s.Close(b.ctx, b.ctx); err != nil || b.row("deaf").exists {
		t.Errorf("%v; row %+v", err, b.row("deaf"))
	}
}

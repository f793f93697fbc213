package due_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/due"
	"flowlane/internal/pg"
	"flowlane/internal/pg/pgtest"
)

// TestHandOver: what a process that works makes due, it begins without a job, as far as it has places; the rest waits for a worker.
func TestHandOver(t *testing.T) {
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
	for i, key := range []string{"a", "b", "c"} {
		b.wake(s, key, due.Now())
		if got := receive(t, "the call", began); got != key {
			t.Fatalf("%q ran, not %q", got, key)
		}
		if r, n := b.row(key), b.jobs(); !r.leased || n != 1+i/2 {
			t.Fatalf("%s: %+v with %d jobs: two go without one, beside the two workers", key, r, n)
		}
	}
	close(goOn)
	b.eventually("all is done", func() bool { return b.count("SELECT count(*)::int FROM flow.due") == 0 })
}

// TestHandOver_WhatFellDue: the scanner hands over, too.
func TestHandOver_WhatFellDue(t *testing.T) {
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

// TestHandOver_NothingBeforeTheCommit: work begins once its cause is there, once for all that one transaction wakes it for.
func TestHandOver_NothingBeforeTheCommit(t *testing.T) {
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

// TestHandOver_WakesOfOneTransactionForAnothersWork: a wake-up for now is not lost behind one for later.
func TestHandOver_WakesOfOneTransactionForAnothersWork(t *testing.T) {
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

// TestHandOver_Again: work that was woken meanwhile goes on without a job; work that only wants to go on waits in line.
func TestHandOver_Again(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	began, goOn := make(chan struct{}), make(chan time.Time)
	s.Register(kind, hour, 2, func(context.Context, *due.Lease) (time.Time, error) {
		began <- struct{}{}
		return <-goOn, nil
	})
	s.Open(b.ctx)
	b.wake(s, "k", due.Now())
	receive(t, "the first run", began)
	b.wake(s, "k", due.Now())
	for jobs, next := range []time.Time{{}, due.Now()} {
		goOn <- next
		if jobs == 0 {
			receive(t, "the second run", began)
			continue
		}
		b.eventually("it waits in line", func() bool { return b.jobs() == jobs })
	}
}

// TestHandOver_CrashCostsALease: what was handed to a process that is gone has no job; another takes it over.
func TestHandOver_CrashCostsALease(t *testing.T) {
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

// TestHandOver_Stop: a process that stops takes on no more, ends what it was handed over, and leaves the rest to the line.
func TestHandOver_Stop(t *testing.T) {
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

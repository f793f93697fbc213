package due_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/due"
	"flowlane/internal/pg"
	"flowlane/internal/work"
	"flowlane/test/pgtest"
)

const (
	kind = "test"
	// waitLimit bounds every wait of a test that is about to fail.
	waitLimit = 20 * time.Second
	hour      = time.Hour
)

// bundle is a database with the parts of one process; more processes are made with process.
type bundle struct {
	t     *testing.T
	ctx   context.Context
	dsn   string
	pool  *pgxpool.Pool
	queue *work.Queue
}

func setup(t *testing.T) *bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*waitLimit)
	t.Cleanup(cancel)
	dsn, pool := pgtest.NewDatabase(t)
	queue, err := work.NewQueue(pool)
	if err != nil {
		t.Fatal(err)
	}
	return &bundle{t: t, ctx: ctx, dsn: dsn, pool: pool, queue: queue}
}

func (b *bundle) scheduler(opts due.Options) *due.Scheduler {
	opts.Log = slog.New(slog.DiscardHandler)
	return due.New(b.pool, b.queue, opts)
}

// run starts the workers of a scheduler and stops them when the test ends.
func (b *bundle) run(s *due.Scheduler) *work.Runner {
	b.t.Helper()
	runner, err := work.New(b.pool, s, work.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := runner.Start(b.ctx); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := runner.Stop(ctx); err != nil {
			b.t.Errorf("stop: %v", err)
		}
	})
	return runner
}

func (b *bundle) wake(s *due.Scheduler, key string, at time.Time) {
	b.t.Helper()
	err := pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error { return s.Wake(ctx, tx, kind, key, at) })
	if err != nil {
		b.t.Fatal(err)
	}
}

// clock is the database's time, moved as it may be.
func (b *bundle) clock() (now time.Time) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.ctx, "SELECT flow.clock()").Scan(&now); err != nil {
		b.t.Fatal(err)
	}
	return now
}

// row is what the table says of a key.
type row struct {
	exists   bool
	leased   bool
	in       time.Duration // until it is due, or until its lease ends
	failures int
}

func (b *bundle) row(key string) (r row) {
	b.t.Helper()
	const ask = "SELECT true, leased, due_at - flow.clock(), failures FROM flow.due WHERE kind = $1 AND key = $2"
	err := b.pool.QueryRow(b.ctx, ask, kind, key).Scan(&r.exists, &r.leased, &r.in, &r.failures)
	if err != nil && !pg.IsNoRows(err) {
		b.t.Fatal(err)
	}
	return r
}

func (b *bundle) count(sql string) (n int) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.ctx, sql).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bundle) jobs() int { return b.count("SELECT count(*) FROM river.river_job") }

// eventually waits until what holds.
func (b *bundle) eventually(what string, holds func() bool) {
	b.t.Helper()
	deadline := time.NewTimer(waitLimit)
	defer deadline.Stop()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			b.t.Fatalf("never happened: %s", what)
		case <-ticker.C:
		}
	}
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(waitLimit)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		t.Fatalf("never happened: %s", what)
		panic("unreachable")
	}
}

// signals returns a handler that reports the keys it is called with and is done.
func signals() (due.Handler, <-chan string) {
	calls := make(chan string, 1000)
	return func(_ context.Context, l *due.Lease) (time.Time, error) {
		calls <- l.Key
		return time.Time{}, nil
	}, calls
}

func TestWake_NowNeedsNoScanner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	handler, calls := signals()
	s.Register(kind, hour, 2, handler)
	b.run(s)
	for _, at := range []time.Time{{}, due.Now(), b.clock().Add(-time.Minute)} {
		b.wake(s, "k", at)
		receive(t, "a call", calls)
		b.eventually("the row is gone", func() bool { return !b.row("k").exists })
	}
}

func TestWake_FutureWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: 5 * time.Millisecond})
	handler, calls := signals()
	s.Register(kind, time.Minute, 2, handler)
	b.run(s)
	b.wake(s, "k", b.clock().Add(2*hour))
	b.wake(s, "k", b.clock().Add(hour))
	b.wake(s, "k", b.clock().Add(3*hour))
	if in := b.row("k").in; in < 59*time.Minute || in > hour {
		t.Fatalf("due in %s, want the earliest of three times, an hour", in)
	}
	pgtest.MoveClock(t, b.pool, 59*time.Minute)
	// A second key shows that the scanner has looked in the meantime.
	b.wake(s, "other", b.clock().Add(time.Millisecond))
	if got := receive(t, "the other call", calls); got != "other" {
		t.Fatalf("%q ran a minute early", got)
	}
	b.eventually("the other row is gone", func() bool { return !b.row("other").exists })
	pgtest.MoveClock(t, b.pool, 2*time.Minute)
	if got := receive(t, "the call", calls); got != "k" {
		t.Fatalf("%q ran", got)
	}
}

func TestWake_RolledBackLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{})
	handler, _ := signals()
	s.Register(kind, hour, 1, handler)
	abort := errors.New("abort")
	err := pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.Wake(ctx, tx, kind, "k", due.Now()); err != nil {
			return err
		}
		return abort
	})
	if !errors.Is(err, abort) || b.row("k").exists || b.jobs() != 0 {
		t.Fatalf("after %v: row %v, %d jobs", err, b.row("k"), b.jobs())
	}
}

func TestWake_UnknownKind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{})
	err := pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		return s.Wake(ctx, tx, "typo", "k",
			due.Now())
	})
	if err == nil {
		t.Fatal("a kind without a handler was accepted")
	}
}

func TestWake_ManyForOneRowStartOneJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{})
	handler, _ := signals()
	s.Register(kind, hour, 1, handler)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { b.wake(s, "k", due.Now()) })
	}
	group.Wait()
	if n := b.jobs(); n != 1 {
		t.Fatalf("%d jobs, want 1", n)
	}
}

func TestWake_WhileWorkingRunsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	began, goOn := make(chan int), make(chan struct{})
	run := 0
	s.Register(kind, hour, 4, func(context.Context, *due.Lease) (time.Time, error) {
		run++ // no two runs overlap: the race detector watches
		began <- run
		<-goOn
		return time.Time{}, nil
	})
	b.run(s)
	b.wake(s, "k", due.Now())
	receive(t, "the first run", began)
	b.wake(s, "k", due.Now())
	b.wake(s, "k", due.Now())
	goOn <- struct{}{}
	if n := receive(t, "the second run", began); n != 2 {
		t.Fatalf("run %d, want 2", n)
	}
	goOn <- struct{}{}
	b.eventually("the row is gone", func() bool { return !b.row("k").exists })
}

func TestWake_ForLaterWhileWorkingIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	began, goOn := make(chan struct{}), make(chan time.Time)
	s.Register(kind, 2*hour, 1, func(context.Context, *due.Lease) (time.Time, error) {
		began <- struct{}{}
		return <-goOn, nil
	})
	b.run(s)
	for _, next := range []time.Time{{}, b.clock().Add(3 * hour)} {
		b.wake(s, "k", due.Now())
		receive(t, "a run", began)
		b.wake(s, "k", b.clock().Add(hour))
		goOn <- next
		b.eventually("the row is given back", func() bool { return !b.row("k").leased })
		if r := b.row("k"); !r.exists || r.in < 59*time.Minute || r.in > hour {
			t.Fatalf("after next %v: %+v, want due in an hour", next, r)
		}
	}
}

func TestHandler_Next(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	calls := make(chan struct{}, 10)
	nexts := make(chan time.Time, 2)
	nexts <- due.Now()
	nexts <- b.clock().Add(5 * hour)
	s.Register(kind, hour, 1, func(context.Context, *due.Lease) (time.Time, error) {
		calls <- struct{}{}
		return <-nexts, nil
	})
	b.run(s)
	b.wake(s, "k", due.Now())
	receive(t, "the first call", calls)
	receive(t, "the second call, at once", calls)
	b.eventually("the row is given back", func() bool { return !b.row("k").leased })
	if in := b.row("k").in; in < 4*hour || in > 5*hour {
		t.Fatalf("due in %s, want 5h", in)
	}
}

func TestLease_FinishInOwnTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	abort := errors.New("abort")
	results := make(chan error, 10)
	run := 0
	s.Register(kind, hour, 1, func(ctx context.Context, l *due.Lease) (time.Time, error) {
		run++
		err := pg.InTx(ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
			// Waking itself before it finishes brings a second run; rolling that back brings a third, after a delay.
			if run == 1 {
				if err := s.Wake(ctx, tx, l.Kind, l.Key, due.Now()); err != nil {
					return err
				}
			}
			if err := l.Finish(ctx, tx, time.Time{}); err != nil {
				return err
			}
			if run == 2 {
				return abort
			}
			return nil
		})
		results <- err
		return time.Time{}, err
	})
	b.run(s)
	b.wake(s, "k", due.Now())
	if err := receive(t, "the first run", results); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "the second run", results); !errors.Is(err, abort) {
		t.Fatal(err)
	}
	b.eventually("the failure is noted", func() bool { return b.row("k").failures == 1 })
	b.wake(s, "k", due.Now())
	if err := receive(t, "the third run", results); err != nil {
		t.Fatal(err)
	}
	b.eventually("the row is gone", func() bool { return !b.row("k").exists })
}

func TestTwoProcesses_ShareWithoutDoubleWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const keys = 300
	type call struct{ process, key string }
	calls := make(chan call, 2*keys)
	arrived := make(chan string, 2*keys)
	both := make(chan struct{})
	var waker *due.Scheduler
	for _, process := range []string{"one", "two"} {
		s := b.scheduler(due.Options{ScanEvery: 5 * time.Millisecond})
		s.Register(kind, 100*hour, 4, func(_ context.Context, l *due.Lease) (time.Time, error) {
			arrived <- process
			<-both
			calls <- call{process, l.Key}
			return time.Time{}, nil
		})
		b.run(s)
		waker = s
	}
	at := b.clock()
	err := pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		for i := range keys {
			// Half of them start at once, half are found by the scanners.
			when := at.Add(time.Duration(i%2) * hour)
			if err := waker.Wake(ctx, tx, kind, strconv.Itoa(i), when); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	pgtest.MoveClock(t, b.pool, hour)
	seen := map[string]bool{}
	for len(seen) < 2 {
		seen[receive(t, "both processes work", arrived)] = true
	}
	close(both)
	times := map[string]int{}
	for range keys {
		times[receive(t, "a call for each key", calls).key]++
	}
	b.eventually("all rows are gone", func() bool { return b.count("SELECT count(*) FROM flow.due") == 0 })
	if len(times) != keys || len(calls) != 0 {
		t.Fatalf("%d keys were worked on, %d calls too many", len(times), len(calls))
	}
}

// What a statement wakes by itself starts when the scanner is nudged.
func TestScanNow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	handler, calls := signals()
	s.Register(kind, hour, 1, handler)
	if s.Lease(kind) != hour || s.Lease("another") != 0 {
		t.Errorf("a lease lasts %s, that of a kind that is not registered %s", s.Lease(kind), s.Lease("another"))
	}
	b.run(s)
	for _, key := range []string{"a", "b"} { // the first may be found by the scan that comes first
		var startable bool
		if err := b.pool.QueryRow(b.ctx, "SELECT flow.wake($1, $2, NULL, $3)", kind, key, s.Lease(kind).Seconds()).Scan(
			&startable); err != nil || !startable {
			t.Fatalf("wake: %v, %v", startable, err)
		}
		s.ScanNow()
		if got := receive(t, "the call", calls); got != key {
			t.Fatalf("%q ran, not %q", got, key)
		}
	}
}

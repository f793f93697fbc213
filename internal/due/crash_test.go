package due_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/due"
	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// lostQueue stands for a process that dies with the jobs it has fetched.
type lostQueue struct{ jobs chan due.JobArgs }

func (q lostQueue) Insert(_ context.Context, _ pgx.Tx, jobs []due.JobArgs) error {
	for _, job := range jobs {
		q.jobs <- job
	}
	return nil
}

func (lostQueue) Oldest(context.Context, pgx.Tx, []string) (map[string]int64, error) { return nil, nil }

func TestCrash_CostsALease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lost := lostQueue{make(chan due.JobArgs, 1)}
	dead := due.New(b.pool, lost, due.Options{})
	nobody := func(context.Context, *due.Lease) (time.Time, error) {
		t.Error("a job with an old number was worked on")
		return time.Time{}, nil
	}
	dead.Register(kind, time.Minute, 1, nobody)
	b.wake(dead, "k", due.Now())

	b.takenOver()

	// The same key lives again, leased; the old job of its first life comes back from the dead.
	again := lostQueue{make(chan due.JobArgs, 1)}
	reborn := due.New(b.pool, again, due.Options{})
	reborn.Register(kind, time.Minute, 1, nobody)
	b.wake(reborn, "k", due.Now())
	if err := dead.Work(b.ctx, <-lost.jobs); err != nil {
		t.Fatal(err)
	}
}

// takenOver has another process work, and wants it to begin with k, which is leased for a minute, when that is over and
// not before.
func (b *bundle) takenOver() {
	b.t.Helper()
	s := b.scheduler(due.Options{ScanEvery: 5 * time.Millisecond})
	handler, calls := signals()
	s.Register(kind, time.Minute, 1, handler)
	b.run(s)
	b.wake(s, "other", b.clock().Add(time.Millisecond))
	if got := receive(b.t, "the other call", calls); got != "other" {
		b.t.Fatalf("%q ran while its lease lasted", got)
	}
	b.eventually("the other row is gone", func() bool { return !b.row("other").exists })
	pgtest.MoveClock(b.t, b.pool, time.Minute+time.Second)
	if got := receive(b.t, "the call", calls); got != "k" {
		b.t.Fatalf("%q ran", got)
	}
	b.eventually("the row is gone", func() bool { return !b.row("k").exists })
}

func TestCrash_WakeLeavesAnEndedLeaseToTheScanner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dead := due.New(b.pool, lostQueue{make(chan due.JobArgs, 1)}, due.Options{})
	handler, calls := signals()
	dead.Register(kind, time.Minute, 1, handler)
	b.wake(dead, "k", due.Now())
	pgtest.MoveClock(t, b.pool, 2*time.Minute)

	s := b.scheduler(due.Options{ScanEvery: 5 * time.Millisecond})
	s.Register(kind, hour, 1, handler)
	b.wake(s, "k", due.Now())
	if n := b.jobs(); n != 0 {
		t.Fatalf("%d jobs, want none yet", n)
	}
	b.run(s)
	receive(t, "the call", calls)
	b.eventually("the row is gone", func() bool { return !b.row("k").exists })
}

// TestBacklog_KeepsItsPlace: what waits for a worker for longer than its lease is not begun anew, which would send it
// to the end of the line each time; what was lost is, however long the line.
func TestBacklog_KeepsItsPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dead := due.New(b.pool, lostQueue{make(chan due.JobArgs, 1)}, due.Options{})
	nobody, _ := signals()
	dead.Register(kind, time.Minute, 1, nobody)
	b.wake(dead, "lost", due.Now())

	const waiting = 30
	s := b.scheduler(due.Options{ScanEvery: 5 * time.Millisecond})
	began, goOn := make(chan string, 2*waiting), make(chan struct{})
	s.Register(kind, time.Minute, 1, func(_ context.Context, l *due.Lease) (time.Time, error) {
		began <- l.Key
		<-goOn
		return time.Time{}, nil
	})
	for i := range waiting {
		b.wake(s, fmt.Sprintf("k%02d", i), due.Now())
	}
	b.run(s)
	if got := receive(t, "the first", began); got != "k00" {
		t.Fatalf("%q went first", got)
	}
	pgtest.MoveClock(t, b.pool, 2*time.Minute)
	for i := range waiting {
		b.wake(s, fmt.Sprintf("k%02d", i), due.Now()) // none of them is begun anew by that
	}
	b.eventually("the lost one is begun anew", func() bool { return b.jobs() > waiting })
	close(goOn)
	b.eventually("all is done", func() bool { return b.count("SELECT count(*)::int FROM flow.due") == 0 })
	close(began)
	var order []string
	for key := range began {
		if key != "k00" { // whose worker lost its lease to the clock
			order = append(order, key)
		}
	}
	if !slices.IsSorted(order) || len(order) != waiting || order[waiting-1] != "lost" {
		t.Fatalf("it went in the order %v", order)
	}
}

func TestLease_LostToAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type outcome struct{ extend, finish, cause error }
	began, goOn, lost := make(chan struct{}), make(chan struct{}), make(chan outcome, 1)
	slow := b.scheduler(due.Options{ScanEvery: hour})
	slow.Register(kind, hour, 1, func(ctx context.Context, l *due.Lease) (time.Time, error) {
		began <- struct{}{}
		<-goOn
		var o outcome
		o.extend = l.Extend(b.ctx)
		o.cause = context.Cause(ctx)
		o.finish = pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
			return l.Finish(ctx, tx,
				time.Time{})
		})
		lost <- o
		return time.Time{}, nil
	})
	first := b.run(slow)
	b.wake(slow, "k", due.Now())
	receive(t, "the first run", began)

	held := make(chan struct{})
	fast := b.scheduler(due.Options{ScanEvery: 5 * time.Millisecond})
	fast.Register(kind, hour, 1, func(context.Context, *due.Lease) (time.Time, error) {
		held <- struct{}{}
		<-held
		return time.Time{}, nil
	})
	// The slow process takes on no more work, so that the second run is the other's.
	stopping := make(chan error, 1)
	go func() { stopping <- first.Stop(b.ctx) }()
	b.run(fast)
	pgtest.MoveClock(t, b.pool, 2*hour)
	receive(t, "the takeover", held)
	close(goOn)
	o := receive(t, "the first run's end", lost)
	if !errors.Is(o.extend, due.ErrLost) || !errors.Is(o.finish, due.ErrLost) || !errors.Is(o.cause, due.ErrLost) {
		t.Fatalf("extend: %v, finish: %v, context: %v; want ErrLost three times", o.extend, o.finish, o.cause)
	}
	if err := receive(t, "the stop", stopping); err != nil {
		t.Fatal(err)
	}
	if r := b.row("k"); !r.leased {
		t.Fatalf("the loser changed the row: %+v", r)
	}
	held <- struct{}{}
	b.eventually("the row is gone", func() bool { return !b.row("k").exists })
}

func TestLease_IsExtendedWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: 5 * time.Millisecond})
	runs := make(chan time.Time, 2)
	s.Register(kind, 3*time.Second, 2, func(_ context.Context, l *due.Lease) (time.Time, error) {
		var ends, extended time.Time
		const until = "SELECT due_at FROM flow.due WHERE kind = $1 AND key = $2 AND leased"
		if err := b.pool.QueryRow(b.ctx, until, kind, l.Key).Scan(&ends); err != nil {
			t.Error(err)
		}
		b.eventually("the lease is extended", func() bool {
			return b.pool.QueryRow(b.ctx, until, kind, l.Key).Scan(&extended) == nil && extended.After(ends)
		})
		runs <- time.Now()
		return time.Time{}, nil
	})
	b.run(s)
	b.wake(s, "k", due.Now())
	receive(t, "the run", runs)
	b.eventually("the row is gone", func() bool { return !b.row("k").exists })
	if len(runs) != 0 {
		t.Fatal("it ran twice")
	}
}

func TestLease_EndsWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs := lostQueue{make(chan due.JobArgs, 1)}
	pool, err := pg.Open(b.ctx, b.dsn, pg.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := due.New(pool, jobs, due.Options{Log: slog.New(slog.DiscardHandler)})
	causes := make(chan error, 1)
	s.Register(kind, 300*time.Millisecond, 1, func(ctx context.Context, _ *due.Lease) (time.Time, error) {
		pool.Close()
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return time.Time{}, ctx.Err()
	})
	b.wake(s, "k", due.Now())
	if err := s.Work(b.ctx, <-jobs.jobs); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "the handler's end", causes); !errors.Is(err, due.ErrLost) {
		t.Fatalf("the context ended with %v, want ErrLost", err)
	}
}

func TestWake_BeforeWorkBeginsNeedsNoSecondRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs := lostQueue{make(chan due.JobArgs, 2)}
	s := due.New(b.pool, jobs, due.Options{})
	handler, calls := signals()
	s.Register(kind, hour, 1, handler)
	b.wake(s, "k", due.Now())
	b.wake(s, "k", due.Now())
	if err := s.Work(b.ctx, <-jobs.jobs); err != nil {
		t.Fatal(err)
	}
	if len(calls) != 1 || len(jobs.jobs) != 0 || b.row("k").exists {
		t.Fatalf("%d calls, %d more jobs, row %+v; want 1, 0, none", len(calls), len(jobs.jobs), b.row("k"))
	}
}

func TestWake_ForLaterBeforeWorkBeginsIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs := lostQueue{make(chan due.JobArgs, 2)}
	s := due.New(b.pool, jobs, due.Options{})
	handler, _ := signals()
	s.Register(kind, 3*hour, 1, handler)
	b.wake(s, "k", due.Now())
	b.wake(s, "k", b.clock().Add(hour))
	if err := s.Work(b.ctx, <-jobs.jobs); err != nil {
		t.Fatal(err)
	}
	if r := b.row("k"); !r.exists || r.leased || r.in < 59*time.Minute || r.in > hour {
		t.Fatalf("%+v, want due in an hour", r)
	}
}

func TestFailure_DelaysGrow(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("broken") },
		"panic": func() error { panic("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.scheduler(due.Options{ScanEvery: 5 * time.Millisecond, FirstRetry: time.Hour,
				LastRetry: 3 * time.Hour})
			healed := false
			calls := make(chan struct{}, 10)
			s.Register(kind, 30*time.Minute, 1, func(context.Context, *due.Lease) (time.Time, error) {
				calls <- struct{}{}
				if healed {
					return b.clock().Add(100 * hour), nil
				}
				return time.Time{}, fail()
			})
			b.run(s)
			b.wake(s, "k", due.Now())
			for i, want := range []time.Duration{hour, 2 * hour, 3 * hour, 3 * hour} {
				receive(t, "a call", calls)
				b.eventually("the failure is noted", func() bool { return b.row("k").failures == i+1 })
				if in := b.row("k").in; in < want-time.Minute || in > want {
					t.Fatalf("after failure %d due in %s, want %s", i+1, in, want)
				}
				healed = i == 3
				pgtest.MoveClock(t, b.pool, want)
			}
			receive(t, "the good call", calls)
			b.eventually("the failures are forgotten", func() bool {
				r := b.row("k")
				return r.failures == 0 &&
					!r.leased
			})
		})
	}
}

func TestFailure_WakeDoesNotWaitForTheDelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour, FirstRetry: hour, LastRetry: hour})
	calls := make(chan struct{}, 10)
	s.Register(kind, hour, 1, func(context.Context, *due.Lease) (time.Time, error) {
		calls <- struct{}{}
		return time.Time{}, errors.New("broken")
	})
	b.run(s)
	for i := range 3 {
		b.wake(s, "k", due.Now())
		receive(t, "a call", calls)
		b.eventually("the failure is noted", func() bool { return b.row("k").failures == i+1 })
	}
}

func TestStop_UnfinishedWorkIsDueAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one := b.scheduler(due.Options{ScanEvery: hour})
	began := make(chan struct{})
	one.Register(kind, hour, 1, func(ctx context.Context, _ *due.Lease) (time.Time, error) {
		began <- struct{}{}
		<-ctx.Done()
		return time.Time{}, ctx.Err()
	})
	runner := b.run(one)
	b.wake(one, "k", due.Now())
	receive(t, "the run", began)
	// What is kept of this for handlers to return is some seconds: enough for a machine that is busy with other things.
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	if err := runner.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	two := b.scheduler(due.Options{ScanEvery: hour})
	handler, calls := signals()
	two.Register(kind, hour, 1, handler)
	b.run(two)
	receive(t, "the other process's call", calls)
}

// TestStop_WorkNotBegunIsDueAtOnce: a job that comes to its worker when the process stops is no failure.
func TestStop_WorkNotBegunIsDueAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{})
	s.Register(kind, hour, 1, func(context.Context, *due.Lease) (time.Time, error) {
		t.Error("the handler was called")
		return time.Time{}, nil
	})
	b.wake(s, "a", due.Now())
	var no int64
	if err := b.pool.QueryRow(b.ctx, "SELECT lease_no FROM flow.due WHERE kind = $1 AND key = 'a'",
		kind).Scan(&no); err != nil {
		t.Fatal(err)
	}
	stopped, cancel := context.WithCancel(b.ctx)
	cancel()
	if err := s.Work(stopped, due.JobArgs{DueKind: kind, Key: "a", LeaseNo: no}); err != nil {
		t.Errorf("work: %v", err)
	}
	if n := b.count("SELECT count(*)::int FROM river.river_job"); n != 2 {
		t.Errorf("there are %d jobs; want the one that was given back and its successor", n)
	}
	if r := b.row("a"); !r.exists || r.failures != 0 {
		t.Errorf("the row is %+v", r)
	}
}

func TestDatabaseRestart_WorkGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: 5 * time.Millisecond})
	handler, calls := signals()
	s.Register(kind, hour, 1, handler)
	b.run(s)
	b.wake(s, "before", due.Now())
	receive(t, "a call before", calls)
	for range 3 {
		// Every connection of this database goes, the listener's as well.
		const end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname " +
			"= current_database() AND pid <> pg_backend_pid()"
		b.eventually("connections are ended", func() bool {
			_, err := b.pool.Exec(b.ctx, end)
			return err == nil
		})
	}
	b.eventually("a wake-up succeeds", func() bool {
		return pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
			if err := s.Wake(ctx, tx, kind, "now", due.Now()); err != nil {
				return err
			}
			return s.Wake(ctx, tx, kind, "soon", time.Now().Add(10*time.Millisecond))
		}) == nil
	})
	got := map[string]bool{}
	for len(got) < 2 {
		got[receive(t, "calls after", calls)] = true
	}
}

// busyQueue has a job that waits for every lease.
type busyQueue struct{ due.Queue }

func (busyQueue) Oldest(_ context.Context, _ pgx.Tx, kinds []string) (map[string]int64, error) {
	oldest := map[string]int64{}
	for _, kind := range kinds {
		oldest[kind] = 0
	}
	return oldest, nil
}

// TestScan_LeavesWaitingJobsAlone: leases that have ended while their jobs wait are no reason to look again at once.
func TestScan_LeavesWaitingJobsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := due.New(b.pool, busyQueue{lostQueue{make(chan due.JobArgs, 1)}}, due.Options{})
	nobody, _ := signals()
	s.Register(kind, time.Minute, 1, nobody)
	b.wake(s, "k", due.Now())
	pgtest.MoveClock(t, b.pool, 2*time.Minute)
	started, next, err := s.Scan(b.ctx)
	if err != nil || started != 0 || next < time.Minute {
		t.Fatalf("started %d, looks again in %s, %v", started, next, err)
	}
}

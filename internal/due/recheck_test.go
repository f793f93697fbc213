package due_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/due"
	"flowlane/internal/pg"
)

// TestRechecks: those who wake a row that somebody works on write nothing and wait for nobody; the work ends only when
// it has seen what they did.
func TestRechecks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("CREATE TABLE done (n int)", "INSERT INTO done VALUES (0)")
	s := b.scheduler(due.Options{ScanEvery: hour})
	looking, goOn, seen, over := make(chan struct{}), make(chan struct{}), make(chan int), make(chan error)
	s.Register(kind, hour, 1, func(ctx context.Context, l *due.Lease) (time.Time, error) {
		for {
			looking <- struct{}{}
			<-goOn
			more, err := l.EndUnless(ctx, func(ctx context.Context, tx pgx.Tx) (more bool, next time.Time, err error) {
				var n int
				err = tx.QueryRow(ctx, "SELECT count(*)::int FROM done WHERE n > 0").Scan(&n)
				seen <- n
				return n == 1, next, err
			})
			if err != nil || !more {
				over <- err
				return time.Time{}, err
			}
			b.exec("INSERT INTO done VALUES (2)")
		}
	}, due.Rechecks())
	b.run(s)
	b.wake(s, "k", due.Now())
	receive(t, "the work", looking)
	// Two at once, neither of which has committed: they do not wait for each other, and the end of the work waits for
	// both.
	hold, let := make(chan struct{}), make(chan error, 2)
	wakes := make(chan struct{}, 2)
	for range 2 {
		go func() {
			let <- pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
				if err := s.Wake(ctx, tx, kind, "k", due.Now()); err != nil {
					return err
				}
				wakes <- struct{}{}
				<-hold
				_, err := tx.Exec(ctx, "INSERT INTO done SELECT 1 WHERE NOT EXISTS (SELECT FROM done WHERE n = 1)")
				return err
			})
		}()
	}
	receive(t, "the first wake-up", wakes)
	receive(t, "the second wake-up", wakes)
	close(goOn)
	select {
	case n := <-seen:
		t.Fatalf("the work looked before those who woke it had committed, and saw %d", n)
	case <-time.After(50 * time.Millisecond): // it waits
	}
	hold <- struct{}{}
	hold <- struct{}{}
	for range 2 {
		if err := receive(t, "the commit", let); err != nil {
			t.Fatal(err)
		}
	}
	if n := receive(t, "the look", seen); n == 0 {
		t.Fatal("the work did not see what it was woken for")
	} else if n == 1 {
		receive(t, "more work", looking)
		receive(t, "the last look", seen)
	}
	if err := receive(t, "the end", over); err != nil {
		t.Fatal(err)
	}
	b.eventually("the row is gone", func() bool { return !b.row("k").exists })
}

// TestRechecks_WakesWhatNobodyWorksOn: a row that waits is brought forward, one that is due is begun, once for many who
// wake it.
func TestRechecks_WakesWhatNobodyWorksOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	calls := make(chan string, 100)
	s.Register(kind, hour, 4, func(ctx context.Context, l *due.Lease) (time.Time, error) {
		calls <- l.Key
		_, err := l.EndUnless(ctx, func(context.Context, pgx.Tx) (bool, time.Time, error) {
			return false, time.Time{},
				nil
		})
		return time.Time{}, err
	}, due.Rechecks())
	b.run(s)
	b.wake(s, "k", b.clock().Add(2*hour))
	b.wake(s, "k", b.clock().Add(hour))
	b.wake(s, "k", b.clock().Add(3*hour))
	if r := b.row("k"); !r.exists || r.leased || r.in > hour {
		t.Fatalf("%+v, want the earliest of three times", r)
	}
	errs := make(chan error, 20)
	for range cap(errs) {
		go func() {
			errs <- pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
				return s.Wake(ctx, tx, kind,
					"k", due.Now())
			})
		}()
	}
	for range cap(errs) {
		if err := receive(t, "the commit", errs); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, "the call", calls)
	b.eventually("the row is gone", func() bool { return !b.row("k").exists })
}

// TestWakeAgain: whoever changes what work has gone by already has it begin once more, though the last look found
// nothing; both wait for one another in one order.
func TestWakeAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: hour})
	runs, goOn := make(chan string), make(chan struct{})
	s.Register(kind, hour, 1, func(ctx context.Context, l *due.Lease) (time.Time, error) {
		runs <- l.Key
		<-goOn
		_, err := l.EndUnless(ctx, func(context.Context, pgx.Tx) (bool, time.Time, error) {
			return false,
				due.Now().Add(1e6 * hour), nil
		})
		return time.Time{}, err
	}, due.Rechecks())
	b.run(s)
	b.wake(s, "k", due.Now())
	receive(t, "the work", runs)
	err := pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.WakeAgain(ctx, tx, kind, "k"); err != nil {
			return err
		}
		close(goOn) // the end of the work waits for this transaction, which wakes it by the usual way, too
		return s.Wake(ctx, tx, kind, "k", due.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, "the work once more", runs)
	b.eventually("it waits", func() bool { r := b.row("k"); return r.exists && !r.leased })
}

func (b *bundle) exec(statements ...string) {
	b.t.Helper()
	for _, sql := range statements {
		if _, err := b.pool.Exec(b.ctx, sql); err != nil {
			b.t.Fatal(err)
		}
	}
}

// TestRechecks_Failing: a wake-up during a run that fails, as the one before did, has the next run come at once.
func TestRechecks_Failing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler(due.Options{ScanEvery: 5 * time.Millisecond, FirstRetry: time.Hour, LastRetry: time.Hour})
	began, fail := make(chan struct{}), make(chan struct{})
	s.Register(kind, hour, 1, func(context.Context, *due.Lease) (time.Time, error) {
		began <- struct{}{}
		<-fail
		return time.Time{}, errors.New("the provider is away")
	}, due.Rechecks())
	b.run(s)
	b.wake(s, "k", due.Now())
	receive(t, "the first run", began)
	fail <- struct{}{}
	b.eventually("the failure is noted", func() bool { return b.row("k").failures == 1 })
	b.wake(s, "k", due.Now())
	receive(t, "the second run", began)
	b.wake(s, "k", due.Now())
	b.wake(s, "k", due.Now())
	fail <- struct{}{}
	receive(t, "the third run", began)
	fail <- struct{}{}
}

// TestRechecks_SlowWakers: who wakes a row and does not commit keeps the end of its work waiting, and no connection from
// the work of others.
func TestRechecks_SlowWakers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cfg := b.pool.Config()
	cfg.MaxConns = 2
	few, err := pgxpool.NewWithConfig(b.ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(few.Close)
	s := due.New(few, b.queue, due.Options{ScanEvery: hour, Log: slog.New(slog.DiscardHandler)})
	ends := make(chan string, 3)
	s.Register(kind, hour, 3, func(ctx context.Context, l *due.Lease) (time.Time, error) {
		ends <- l.Key
		_, err := l.EndUnless(ctx, func(context.Context, pgx.Tx) (more bool, next time.Time, err error) {
			return false, next, nil
		})
		return time.Time{}, err
	}, due.Rechecks())
	b.run(s)
	err = pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		for _, key := range []string{"a", "b"} {
			if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock_shared(flow.due_gate($1, $2))", kind, key); err != nil {
				return err
			}
			b.wake(s, key, due.Now())
			receive(t, "the end of work that is woken", ends)
		}
		b.eventually("both ends wait", func() bool {
			return b.count("SELECT count(*) FROM pg_stat_activity "+
				"WHERE datname = current_database() AND wait_event = 'advisory'") == 2
		})
		b.wake(s, "c", due.Now())
		receive(t, "other work", ends)
		b.eventually("other work is over", func() bool { return !b.row("c").exists })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.eventually("all is over", func() bool { return !b.row("a").exists && !b.row("b").exists })
}

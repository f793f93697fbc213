package due_test

import (
	"context"
	"testing"
	"time"

	"flowlane/internal/due"
	"flowlane/test/pgtest"
)

// TestLeavePlace: handlers that have left their places keep their leases, and nobody waits for them, whether the
// process began them by itself or by a job.
func TestLeavePlace(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]bool{"Local": true, "Jobs": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.scheduler(due.Options{ScanEvery: 20 * time.Millisecond})
			began, goOn := make(chan string), make(chan struct{})
			s.Register(kind, 600*time.Millisecond, 1, func(ctx context.Context, l *due.Lease) (time.Time, error) {
				began <- l.Key
				l.LeavePlace()
				l.LeavePlace()
				select {
				case <-goOn:
				case <-ctx.Done():
					t.Errorf("%s: %v", l.Key, context.Cause(ctx))
				}
				return time.Time{}, nil
			})
			keys := []string{"a", "b", "c"}
			if !open {
				for _, key := range keys {
					b.wake(s, key, due.Now()) // before the process works: each gets a job
				}
			}
			b.run(s)
			for _, key := range keys {
				if open {
					b.wake(s, key, due.Now())
				}
				receive(t, "the call", began)
			}
			since := time.Now()
			b.eventually("a lease is over", func() bool { return time.Since(since) > time.Second })
			if n := b.count("SELECT count(*)::int FROM flow.due WHERE leased AND failures = 0"); n != 3 {
				t.Errorf("%d rows are leased, want 3", n)
			}
			close(goOn)
			b.eventually("all is done", func() bool { return b.count("SELECT count(*)::int FROM flow.due") == 0 })
		})
	}
}

// TestLeavePlace_Stop: a process that stops ends those that have left their places, too, and gives their rows back.
func TestLeavePlace_Stop(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]bool{"Local": true, "Jobs": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.scheduler(due.Options{ScanEvery: hour})
			left := make(chan struct{})
			s.Register(kind, hour, 1, func(ctx context.Context, l *due.Lease) (time.Time, error) {
				l.LeavePlace()
				close(left)
				<-ctx.Done()
				return time.Time{}, ctx.Err()
			})
			if !open {
				b.wake(s, "k", due.Now())
			}
			runner := b.run(s)
			if open {
				b.wake(s, "k", due.Now())
			}
			receive(t, "the work", left)
			over, cancel := context.WithTimeout(b.ctx, time.Second)
			defer cancel()
			if err := runner.Stop(over); err != nil {
				t.Fatal(err)
			}
			pgtest.MoveClock(t, b.pool, time.Minute) // the lease would last
			if n := b.count("SELECT count(*)::int FROM flow.due WHERE failures = 0 " +
				"AND (due_at <= flow.clock() OR lease_no > 1)"); n != 1 {
				t.Error("the row does not wait for another process")
			}
		})
	}
}

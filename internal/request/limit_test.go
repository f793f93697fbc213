package request_test

import (
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/fault"
	"flowlane/internal/request"
	"flowlane/test/pgtest"
)

func TestParseLimit(t *testing.T) {
	t.Parallel()
	got, err := request.ParseLimit("100 per 1 minute")
	if err != nil || got != (request.Limit{Max: 100, Minutes: 1}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "100", "0 per 1 minute", "100 per 0 minute", "100 per 1 hour",
		"100 per 1 minutes", " 100 per 1 minute", "-1 per 1 minute", "1e2 per 1 minute", "1000000001 per 1 minute",
		"1 per 1441 minute"} {
		if got, err := request.ParseLimit(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

func newLimits(pool *pgxpool.Pool, now func() time.Time) *request.Limits {
	return request.NewLimits(pool, now, slog.New(slog.DiscardHandler))
}

// watch is a clock that a test sets.
type watch struct {
	mu sync.Mutex
	at time.Time
}

func (w *watch) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *watch) pass(t *testing.T, pool *pgxpool.Pool, d time.Duration) {
	t.Helper()
	w.mu.Lock()
	w.at = w.at.Add(d)
	w.mu.Unlock()
	pgtest.MoveClock(t, pool, d)
}

func TestLimits_Windows(t *testing.T) {
	t.Parallel()
	pool, k := setup(t)
	clock := &watch{}
	one, two := newLimits(pool, clock.now), newLimits(pool, clock.now)
	limit := request.Limit{Max: 3, Minutes: 2}
	want := func(l *request.Limits, remaining int64, endsIn time.Duration) {
		t.Helper()
		got, err := l.Count(t.Context(), k.OrgID, "test", limit)
		if err != nil || got.Remaining != remaining {
			t.Fatalf("%+v, %v; want %d left", got, err, remaining)
		}
		near(t, got.EndsIn, endsIn)
	}
	full := func(l *request.Limits, endsIn time.Duration) {
		t.Helper()
		got, err := l.Count(t.Context(), k.OrgID, "test", limit)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.RateLimited || f.Detail != "Rate limit exceeded: 3 per 2 minute" ||
			got.Remaining != 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		near(t, f.RetryAfter, endsIn)
		near(t, got.EndsIn, endsIn)
	}
	want(one, 2, 2*time.Minute)
	clock.pass(t, pool, time.Minute)
	want(two, 1, time.Minute)
	want(one, 0, time.Minute)
	full(one, time.Minute)
	full(two, time.Minute)
	clock.pass(t, pool, 500*time.Millisecond)
	full(one, time.Minute-500*time.Millisecond) // from memory
	clock.pass(t, pool, 30*time.Second)
	full(one, 29*time.Second+500*time.Millisecond)
	clock.pass(t, pool, 30*time.Second)
	want(one, 2, 2*time.Minute)
	want(two, 1, 2*time.Minute)
	pgtest.MoveClock(t, pool, -time.Hour) // somebody sets the clock back
	want(two, 2, 2*time.Minute)
}

// TestLimits_Shares: at a limit with slack the database is asked for a share of the requests, and two processes
// together pass about as many as it says.
func TestLimits_Shares(t *testing.T) {
	t.Parallel()
	pool, k := setup(t)
	limit := request.Limit{Max: 2000, Minutes: 1}
	clock := &watch{}
	processes := []*request.Limits{newLimits(pool, clock.now), newLimits(pool, clock.now)}
	for range 2 {
		before := pool.Stat().AcquireCount()
		passed := 0
		for i := range 2100 {
			s, err := processes[i%2].Count(t.Context(), k.OrgID, "test", limit)
			switch {
			case fault.Is(err, fault.RateLimited):
			case err != nil:
				t.Fatal(err)
			default:
				passed++
				if most := limit.Max - int64(i/2) - 1; s.Remaining > most {
					t.Fatalf("%d left after %d here, want %d at most", s.Remaining, i/2+1, most)
				}
			}
		}
		if passed < 1960 || passed > 2040 {
			t.Errorf("%d of %s passed", passed, limit)
		}
		if n := pool.Stat().AcquireCount() - before; n > 2000/5+10 {
			t.Errorf("the database was asked %d times", n)
		}
		clock.pass(t, pool, time.Minute)
	}
}

// TestLimits_Concurrent: many requests at once at two processes are no way around a limit.
func TestLimits_Concurrent(t *testing.T) {
	t.Parallel()
	pool, k := setup(t)
	for _, tt := range []struct{ most, least, requests, passes int64 }{{100, 100, 300, 100}, {1000, 980, 3000, 1020}} {
		limit := request.Limit{Max: tt.most, Minutes: 1}
		clock := &watch{}
		var passed atomic.Int64
		var group sync.WaitGroup
		for range 2 {
			l := newLimits(pool, clock.now)
			for range 16 {
				group.Go(func() {
					for range tt.requests / 32 {
						if _, err := l.Count(t.Context(), k.OrgID, limit.String(), limit); err == nil {
							passed.Add(1)
						} else if !fault.Is(err, fault.RateLimited) {
							t.Error(err)
						}
					}
				})
			}
		}
		group.Wait()
		if n := passed.Load(); n < tt.least || n > tt.passes {
			t.Errorf("%d of %s passed", n, limit)
		}
	}
}

// TestLimits_Away: without a database an exact limit lets nothing pass, one with slack what the process itself may
// count.
func TestLimits_Away(t *testing.T) {
	t.Parallel()
	pool, k := setup(t)
	pool.Close()
	clock := &watch{}
	l := newLimits(pool, clock.now)
	for _, tt := range []struct{ most, passes int }{{100, 0}, {1000, 1000}} {
		passed := 0
		for range 1200 {
			_, err := l.Count(t.Context(), k.OrgID, strconv.Itoa(tt.most), request.Limit{Max: int64(tt.most),
				Minutes: 1})
			switch {
			case err == nil:
				passed++
			case fault.Is(err, fault.RateLimited):
				t.Fatal(err)
			}
		}
		if passed != tt.passes {
			t.Errorf("%d of %d passed", passed, tt.most)
		}
	}
}

func near(t *testing.T, got, want time.Duration) {
	t.Helper()
	if d := got - want; d > 0 || d < -10*time.Second {
		t.Errorf("ends in %s, want %s", got, want)
	}
}

// TestLimits_Flood: refused requests cost the database nothing that grows with their number.
func TestLimits_Flood(t *testing.T) {
	t.Parallel()
	pool, k := setup(t)
	clock := &watch{}
	l := newLimits(pool, clock.now)
	limit := request.Limit{Max: 1, Minutes: 1}
	for i := range 2 {
		if _, err := l.Count(t.Context(), k.OrgID, "test", limit); (err != nil) != (i > 0) {
			t.Fatal(err)
		}
	}
	before := pool.Stat().AcquireCount()
	for range 1000 {
		if _, err := l.Count(t.Context(), k.OrgID, "test", limit); !fault.Is(err, fault.RateLimited) {
			t.Fatal(err)
		}
	}
	if n := pool.Stat().AcquireCount() - before; n != 0 {
		t.Errorf("1000 refused requests asked the database %d times", n)
	}
}

// BenchmarkLimits_Count measures what a limit adds to a request: to one that passes by what the process knows, with a
// report now and then; to one that is counted before it is answered; and to one that is refused.
func BenchmarkLimits_Count(b *testing.B) {
	pool := pgtest.New(b)
	org := benchOrg(b, pool)
	l := newLimits(pool, time.Now)
	count := func(b *testing.B, operation string, limit request.Limit) {
		b.Helper()
		if _, err := l.Count(b.Context(), org, operation, limit); err != nil && !fault.Is(err, fault.RateLimited) {
			b.Fatal(err)
		}
	}
	b.Run("Shares", func(b *testing.B) {
		for b.Loop() {
			count(b, b.Name(), request.Limit{Max: 600_000_000, Minutes: 1000})
		}
	})
	b.Run("SharesParallel", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				count(b, "parallel", request.Limit{Max: 600_000_000, Minutes: 1000})
			}
		})
	})
	b.Run("Exact", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			count(b, strconv.Itoa(i/100), request.Limit{Max: 100, Minutes: 1000})
		}
	})
	b.Run("Refused", func(b *testing.B) {
		for b.Loop() {
			count(b, b.Name(), request.Limit{Max: 1, Minutes: 1000})
		}
	})
	b.Run("Ping", func(b *testing.B) {
		for b.Loop() {
			if _, err := pool.Exec(b.Context(), "SELECT 1"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

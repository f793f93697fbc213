package request_test

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/fault"
	"flowlane/internal/pg/pgtest"
	"flowlane/internal/request"
)

func TestParseLimit(t *testing.T) {
	t.Parallel()
	got, err := request.ParseLimit("100 per 1 minute")
	if err != nil || got != (request.Limit{Max: 100, Minutes: 1}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "100", "0 per 1 minute", "100 per 0 minute", "100 per 1 hour", "100 per 1 minutes", " 100 per 1 minute", "-1 per 1 minute", "1e2 per 1 minute"} {
		if got, err := request.ParseLimit(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
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
	one, two := request.NewLimits(pool, clock.now, slog.New(slog.DiscardHandler)), request.NewLimits(pool, clock.now, slog.New(slog.DiscardHandler))
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
		if !errors.As(err, &f) || f.Code != fault.RateLimited || f.Detail != "Rate limit exceeded: 3 per 2 minute" || got.Remaining != 0 {
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
	l := request.NewLimits(pool, clock.now, slog.New(slog.DiscardHandler))
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

// BenchmarkLimits_Count measures what a limit adds to a request: passed ones, and refused ones.
func BenchmarkLimits_Count(b *testing.B) {
	pool := pgtest.New(b)
	org := benchOrg(b, pool)
	for name, limit := range map[string]request.Limit{"Passed": {Max: 1 << 40, Minutes: 1}, "Refused": {Max: 1, Minutes: 1000}} {
		b.Run(name, func(b *testing.B) {
			l := request.NewLimits(pool, time.Now, slog.New(slog.DiscardHandler))
			for b.Loop() {
				if _, err := l.Count(b.Context(), org, name, limit); err != nil && !fault.Is(err, fault.RateLimited) {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("Ping", func(b *testing.B) {
		for b.Loop() {
			if _, err := pool.Exec(b.Context(), "SELECT 1"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

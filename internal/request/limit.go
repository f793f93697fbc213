package request

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// Limit is how many requests an organization may make in a window of time.
type Limit struct{ Max, Minutes int64 }

// ParseLimit reads what String writes: "100 per 1 minute".
func ParseLimit(text string) (Limit, error) {
	var l Limit
	if _, err := fmt.Sscanf(text, "%d per %d minute", &l.Max, &l.Minutes); err != nil || l.Max < 1 || l.Minutes < 1 || l.String() != text {
		return Limit{}, fmt.Errorf("request: %q is not a limit like %q", text, Limit{100, 1})
	}
	return l, nil
}

func (l Limit) String() string { return fmt.Sprintf("%d per %d minute", l.Max, l.Minutes) }

func (l Limit) period() time.Duration { return time.Duration(l.Minutes) * time.Minute }

// Standing is where an organization stands within a limit after a request.
type Standing struct {
	Limit     Limit
	Remaining int64
	// EndsIn is when the window ends and as many requests as ever may be made.
	EndsIn time.Duration
}

// Limits counts the requests of limited operations, for all processes on one database. A window begins with the first
// request after the one before has ended.
//
//	no window ──request──▶ open ──the last allowed request──▶ full
//	    ▲                    │                                  │
//	    └────────────────────┴────── its end ───────────────────┘
type Limits struct {
	pool *pgxpool.Pool
	q    *db.Queries
	now  func() time.Time

	mu sync.Mutex
	// full are the windows that were full when the database was asked last.
	full map[window]fullWindow
}

type window struct {
	orgID     uuid.UUID
	operation string
}

type fullWindow struct {
	askedAt time.Time
	endsIn  time.Duration
}

func (f fullWindow) believed() time.Duration { return min(fullFor, f.endsIn) }

// fullFor is how long a full window is believed to be full without asking again: a flood of refused requests costs the
// database one question a second from each process.
const fullFor = time.Second

// NewLimits returns the limits of an installation. Of now only differences count.
func NewLimits(pool *pgxpool.Pool, now func() time.Time) *Limits {
	return &Limits{pool: pool, q: db.New(), now: now, full: map[window]fullWindow{}}
}

// Count counts one request. Fault: RateLimited when the window is full; the standing is right all the same.
func (l *Limits) Count(ctx context.Context, orgID uuid.UUID, operation string, limit Limit) (Standing, error) {
	w := window{orgID, operation}
	if endsIn, ok := l.known(w); ok {
		return limit.exceeded(endsIn)
	}
	period := limit.period().Seconds()
	row, err := l.q.RequestCount(ctx, l.pool, db.RequestCountParams{OrgID: orgID, Operation: operation, PeriodSeconds: period, MaxUsed: limit.Max})
	if err == nil {
		return Standing{Limit: limit, Remaining: max(0, limit.Max-row.Used), EndsIn: limit.within(row.EndsInSeconds)}, nil
	}
	if !pg.IsNoRows(err) {
		return Standing{}, fmt.Errorf("count a request: %w", err)
	}
	left, err := l.q.RequestWindow(ctx, l.pool, db.RequestWindowParams{PeriodSeconds: period, OrgID: orgID, Operation: operation})
	if err != nil {
		return Standing{}, fmt.Errorf("read a window of requests: %w", err)
	}
	endsIn := limit.within(left)
	l.remember(w, endsIn)
	return limit.exceeded(endsIn)
}

// known tells in how long a window ends that is known to be full.
func (l *Limits) known(w window) (endsIn time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, ok := l.full[w]
	if !ok {
		return 0, false
	}
	age := l.now().Sub(f.askedAt)
	return f.endsIn - age, age < f.believed()
}

func (l *Limits) remember(w window, endsIn time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	maps.DeleteFunc(l.full, func(_ window, f fullWindow) bool { return now.Sub(f.askedAt) >= f.believed() })
	l.full[w] = fullWindow{now, endsIn}
}

func (l Limit) exceeded(endsIn time.Duration) (Standing, error) {
	return Standing{Limit: l, EndsIn: endsIn}, l.Exceeded(endsIn)
}

// Exceeded is the RateLimited fault of a window that is full and ends in so long.
func (l Limit) Exceeded(endsIn time.Duration) *fault.Error {
	f := fault.New(fault.RateLimited, "Rate limit exceeded: %s", l)
	f.RetryAfter = endsIn
	return f
}

// within makes a duration of the seconds until a window ends.
func (l Limit) within(seconds float64) time.Duration {
	return min(max(0, time.Duration(seconds*float64(time.Second))), l.period())
}

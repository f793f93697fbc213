package request

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
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
	most, rest, _ := strings.Cut(text, " per ")
	minutes, _ := strings.CutSuffix(rest, " minute")
	var l Limit
	l.Max, _ = strconv.ParseInt(most, 10, 64)
	l.Minutes, _ = strconv.ParseInt(minutes, 10, 64)
	if l.Max < 1 || l.Minutes < 1 || l.Max > Most.Max || l.Minutes > Most.Minutes || l.String() != text {
		return Limit{}, fmt.Errorf("request: %q is not a limit like %q", text, Limit{100, 1})
	}
	return l, nil
}

// Most bounds both numbers of a limit, so that nothing overflows.
var Most = Limit{1_000_000_000, 24 * 60}

// String is how answers and settings say a limit: "100 per 1 minute".
func (l Limit) String() string { return fmt.Sprintf("%d per %d minute", l.Max, l.Minutes) }

func (l Limit) period() time.Duration { return time.Duration(l.Minutes) * time.Minute }

// LimitStatus is where an organization stands within a limit after a request.
type LimitStatus struct {
	Limit Limit
	// Remaining is how many more requests may be made in the window.
	Remaining int64
	// EndsIn is when the window ends and as many requests as ever may be made.
	EndsIn time.Duration
}

// Limits counts the requests of operations, for all processes on one database. A window begins with the first request
// after the one before has ended. tally says how exact that is.
type Limits struct {
	pool *pgxpool.Pool
	q    *db.Queries
	now  func() time.Time
	log  *slog.Logger

	mu      sync.Mutex
	tallies map[window]*tally
	// sweepAt is how many tallies there may be before those are removed whose window has ended.
	sweepAt int
}

type window struct {
	orgID     uuid.UUID
	operation string
}

const (
	// fewTallies are not worth a sweep.
	fewTallies = 1000
	// reportTimeout bounds a report. It does not end with the request that makes it, because it is about others, too.
	reportTimeout = 5 * time.Second
)

// NewLimits returns the limits of an installation. Of now only differences count.
func NewLimits(pool *pgxpool.Pool, now func() time.Time, log *slog.Logger) *Limits {
	return &Limits{pool: pool, q: db.New(), now: now, log: log, tallies: map[window]*tally{}, sweepAt: fewTallies}
}

// Count counts one request. Fault: RateLimited when the window is full; the status is right all the same. Another
// error means that the database had to be asked and could not: a limit with slack bears that while the process alone
// has not seen as many requests as it allows.
func (l *Limits) Count(ctx context.Context, orgID uuid.UUID, operation string, limit Limit) (LimitStatus, error) {
	w := window{orgID, operation}
	t, d, r, status := l.next(w, limit)
	switch d {
	case pass:
		return status, nil
	case refuse:
		return status, limit.Exceeded(status.EndsIn)
	case ask:
	}
	c, err := l.report(ctx, w, r)
	passes, status := l.reported(t, r, c, err)
	switch {
	case passes && err != nil && !pg.IsUnavailable(err): // of that others tell
		l.log.WarnContext(ctx, "could not count requests; they pass", "org_id", orgID, "operation", operation, "error",
			err)
	case !passes && err != nil:
		return LimitStatus{}, err
	case !passes:
		return status, limit.Exceeded(status.EndsIn)
	}
	return status, nil
}

func (l *Limits) next(w window, limit Limit) (*tally, decision, report, LimitStatus) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.tallies[w]
	if !ok {
		if len(l.tallies) >= l.sweepAt {
			maps.DeleteFunc(l.tallies, func(_ window, t *tally) bool { return t.ended(now) })
			l.sweepAt = max(fewTallies, 2*len(l.tallies))
		}
		t = &tally{}
		l.tallies[w] = t
	}
	d, r := t.next(limit, now)
	return t, d, r, t.status(now)
}

func (l *Limits) reported(t *tally, r report, c count, err error) (passes bool, s LimitStatus) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		passes = t.failed(r, now)
	} else {
		passes = t.answered(r, c, now)
	}
	s = t.status(now)
	s.Limit = r.limit
	return passes, s
}

// report has the database count.
func (l *Limits) report(ctx context.Context, w window, r report) (count, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	period := r.limit.period().Seconds()
	row, err := l.q.RequestCount(ctx, l.pool, db.RequestCountParams{
		OrgID: w.orgID, Operation: w.operation, Requests: r.requests, PeriodSeconds: period, MaxUsed: r.limit.Max,
	})
	if err == nil {
		return count{used: row.Used, began: row.BeganAt, endsIn: r.limit.within(row.EndsInSeconds)}, nil
	}
	if !pg.IsNoRows(err) {
		return count{}, fmt.Errorf("count requests: %w", err)
	}
	left, err := l.q.RequestWindow(ctx, l.pool, db.RequestWindowParams{
		PeriodSeconds: period, OrgID: w.orgID, Operation: w.operation,
	})
	if err != nil {
		return count{}, fmt.Errorf("read a window of requests: %w", err)
	}
	return count{full: true, began: left.BeganAt, endsIn: r.limit.within(left.EndsInSeconds)}, nil
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

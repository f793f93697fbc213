package due

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

const (
	// compareEvery is how often a process compares the database's clock with its own.
	compareEvery = 5 * time.Second
	// stepLeast is the least difference that is shown as a step; less is a clock that is brought nearer to the time.
	stepLeast = 500 * time.Millisecond
)

// Clock holds the database's clock against this process's own, which never steps. Whoever is about to give something up
// because its time is over asks it for the time that has really passed. All methods may be called concurrently.
type Clock struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	// base is where the process's own clock begins to count.
	base time.Time

	comparing sync.Mutex
	mu        sync.Mutex
	track     track
	// seen is the database's time at the last comparison.
	seen time.Time
	// steps counts those that were noticed, last is the size of the last one, shift the sum of their sizes.
	steps       int
	last, shift time.Duration
	// noticed tells Run of a step.
	noticed chan struct{}
}

// NewClock returns a Clock that knows nothing yet.
func NewClock(pool *pgxpool.Pool, log *slog.Logger) *Clock {
	return &Clock{pool: pool, log: log, base: time.Now(), noticed: make(chan struct{}, 1)}
}

// Run compares the clocks until ctx ends. After each step it calls every one of stepped, again until it succeeds.
func (c *Clock) Run(ctx context.Context, stepped ...func(context.Context) error) {
	ticker := time.NewTicker(compareEvery)
	defer ticker.Stop()
	err := c.begin(ctx)
	for pending := false; ; {
		if err != nil && ctx.Err() == nil {
			c.log.Warn("the clock of the database cannot be watched; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.noticed:
			pending = true
		case <-ticker.C:
			err = c.watch(ctx)
		}
		if pending {
			pending = c.handleStep(ctx, stepped) != nil
		}
	}
}

func (c *Clock) handleStep(ctx context.Context, stepped []func(context.Context) error) (err error) {
	for _, do := range stepped {
		if err = do(ctx); err != nil {
			if ctx.Err() == nil {
				c.log.Error("what a step of the clock calls for failed; trying again", "error", err)
			}
			return err
		}
	}
	return nil
}

// begin takes over what processes before this one saw of the clock.
func (c *Clock) begin(ctx context.Context) error {
	row, err := db.New().ClockWatched(ctx, c.pool)
	if err != nil && !pg.IsNoRows(err) {
		return fmt.Errorf("read how the clock went: %w", err)
	}
	if _, err := c.compare(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ahead := row.WatchedAt.Sub(c.seen); ahead > stepLeast {
		c.step(-ahead)
		return nil
	}
	c.track.vouched = span{row.SteadySince, row.WatchedAt}
	return nil
}

// watch compares the clocks, and leaves what it saw to processes that start later.
func (c *Clock) watch(ctx context.Context) error {
	c.mu.Lock()
	since := c.seen
	c.mu.Unlock()
	steady, err := c.compare(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	now := c.seen
	c.mu.Unlock()
	if !steady || since.IsZero() {
		since = now
	}
	if err := db.New().ClockWatch(ctx, c.pool, db.ClockWatchParams{Since: since, Now: now}); err != nil {
		return fmt.Errorf("write down how the clock went: %w", err)
	}
	return nil
}

// compare reads the database's clock. steady tells that it went like this process's own since the last time.
func (c *Clock) compare(ctx context.Context) (steady bool, err error) {
	// One at a time: a comparison whose answer took long must not stand for one that began after it, whose caller asks
	// about a time that the clock had not said yet.
	c.comparing.Lock()
	defer c.comparing.Unlock()
	before := time.Since(c.base)
	row, err := db.New().ClockCompare(ctx, c.pool)
	after := time.Since(c.base)
	if err != nil {
		return false, fmt.Errorf("read the clock: %w", err)
	}
	// Time that tests let pass has passed for everybody.
	passed := time.Duration(row.Passed * float64(time.Second))
	c.mu.Lock()
	defer c.mu.Unlock()
	step, steady := c.track.add(before+passed, after+passed, row.Now)
	c.seen = row.Now
	if step.Abs() >= stepLeast {
		c.step(step)
	}
	return steady, nil
}

// step notes a step of the clock.
func (c *Clock) step(size time.Duration) {
	c.steps++
	c.last, c.shift = size, c.shift+size.Abs()
	c.log.Error("the clock of the database stepped", "seconds", size.Seconds())
	select {
	case c.noticed <- struct{}{}:
	default:
	}
}

// Ages returns the database's time, and for each of these times of it how long ago that was at least, whatever the
// clock did meanwhile. They must have been read from the database before.
func (c *Clock) Ages(ctx context.Context, times ...time.Time) (now time.Time, ages []time.Duration, err error) {
	if _, err := c.compare(ctx); err != nil {
		return now, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ages = make([]time.Duration, len(times))
	for i, t := range times {
		ages[i] = c.track.age(t)
	}
	return c.seen, ages, nil
}

// Steps returns how many steps this process has noticed, the size of the last one, and the sum of their sizes.
func (c *Clock) Steps() (n int, last, shift time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps, c.last, c.shift
}

// ClockStepped is what is to be done after a step of the clock: a lease that was granted before ends no later than one
// that begins now, and the rows of these kinds are due, whose times must be found out anew. Other rows go by the clock
// as it is.
func (s *Scheduler) ClockStepped(ctx context.Context, kinds ...string) error {
	q := db.New()
	if err := q.DueStepped(ctx, s.pool); err != nil {
		return fmt.Errorf("shorten leases: %w", err)
	}
	for _, kind := range kinds {
		if err := q.DueWakeKind(ctx, s.pool, kind); err != nil {
			return fmt.Errorf("wake all of %s: %w", kind, err)
		}
	}
	s.ScanNow()
	return nil
}

package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"flowlane/gen/db"
)

// longestRound bounds how much time a process vouches for at once: rounds of housekeeping are an hour apart.
const longestRound = time.Hour

// Clock moves the time by which things are old. That of the database may jump ahead, by which everything would be old
// at once, so this one goes on by twice the time that passes for processes, until it has reached the other one: what
// was missed while nobody was there is caught up with. Its methods may be called concurrently.
type Clock struct {
	mu   sync.Mutex
	last time.Time
}

// NewClock returns the clock of a process that has just been started.
func NewClock() *Clock { return &Clock{last: time.Now()} }

// Advance moves the clock on by what has passed since the last time, notes how long the operator keeps things, and
// returns how far it is behind that of the database.
func (c *Clock) Advance(ctx context.Context, conn db.DBTX, in Installation) (behind time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	passed := min(now.Sub(c.last), longestRound)
	kept := make(map[string]float64, len(All))
	for _, k := range All {
		kept[k.Name] = in.seconds(k)
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return 0, fmt.Errorf("write how long things are kept: %w", err)
	}
	seconds, err := db.New().RetentionClockAdvance(ctx, conn, db.RetentionClockAdvanceParams{Kept: text,
		Seconds: passed.Seconds()})
	if err != nil {
		return 0, fmt.Errorf("move the clock of deletions on: %w", err)
	}
	c.last = now
	return time.Duration(seconds * float64(time.Second)), nil
}

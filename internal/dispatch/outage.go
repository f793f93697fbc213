package dispatch

import (
	"context"
	"time"

	"flowlane/internal/moment"
	"flowlane/internal/pg"
)

const (
	// readBackFor is how long it is tried to find out whether a claim was committed.
	readBackFor = 8 * time.Second
	// firstPause and lastPause are those between two attempts to write while the database is away.
	firstPause, lastPause = 50 * time.Millisecond, 2 * time.Second
)

// keepTrying repeats what failed because the database was away, until ctx ends: an answer that is given up costs a
// lookup, or is lost for good where there is none. do must be harmless to repeat.
func (d *Dispatcher) keepTrying(ctx context.Context, do func() error) error {
	for failures := 0; ; failures++ {
		err := do()
		if err == nil {
			if d.away.Load() && d.away.CompareAndSwap(true, false) {
				d.opts.Log.Info("the database is back: answers are written down again")
			}
			return nil
		}
		if !retriable(err) {
			return err
		}
		if !pg.IsSerialization(err) && ctx.Err() == nil && d.away.CompareAndSwap(false, true) {
			d.opts.Log.Warn("the database is away: answers are kept until it is back", "error", err)
		}
		select {
		case <-time.After(moment.Backoff(failures, firstPause, lastPause)):
		case <-ctx.Done():
			return err
		}
	}
}

// mayPass reports whether what failed lies in nothing that was worked on: the same work may succeed later, or nobody
// waits for it any more.
func mayPass(ctx context.Context, err error) bool { return retriable(err) || ctx.Err() != nil }

// retriable reports whether the same work may succeed a little later.
func retriable(err error) bool {
	return pg.IsUnavailable(err) || pg.IsConnection(err) || pg.IsSerialization(err)
}

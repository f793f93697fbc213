package app

import (
	"context"
	"sync/atomic"
	"time"

	"flowlane/internal/pg"
)

// confirmedEvery is how often a process looks whether a database that was restored is confirmed.
const confirmedEvery = 2 * time.Second

// restores tells when connections find a database that was restored: they write nothing then, so that nothing is
// started, and no call is sent that was sent before.
type restores struct {
	closed atomic.Bool
	found  chan struct{}
}

// moved is told by each connection that finds such a database, and why it is one.
func (a *App) moved(why string) {
	if a.restores.closed.CompareAndSwap(false, true) {
		a.cfg.Log.Error("the database was restored, copied or promoted: nothing is started, "+
			"sent or changed before somebody has run `flowlane restore confirm`", "because", why)
		a.restores.found <- struct{}{}
	}
}

// untilConfirmed waits, where the database was restored, until somebody has confirmed it, and then writes down what New
// could not.
func (a *App) untilConfirmed(ctx context.Context) error {
	select {
	case <-a.restores.found:
	default:
		return nil
	}
	a.reopen(ctx)
	if a.cfg.Workers && ctx.Err() == nil {
		return a.planUpkeep(ctx)
	}
	return nil
}

// watchRestores has the process go on after each restore that comes while it runs.
func (a *App) watchRestores(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.restores.found:
			a.reopen(ctx)
		}
	}
}

// reopen waits until somebody has confirmed the database, and replaces the connections: those of now write nothing.
func (a *App) reopen(ctx context.Context) {
	tick := time.NewTicker(confirmedEvery)
	defer tick.Stop()
	for {
		if why, err := pg.Moved(ctx, a.Pool, a.cfg.TrustFailover); err == nil && why == "" {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	a.restores.closed.Store(false) // first: a connection that finds yet another database from now on says so again
	a.Pool.Reset()
	a.clock.Reset()
	a.cfg.Log.InfoContext(ctx, "the database is confirmed: work goes on")
}

package app

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/dispatch"
	"flowlane/internal/due"
	"flowlane/internal/pause"
	"flowlane/internal/recordset"
	"flowlane/internal/retention"
	"flowlane/internal/run"
	"flowlane/internal/store"
	"flowlane/internal/trigger/event"
	"flowlane/internal/trigger/schedule"
	"flowlane/internal/trigger/webhook"
)

// turn is how long one batch's or store's work goes on before others get theirs.
const turn = time.Second

const (
	// workPlaces is how many batches a process works on at once, workersOfSlices half of how many may wait for that,
	// workShare how many of one organization.
	workPlaces      = 4
	workersOfSlices = 16
	workShare       = 8
	// workTurn is how long in-process work is evaluated before it is settled and others have their turn.
	workTurn = 200 * time.Millisecond
)

// registerKinds tells the clock who does what. Every process registers every kind: whoever wakes a row must know it.
func (a *App) registerKinds() {
	register := func(kind string, lease time.Duration, workers int, h due.Handler, options ...due.Option) {
		if a.cfg.Lease > 0 {
			lease = min(lease, a.cfg.Lease)
		}
		a.Scheduler.Register(kind, lease, workers, a.stoppable(h), options...)
	}
	register(run.DueDispatch, 10*time.Second, 16, a.Dispatcher.Pass, due.Rechecks(), due.Grouped(dispatch.BudgetGroup))
	register(dispatch.DueReconcile, 30*time.Second, 8, a.Dispatcher.Reconcile, due.Rechecks(),
		due.Grouped(dispatch.BudgetGroup))
	register(dispatch.DueCounters, 30*time.Second, 4, a.Dispatcher.Counters)
	register(run.DueSlices, 10*time.Second, workersOfSlices, a.slices)
	register(run.DueWait, 10*time.Second, 2, a.endWaits)
	register(run.DueRelease, 10*time.Second, 2, a.release)
	register(pause.DueExpiry, 10*time.Second, 2, a.endPause)
	register(run.DuePacing, 10*time.Second, 2, a.tick)
	register(schedule.Due, 10*time.Second, 4, a.Schedules.Fire)
	register(webhook.Due, 10*time.Second, 4, a.Webhooks.Dispatch, due.Grouped(a.Webhooks.Group))
	register(event.Due, 10*time.Second, 4, a.deliver)
	register(event.DueArrival, 10*time.Second, 4, a.arrive)
	register(recordset.ExpiryKind, 30*time.Second, 1, a.expire)
	register(store.CatchUpKind, 10*time.Second, 2, a.catchUp)
	register(retention.DeletionKind, 30*time.Second, 1, a.deletions().Delete)
	register(housekeeping, 30*time.Second, 1, a.housekeep)
	register(rollup, 30*time.Second, 1, a.rollUp)
	register(sweeping, 30*time.Second, 1, a.sweep)
	register(recordset.SweepKind, 30*time.Second, 1, a.sweepBlobs)
}

// deletions deletes organizations.
func (a *App) deletions() *retention.Organizations {
	why := "The organization is deleted"
	return &retention.Organizations{Pool: a.Pool, Due: a.Scheduler, Blobs: a.RecordSets.EraseBlobs,
		Cancel: func(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID) error {
			_, err := a.Runs.Cancel(ctx, tx, orgID, batchID, run.Cancellation{Reason: &why})
			return err //nolint:wrapcheck // says everything
		}}
}

// stoppable ends the handler's context as soon as the process is asked to stop, so that what is in flight has all of
// the time to stop for its settlement. Work that is not done by then is due again at once, for other processes.
func (a *App) stoppable(h due.Handler) due.Handler {
	return func(ctx context.Context, l *due.Lease) (time.Time, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(a.stopping, cancel)()
		next, err := h(ctx, l)
		//nolint:errorlint // a lost lease has its own cause
		if err != nil && a.stopping.Err() != nil && context.Cause(ctx) == context.Canceled {
			return due.Now(), nil
		}
		return next, err
	}
}

// slices does in-process work of one batch, turn by turn of its organization.
func (a *App) slices(ctx context.Context, l *due.Lease) (again time.Time, err error) {
	next, err := inTurns(ctx, l, func(ctx context.Context, id uuid.UUID) (more bool, err error) {
		b, err := a.Runs.Batch(ctx, a.Pool, id)
		if errors.Is(err, run.ErrNoBatch) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		leave, later, err := a.work.enter(ctx, b.OrgID)
		if err != nil {
			return false, err
		}
		if later > 0 {
			again, err = a.Runs.In(ctx, later)
			return false, err
		}
		defer leave()
		return a.Runs.Work(ctx, id)
	})
	if err != nil || !next.IsZero() {
		return next, err
	}
	return again, nil
}

// endWaits ends the waits of one batch that are over, and comes back when the next one is.
func (a *App) endWaits(ctx context.Context, l *due.Lease) (next time.Time, err error) {
	again, err := inTurns(ctx, l, func(ctx context.Context, id uuid.UUID) (more bool, err error) {
		more, next, err = a.Runs.EndWaits(ctx, id)
		return more, err
	})
	if !again.IsZero() {
		return again, err
	}
	return next, err
}

// catchUp brings records of one store after it.
func (a *App) catchUp(ctx context.Context, l *due.Lease) (time.Time, error) {
	return inTurns(ctx, l, a.Stores.CatchUp)
}

// deliver decides events that wait for one subscription.
func (a *App) deliver(ctx context.Context, l *due.Lease) (time.Time, error) {
	return inTurns(ctx, l, a.Subscriptions.Deliver)
}

// arrive hands events of one organization to the tasks that wait for them.
func (a *App) arrive(ctx context.Context, l *due.Lease) (time.Time, error) {
	return inTurns(ctx, l, a.Runs.MatchEvent)
}

// inTurns does what an id has to do, turn by turn, until nothing is left or others shall have their turn.
func inTurns(ctx context.Context, l *due.Lease, do func(ctx context.Context,
	id uuid.UUID) (more bool, err error)) (time.Time, error) {
	id, err := l.ID()
	if err != nil {
		return time.Time{}, err
	}
	for began := time.Now(); ; {
		more, err := do(ctx, id)
		if err != nil || !more {
			return time.Time{}, err
		}
		if time.Since(began) > turn {
			return due.Now(), nil
		}
	}
}

// release lets a batch go whose scheduled time has come.
func (a *App) release(ctx context.Context, l *due.Lease) (time.Time, error) {
	return time.Time{}, l.InTx(ctx, a.Pool, func(ctx context.Context, tx pgx.Tx, batch uuid.UUID) (time.Time, error) {
		return time.Time{}, a.Runs.Release(ctx, tx, batch)
	})
}

// tick releases records of a paced batch.
func (a *App) tick(ctx context.Context, l *due.Lease) (time.Time, error) {
	return time.Time{}, l.InTx(ctx, a.Pool, a.Runs.Tick)
}

// expire ends the staging of a record set.
func (a *App) expire(ctx context.Context, l *due.Lease) (time.Time, error) {
	return time.Time{}, l.InTx(ctx, a.Pool, a.RecordSets.Expire)
}

// endPause ends a pause whose time is over.
func (a *App) endPause(ctx context.Context, l *due.Lease) (time.Time, error) {
	return time.Time{}, l.InTx(ctx, a.Pool, a.Pauses.Expire)
}

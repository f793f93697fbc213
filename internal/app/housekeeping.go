package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/due"
	"flowlane/internal/pg"
	"flowlane/internal/recordset"
	"flowlane/internal/usage"
)

const (
	// housekeeping is the kind of the one due row that has old rows deleted.
	housekeeping = "housekeeping"
	// housekeepEvery is how often; the first time is a minute after a start, when there is more to do than that.
	housekeepEvery = time.Hour
	housekeepFirst = time.Minute
	// housekeepRows bounds one statement, housekeepFor what is done of one kind before the others have their turn.
	housekeepRows = 1000
	housekeepFor  = time.Second
	// rollup is the kind of the one due row that has batches summed up, rollupEvery how often, rollupStep how long at a
	// time.
	rollup      = "rollup"
	rollupEvery = 10 * time.Minute
	rollupStep  = 5 * time.Second
	// muchBehind is how far the clock of deletions may be behind that of the database before the log says so.
	muchBehind = 24 * time.Hour
)

// planUpkeep makes sure that the rows of housekeeping, rollups and the sweeps are there and due soon, also where the
// clock went back since they were written; an earlier time stays.
func (a *App) planUpkeep(ctx context.Context) error {
	return pg.InTx(ctx, a.Pool, func(ctx context.Context, tx pgx.Tx) error {
		now, err := db.New().ClockNow(ctx, tx)
		if err != nil {
			return fmt.Errorf("read the clock: %w", err)
		}
		if err := a.Scheduler.Wake(ctx, tx, housekeeping, "all", now.Add(housekeepFirst)); err != nil {
			return err //nolint:wrapcheck // says everything
		}
		if err := a.Scheduler.Wake(ctx, tx, rollup, "all", now.Add(rollupEvery)); err != nil {
			return err //nolint:wrapcheck // says everything
		}
		if a.blobs != nil {
			if err := a.Scheduler.Wake(ctx, tx, recordset.SweepKind, "all", now.Add(housekeepFirst)); err != nil {
				return err //nolint:wrapcheck // says everything
			}
		}
		return a.Scheduler.Wake(ctx, tx, sweeping, "all", now.Add(sweepEvery))
	})
}

// housekeep deletes what is only kept for a while, in bounded steps.
func (a *App) housekeep(ctx context.Context, _ *due.Lease) (time.Time, error) {
	q := db.New()
	behind, err := a.aging.Advance(ctx, a.Pool, a.cfg.Retention)
	if err != nil {
		return time.Time{}, err //nolint:wrapcheck // says everything
	}
	if behind > muchBehind {
		a.cfg.Log.Warn("old rows are deleted later: the clock of the database has passed a time that no process saw; "+
			"it jumped ahead, or nothing ran for so long", "behind", behind.Round(time.Minute))
	}
	// Batches are not deleted before they are summed up.
	if _, err := usage.RollUp(ctx, a.Pool, rollupStep); err != nil && ctx.Err() == nil {
		a.cfg.Log.Error("batches are not rolled up, and not deleted", "error", err)
	}
	steps := append(a.cfg.Retention.Steps(a.Pool),
		q.HousekeepLedger, q.HousekeepRolling, q.HousekeepCalls, q.HousekeepBackoffs, q.HousekeepIdempotencyKeys,
		q.HousekeepFires,
		q.HousekeepWebhooks, q.HousekeepArrivals, q.HousekeepRefusedStarts, q.HousekeepChains, q.HousekeepSessions)
	left := false
	for _, step := range steps { // one that fails does not keep the others from theirs
		more, failed := a.housekeepStep(ctx, step)
		if left, err = left || more, errors.Join(err, failed); ctx.Err() != nil || away(failed) {
			break
		}
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("delete old rows: %w", err)
	}
	if left {
		return due.Now(), nil
	}
	now, err := q.ClockNow(ctx, a.Pool)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return now.Add(housekeepEvery), nil
}

// away reports whether the next statement would fail, too.
func away(err error) bool { return pg.IsUnavailable(err) || pg.IsConnection(err) }

// housekeepStep deletes rows of one kind for some time, and returns whether there may be more.
func (a *App) housekeepStep(ctx context.Context,
	step func(ctx context.Context, conn db.DBTX, maxRows int32) (int64, error)) (more bool, err error) {
	for began := time.Now(); ; {
		n, err := step(ctx, a.Pool, housekeepRows)
		if err != nil || n < housekeepRows {
			return false, err
		}
		if time.Since(began) > housekeepFor {
			return true, nil
		}
	}
}

// rollUp sums up the batches of hours that are over.
func (a *App) rollUp(ctx context.Context, _ *due.Lease) (time.Time, error) {
	more, err := usage.RollUp(ctx, a.Pool, rollupStep)
	if err != nil {
		return time.Time{}, err //nolint:wrapcheck // says everything
	}
	if more {
		return due.Now(), nil
	}
	now, err := db.New().ClockNow(ctx, a.Pool)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return now.Add(rollupEvery), nil
}

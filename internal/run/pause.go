package run

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/fault"
	"flowlane/internal/trigger/event"
)

// Pause takes a batch out of work in the caller's transaction: from its commit on nothing of the batch is claimed, and
// no in-process work is settled. Calls under way settle as usual. It returns false for a batch that is paused already.
// Package pause keeps exactly one active pause for each paused batch. Faults: NotFound; Conflict for a batch that is
// over.
func (s *Service) Pause(ctx context.Context, tx pgx.Tx,
	orgID, batchID uuid.UUID) (paused bool, now time.Time, err error) {
	c, h, err := s.beginOpen(ctx, tx, orgID, batchID)
	if err != nil {
		return false, now, err
	}
	if h.Status == batch.BatchPaused {
		return false, c.Now, nil
	}
	if err := s.q.BatchPause(ctx, tx, db.BatchPauseParams{BatchID: batchID, Now: c.Now}); err != nil {
		return false, c.Now, fmt.Errorf("pause batch %s: %w", batchID, err)
	}
	err = s.q.LaneBatchPause(ctx, tx, batchID)
	return err == nil, c.Now, fault.Wrap(err, "pause the queues of batch %s", batchID)
}

// Resume puts a paused batch back to the status that it had, in the caller's transaction, and ends it if all of its
// jobs came to their end meanwhile. It returns false for a batch that is not paused; else released is called before
// that end, with the time, and returns what happened. Fault: NotFound.
func (s *Service) Resume(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID,
	released func(now time.Time) ([]event.Event, error)) (resumed bool, now time.Time, err error) {
	c, h, err := s.beginOne(ctx, tx, orgID, batchID)
	if err != nil {
		return false, now, err
	}
	if h.Status != batch.BatchPaused {
		return false, c.Now, nil
	}
	if h.Status, err = s.q.BatchResume(ctx, tx, db.BatchResumeParams{BatchID: batchID, Now: c.Now}); err != nil {
		return false, c.Now, fmt.Errorf("resume batch %s: %w", batchID, err)
	}
	if err := s.q.LaneBatchResume(ctx, tx, batchID); err != nil {
		return false, c.Now, fmt.Errorf("resume the queues of batch %s: %w", batchID, err)
	}
	happened, err := released(c.Now)
	if err != nil {
		return false, c.Now, err
	}
	if err := c.publish(ctx, happened...); err != nil {
		return false, c.Now, err
	}
	if h.counts.Terminal() == h.RecordCount {
		if err := c.moveCounts(ctx, map[uuid.UUID]*batch.Counts{batchID: {}}); err != nil {
			return false, c.Now, err
		}
		if err := c.later.Send(ctx, tx); err != nil {
			return false, c.Now, fmt.Errorf("end batch %s: %w", batchID, err)
		}
		return true, c.Now, c.finish(ctx)
	}
	c.opened = append(c.opened, batchID)
	c.wakeBatch(DueSlices, batchID)
	if planWaits(h.plan) {
		c.wakeBatch(DueWait, batchID)
	}
	return true, c.Now, c.send(ctx)
}

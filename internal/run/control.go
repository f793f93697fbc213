package run

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
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

// beginOne locks one batch of an organization. Fault: NotFound.
func (s *Service) beginOne(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID) (*Change, *lockedBatch, error) {
	c, err := s.Begin(ctx, tx, batchID)
	if err != nil {
		return nil, nil, err
	}
	h := c.heads[batchID]
	if h == nil || h.OrgID != orgID {
		return c, nil, fault.Missing("Batch")
	}
	return c, h, nil
}

// beginOpen is beginOne for a batch that must not be over. Faults: NotFound; Conflict.
func (s *Service) beginOpen(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID) (*Change, *lockedBatch, error) {
	c, h, err := s.beginOne(ctx, tx, orgID, batchID)
	if err == nil && batch.BatchTerminal(h.Status) {
		err = fault.New(fault.Conflict, "Batch is already %s", h.Status).Known(fault.BatchOver)
	}
	return c, h, err
}

// Cancellation says who cancels a batch and why.
type Cancellation struct {
	Reason *string
	By     *uuid.UUID
}

// Cancel ends a batch in the caller's transaction: what was not sent will never be. It touches no slice and no job,
// whatever the size of the batch; readers show as unprocessed what still waits there. Calls under way settle later.
// Faults: NotFound; Conflict for a batch that is over.
func (s *Service) Cancel(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID,
	why Cancellation) (*query.BatchRow, error) {
	c, _, err := s.beginOpen(ctx, tx, orgID, batchID)
	if err != nil {
		return nil, err
	}
	if err := c.closeWaiting(ctx, batchID); err != nil {
		return nil, err
	}
	if err := s.q.BatchCancel(ctx, tx, db.BatchCancelParams{BatchID: batchID, Reason: why.Reason,
		Now: c.Now}); err != nil {
		return nil, fmt.Errorf("cancel batch %s: %w", batchID, err)
	}
	released, err := s.q.PausesOfBatchRelease(ctx, tx, db.PausesOfBatchReleaseParams{Now: c.Now, ReleasedBy: why.By,
		BatchID: batchID})
	if err != nil {
		return nil, fmt.Errorf("release the holds of batch %s: %w", batchID, err)
	}
	if err := c.publish(ctx, event.Pauses(event.PauseReleased, released)...); err != nil {
		return nil, err
	}
	if err := account.Audit(ctx, tx, auditType, batchID.String()); err != nil {
		return nil, err
	}
	c.ended = append(c.ended, batchID)
	if err := c.finish(ctx); err != nil {
		return nil, err
	}
	return s.ReadBatchIn(ctx, tx, orgID, batchID)
}

// stopped reports whether nothing of the batch is sent any more: it is over, its failure threshold stopped it, or it
// was deleted.
func (h *lockedBatch) stopped() bool {
	return h == nil || batch.BatchTerminal(h.Status) || h.StoppedAt != nil
}

// barred reports whether nothing of the batch is sent or worked on now: it is stopped, or paused.
func (h *lockedBatch) barred() bool { return h.stopped() || h.Status == batch.BatchPaused }

// allowed is how many jobs of the batch may fail.
func (h *lockedBatch) allowed() int64 {
	if h.plan.FailureThreshold == nil {
		return math.MaxInt64
	}
	return h.plan.FailureThreshold.Allowed(h.RecordCount)
}

// fails counts a job that fails. It returns false where it must not: the batch is past its threshold by what this
// change did before, and the job needs no call to fail, so that it is left unprocessed like all that waits.
func (h *lockedBatch) fails(from batch.Status) bool {
	if waits := from == batch.Queued || from == batch.Pending; waits && h.failing > h.allowed() {
		return false
	}
	h.failing++
	return true
}

// stopPast stops a batch that is past its failure threshold, in the transaction that takes it there. Calls under way
// settle later; the batch ends once nothing is open.
func (c *Change) stopPast(ctx context.Context, h *lockedBatch) error {
	if h.stopped() || h.counts.Failures() <= h.allowed() {
		return nil
	}
	if err := c.closeWaiting(ctx, h.ID); err != nil {
		return err
	}
	h.StoppedAt = &c.Now
	reason := fmt.Sprintf("Stopped by its failure threshold: more than %d of %d jobs failed", h.allowed(),
		h.RecordCount)
	err := c.s.q.BatchStop(ctx, c.tx, db.BatchStopParams{BatchID: h.ID, Reason: reason, Now: c.Now})
	return fault.Wrap(err, "stop batch %s", h.ID)
}

// closeWaiting closes the queues of a batch, whose counters then say that what waits in it is over. It touches no slice
// and no job, whatever the size of the batch: they stay where they were, and readers show as unprocessed what waits
// there.
func (c *Change) closeWaiting(ctx context.Context, batchID uuid.UUID) error {
	if err := c.s.q.LaneBatchClose(ctx, c.tx, batchID); err != nil {
		return fmt.Errorf("close the queues of batch %s: %w", batchID, err)
	}
	c.clearWaits(batchID)
	return nil
}

package run

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/fault"
	"flowlane/internal/trigger/event"
)

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

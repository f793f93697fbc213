package run

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"

	"flowlane/gen/db"
)

// failures is how many of the jobs failed, or were rejected.
func (c *Counts) failures() int64 { return c.Of(Failed) + c.Of(Rejected) }

// stopped reports whether nothing of the batch is sent any more: it is over, or its failure threshold stopped it.
func (h *head) stopped() bool { return BatchTerminal(h.Status) || h.StoppedAt != nil }

// barred reports whether nothing of the batch is sent or worked on now: it is stopped, or paused.
func (h *head) barred() bool { return h.stopped() || h.Status == BatchPaused }

// allowed is how many jobs of the batch may fail.
func (h *head) allowed() int64 {
	if h.plan.FailureThreshold == nil {
		return math.MaxInt64
	}
	return h.plan.FailureThreshold.Allowed(h.RecordCount)
}

// fails counts a job that fails. It returns false where it must not: the batch is past its threshold by what this change
// did before, and the job needs no call to fail, so that it is left unprocessed like all that waits.
func (h *head) fails(from Status) bool {
	if waits := from == Queued || from == Pending; waits && h.Failures > h.allowed() {
		return false
	}
	h.Failures++
	return true
}

// stopPast stops a batch that is past its failure threshold, in the transaction that takes it there. counts are those of the
// batch, and follow. Calls under way settle later; the batch ends once nothing is open.
func (c *Change) stopPast(ctx context.Context, h *head, counts *Counts) error {
	if h.stopped() || counts.failures() <= h.allowed() {
		return nil
	}
	if err := c.closeWaiting(ctx, h.ID); err != nil {
		return err
	}
	for _, s := range []Status{Staged, Queued, Pending} {
		counts.move(s, Unprocessed, counts.Of(s))
	}
	h.StoppedAt = &c.Now
	reason := fmt.Sprintf("Stopped by its failure threshold: more than %d of %d jobs failed", h.allowed(), h.RecordCount)
	err := c.s.q.BatchStop(ctx, c.tx, db.BatchStopParams{ID: h.ID, Reason: reason, Now: c.Now})
	return wrap(err, "stop batch %s", h.ID)
}

// closeWaiting closes the queues of a batch, and ends what waits in it. It touches no slice and no job, whatever the size of the
// batch: they stay where they were, and readers show as unprocessed what waits there.
func (c *Change) closeWaiting(ctx context.Context, batchID uuid.UUID) error {
	if _, err := c.s.q.LaneBatchClose(ctx, c.tx, batchID); err != nil {
		return fmt.Errorf("close the queues of batch %s: %w", batchID, err)
	}
	if err := c.s.q.BatchCountClose(ctx, c.tx, batchID); err != nil {
		return fmt.Errorf("count the jobs of batch %s: %w", batchID, err)
	}
	c.clearWaits(batchID)
	return nil
}

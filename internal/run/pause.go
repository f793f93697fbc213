package run

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/event"
	"flowlane/internal/fault"
)

// Pause takes a batch out of work in the caller's transaction: from its commit on nothing of the batch is claimed, and no
// in-process work is settled. Calls under way settle as usual. It returns false for a batch that is paused already. Package
// hold keeps exactly one active hold for each paused batch. Faults: NotFound; Conflict for a batch that is over.
func (s *Service) Pause(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID) (paused bool, now time.Time, err error) {
	c, h, err := s.beginOpen(ctx, tx, orgID, batchID)
	if err != nil {
		return false, timeOf(c), err
	}
	if h.Status == BatchPaused {
		return false, c.Now, nil
	}
	if err := s.q.BatchPause(ctx, tx, db.BatchPauseParams{ID: batchID, Now: c.Now}); err != nil {
		return false, c.Now, fmt.Errorf("pause batch %s: %w", batchID, err)
	}
	if err := s.q.LaneBatchPause(ctx, tx, batchID); err != nil {
		return false, c.Now, fmt.Errorf("pause the queues of batch %s: %w", batchID, err)
	}
	return true, c.Now, nil
}

// Resume puts a paused batch back to the status that it had, in the caller's transaction, and ends it if all of its jobs came
// to their end meanwhile. It returns false for a batch that is not paused; else released is called before that end, with the time, and
// returns what happened. Fault: NotFound.
func (s *Service) Resume(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID, released func(now time.Time) ([]event.Event, error)) (resumed bool, now time.Time, err error) {
	c, h, err := s.beginOne(ctx, tx, orgID, batchID)
	if err != nil || h.Status != BatchPaused {
		return false, timeOf(c), err
	}
	if h.Status, err = s.q.BatchResume(ctx, tx, db.BatchResumeParams{ID: batchID, Now: c.Now}); err != nil {
		return false, c.Now, fmt.Errorf("resume batch %s: %w", batchID, err)
	}
	queues, err := s.q.LaneBatchResume(ctx, tx, batchID)
	if err != nil {
		return false, c.Now, fmt.Errorf("resume the queues of batch %s: %w", batchID, err)
	}
	happened, err := released(c.Now)
	if err != nil {
		return false, c.Now, err
	}
	if err := c.tell(ctx, happened...); err != nil {
		return false, c.Now, err
	}
	row, err := s.q.BatchCounts(ctx, tx, batchID)
	if err != nil {
		return false, c.Now, fmt.Errorf("count the jobs of batch %s: %w", batchID, err)
	}
	if counts := countsOf(&row); counts.terminal() == row.RecordCount {
		c.end(h, &counts)
		if err := c.writeEnds(ctx, tx); err != nil {
			return false, c.Now, err
		}
		return true, c.Now, c.finish(ctx)
	}
	for _, q := range queues {
		if q.Waiting {
			c.Wake(DueDispatch, DispatchKey(q.Domain, q.Bucket), c.Now)
		}
	}
	c.Wake(DueSlices, batchID.String(), c.Now)
	if planWaits(h.plan) {
		c.Wake(DueWait, batchID.String(), c.Now)
	}
	return true, c.Now, c.wake(ctx)
}

// beginOne locks one batch of an organization. Fault: NotFound.
func (s *Service) beginOne(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID) (*Change, *head, error) {
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
func (s *Service) beginOpen(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID) (*Change, *head, error) {
	c, h, err := s.beginOne(ctx, tx, orgID, batchID)
	if err == nil && BatchTerminal(h.Status) {
		err = fault.New(fault.Conflict, "Batch is already %s", h.Status)
	}
	return c, h, err
}

// timeOf is when a change began; the zero time for none.
func timeOf(c *Change) (now time.Time) {
	if c != nil {
		now = c.Now
	}
	return now
}

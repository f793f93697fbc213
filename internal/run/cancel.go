package run

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/event"
)

// Cancellation says who cancels a batch and why.
type Cancellation struct {
	Reason *string
	By     *uuid.UUID
}

// Cancel ends a batch in the caller's transaction: what was not sent will never be. It touches no slice and no job,
// whatever the size of the batch; readers show as unprocessed what still waits there. Calls under way settle later. Faults: NotFound;
// Conflict for a batch that is over.
func (s *Service) Cancel(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID, why Cancellation) (*BatchRow, error) {
	c, _, err := s.beginOpen(ctx, tx, orgID, batchID)
	if err != nil {
		return nil, err
	}
	if err := c.closeWaiting(ctx, batchID); err != nil {
		return nil, err
	}
	if err := s.q.BatchCancel(ctx, tx, db.BatchCancelParams{ID: batchID, Reason: why.Reason, Now: c.Now}); err != nil {
		return nil, fmt.Errorf("cancel batch %s: %w", batchID, err)
	}
	released, err := s.q.HoldsOfBatchRelease(ctx, tx, db.HoldsOfBatchReleaseParams{Now: c.Now, ReleasedBy: why.By, BatchID: batchID})
	if err != nil {
		return nil, fmt.Errorf("release the holds of batch %s: %w", batchID, err)
	}
	if err := c.tell(ctx, event.Pauses(event.PauseReleased, released)...); err != nil {
		return nil, err
	}
	if err := account.Audit(ctx, tx, auditType, batchID.String()); err != nil {
		return nil, err
	}
	c.ended = append(c.ended, batchID)
	if err := c.finish(ctx); err != nil {
		return nil, err
	}
	return s.readBatch(ctx, tx, orgID, batchID)
}

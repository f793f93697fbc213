package run

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/event"
)

// tellEnded leaves the events of batches that are over, and has those who listen, or wait for the batches, woken with the rest.
func (c *Change) tellEnded(ctx context.Context) error {
	heard, err := event.BatchesEnded(ctx, c.tx, c.ended)
	if err != nil {
		return err
	}
	c.heard(heard)
	return c.endParentWaits(ctx)
}

// tell leaves other events, and has those who listen woken with the rest.
func (c *Change) tell(ctx context.Context, events ...event.Event) error {
	heard, err := event.Emit(ctx, c.tx, events...)
	c.heard(heard)
	return err
}

func (c *Change) heard(rows []event.DueRow) {
	for _, r := range rows {
		c.Wake(r.Kind, r.Key, c.Now)
	}
}

// tellEnded is for a batch that is over when it is started, and wakes nobody else.
func (s *Service) tellEnded(ctx context.Context, tx pgx.Tx, now time.Time, batchID uuid.UUID) error {
	heard, err := event.BatchesEnded(ctx, tx, []uuid.UUID{batchID})
	if err != nil {
		return err
	}
	keys := make([]dueKey, len(heard))
	for i, r := range heard {
		keys[i] = dueKey{r.Kind, r.Key}
	}
	return s.wakeAll(ctx, tx, keys, now)
}

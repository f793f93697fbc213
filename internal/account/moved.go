package account

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// moveRetry is when to come back to an organization that is on its way to another cell.
const moveRetry = 2 * time.Second

// Elsewhere looks for an organization that went to another cell by names under which requests of it come: hashes of
// keys, ids of webhooks. It returns nil where there is none. Faults: Moved, with the root of the cell where it is;
// Unavailable while it is on its way.
func Elsewhere(ctx context.Context, conn db.DBTX, names ...[]byte) error {
	row, err := db.New().MoveFind(ctx, conn, names)
	switch {
	case pg.IsNoRows(err):
		return nil
	case err != nil:
		return fmt.Errorf("look whether an organization has moved: %w", err)
	case !row.Moved:
		return elsewhere("")
	}
	return elsewhere(row.ToUrl)
}

// MovedAway is what a request is answered that was let in and then refused because its organization goes to another
// cell; nil where it failed of something else.
func MovedAway(err error) *fault.Error {
	to, is := pg.MovedTo(err)
	if !is {
		return nil
	}
	return elsewhere(to)
}

// elsewhere leads to a cell; to none while the organization is on its way.
func elsewhere(to string) *fault.Error {
	if to == "" {
		return &fault.Error{Code: fault.Unavailable, RetryAfter: moveRetry,
			Detail: "The organization is being moved to another place; try again"}
	}
	return &fault.Error{Code: fault.Moved, Detail: "The organization has moved to another address", To: to}
}

// MovingError tells an operator that the status of an organization is its move's.
func MovingError(orgID uuid.UUID) error {
	return fmt.Errorf("organization %s is on its way to another cell: end the move, or take it back with "+
		"flowlane org move --abort, first", orgID)
}

// refuseOrLead returns where an organization is that went to another cell, else the refusal.
func (s *Service) refuseOrLead(ctx context.Context, refusal error, names ...[]byte) error {
	if err := Elsewhere(ctx, s.cfg.Pool, names...); err != nil {
		return err
	}
	return refusal
}

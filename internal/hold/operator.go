package hold

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/pg"
)

// Operator is why the operator of the service holds an organization, which has at most one hold for each. Its people
// see these holds, and cannot release them.
type Operator string

// The reasons: all organizations are held; this one is suspended.
const (
	Everything Operator = "everything"
	Suspension Operator = "suspension"
)

// HoldEverything holds every organization, those included that are made meanwhile, and returns how many were not held
// before. An error leaves those held that were reached; it can be called again.
func (s *Service) HoldEverything(ctx context.Context, reason string) (n int, err error) {
	for {
		orgs, err := s.q.OrgsOfHold(ctx, s.pool, db.OrgsOfHoldParams{Held: false, Operator: string(Everything)})
		if err != nil {
			return n, fmt.Errorf("list the organizations: %w", err)
		}
		if len(orgs) == 0 {
			return n, nil
		}
		for _, id := range orgs {
			if err := s.HoldOrg(account.AsOperator(ctx, id, "hold all"), id, Everything, reason); err != nil {
				return n, err
			}
			n++
		}
	}
}

// ReleaseEverything takes that back, and returns how many organizations were held. Holds of other reasons stay.
func (s *Service) ReleaseEverything(ctx context.Context) (n int, err error) {
	orgs, err := s.q.OrgsOfHold(ctx, s.pool, db.OrgsOfHoldParams{Held: true, Operator: string(Everything)})
	if err != nil {
		return 0, fmt.Errorf("list the organizations: %w", err)
	}
	for _, id := range orgs {
		if err := s.ReleaseOrg(account.AsOperator(ctx, id, "release all"), id, Everything); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// HoldOrg holds an organization for the operator, unless it is held for this reason already. When it returns, no claim
// of the organization commits any more. The context is one of account.AsOperator.
func (s *Service) HoldOrg(ctx context.Context, orgID uuid.UUID, why Operator, reason string) error {
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.q.HoldGateTake(ctx, tx, orgID); err != nil {
			return fmt.Errorf("close the gate of holds: %w", err)
		}
		now, err := s.q.Clock(ctx, tx)
		if err != nil {
			return fmt.Errorf("read the clock: %w", err)
		}
		held, err := s.q.HoldOfOperator(ctx, tx, db.HoldOfOperatorParams{OrgID: orgID, Operator: string(why)})
		if err != nil {
			return fmt.Errorf("read the operator's hold: %w", err)
		}
		if held {
			return nil
		}
		in := db.HoldInsertParams{OrgID: &orgID, Scope: string(Global)}
		_, err = s.insert(ctx, tx, in, Opening{Reason: &reason, operator: why}, now)
		return err
	})
}

// ReleaseOrg ends the operator's hold of an organization for a reason, if there is one, and wakes what waits. The
// context is one of account.AsOperator.
func (s *Service) ReleaseOrg(ctx context.Context, orgID uuid.UUID, why Operator) error {
	_, err := s.releaseTarget(ctx, Target{OrgID: orgID}, db.HoldsReleaseParams{Operator: (*string)(&why)})
	return err
}

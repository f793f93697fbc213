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

// HoldEverything holds every organization and, until ReleaseEverything, those that are made (HoldNew). It returns how
// many were not held before. An error leaves those held that were reached; it can be called again.
func (s *Service) HoldEverything(ctx context.Context, reason string) (n int, err error) {
	return s.eachOrg(ctx, false, func(id uuid.UUID) error {
		return s.HoldOrg(account.AsOperator(ctx, id, "hold all"), id, Everything, reason)
	})
}

// ReleaseEverything takes that back, and returns how many organizations were held. Holds of other reasons stay.
func (s *Service) ReleaseEverything(ctx context.Context) (n int, err error) {
	return s.eachOrg(ctx, true, func(id uuid.UUID) error {
		return s.ReleaseOrg(account.AsOperator(ctx, id, "release all"), id, Everything)
	})
}

// eachOrg does something with every organization that is held, or is not, until there is none, and returns with how
// many.
func (s *Service) eachOrg(ctx context.Context, held bool, do func(id uuid.UUID) error) (n int, err error) {
	for {
		var orgs []uuid.UUID
		err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			if err := s.q.OrgsOfHoldLock(ctx, tx); err != nil {
				return fmt.Errorf("wait for organizations that are being made: %w", err)
			}
			orgs, err = s.q.OrgsOfHold(ctx, tx, db.OrgsOfHoldParams{Held: held, Operator: string(Everything)})
			return err
		})
		if err != nil {
			return n, fmt.Errorf("list the organizations: %w", err)
		}
		if len(orgs) == 0 {
			return n, nil
		}
		for _, id := range orgs {
			if err := do(id); err != nil {
				return n, err
			}
			n++
		}
	}
}

// HoldNew holds an organization, in the transaction that makes it, where everything is held, and reports whether it
// did.
func (s *Service) HoldNew(ctx context.Context, tx pgx.Tx, orgID uuid.UUID) (held bool, err error) {
	if err := s.q.OrgsOfHoldShare(ctx, tx); err != nil {
		return false, fmt.Errorf("wait for who holds everything: %w", err)
	}
	reason, err := s.q.HoldOfEverything(ctx, tx, string(Everything))
	switch {
	case pg.IsNoRows(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read whether everything is held: %w", err)
	}
	return true, s.holdOrg(account.AsOperator(ctx, orgID, "hold all"), tx, orgID, Everything, reason)
}

// HoldOrg holds an organization for the operator, unless it is held for this reason already. When it returns, no claim
// of the organization commits any more. The context is one of account.AsOperator.
func (s *Service) HoldOrg(ctx context.Context, orgID uuid.UUID, why Operator, reason string) error {
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		return s.holdOrg(ctx, tx, orgID, why, reason)
	})
}

func (s *Service) holdOrg(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, why Operator, reason string) error {
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
}

// ReleaseOrg ends the operator's hold of an organization for a reason, if there is one, and wakes what waits. The
// context is one of account.AsOperator.
func (s *Service) ReleaseOrg(ctx context.Context, orgID uuid.UUID, why Operator) error {
	_, err := s.releaseTarget(ctx, Target{OrgID: orgID}, db.HoldsReleaseParams{Operator: (*string)(&why)})
	return err
}

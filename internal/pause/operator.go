package pause

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/pg"
)

// Operator is why the operator of the service pauses an organization, which has at most one pause for each. Its people
// see these pauses, and cannot release them.
type Operator string

// The reasons: all organizations are paused; this one is suspended; it is on its way to another cell.
const (
	Everything Operator = "everything"
	Suspension Operator = "suspension"
	Moving     Operator = "moving"
)

// PauseEverything pauses every organization and, until ReleaseEverything, those that are made (PauseNew). It returns
// how many were not paused before. An error leaves those paused that were reached; it can be called again.
func (s *Service) PauseEverything(ctx context.Context, reason string) (n int, err error) {
	return s.eachOrg(ctx, false, func(id uuid.UUID) error {
		return s.PauseOrg(account.AsOperator(ctx, id, "hold all"), id, Everything, reason)
	})
}

// ReleaseEverything takes that back, and returns how many organizations were paused. Pauses of other reasons stay.
func (s *Service) ReleaseEverything(ctx context.Context) (n int, err error) {
	return s.eachOrg(ctx, true, func(id uuid.UUID) error {
		return s.ReleaseOrg(account.AsOperator(ctx, id, "release all"), id, Everything)
	})
}

// eachOrg does something with every organization that is paused, or is not, until there is none, and returns with how
// many.
func (s *Service) eachOrg(ctx context.Context, paused bool, do func(id uuid.UUID) error) (n int, err error) {
	for {
		var orgs []uuid.UUID
		err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			if err := s.q.OrgsOfPauseLock(ctx, tx); err != nil {
				return fmt.Errorf("wait for organizations that are being made: %w", err)
			}
			orgs, err = s.q.OrgsOfPause(ctx, tx, db.OrgsOfPauseParams{Held: paused, Operator: string(Everything)})
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

// PauseNew pauses an organization, in the transaction that makes it, where everything is paused, and reports whether it
// did.
func (s *Service) PauseNew(ctx context.Context, tx pgx.Tx, orgID uuid.UUID) (paused bool, err error) {
	if err := s.q.OrgsOfPauseShare(ctx, tx); err != nil {
		return false, fmt.Errorf("wait for who pauses everything: %w", err)
	}
	reason, err := s.q.PauseOfEverything(ctx, tx, string(Everything))
	switch {
	case pg.IsNoRows(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read whether everything is paused: %w", err)
	}
	return true, s.pauseOrg(account.AsOperator(ctx, orgID, "hold all"), tx, orgID, Everything, reason)
}

// PauseOrg pauses an organization for the operator, unless it is paused for this reason already. When it returns, no
// claim of the organization commits any more. The context is one of account.AsOperator.
func (s *Service) PauseOrg(ctx context.Context, orgID uuid.UUID, why Operator, reason string) error {
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		return s.pauseOrg(ctx, tx, orgID, why, reason)
	})
}

func (s *Service) pauseOrg(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, why Operator, reason string) error {
	if err := s.q.PauseGateTake(ctx, tx, orgID); err != nil {
		return fmt.Errorf("close the gate of pauses: %w", err)
	}
	now, err := s.q.Clock(ctx, tx)
	if err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	paused, err := s.q.PauseOfOperator(ctx, tx, db.PauseOfOperatorParams{OrgID: orgID, Operator: string(why)})
	if err != nil {
		return fmt.Errorf("read the operator's pause: %w", err)
	}
	if paused {
		return nil
	}
	in := db.PauseInsertParams{OrgID: &orgID, Scope: string(Global)}
	_, err = s.insert(ctx, tx, in, Opening{Reason: &reason, operator: why}, now)
	return err
}

// ReleaseOrg ends the operator's pause of an organization for a reason, if there is one, and wakes what waits. The
// context is one of account.AsOperator.
func (s *Service) ReleaseOrg(ctx context.Context, orgID uuid.UUID, why Operator) error {
	_, err := s.releaseTarget(ctx, Target{OrgID: orgID}, db.PausesReleaseParams{Operator: (*string)(&why)})
	return err
}

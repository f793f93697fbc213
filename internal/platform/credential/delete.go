package credential

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

// Delete destroys the secret and everything that says how it was used. The row stays, so that what the credential spent
// remains attributed to it. Faults: NotFound; Conflict while an active definition names it.
func (s *Service) Delete(ctx context.Context, orgID, id uuid.UUID) error {
	defer s.held.drop(orgID, id)
	// As a worker: what waits for the account, and is woken, may be that of others.
	return pg.InTx(pg.AsWorker(ctx), s.pool, func(ctx context.Context, tx pgx.Tx) error {
		// Who saves a definition holds the credentials that it names until it has committed.
		lock, err := s.queries.CredentialLock(ctx, tx, db.CredentialLockParams{OrgID: orgID, ID: id})
		if pg.IsNoRows(err) {
			return errMissing()
		}
		if err != nil {
			return fmt.Errorf("lock credential %s: %w", id, err)
		}
		user, err := s.queries.CredentialUser(ctx, tx, db.CredentialUserParams{OrgID: orgID, CredentialID: id.String()})
		if err == nil {
			return fault.New(fault.Conflict,
				"Credential is used by the active definition %q (%s): archive it or give it another credential first",
				user.Name, user.ID)
		}
		if !pg.IsNoRows(err) {
			return fmt.Errorf("look for definitions with credential %s: %w", id, err)
		}
		if err := s.queries.CredentialDelete(ctx, tx, db.CredentialDeleteParams{OrgID: orgID, ID: id}); err != nil {
			return fmt.Errorf("delete credential %s: %w", id, err)
		}
		if err := s.queries.CredentialUsesDelete(ctx, tx, db.CredentialUsesDeleteParams{OrgID: orgID,
			ID: id}); err != nil {
			return fmt.Errorf("delete the observed use of credential %s: %w", id, err)
		}
		if err := s.queries.CredentialTokenDelete(ctx, tx, db.CredentialTokenDeleteParams{OrgID: orgID,
			CredentialID: id}); err != nil {
			return fmt.Errorf("delete the tokens of credential %s: %w", id, err)
		}
		for _, of := range []uuid.UUID{id, tokenID(id)} {
			if err := s.vault.Delete(ctx, tx, orgID, of); err != nil {
				return err
			}
		}
		if err := s.leave(ctx, tx, &lock.FlowCredential); err != nil {
			return err
		}
		return account.Audit(ctx, tx, "credential", id.String())
	})
}

// leave has a credential that is gone be no Domain any more, and spend of none.
func (s *Service) leave(ctx context.Context, tx pgx.Tx, c *db.FlowCredential) error {
	domain := c.TenancyID
	if len(c.Limits) > 0 {
		own := run.CredentialDomain(c.OrgID, c.ID)
		if err := s.forget(ctx, tx, c.OrgID, own); err != nil {
			return err
		}
		domain = &own
	}
	return s.wakeOthers(ctx, tx, domain)
}

// wakeOthers has the work looked at that waits for an account of which a credential is gone: the margins of its
// organization may have held it up.
func (s *Service) wakeOthers(ctx context.Context, tx pgx.Tx, tenancyID *string) error {
	if tenancyID == nil {
		return nil
	}
	buckets, err := s.queries.BudgetsWaiting(ctx, tx, *tenancyID)
	if err != nil {
		return fmt.Errorf("read what waits for %s: %w", *tenancyID, err)
	}
	for _, bucket := range buckets {
		if err := s.due.WakeAgain(ctx, tx, run.DueDispatch, run.DispatchKey(*tenancyID, bucket)); err != nil {
			return err
		}
	}
	return nil
}

package credential

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/run"
	"flowlane/internal/trigger/event"
)

// Limits are those that the organization has set; nil for none.
func (c *Credential) Limits() *catalog.Limits {
	out, err := catalog.ParseLimits(c.FlowCredential.Limits)
	if err != nil {
		return nil // SetLimits has written it
	}
	return out
}

// SetLimits sets how many calls go out with a credential of a platform that has no limits of its own: at once, and in
// windows. They hold for every call that is written down after the answer, of all lanes and definitions; where the
// platform tells accounts, for all credentials of the same account. Empty ones take them away. Faults: NotFound;
// Conflict for a platform that meters calls by account, and where the account is not known yet; Unprocessable for
// windows that cannot be kept.
func (s *Service) SetLimits(ctx context.Context, orgID, id uuid.UUID,
	limits catalog.Limits) (out *Credential, err error) {
	if bad := misfits(limits.Windows); len(bad) > 0 {
		return nil, fault.Invalidated(bad...)
	}
	limits.Windows = tightest(limits.Windows)
	var raw []byte
	if len(limits.Windows) > 0 || limits.MaxInFlight > 0 {
		if raw, err = json.Marshal(limits); err != nil {
			return nil, fmt.Errorf("write limits: %w", err)
		}
	}
	err = pg.InTx(pg.AsWorker(ctx), s.pool, func(ctx context.Context, tx pgx.Tx) error {
		lock, err := s.queries.CredentialLock(ctx, tx, db.CredentialLockParams{OrgID: orgID, ID: id})
		if pg.IsNoRows(err) {
			return errMissing()
		}
		if err != nil {
			return fmt.Errorf("lock credential %s: %w", id, err)
		}
		domain, err := s.limit(ctx, tx, &lock.FlowCredential, raw)
		if err != nil {
			return err
		}
		if err := s.queries.BudgetsLimit(ctx, tx, db.BudgetsLimitParams{Domain: domain, Limits: raw}); err != nil {
			return fmt.Errorf("limit the budgets of credential %s: %w", id, err)
		}
		// Last: who opens a hold keeps claims waiting, which have locked budgets, until it is known whether there is a
		// Domain.
		if raw == nil && domain == run.CredentialDomain(orgID, id) {
			if err := s.forget(ctx, tx, orgID, domain); err != nil {
				return err
			}
		}
		if out, err = s.read(ctx, tx, orgID, id); err != nil {
			return err
		}
		if err := account.Audit(ctx, tx, "credential", id.String()); err != nil {
			return err
		}
		return s.wakeOthers(ctx, tx, &domain)
	})
	return out, err
}

// limit stores limits where they hold, for the credential or its account, and returns the Domain of its budgets.
func (s *Service) limit(ctx context.Context, tx pgx.Tx, c *db.FlowCredential,
	limits []byte) (domain string, err error) {
	if s, err = s.seenBy(ctx, c.OrgID, c.PlatformID); err != nil {
		return "", err
	}
	p, ok := s.catalog.Platform(c.PlatformID)
	switch {
	case ok && p.OwnerLimited() && c.TenancyID == nil:
		return "", fault.New(fault.Conflict, "Credential has no provider account").Known(fault.CredentialNotIdentified)
	case ok && p.OwnerLimited():
		err = s.queries.TenantLimit(ctx, tx, db.TenantLimitParams{OrgID: c.OrgID, TenancyID: *c.TenancyID,
			Limits: limits})
		domain = *c.TenancyID
	case ok && p.Metered():
		return "", fault.New(fault.Conflict,
			"Platform %s has limits of its own, by account: set the margins of its buckets to spend less", p.ID)
	default:
		domain = run.CredentialDomain(c.OrgID, c.ID)
		if err := s.queries.CredentialLimit(ctx, tx, db.CredentialLimitParams{OrgID: c.OrgID, ID: c.ID,
			Limits: limits}); err != nil {
			return "", fmt.Errorf("limit credential %s: %w", c.ID, err)
		}
		if limits == nil {
			return domain, nil
		}
		err = s.queries.DomainOfCredential(ctx, tx, db.DomainOfCredentialParams{TenancyID: domain, OrgID: c.OrgID,
			PlatformID: c.PlatformID, CredentialID: &c.ID})
	}
	if err != nil {
		return "", fmt.Errorf("limit credential %s: %w", c.ID, err)
	}
	return domain, nil
}

// forget has a credential be a Domain no more that is not limited any longer: its margins and lanes go, and its holds
// end, which nobody could end any more; also one that is being opened, for which it waits.
func (s *Service) forget(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, domain string) error {
	if err := s.queries.TenantDelete(ctx, tx, db.TenantDeleteParams{OrgID: orgID, TenancyID: domain}); err != nil {
		return fmt.Errorf("forget domain %s: %w", domain, err)
	}
	var by *uuid.UUID
	if id := account.FromContext(ctx).AccountID; id != uuid.Nil {
		by = &id
	}
	ended, err := s.queries.PausesOfDomainRelease(ctx, tx, db.PausesOfDomainReleaseParams{OrgID: orgID, Domain: domain,
		ReleasedBy: by})
	if err != nil {
		return fmt.Errorf("release the holds of %s: %w", domain, err)
	}
	return event.Publish(ctx, tx, s.due, event.Pauses(event.PauseReleased, ended)...)
}

// misfits are what is wrong with windows, beyond what the API document says.
func misfits(windows []catalog.Window) (bad []fault.Field) {
	for i, w := range windows {
		if msg := w.Misfit(); msg != "" {
			bad = append(bad, wrong("value_error", msg, "windows", strconv.Itoa(i), "seconds"))
		}
	}
	return bad
}

// tightest has one window for each length, which lets no more calls through than any of that length: as many as the one
// with the fewest, rolling if one of them is.
func tightest(windows []catalog.Window) (out []catalog.Window) {
	for _, w := range windows {
		i := slices.IndexFunc(out, func(o catalog.Window) bool { return o.Seconds == w.Seconds })
		if i < 0 {
			out = append(out, w)
			continue
		}
		out[i].Calls = min(out[i].Calls, w.Calls)
		if w.Kind == "rolling" {
			out[i].Kind = w.Kind
		}
	}
	return out
}

package tenant

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
)

// Named returns the id of an account that the organization has named, for a new credential of the platform, and keeps
// it until tx ends. Faults: NotFound; Unprocessable for one of another platform, or one that the provider identified.
func Named(ctx context.Context, q db.DBTX, orgID uuid.UUID, platformID, id string) (string, error) {
	row, err := db.New().TenantShare(ctx, q, db.TenantShareParams{OrgID: orgID, TenancyID: id})
	if err != nil {
		return "", missing(err, "hold tenant")
	}
	at := []string{"body", "tenancy_id"}
	switch {
	case row.FlowDomain.PlatformID != platformID:
		return "", fault.Value(at, "This is a tenant of platform %s", row.FlowDomain.PlatformID)
	case row.FlowDomain.OrgID == nil:
		return "", fault.Value(at, "The platform itself tells whose credentials are of this tenant; leave it out")
	}
	return id, nil
}

// Bind returns the tenancy id of a credential after its provider has named the account: the one that it has, if that is
// the account, else the account's own, which becomes known to the organization. Fault: Conflict where the credential
// has another.
func Bind(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, has *string, account Account) (*string, error) {
	found := TenancyID(account.PlatformID, account.Number)
	if account.Private {
		found = manualID(orgID, Input{PlatformID: account.PlatformID, Number: &account.Number})
	}
	if has != nil && *has != found {
		return has, identify(ctx, tx, orgID, *has, account)
	}
	if err := keep(ctx, tx, orgID, found, account); err != nil {
		return nil, err
	}
	if err := db.New().TenantKnow(ctx, tx, db.TenantKnowParams{OrgID: orgID, TenancyID: found}); err != nil {
		return nil, fmt.Errorf("store tenant %s: %w", found, err)
	}
	return &found, nil
}

// keep stores what the provider said about the account with this id.
func keep(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, id string, account Account) error {
	if !account.Private {
		_, err := Keep(ctx, tx, account)
		return err
	}
	err := db.New().TenantDomainName(ctx, tx, db.TenantDomainNameParams{
		TenancyID: id, PlatformID: account.PlatformID, AccountNumber: &account.Number, TimeZone: Zone(account.TimeZone),
		OrgID: &orgID,
	})
	if err != nil {
		return fmt.Errorf("store account %s: %w", id, err)
	}
	return identify(ctx, tx, orgID, id, account)
}

// identify stores what the provider said about an account that is the organization's alone. Fault: Conflict for another
// account.
func identify(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, id string, account Account) error {
	same, err := db.New().TenantDomainIdentify(ctx, tx, db.TenantDomainIdentifyParams{
		TenancyID: id, OrgID: &orgID, AccountNumber: account.Number, AccountName: account.Name,
		TimeZone:   Zone(account.TimeZone),
		AnsweredIn: account.AnsweredIn.Seconds(),
	})
	if err != nil {
		return fmt.Errorf("identify account %s: %w", id, err)
	}
	if same == 0 {
		return fault.New(fault.Conflict,
			"The credentials belong to another provider account; create a new credential for it")
	}
	return nil
}

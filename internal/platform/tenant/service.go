package tenant

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
)

// Tenant is an account as one organization knows it.
type Tenant struct {
	ID         string
	PlatformID string
	// Label is the organization's own name for it, else the provider's.
	Label string
	// Manual tells that the organization named the account; it shares it with nobody.
	Manual bool
	// Number is the provider's number of the account; nil while nobody has said it.
	Number *string
	// CreatedAt is when the organization came to know it.
	CreatedAt time.Time
}

// Input is what an account is named by. The organization, the platform and the number, else the label, make its id.
type Input struct {
	PlatformID string
	Label      string
	// Number is the provider's number of the account, which its credentials must then have; nil if it is not known.
	Number *string
}

// Service is what callers can do with tenants. What belongs to another organization is not found.
type Service struct {
	pool    pg.Pool
	catalog *catalog.Catalog
	queries *db.Queries
}

// New returns a Service.
func New(pool pg.Pool, cat *catalog.Catalog) *Service {
	return &Service{pool: pool, catalog: cat, queries: db.New()}
}

// Create names an account. Faults: NotFound for the platform; Conflict for one that is named already.
func (s *Service) Create(ctx context.Context, orgID uuid.UUID, in Input, hooks ...pg.TxHook[*Tenant]) (*Tenant, error) {
	cat, err := s.catalog.Of(ctx, orgID, in.PlatformID)
	if err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	platform, ok := cat.Platform(in.PlatformID)
	if !ok {
		return nil, cat.MissingPlatform(in.PlatformID)
	}
	zone := ""
	if platform.Account != nil {
		zone = platform.Account.TimeZone
	}
	id := manualID(orgID, in)
	var out *Tenant
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		err := s.queries.TenantDomainName(ctx, tx, db.TenantDomainNameParams{
			TenancyID: id, PlatformID: in.PlatformID, AccountNumber: in.Number, TimeZone: Zone(zone), OrgID: &orgID,
		})
		if err != nil {
			return fmt.Errorf("store account %s: %w", id, err)
		}
		added, err := s.queries.TenantAdd(ctx, tx, db.TenantAddParams{OrgID: orgID, TenancyID: id, Label: &in.Label})
		if err != nil {
			return fmt.Errorf("store tenant %s: %w", id, err)
		}
		if added == 0 {
			return fault.New(fault.Conflict, "Tenant already exists: %s was created with this number or label", id)
		}
		if out, err = s.read(ctx, tx, orgID, id); err != nil {
			return err
		}
		if err := account.Audit(ctx, tx, "tenant", id); err != nil {
			return err
		}
		return pg.RunHooks(ctx, tx, out, hooks)
	})
	return out, err
}

// Get returns one tenant. Fault: NotFound.
func (s *Service) Get(ctx context.Context, orgID uuid.UUID, id string) (*Tenant, error) {
	return s.read(ctx, s.pool, orgID, id)
}

func (s *Service) read(ctx context.Context, q db.DBTX, orgID uuid.UUID, id string) (*Tenant, error) {
	row, err := s.queries.TenantGet(ctx, q, db.TenantGetParams{OrgID: orgID, TenancyID: id})
	if err != nil {
		return nil, missing(err, "read tenant")
	}
	return tenantOf(&row.FlowTenant, &row.FlowDomain), nil
}

// Place is where a page of tenants begins: after the one with this time and id.
type Place struct {
	CreatedAt time.Time
	ID        string
}

// List returns tenants in insertion order, from the one behind after, and how many there are in all.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, after Place,
	skip, maxRows int32) ([]*Tenant, int64, error) {
	rows, err := s.queries.TenantList(ctx, s.pool, db.TenantListParams{
		OrgID: orgID, AfterCreatedAt: after.CreatedAt, AfterID: after.ID, SkipRows: skip, MaxRows: maxRows,
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list tenants: %w", err)
	}
	total, err := s.queries.TenantCount(ctx, s.pool, orgID)
	if err != nil {
		return nil, 0, fmt.Errorf("count tenants: %w", err)
	}
	out := make([]*Tenant, len(rows))
	for i := range rows {
		out[i] = tenantOf(&rows[i].FlowTenant, &rows[i].FlowDomain)
	}
	return out, total, nil
}

// Rename sets the organization's own name for an account; nil keeps it. Others that share the account do not see it.
// Fault: NotFound.
func (s *Service) Rename(ctx context.Context, orgID uuid.UUID, id string, label *string) (*Tenant, error) {
	var out *Tenant
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := s.queries.TenantLock(ctx, tx, db.TenantLockParams{OrgID: orgID, TenancyID: id})
		if err != nil {
			return missing(err, "lock tenant")
		}
		if label != nil {
			if err := s.queries.TenantRename(ctx, tx, db.TenantRenameParams{OrgID: orgID, TenancyID: id,
				Label: label}); err != nil {
				return fmt.Errorf("rename tenant %s: %w", id, err)
			}
		}
		if out, err = s.read(ctx, tx, orgID, id); err != nil {
			return err
		}
		return account.Audit(ctx, tx, "tenant", id)
	})
	return out, err
}

// Delete makes the organization forget an account. What was spent of it stays counted: the same account has the same id
// again. Faults: NotFound; Conflict while a credential is bound to it or work waits for it.
func (s *Service) Delete(ctx context.Context, orgID uuid.UUID, id string) error {
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		// Who binds a credential holds the row until it has committed.
		if _, err := s.queries.TenantLock(ctx, tx, db.TenantLockParams{OrgID: orgID, TenancyID: id}); err != nil {
			return missing(err, "lock tenant")
		}
		busy, err := s.queries.TenantBusy(ctx, tx, db.TenantBusyParams{OrgID: orgID, TenancyID: id})
		switch {
		case err != nil:
			return fmt.Errorf("look for users of tenant %s: %w", id, err)
		case busy.Bound:
			return fault.New(fault.Conflict, "Tenant has credentials: delete them first")
		case busy.Working:
			return fault.New(fault.Conflict, "Tenant has batches that are not over: wait for them, or cancel them")
		}
		if err := s.queries.TenantDelete(ctx, tx, db.TenantDeleteParams{OrgID: orgID, TenancyID: id}); err != nil {
			return fmt.Errorf("delete tenant %s: %w", id, err)
		}
		return account.Audit(ctx, tx, "tenant", id)
	})
}

func tenantOf(t *db.FlowTenant, d *db.FlowDomain) *Tenant {
	out := &Tenant{ID: t.TenancyID, PlatformID: d.PlatformID, Manual: d.OrgID != nil, Number: d.AccountNumber,
		CreatedAt: t.CreatedAt}
	number := ""
	if d.AccountNumber != nil {
		number = *d.AccountNumber
	}
	if out.Label = Label(d.AccountName, number); t.Label != nil {
		out.Label = *t.Label
	}
	return out
}

// missing turns "no rows" into the NotFound fault of a tenant and wraps everything else.
func missing(err error, doing string) error {
	if pg.IsNoRows(err) {
		return fault.Missing("Tenant")
	}
	return fmt.Errorf("%s: %w", doing, err)
}

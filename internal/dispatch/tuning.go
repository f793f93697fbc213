package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/run"
)

// Margin is the share of a bucket's caps that may be spent, in percent.
type Margin struct {
	Bucket string
	// Percent is the organization's own; 100 where it set none. Binding is the lowest of all who use the account.
	Percent, Binding int
	// UpdatedAt is when the organization set it last; nil if never.
	UpdatedAt *time.Time
}

// Margins returns those of every bucket of an account, in the order of their names. Fault: NotFound for the account.
func (d *Dispatcher) Margins(ctx context.Context, orgID uuid.UUID, tenancyID string) ([]Margin, error) {
	ctx = pg.AsWorker(ctx) // the lowest margin of all who use the account is in force
	domain, err := d.account(ctx, d.Pool, orgID, tenancyID)
	if err != nil {
		return nil, err
	}
	return d.margins(ctx, d.Pool, orgID, domain)
}

func (d *Dispatcher) margins(ctx context.Context, conn db.DBTX, orgID uuid.UUID,
	domain *knownDomain) ([]Margin, error) {
	rows, err := d.q.MarginList(ctx, conn, db.MarginListParams{OrgID: orgID, TenancyID: domain.id})
	if err != nil {
		return nil, fmt.Errorf("read the margins of %s: %w", domain.id, err)
	}
	out := make([]Margin, len(domain.budgets))
	for i, b := range domain.budgets {
		out[i] = Margin{Bucket: b.Name, Percent: 100, Binding: 100}
		for j := range rows {
			r := &rows[j]
			if r.Bucket != b.Name {
				continue
			}
			out[i].Binding = int(r.Lowest)
			if r.Own > 0 {
				out[i].Percent, out[i].UpdatedAt = int(r.Own), &r.UpdatedAt
			}
		}
	}
	return out, nil
}

// SetMargin sets the organization's margin of one bucket. Claims that come after it go by it. Faults: NotFound for the
// account and for a bucket that it does not have.
func (d *Dispatcher) SetMargin(ctx context.Context, orgID uuid.UUID, tenancyID, bucket string,
	percent int) (*Margin, error) {
	var out *Margin
	err := pg.InTx(pg.AsWorker(ctx), d.Pool, func(ctx context.Context, tx pgx.Tx) error {
		domain, err := d.accountIn(ctx, tx, orgID, tenancyID)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(domain.budgets, func(b catalog.Budget) bool { return b.Name == bucket })
		if i < 0 {
			return fault.Missing("Bucket")
		}
		// Claims read the caps under the lock of their budget.
		if _, err := d.q.BudgetsLock(ctx, tx, tenancyID); err != nil {
			return fmt.Errorf("lock the budgets of %s: %w", tenancyID, err)
		}
		if err := d.q.MarginSet(ctx, tx, db.MarginSetParams{TenancyID: tenancyID, Bucket: bucket, OrgID: orgID,
			Percent: int32(percent)}); err != nil {
			return fmt.Errorf("set the margin of %s %s: %w", tenancyID, bucket, err)
		}
		all, err := d.margins(ctx, tx, orgID, domain)
		if err != nil {
			return err
		}
		out = &all[i]
		if err := d.wakeWaiting(ctx, tx, tenancyID, domain.budgets[i].Service.Lines(bucket)); err != nil {
			return err
		}
		return account.Audit(ctx, tx, "margin", tenancyID+"/"+bucket)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ensureBudget makes sure that the budget of a metered bucket is there.
func (d *Dispatcher) ensureBudget(ctx context.Context, conn db.DBTX, zone string, svc *catalog.Service,
	k budgetKey) error {
	p := db.BudgetEnsureParams{Domain: k.domain, Bucket: k.bucket, ServiceID: svc.ID, Metered: true, TimeZone: zone,
		MaxInFlight: SmallInFlight}
	if b := svc.RateBuckets[k.bucket]; b != nil && b.MaxRecordsPerRequest > 1 {
		p.MaxInFlight = BulkInFlight
	}
	if err := d.q.BudgetEnsure(ctx, conn, p); err != nil {
		return fmt.Errorf("make budget %s: %w", k, err)
	}
	return nil
}

// waiting are those of these budgets of an account that have work waiting, as keys of due rows.
func (d *Dispatcher) waiting(ctx context.Context, tx pgx.Tx, domain string, buckets []string) ([]string, error) {
	if len(buckets) == 0 {
		return nil, nil
	}
	waits, err := d.q.BudgetWaits(ctx, tx, db.BudgetWaitsParams{Domain: domain, Buckets: buckets})
	if err != nil {
		return nil, fmt.Errorf("read what waits for %v of %s: %w", buckets, domain, err)
	}
	for i, bucket := range waits {
		waits[i] = run.DispatchKey(domain, bucket)
	}
	return waits, nil
}

// wakeWaiting has those budgets of an account looked at again that have work waiting.
func (d *Dispatcher) wakeWaiting(ctx context.Context, tx pgx.Tx, domain string, buckets []string) error {
	waits, err := d.waiting(ctx, tx, domain, buckets)
	for _, key := range waits {
		if err := d.Due.WakeAgain(ctx, tx, run.DueDispatch, key); err != nil {
			return err
		}
	}
	return err
}

// knownDomain is a Domain as an organization knows it, with its rate budgets.
type knownDomain struct {
	id      string
	budgets []catalog.Budget
}

// account returns a Domain that the organization knows. Fault: NotFound.
func (d *Dispatcher) account(ctx context.Context, conn db.DBTX, orgID uuid.UUID,
	tenancyID string) (*knownDomain, error) {
	row, err := d.q.DomainKnown(ctx, conn, db.DomainKnownParams{OrgID: orgID, TenancyID: tenancyID})
	if pg.IsNoRows(err) {
		return nil, fault.Missing("Domain")
	}
	if err != nil {
		return nil, fmt.Errorf("read domain %s: %w", tenancyID, err)
	}
	cat, err := d.Catalog.Of(ctx, orgID, row.FlowDomain.PlatformID)
	if err != nil {
		return nil, fmt.Errorf("read the catalog of an organization: %w", err)
	}
	p, ok := cat.Platform(row.FlowDomain.PlatformID)
	if !ok || !p.Metered() && row.FlowDomain.CredentialID == nil {
		return nil, fault.Missing("Domain")
	}
	limits, err := catalog.ParseLimits(row.Limits)
	if err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	return &knownDomain{tenancyID, p.Budgets(limits)}, nil
}

// accountIn is account, which the organization goes on knowing until tx ends.
func (d *Dispatcher) accountIn(ctx context.Context, tx pgx.Tx, orgID uuid.UUID,
	tenancyID string) (*knownDomain, error) {
	if _, err := d.q.DomainShare(ctx, tx, db.DomainShareParams{OrgID: orgID, TenancyID: tenancyID}); err != nil &&
		!pg.IsNoRows(err) {
		return nil, fmt.Errorf("hold domain %s: %w", tenancyID, err)
	}
	return d.account(ctx, tx, orgID, tenancyID)
}

// standardWeight is the weight of a lane that nobody has set.
var standardWeight = map[db.FlowLane]int{
	db.FlowLaneInteractive: 50, db.FlowLaneCompliance: 30, db.FlowLaneBulk: 15, db.FlowLaneBackfill: 5,
}

// Lanes returns an organization's lanes of an account; one that it has not set stands as the program has it, and was
// updated at no time. Fault: NotFound for the account.
func (d *Dispatcher) Lanes(ctx context.Context, orgID uuid.UUID, tenancyID string) ([]db.FlowDomainLane, error) {
	if _, err := d.account(ctx, d.Pool, orgID, tenancyID); err != nil {
		return nil, err
	}
	rows, err := d.q.LaneList(ctx, d.Pool, db.LaneListParams{OrgID: orgID, TenancyID: tenancyID})
	if err != nil {
		return nil, fmt.Errorf("read the lanes of %s: %w", tenancyID, err)
	}
	for lane, weight := range standardWeight {
		if !slices.ContainsFunc(rows, func(r db.FlowDomainLane) bool { return r.Lane == lane }) {
			rows = append(rows, db.FlowDomainLane{Lane: lane, Weight: int32(weight)}) //nolint:gosec // at most 50
		}
	}
	return rows, nil
}

// SetLane sets the weight and the limit of one lane; 0 calls are no limit. Claims that come after it go by them.
// Faults: NotFound for the account and for a lane that there is not.
func (d *Dispatcher) SetLane(ctx context.Context, orgID uuid.UUID, tenancyID, name string,
	weight, maxCalls int) (*db.FlowDomainLane, error) {
	var out db.FlowDomainLane
	err := pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := d.accountIn(ctx, tx, orgID, tenancyID); err != nil {
			return err
		}
		set := db.LaneSetParams{OrgID: orgID, TenancyID: tenancyID, Lane: db.FlowLane(name), Weight: int32(weight)}
		if !set.Lane.Valid() {
			return fault.Missing("Lane")
		}
		if maxCalls > 0 {
			limit := int32(maxCalls)
			set.MaxConcurrentCalls = &limit
		}
		// Claims read the settings under the lock of their budget.
		buckets, err := d.q.BudgetsLock(ctx, tx, tenancyID)
		if err != nil {
			return fmt.Errorf("lock the budgets of %s: %w", tenancyID, err)
		}
		if out, err = d.q.LaneSet(ctx, tx, set); err != nil {
			return fmt.Errorf("set lane %s of %s: %w", name, tenancyID, err)
		}
		if err := d.wakeWaiting(ctx, tx, tenancyID, buckets); err != nil {
			return err
		}
		return account.Audit(ctx, tx, "lane", tenancyID+"/"+name)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

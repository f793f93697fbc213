package dispatch

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// standardWeight is the weight of a lane that nobody has set.
var standardWeight = map[db.FlowLane]int{
	db.FlowLaneInteractive: 50, db.FlowLaneCompliance: 30, db.FlowLaneBulk: 15, db.FlowLaneBackfill: 5,
}

// Lanes returns an organization's lanes of an account; one that it has not set stands as the program has it, and was updated at no time.
// Fault: NotFound for the account.
func (d *Dispatcher) Lanes(ctx context.Context, orgID uuid.UUID, tenancyID string) ([]db.FlowDomainLane, error) {
	if _, err := d.account(ctx, orgID, tenancyID); err != nil {
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

// SetLane sets the weight and the limit of one lane; 0 calls are no limit. Claims that come after it go by them. Faults:
// NotFound for the account and for a lane that there is not.
func (d *Dispatcher) SetLane(ctx context.Context, orgID uuid.UUID, tenancyID, name string, weight, maxCalls int) (*db.FlowDomainLane, error) {
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

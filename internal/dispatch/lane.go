package dispatch

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
)

// Lane is an organization's lane of an account, as it set it.
type Lane struct {
	Lane db.FlowLane
	// Weight is its share beside the organization's other lanes.
	Weight int
	// MaxCalls is how many of its calls may be under way at once in each bucket; 0 for as many as the budget allows.
	MaxCalls int
	// UpdatedAt is when it was set last; nil where it stands as the program has it.
	UpdatedAt *time.Time
}

// standardWeight is the weight of a lane that nobody has set.
var standardWeight = map[db.FlowLane]int{
	db.FlowLaneInteractive: 50, db.FlowLaneCompliance: 30, db.FlowLaneBulk: 15, db.FlowLaneBackfill: 5,
}

// Lanes returns the lanes of an account, set or not. Fault: NotFound for the account.
func (d *Dispatcher) Lanes(ctx context.Context, orgID uuid.UUID, tenancyID string) ([]Lane, error) {
	if _, err := d.account(ctx, orgID, tenancyID); err != nil {
		return nil, err
	}
	rows, err := d.q.LaneList(ctx, d.Pool, db.LaneListParams{OrgID: orgID, TenancyID: tenancyID})
	if err != nil {
		return nil, fmt.Errorf("read the lanes of %s: %w", tenancyID, err)
	}
	var out []Lane
	for _, name := range db.AllFlowLaneValues() {
		lane := Lane{Lane: name, Weight: standardWeight[name]}
		for i := range rows {
			if rows[i].Lane == name {
				lane = laneOf(&rows[i])
			}
		}
		out = append(out, lane)
	}
	return out, nil
}

func laneOf(r *db.FlowDomainLane) Lane {
	return Lane{Lane: r.Lane, Weight: int(r.Weight), MaxCalls: int(deref(r.MaxConcurrentCalls)), UpdatedAt: &r.UpdatedAt}
}

// SetLane sets the weight and the limit of one lane; 0 calls are no limit. Claims that come after it go by them. Faults:
// NotFound for the account and for a lane that there is not.
func (d *Dispatcher) SetLane(ctx context.Context, orgID uuid.UUID, tenancyID, name string, weight, maxCalls int) (*Lane, error) {
	var out Lane
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
		row, err := d.q.LaneSet(ctx, tx, set)
		if err != nil {
			return fmt.Errorf("set lane %s of %s: %w", name, tenancyID, err)
		}
		out = laneOf(&row)
		if err := d.wakeWaiting(ctx, tx, tenancyID, buckets...); err != nil {
			return err
		}
		return account.Audit(ctx, tx, "lane", tenancyID+"/"+name)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

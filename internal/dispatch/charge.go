package dispatch

import (
	"context"
	"fmt"

	"flowlane/gen/db"
	"flowlane/internal/quota"
)

// laneShares are the lanes of a claim's budget as Charge takes them.
func laneShares(rows []db.BudgetLanesRow) []quota.LaneShare {
	out := make([]quota.LaneShare, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = quota.LaneShare{LaneKey: quota.LaneKey{Org: r.OrgID, Lane: r.Lane}, OrgTag: quota.LaneTag{Start: r.OrgVstart, Finish: r.OrgVtime}, Tag: quota.LaneTag{Start: r.Vstart, Finish: r.Vtime}, Weight: int(r.Weight)}
		if r.Weight == 0 {
			out[i].Weight = standardWeight[r.Lane]
		}
	}
	return out
}

// charge moves the virtual times of the lanes of calls and of their organizations on.
func (c *claim) charge(ctx context.Context, conn db.DBTX, calls []*prepared) error {
	var lanes []quota.LaneKey
	for _, p := range calls {
		if !p.empty() {
			lanes = append(lanes, p.laneKey())
		}
	}
	for _, s := range quota.ChargeGroup(laneShares(c.lanes), lanes) {
		err := c.d.q.LaneCharge(ctx, conn, db.LaneChargeParams{
			Domain: c.key.domain, Bucket: c.key.bucket, OrgID: s.Org, OrgVstart: s.OrgTag.Start, OrgVtime: s.OrgTag.Finish,
			Lane: s.Lane, Vstart: s.Tag.Start, Vtime: s.Tag.Finish,
		})
		if err != nil {
			return fmt.Errorf("charge lane %s: %w", s.Lane, err)
		}
	}
	return nil
}

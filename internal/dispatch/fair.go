package dispatch

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
)

// LaneTag is where a lane stands in weighted fair queueing: the virtual times at which its last charge began and ended.
// The lane with the least Finish goes next.
type LaneTag struct{ Start, Finish int64 }

// NextTag charges one of a budget's lanes, of this weight, for n calls. A lane that had nothing to send starts where the
// others are: it does not come back with the credit of the time in which it wanted nothing.
func NextTag(lanes []LaneTag, lane, n, weight int) LaneTag {
	start := lanes[lane].Finish
	for _, l := range lanes {
		start = max(start, l.Start)
	}
	return LaneTag{Start: start, Finish: start + int64(n)*fairUnit/int64(weight)}
}

const fairUnit = 1 << 20

// LaneKey names a lane of an organization.
type LaneKey struct {
	Org  uuid.UUID
	Lane db.FlowLane
}

// Standing is where a lane of an organization stands in the queue for a budget. Organizations that share the budget have
// equal shares of it, whatever the weights of their lanes, which divide an organization's own share.
type Standing struct {
	LaneKey
	// OrgTag is the organization's place among the organizations, Tag the lane's among the organization's lanes.
	OrgTag, Tag LaneTag
	Weight      int
}

// Before reports whether s goes before o where both have work. The query QueueChoose has the same order.
func (s *Standing) Before(o *Standing) bool {
	switch {
	case s.OrgTag.Finish != o.OrgTag.Finish:
		return s.OrgTag.Finish < o.OrgTag.Finish
	case s.Org != o.Org:
		return bytes.Compare(s.Org[:], o.Org[:]) < 0
	case s.Tag.Finish != o.Tag.Finish:
		return s.Tag.Finish < o.Tag.Finish
	}
	return s.Lane < o.Lane
}

// Charge charges the lane for n calls, and its organization, also while it is alone: who has not sent yet goes before it then.
func Charge(all []Standing, lane LaneKey, n int) (charged Standing) {
	var lanes, orgs []LaneTag
	own, ownOrg := 0, 0
	seen := map[uuid.UUID]bool{}
	for i := range all {
		s := &all[i]
		if !seen[s.Org] {
			if s.Org == lane.Org {
				ownOrg = len(orgs)
			}
			seen[s.Org], orgs = true, append(orgs, s.OrgTag)
		}
		if s.Org != lane.Org {
			continue
		}
		if s.Lane == lane.Lane {
			own, charged = len(lanes), *s
		}
		lanes = append(lanes, s.Tag)
	}
	charged.Tag = NextTag(lanes, own, n, charged.Weight)
	charged.OrgTag = NextTag(orgs, ownOrg, n, 1)
	for i := range all {
		if all[i].Org == lane.Org {
			all[i].OrgTag = charged.OrgTag
		}
		if all[i].LaneKey == lane {
			all[i].Tag = charged.Tag
		}
	}
	return charged
}

// standings are the lanes of a claim's budget as Charge takes them.
func standings(rows []db.BudgetLanesRow) []Standing {
	out := make([]Standing, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = Standing{LaneKey: LaneKey{r.OrgID, r.Lane}, OrgTag: LaneTag{r.OrgVstart, r.OrgVtime}, Tag: LaneTag{r.Vstart, r.Vtime}, Weight: int(r.Weight)}
		if r.Weight == 0 {
			out[i].Weight = standardWeight[r.Lane]
		}
	}
	return out
}

// charge moves the virtual time of a lane and of its organization on.
func (c *claim) charge(ctx context.Context, conn db.DBTX, lane LaneKey, n int) error {
	s := Charge(c.standings, lane, n)
	err := c.d.q.LaneCharge(ctx, conn, db.LaneChargeParams{
		Domain: c.key.domain, Bucket: c.key.bucket, OrgID: lane.Org, OrgVstart: s.OrgTag.Start, OrgVtime: s.OrgTag.Finish,
		Lane: lane.Lane, Vstart: s.Tag.Start, Vtime: s.Tag.Finish,
	})
	if err != nil {
		return fmt.Errorf("charge lane %s: %w", lane.Lane, err)
	}
	return nil
}

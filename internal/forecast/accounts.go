package forecast

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/quota"
)

// accounts is what is read of provider accounts for the answers to one organization: of each only once.
type accounts struct {
	budgets
	// except is a batch whose work does not count as queued; zero for none.
	except   uuid.UUID
	backlogs map[string]*counting
	caps     map[budgetKey]quota.Caps
	// pauses are those of lanes, by account and the names of the lanes.
	pauses map[[2]string]db.LanesPausedUntilRow
}

func (s *Service) accounts(conn db.DBTX, orgID, except uuid.UUID) *accounts {
	return &accounts{budgets: budgets{s: s, conn: conn, orgID: orgID}, except: except,
		backlogs: map[string]*counting{}, caps: map[budgetKey]quota.Caps{},
		pauses: map[[2]string]db.LanesPausedUntilRow{}}
}

// backlog is what waits for an account.
func (a *accounts) backlog(ctx context.Context, d *Domain) (*counting, error) {
	if c := a.backlogs[d.TenancyID]; c != nil {
		return c, nil
	}
	c, err := a.s.backlog(ctx, a.conn, a.orgID, d, a.except)
	if err == nil {
		a.backlogs[d.TenancyID] = c
	}
	return c, err
}

// capsOf are the caps of a budget.
func (a *accounts) capsOf(ctx context.Context, k budgetKey, rates *catalog.RateBucket) (quota.Caps, error) {
	if caps, known := a.caps[k]; known {
		return caps, nil
	}
	caps, _, err := dispatch.Caps(ctx, a.conn, k.domain, k.bucket, rates)
	if err == nil {
		a.caps[k] = caps
	}
	return caps, err //nolint:wrapcheck // says everything
}

// held says until when people hold the calls of an estimate.
func (a *accounts) held(ctx context.Context, e *Estimate) (db.LanesPausedUntilRow, error) {
	var lanes []string
	for _, l := range e.lanes {
		lanes = append(lanes, string(l))
	}
	if len(lanes) == 0 {
		lanes = []string{string(e.usual)}
	}
	return a.heldIn(ctx, e.TenancyID, lanes...)
}

// heldIn says until when people hold calls to an account in lanes.
func (a *accounts) heldIn(ctx context.Context, domain string, lanes ...string) (db.LanesPausedUntilRow, error) {
	k := [2]string{domain, strings.Join(lanes, " ")}
	if row, known := a.pauses[k]; known {
		return row, nil
	}
	row, err := a.s.q.LanesPausedUntil(ctx, a.conn, db.LanesPausedUntilParams{OrgID: a.orgID, Domain: domain,
		Lanes: lanes})
	if err != nil {
		return row, fmt.Errorf("read holds of %s: %w", domain, err)
	}
	a.pauses[k] = row
	return row, nil
}

package forecast

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/dispatch"
	"flowlane/internal/pg"
	"flowlane/internal/quota"
)

// Headroom is what is left of the budgets of an account.
type Headroom struct {
	TenancyID string
	// AsOf is nil where nothing was ever sent to the account.
	AsOf    *time.Time
	Buckets map[string]Bucket
}

// Bucket is what is left of one budget.
type Bucket struct {
	Label string
	// Windows are the current ones, in ascending length.
	Windows []quota.Window
	// NextAllowedAt is when the organization's next call may be sent; nil where nothing holds it, and where people do
	// without an end.
	NextAllowedAt *time.Time
	// Escalated: the provider's counters are read before each call, because the budget is nearly spent.
	Escalated bool
}

// Headroom reads the budgets of an account. Fault: NotFound.
func (s *Service) Headroom(ctx context.Context, orgID uuid.UUID, tenancyID string) (*Headroom, error) {
	s, err := s.of(ctx, orgID)
	if err != nil {
		return nil, err
	}
	d, err := s.domain(ctx, s.pool, orgID, tenancyID)
	if err != nil {
		return nil, err
	}
	sp, err := s.spend(ctx, s.pool, &d)
	if err != nil {
		return nil, err
	}
	dispatched, err := s.q.DomainDispatched(ctx, s.pool, tenancyID)
	if err != nil {
		return nil, fmt.Errorf("read calls of %s: %w", tenancyID, err)
	}
	delays, err := s.delays(ctx, s.pool, tenancyID, sp.now)
	if err != nil {
		return nil, err
	}
	held, err := s.q.DomainPausedUntil(ctx, s.pool, db.DomainPausedUntilParams{OrgID: orgID, Domain: tenancyID})
	if err != nil {
		return nil, fmt.Errorf("read holds of %s: %w", tenancyID, err)
	}
	out := &Headroom{TenancyID: tenancyID, Buckets: map[string]Bucket{}}
	if dispatched {
		out.AsOf = &sp.now
	}
	for _, b := range s.buckets(&d) {
		caps, _, err := dispatch.Caps(ctx, s.pool, tenancyID, b.name, b.RateBucket)
		if err != nil {
			return nil, err
		}
		touched := sp.touched(b.name, caps)
		one := quota.Decide(sp.now, priced(likely(touched), s.dearest(b.name, b.RateBucket)), 1)
		next := one.Delay.And(delays[b.name].Delay).And(quota.Delay{Until: held, Reason: quota.ReasonPause}).Until
		left := Bucket{Label: b.Label, Windows: likely(sp.current(b.name, caps)), Escalated: s.counts(d.PlatformID) &&
			quota.Escalated(touched)}
		if next.After(sp.now) && next.Before(noEnd) {
			left.NextAllowedAt = &next
		}
		out.Buckets[b.name] = left
	}
	return out, nil
}

// priced are spans as one call meets them that costs so much, or all that a cap allows.
func priced(spans []quota.Window, cost int) []quota.Window {
	for i := range spans {
		cost = min(cost, max(spans[i].Cap, 1))
	}
	if cost > 1 {
		for i := range spans {
			spans[i].Sums = []int{cost}
		}
	}
	return spans
}

// likely are spans without what is unsure.
func likely(spans []quota.Window) []quota.Window {
	out := make([]quota.Window, len(spans))
	for i := range spans {
		out[i] = spans[i].Likely()
	}
	return out
}

// counts reports whether a platform tells how much of its budgets is spent.
func (s *Service) counts(platformID string) bool {
	p, ok := s.catalog.Platform(platformID)
	return ok && p.Account != nil && p.Account.Counters != nil
}

// noEnd is from when on a time stands for a hold without an end.
var noEnd = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// budgetDelay is what keeps the calls of a budget, besides its windows and people.
type budgetDelay struct {
	quota.Delay
	// backoff is what caused the backoff that is under way; empty for none.
	backoff string
}

// delays are those of the budgets of an account.
func (s *Service) delays(ctx context.Context, conn db.DBTX, tenancyID string,
	now time.Time) (map[string]budgetDelay, error) {
	rows, err := s.q.BudgetDelays(ctx, conn, db.BudgetDelaysParams{Domain: tenancyID, Now: now})
	if err != nil {
		return nil, fmt.Errorf("read what delays the budgets of %s: %w", tenancyID, err)
	}
	out := map[string]budgetDelay{}
	for _, r := range rows {
		spacing := quota.Delay{Until: pg.Value(r.NextCallAt), Reason: quota.ReasonSpacing}
		out[r.Bucket] = budgetDelay{spacing.And(quota.Delay{Until: r.HeldUntil, Reason: quota.ReasonBackoff}), r.Cause}
	}
	return out, nil
}

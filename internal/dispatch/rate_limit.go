package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
)

// rateLimited closes the budget of a call that was refused for a rate limit (a 429, or what the catalog says means it),
// and returns until when the call waits: what the answer names, else until a window of the budget is over, else, for a
// receiver without windows, a pause that doubles. asked is when the answer would have it come again.
func (s *settlement) rateLimited(call *openCall, v *outcome, asked time.Time) (until time.Time) {
	until = asked
	switch {
	case s.meter != nil && !s.meter.owned:
		until = quota.BackoffUntil(s.now, v.reading.RetryAfter, v.reading.WindowSeconds, s.meter.skew, s.meter.loc)
	case !v.reading.Named:
		until = s.rateBackoff(call)
	}
	bucket := s.key.bucket
	// the answer names another
	if a, ok := s.d.Catalog.Action(call.ActionID); ok && slices.Contains(a.Buckets, v.reading.Bucket) {
		bucket = v.reading.Bucket
	}
	if until.After(s.now) && until.After(s.backoffs[bucket]) {
		s.backoffs[bucket], s.cause = until, cmp.Or(v.reading.Code, v.reading.Reason)
	}
	return until
}

// rateBackoff says until when a budget without windows is closed whose receiver names no time. Calls that were claimed
// before the last refusal was counted tell nothing new: they wait with the others.
func (s *settlement) rateBackoff(call *openCall) time.Time {
	if !call.ClaimedAt.After(s.refusedAt()) {
		return s.now
	}
	if s.closedUntil.IsZero() {
		s.refusals++
		s.closedUntil = s.now.Add(quota.RateBackoff(int(s.refusals), s.d.Random()))
	}
	return s.closedUntil
}

// refusedAt is when the last refusal of the budget was counted; zero for none, and for one ahead, which was counted
// before the clock was set back: calls that are claimed now would else come before it.
func (s *settlement) refusedAt() time.Time {
	at := pg.Value(s.budget.RefusedAt)
	if at.After(s.now) {
		return time.Time{}
	}
	return at
}

// forgetRefusals begins anew to count refusals once the receiver has taken a call that went out after the last one.
func (s *settlement) forgetRefusals(outcomes []outcome) {
	for i := range outcomes {
		call, ok := s.calls[outcomes[i].id]
		if ok && call.from != "" && outcomes[i].reading.Kind == provider.Success &&
			call.ClaimedAt.After(s.refusedAt()) {
			s.refusals = 0
		}
	}
}

// writeRefusals notes what was counted. It comes before the calls are locked, as all locks of budgets do.
func (s *settlement) writeRefusals(ctx context.Context, tx pgx.Tx) error {
	p := db.BudgetRefusalsParams{Domain: s.key.domain, Bucket: s.key.bucket, Refusals: s.refusals,
		RefusedAt: s.budget.RefusedAt}
	if !s.closedUntil.IsZero() {
		p.RefusedAt = &s.now
	} else if s.refusals == s.budget.Refusals {
		return nil
	}
	if err := s.d.q.BudgetRefusals(ctx, tx, p); err != nil {
		return fmt.Errorf("count the refusals of %s: %w", s.key, err)
	}
	return nil
}

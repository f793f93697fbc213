package dispatch

import (
	"testing"
	"time"

	"flowlane/gen/db"
)

// TestRateBackoff_ClockSetBack: a refusal that was counted before the clock was set back keeps none of those after it
// from closing the budget.
func TestRateBackoff_ClockSetBack(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for refused, closes := range map[time.Duration]bool{time.Hour: true, -time.Millisecond: false, -time.Hour: true} {
		at := now.Add(refused)
		s := &settlement{d: &Dispatcher{Deps: Deps{Random: func() float64 { return 0 }}}, now: now,
			budget: db.FlowBudget{RefusedAt: &at}}
		call := &openCall{FlowCall: db.FlowCall{ClaimedAt: now.Add(-time.Second)}}
		if until := s.rateBackoff(call); until.After(now) != closes {
			t.Errorf("refused at %s: closed until %s", refused, until.Sub(now))
		}
	}
}

package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flowlane/internal/quota"
)

// A claim goes without a look at the provider's counters up to where the budget escalates, and with one as far as there
// is room.
func TestEscalate(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		name              string
		own, wanted, gets int
		stops             bool
		change            func(*claim)
	}{
		{"plenty", 0, 50, 50, false, nil},
		{"down to the last tenth", 0, 95, 90, false, nil},
		{"in the last tenth", 90, 5, 0, true, nil},
		{"after a reading", 90, 5, 5, false, func(c *claim) { c.fresh = true }},
		{"right after the look of another claim", 90, 5, 5, false,
			func(c *claim) { c.d.refreshed.Store("d", now.Add(-time.Second/2)) }},
		{"after an old look", 90, 5, 0, true, func(c *claim) { c.d.refreshed.Store("d", now.Add(-time.Second)) }},
		{"a platform without counters", 90, 5, 5, false, func(c *claim) { c.meter.askEvery = 0 }},
		{"nothing is granted", 100, 0, 0, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			claim := claim{d: &Dispatcher{}, key: budgetKey{"d", "b"}, reserved: reserved{now: now},
				meter: &meter{askEvery: time.Minute}}
			if c.change != nil {
				c.change(&claim)
			}
			got, escalated := quota.Afford(now, []quota.Window{{Cap: 100, Own: c.own}}, c.wanted, claim.unread())
			require.Equal(t, c.gets, got.Calls)
			require.Equal(t, c.stops, escalated)
		})
	}
}

package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Both delays of a call end with the later one, and calls of which one may go begin with the earlier: what nothing
// keeps takes no part.
func TestDelay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	spacing := Delay{Until: now.Add(time.Second), Reason: ReasonSpacing}
	hour := Delay{Until: now.Add(time.Hour), Reason: ReasonWindow, Seconds: 3600}
	none := Delay{}
	assert.True(t, none.IsZero())
	assert.False(t, hour.IsZero())
	assert.Equal(t, hour, spacing.And(hour))
	assert.Equal(t, hour, hour.And(spacing))
	assert.Equal(t, hour, none.And(hour))
	assert.Equal(t, hour, hour.And(none))
	assert.Equal(t, spacing, spacing.Or(hour))
	assert.Equal(t, spacing, hour.Or(spacing))
	assert.Equal(t, hour, none.Or(hour))
	assert.Equal(t, hour, hour.Or(none))
}

// A call waits for the window that ends last of those that are spent, not for the fullest.
func TestDecide_Reason(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)
	minute := Window{Seconds: 60, Start: now.Add(-30 * time.Second), End: now.Add(30 * time.Second), Cap: 5, Own: 7}
	hour := Window{Seconds: 3600, Start: now.Add(-30 * time.Second), End: now.Add(time.Hour), Cap: 9, Own: 9}
	want := Grant{Delay: Delay{Until: hour.End, Reason: ReasonWindow, Seconds: 3600}}
	assert.Equal(t, want, Decide(now, []Window{minute, hour}, 1))
	hour.Own = 8
	want.Delay = Delay{Until: minute.End, Reason: ReasonWindow, Seconds: 60}
	assert.Equal(t, want, Decide(now, []Window{minute, hour}, 1))
}

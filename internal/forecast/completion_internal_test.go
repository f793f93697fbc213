package forecast

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/quota"
)

// TestCompletion_And: work that spends two budgets is never done before either, and waits for both where both make it
// wait.
func TestCompletion_And(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	done := func(waits, calls time.Duration, source Source) Completion {
		at := now.Add(waits + calls)
		return Completion{At: &at, Drained: Drained{At: at, Source: source, waits: waits},
			HoldCauses: []string{string(source)}}
	}
	first, second := done(time.Hour, time.Minute, SourceWindow), done(2*time.Hour, time.Second, SourceHold)
	both := first.and(second)
	assert.Equal(t, now.Add(3*time.Hour+time.Second), *both.At)
	assert.Equal(t, SourceHold, both.Source)
	assert.Equal(t, []string{"hold", "window"}, both.HoldCauses)
	assert.Equal(t, both.At, second.and(first).At)
	assert.Equal(t, []string{"window"}, first.HoldCauses, "what it was made of stays")
	idle := done(0, 2*time.Second, SourceWindow)
	assert.Equal(t, *first.At, *first.and(idle).At, "the other one has room")
	assert.Equal(t, *first.At, *idle.and(first).At)
	endless := Completion{Unknown: UnknownNoCap, Drained: Drained{Source: SourceWindow, Window: 60}}
	assert.Equal(t, UnknownNoCap, first.and(endless).Unknown)
	assert.Nil(t, first.and(endless).At)
	assert.Equal(t, first.At, first.and(Completion{Unknown: UnknownPaused}).At,
		"what is held there is held here, and not waited for")
	assert.Equal(t, first.At, first.and(Completion{Drained: Drained{Source: SourceEmpty}}).At)
}

// TestEstimate_DaySpills: what a day has left is shown without what is likelier our own than others', and the warning
// goes by what claims go by.
func TestEstimate_DaySpills(t *testing.T) {
	t.Parallel()
	day := quota.Window{Seconds: daySeconds, Cap: 100, Own: 10, Foreign: 40, Unsure: 30}
	for calls, spills := range map[int64]bool{45: false, 46: true} {
		e := Estimate{Calls: calls, most: calls, QueuedCalls: 5, cost: 1}
		e.day(&day, 1)
		assert.Equal(t, int64(80), e.Day.Remaining)
		assert.Equal(t, spills, e.Day.Spills, calls)
		assert.Equal(t, spills, strings.Contains(e.Warning, "but 50 of the day's 100 are left"), e.Warning)
	}
}

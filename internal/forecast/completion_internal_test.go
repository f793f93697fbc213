package forecast

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

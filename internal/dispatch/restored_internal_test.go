package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
)

// TestHarmless: a call that may have been sent in the lost time is sent again where that does no harm, or its author
// chose so; a key is good for as long as its provider remembers it, counted from the beginning of that time.
func TestHarmless(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		check    catalog.OutcomeCheck
		author   bool
		life     int
		harmless bool
	}{
		{catalog.CheckSafe, false, 0, true},
		{catalog.CheckKeyed, false, 0, true},
		{catalog.CheckKeyed, false, 3600, true},
		{catalog.CheckKeyed, false, 3599, false},
		{catalog.CheckLookup, false, 0, false},
		{catalog.CheckNone, false, 0, false},
		{catalog.CheckNone, true, 0, true},
	} {
		action := &catalog.Action{Call: &catalog.Call{}}
		action.Call.Idempotency.LifeSeconds = c.life
		p := outboundCall{check: c.check, lost: &pg.Loss{Since: now.Add(-time.Hour), Until: now},
			r: &renderer{task: &definition.Task{Action: action, AtLeastOnce: c.author}}}
		assert.Equal(t, c.harmless, p.harmless(now), "%+v", c)
	}
}

// TestCommitted_Forgotten: a job whose name was not written down was not committed, unless a restore may have forgotten
// its name.
func TestCommitted_Forgotten(t *testing.T) {
	t.Parallel()
	claimed := time.Now()
	for forgotten, known := range map[bool]time.Time{false: claimed, true: claimed.Add(time.Hour)} {
		l := lookup{row: &db.FlowCall{ClaimedAt: claimed}, known: known}
		v, err := l.committed(t.Context())
		require.NoError(t, err)
		assert.Equal(t, forgotten, v.unresolved)
		assert.Equal(t, !forgotten, v.reading.Kind == provider.NotArrived)
	}
}

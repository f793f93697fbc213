package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What goes before a budget escalates leaves a tenth of every cap, at least one call, and the call after it escalates.
func TestProperty_Escalation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spans := make([]Window, rapid.IntRange(1, 4).Draw(t, "windows"))
		for i := range spans {
			limit := rapid.IntRange(0, 300).Draw(t, "cap")
			spans[i] = Window{Cap: limit, Own: rapid.IntRange(0, limit).Draw(t, "own"), Foreign: rapid.IntRange(0,
				limit).Draw(t, "foreign")}
		}
		free := BeforeEscalation(spans)
		require.Equal(t, free <= 0, Escalated(spans))
		if free <= 0 {
			return
		}
		spend := func(n int) {
			for i := range spans {
				spans[i].Own += n
			}
		}
		spend(free - 1)
		require.False(t, Escalated(spans))
		spend(1)
		require.True(t, Escalated(spans))
		for i := range spans {
			require.GreaterOrEqual(t, spans[i].Remaining(), max(1, spans[i].Cap/10), "what is left")
		}
	})
	require.False(t, Escalated(nil), "a budget without windows")
	require.True(t, Escalated([]Window{{Cap: 1}}), "the only call of a window")
}

// A drift is what no number of young calls explains, and it never counts what others are held to have spent already
// twice.
func TestProperty_Drift(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		own, foreign := rapid.IntRange(0, 100).Draw(t, "own"), rapid.IntRange(0, 100).Draw(t, "foreign")
		recent := rapid.IntRange(0, own).Draw(t, "recent")
		seen := rapid.IntRange(own-recent, own+foreign).Draw(t, "explained")
		require.Zero(t, Drift(seen, own, recent, foreign))
		more := rapid.IntRange(1, 50).Draw(t, "more")
		require.Equal(t, more, Drift(own+foreign+more, own, recent, foreign))
		if less := own - recent; less > 0 {
			by := rapid.IntRange(1, less).Draw(t, "less")
			require.Equal(t, -by, Drift(less-by, own, recent, foreign))
		}
	})
}

func TestDrift_AlarmKeepsTheWorst(t *testing.T) {
	t.Parallel()
	var kept *int32
	for _, c := range []struct{ drift, keeps int }{{20, 0}, {-20, 0}, {21, 21}, {0, 21}, {-21, 21}, {-30, -30},
		{25, -30}, {31, 31}} {
		kept = Worse(kept, c.drift, 100)
		if c.keeps == 0 {
			require.Nil(t, kept, "%d of 100 is tolerated", c.drift)
			continue
		}
		require.EqualValues(t, c.keeps, *kept, "after %d", c.drift)
	}
	require.NotNil(t, Worse(nil, 1, 4))
	require.Nil(t, Worse(nil, 0, 0))
}

func TestNextReading(t *testing.T) {
	t.Parallel()
	const every, mature = 30 * time.Second, 8 * time.Second
	for _, c := range []struct {
		young, scarce, open bool
		want                time.Duration
	}{
		{true, true, true, mature},
		{true, false, true, every},
		{false, true, true, 10 * time.Minute},
		{false, false, true, 10 * time.Minute},
		{false, false, false, 0},
	} {
		require.Equal(t, c.want, NextReading(c.young, c.scarce, c.open, every, mature), "%+v", c)
	}
	require.Equal(t, mature, NextReading(true, false, true, time.Second, mature), "sooner would be too young again")
}

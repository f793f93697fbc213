package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A reading that counts a part of what was spent never frees what others likely spent, nor takes a window for less used
// than we and the reading say.
func TestProperty_ComparePart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		own := rapid.IntRange(0, 500).Draw(t, "own")
		young, observed := rapid.IntRange(0, own).Draw(t, "young"), rapid.IntRange(0, 600).Draw(t, "observed")
		was := Window{Own: own, Foreign: rapid.IntRange(0, 600).Draw(t, "foreign")}
		was.Unsure = rapid.IntRange(0, was.Foreign).Draw(t, "unsure")
		taken := ComparePart(&was, observed, young)
		now := Window{Own: own, Foreign: taken.Foreign, Unsure: taken.Unsure}
		require.GreaterOrEqual(t, now.Used(), own)
		require.GreaterOrEqual(t, now.Used(), observed)
		before, shown := was.Likely(), now.Likely()
		require.GreaterOrEqual(t, shown.Foreign, before.Foreign, "it proves nothing of the others")
		require.GreaterOrEqual(t, taken.Drift, 0, "that it has less than the ledger is no alarm")
		full := Compare(&was, observed, young)
		require.GreaterOrEqual(t, taken.Foreign, full.Foreign)
		require.Equal(t, taken.Foreign < was.Foreign, taken.Freed)
	})
}

// TestCounters_Outdated: a reading that comes after a later one changes nothing. Others spent between what a reading
// holds beyond all of our calls, and what it holds beyond those that it surely has; what is shown lies there, keeps
// what it was where it can, and never says less than the provider told.
func TestProperty_Compare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		own := rapid.IntRange(0, 500).Draw(t, "own")
		young, others := rapid.IntRange(0, own).Draw(t, "young"), rapid.IntRange(0, 100).Draw(t, "others")
		observed := own - rapid.IntRange(0, young).Draw(t, "missing") + others
		was := Window{Own: own, Foreign: rapid.IntRange(0, 600).Draw(t, "foreign")}
		was.Unsure = rapid.IntRange(0, was.Foreign).Draw(t, "unsure")
		taken := Compare(&was, observed, young)
		now := Window{Own: own, Foreign: taken.Foreign, Unsure: taken.Unsure}
		shown := now.Likely()
		require.GreaterOrEqual(t, now.Foreign, others, "claims never go by less than others spent")
		require.GreaterOrEqual(t, shown.Used(), observed, "clamped up")
		require.LessOrEqual(t, shown.Used(), now.Used())
		if before := was.Likely().Foreign; before >= observed-own && before <= taken.Foreign {
			require.Equal(t, before, shown.Foreign, "nothing says that it changed")
		}
		if young == 0 {
			require.Equal(t, others, shown.Foreign)
		}
	})
}

// TestCounted: a counter that was read around the beginning of a window may speak of either.
func TestCounted(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	start, end, ok := Counted(at, at.Add(59*time.Second), 60, time.UTC)
	require.True(t, ok)
	require.Equal(t, []time.Time{at, at.Add(time.Minute)}, []time.Time{start, end})
	_, _, ok = Counted(at.Add(-time.Second), at, 60, time.UTC)
	require.False(t, ok)
	require.False(t, Outdated(at, at))
	require.True(t, Outdated(at.Add(1), at))
	require.False(t, Outdated(time.Time{}, at))
}

// TestReadingHolds: a reading is good for a second; one that lies further ahead was made before the clock was set back.
func TestReadingHolds(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for age, want := range map[time.Duration]bool{0: true, 999 * time.Millisecond: true, time.Second: false,
		time.Hour: false, -10 * time.Millisecond: true, -time.Hour: false} {
		if got := ReadingHolds(now.Add(-age), now); got != want {
			t.Errorf("one of %s ago holds: %t", age, got)
		}
	}
}

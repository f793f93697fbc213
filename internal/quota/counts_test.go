package quota

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A settled call keeps the windows in which it can have counted, and gives back the others.
func TestProperty_Keep(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		skew, loc := time.Duration(rapid.IntRange(0, 4).Draw(t, "skew"))*time.Second, time.UTC
		claimed := time.Date(2026, 1, 6, 0, 0, rapid.IntRange(-100, 100).Draw(t, "claimed"), 0, time.UTC)
		timeout := time.Duration(rapid.IntRange(1, 90).Draw(t, "timeout")) * time.Second
		answered := claimed.Add(time.Duration(rapid.Float64Range(0, 1).Draw(t, "answered") * float64(timeout)))
		var debited []Window
		for _, seconds := range WindowLengths {
			debited = append(debited, WindowsTouched(claimed.Add(-skew), claimed.Add(timeout+skew), seconds, loc)...)
		}
		in, err := DecodeCounts(CountsOf(debited).Encode())
		require.NoError(t, err)
		kept, released := in.Keep(Arrival{From: claimed, To: answered}, skew, loc)
		for _, s := range debited {
			can := s.End.After(claimed.Add(-skew)) && !s.Start.After(answered.Add(skew))
			require.Equal(t, can, slices.Contains(kept[WindowKind{Seconds: s.Seconds}], s.Start.Unix()), "kept: %v", s)
			require.Equal(t, !can, slices.Contains(released[WindowKind{Seconds: s.Seconds}], s.Start.Unix()),
				"released: %v", s)
		}
		kept, released = in.Keep(Arrival{}, skew, loc)
		require.Empty(t, kept, "a call that did not arrive")
		require.Equal(t, in, released)
	})
}

package forecast

import (
	"testing"

	"pgregory.net/rapid"
)

// TestProperty_Apportion: tenths always add up to a whole, none is off by one or more, and who spent more never has
// less.
func TestProperty_Apportion(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		calls := rapid.SliceOfN(rapid.IntRange(0, 200_000), 1, 40).Draw(t, "calls")
		shares, total := make([]Share, len(calls)), 0
		for i, n := range calls {
			shares[i].Calls = n
			total += n
		}
		apportion(shares)
		sum := 0
		for _, s := range shares {
			sum += s.Tenths
			if off := s.Tenths*total - s.Calls*wholeTenths; total > 0 && (off >= total || off <= -total) {
				t.Fatalf("%d of %d calls are %d tenths of a percent", s.Calls, total, s.Tenths)
			}
			for _, o := range shares {
				if s.Calls > o.Calls && s.Tenths < o.Tenths {
					t.Fatalf("%d calls have %d tenths, %d have %d", s.Calls, s.Tenths, o.Calls, o.Tenths)
				}
			}
		}
		if sum != wholeTenths {
			t.Fatalf("the tenths of %v are %d", calls, sum)
		}
	})
}

package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Every window of the new zone that is not over holds each call that may count in it, and at least what others spent at
// any time of it.
func TestProperty_Align(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Asia/Kathmandu", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"}
	caps := map[int]int{60: 5, 3600: 50, 86400: 100}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 86400*2).Draw(t,
			"now")) * time.Second)
		zone := func(what string) *time.Location {
			loc, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, what))
			require.NoError(t, err)
			return loc
		}
		was := zone("was")
		is := zone("is")
		skew := time.Duration(rapid.IntRange(0, 5).Draw(t, "skew")) * time.Second
		ago := func(what string) time.Time {
			return now.Add(-time.Duration(rapid.IntRange(0, 27*3600).Draw(t, what)) * time.Second)
		}
		var calls []Spending
		for range rapid.IntRange(0, 8).Draw(t, "calls") {
			from := ago("from")
			to := from.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "for")) * time.Second)
			calls = append(calls, Spending{Arrival: Arrival{From: from, To: to}, Calls: rapid.IntRange(1, 3).Draw(t,
				"group")})
		}
		spentAt := ago("others")
		others := Windows(caps, spentAt, spentAt, 0, was)
		for i := range others {
			others[i].Foreign = 7
		}
		all := Align(caps, calls, others, now, skew, is)
		for at := now.Add(-skew); !at.After(now.Add(2 * time.Minute)); at = at.Add(time.Second) {
			for seconds := range caps {
				start, end := WindowAt(at, seconds, is)
				own, foreign, found := 0, 0, Aligned{}
				for _, c := range calls {
					if c.From.Add(-skew).Before(end) && !c.To.Add(skew).Before(start) {
						own += c.Calls
					}
				}
				if !spentAt.Before(start) && spentAt.Before(end) {
					foreign = 7
				}
				for _, w := range all {
					if w.Seconds == seconds && w.Start.Equal(start) {
						found = w
					}
				}
				if !end.Add(skew).After(now) {
					continue
				}
				require.Equal(t, own, found.Own, "%d s from %s", seconds, start)
				require.GreaterOrEqual(t, found.Foreign, foreign, "%d s from %s", seconds, start)
			}
		}
	})
}

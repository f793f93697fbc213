package forecast

import (
	"time"

	"flowlane/internal/moment"
	"flowlane/internal/quota"
)

// Rolling is a rolling window of a budget.
type Rolling struct {
	// Seconds is its length, Cap the effective cap in calls, and Used what counts now, until Until at the latest.
	Seconds, Cap, Used int
	Until              time.Time
	// spread: its room was used up once; its calls go one by one since, so far apart that it never binds.
	spread bool
}

// A rolling window is played forward in a way that its rule allows, though it may allow more: as many calls as there is
// room for now go at once; then, when all that counted counts no more, one by one, at equal distances of which as many
// as the cap take as long as a call counts. Calls that go as early as they can go no later than that.

// counts is how long a call counts in a rolling window from when it is claimed, until the dispatcher notices.
func (d *drain) counts(r *Rolling) time.Duration {
	return time.Duration(r.Seconds)*time.Second + quota.CellLength(r.Seconds) + d.Latency + d.Wake
}

// roll is how many of n calls the rolling windows let go now. With none, it has waited.
func (d *drain) roll(n int64) int64 {
	for i := range d.rolling {
		r := &d.rolling[i]
		if r.spread {
			continue
		}
		if left := int64(r.Cap - r.Used); left > 0 {
			n = min(n, left)
			continue
		}
		r.spread = true
		d.wait(quota.Delay{Until: r.Until, Reason: quota.ReasonWindow, Seconds: r.Seconds})
		return 0
	}
	return n
}

// rollOn counts n calls in the rolling windows, of which the last goes at a time.
func (d *drain) rollOn(n int64, last time.Time) {
	for i := range d.rolling {
		if r := &d.rolling[i]; !r.spread {
			r.Used += int(n)
			r.Until = moment.Later(r.Until, last.Add(d.counts(r)))
		}
	}
}

// spread is the longest distance that rolling windows put between calls, and which of them does; 0 for none.
func (d *drain) spread() (seconds int, most time.Duration) {
	for i := range d.rolling {
		r := &d.rolling[i]
		if each := d.counts(r) / time.Duration(max(r.Cap, 1)); r.spread && each > most {
			seconds, most = r.Seconds, each
		}
	}
	return seconds, most
}

// rolled are rolling windows as spans.
func rolled(windows []Rolling) []quota.Window {
	out := make([]quota.Window, len(windows))
	for i, r := range windows {
		out[i] = quota.Window{Seconds: r.Seconds, Cap: r.Cap, Own: r.Used}
	}
	return out
}

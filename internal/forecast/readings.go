package forecast

import (
	"math"
	"slices"
	"time"

	"flowlane/internal/dispatch"
	"flowlane/internal/moment"
	"flowlane/internal/quota"
)

// betweenReadings is how many of n calls go where the provider's counters are read before each: a reading counts young
// calls twice, so that half of what is left goes, and the next half once these are old enough. With none, it has waited
// for that.
func (d *drain) betweenReadings(n int64) int64 {
	d.each = false
	if d.Young == 0 || len(d.spans) == 0 {
		return n
	}
	if before := int64(quota.BeforeEscalation(d.spans)); before > 0 {
		if before = min(before, d.doubled()); before > 0 {
			d.sentAt, d.read = d.at, false
			return min(n, before)
		}
	}
	// A reading holds them all that is asked for when they are that old; the one before it may have just missed them.
	if old := d.sentAt.Add(d.Settled()); old.After(d.at) {
		d.wait(quota.Delay{Until: moment.Earlier(old, d.change), Reason: quota.ReasonWindow})
		return 0
	}
	if !d.read {
		d.wait(quota.Delay{Until: d.at.Add(dispatch.LookFor), Reason: quota.ReasonWindow})
		d.read = true
		return 0
	}
	d.sentAt, d.read, d.each = d.at, false, true
	left := math.MaxInt
	for i := range d.spans {
		left = min(left, d.spans[i].Remaining())
	}
	return min(n, int64(left+1)/2)
}

// Settled is how old a call must be that no reading counts it twice any more: the last one that may do so comes when
// the call is young, and the next one when it is not.
func (r *Rate) Settled() time.Duration { return r.Latency + 2*r.Young + dispatch.LookFor }

// doubled is how many calls fit beside the young ones of this run if a reading counts these twice. One that falls into
// a burst is rare: it is reckoned with in the last window, and where spacing spreads the calls of a window, so that
// every reading meets some.
func (d *drain) doubled() int64 {
	since := d.at.Add(-d.Settled())
	old := 0
	for old < len(d.young) && !d.young[old].to.After(since) {
		old++
	}
	d.young = slices.Delete(d.young, 0, old)
	room := int64(math.MaxInt64)
	for i := range d.spans {
		s := &d.spans[i]
		if spread := d.Spacing * time.Duration(s.Cap); d.left > int64(s.Cap) && (d.Spacing == 0 || spread < d.Young) {
			continue
		}
		n := int64(0)
		for _, k := range d.young {
			if k.to.Add(d.Latency + d.Skew).After(s.Start) {
				n += k.calls
			}
		}
		room = min(room, (int64(s.Remaining())-n+1)/2)
	}
	return room
}

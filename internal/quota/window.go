// Package quota holds the rules of budgets: in which windows of the provider's clock a call counts, how many calls may
// go, what a reading of the provider's counters says, and whose turn it is. The dispatcher, forecasts and the
// simulation share them.
//
// They are pure: times, counts and caps come in, decisions go out. The package knows no table, no provider and no
// clock. Its promise is that whatever is granted stays within every cap, wherever in the time that a call may take it
// arrives.
package quota

import (
	"sort"
	"time"

	"flowlane/internal/moment"
)

// WindowLengths are the lengths in seconds of the windows that reports call by these names alone; others are further
// ones.
var WindowLengths = []int{60, 3600, 86400}

// WindowAt returns the window of this length that holds t. Windows are aligned to the wall clock of loc and follow each
// other without gap or overlap: a day with a daylight-saving change has 23 or 25 hours, and a change that is no
// multiple of the length cuts a window short.
func WindowAt(t time.Time, seconds int, loc *time.Location) (start, end time.Time) {
	t = t.In(loc)
	if seconds == 86400 {
		return dayAt(t)
	}
	_, offset := t.Zone()
	length := int64(seconds)
	local := t.Unix() + int64(offset)
	begin := local - ((local%length)+length)%length - int64(offset)
	start, end = time.Unix(begin, 0).UTC(), time.Unix(begin+length, 0).UTC()
	from, until := moment.Stretch(t)
	if !from.IsZero() && from.After(start) {
		start = from.UTC()
	}
	if !until.IsZero() && until.Before(end) {
		end = until.UTC()
	}
	return start, end
}

// dayAt returns the day that holds t. Where clocks go back across midnight, the new day keeps what it has begun.
func dayAt(t time.Time) (start, end time.Time) {
	y, m, d := t.Date()
	for start, end = midnight(y, m, d, t.Location()), midnight(y, m, d+1, t.Location()); !t.Before(end); d++ {
		start, end = end, midnight(y, m, d+2, t.Location())
	}
	return start, end
}

// midnight returns the first instant at which the clocks of loc show this day or a later one: there may be no midnight,
// or two.
func midnight(y int, m time.Month, d int, loc *time.Location) time.Time {
	wall := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix()
	for probe := time.Unix(wall, 0).Add(-26 * time.Hour).In(loc); ; {
		_, until := moment.Stretch(probe)
		_, offset := probe.Zone()
		at := time.Unix(max(probe.Unix(), wall-int64(offset)), 0)
		if until.IsZero() || at.Before(until) {
			return at.UTC()
		}
		probe = until
	}
}

// Window is one window of a budget.
type Window struct {
	// Seconds is its length. A day has 86,400, also where the clocks change.
	Seconds int
	// Start is in the window, End is not.
	Start, End time.Time
	// Rolls: it has no place on the clock (rolling.go). Cell is then the cell that calls are debited in.
	Rolls bool
	Cell  int64
	// Cap is the most that may be spent in it, margin taken off, in units of the budget: a call costs one, unless the
	// catalog has a price for it.
	Cap int
	// Own is what our calls were debited, Foreign what the provider counted beyond that.
	Own, Foreign int
	// Sums are what the calls that are asked about cost of it, each with all before it; nil where each costs 1.
	Sums []int
	// Bucket is the budget of the window, where a call spends it beside that of its queue.
	Bucket string
	// Unsure is how much of Foreign may be calls of our own that were too young for the provider's counter.
	Unsure int
	// Lag is how long after End a call of ours may still count in it: the provider's clock may be late.
	Lag time.Duration
}

// Used is the spend that counts: our own debits, clamped up to what the provider counted.
func (s *Window) Used() int { return s.Own + s.Foreign }

// Remaining is what may still be spent; negative after a clamp.
func (s *Window) Remaining() int { return s.Cap - s.Used() }

// calls is how many of the calls that are asked about cost no more together.
func (s *Window) calls(units int) int {
	if s.Sums == nil {
		return units
	}
	return sort.SearchInts(s.Sums, units+1)
}

// Room is how many of the calls that are asked about may go.
func (s *Window) Room() int { return max(0, s.calls(s.Remaining())) }

// Likely is the window without what is unsure, which is likelier our own than others': what is shown to people. Claims
// go by the window itself, which is never below what the provider has counted.
func (s Window) Likely() Window {
	s.Foreign, s.Unsure = s.Foreign-s.Unsure, 0
	return s
}

// WindowsTouched returns the windows of one length that a call may count in which arrives between from and to.
func WindowsTouched(from, to time.Time, seconds int, loc *time.Location) []Window {
	var out []Window
	for at := from; ; {
		start, end := WindowAt(at, seconds, loc)
		out = append(out, Window{Seconds: seconds, Start: start, End: end})
		if end.After(to) {
			return out
		}
		at = end
	}
}

// Windows returns every window in which a call may count that arrives between from and to, of budgets with these
// effective caps by window length. skew is how far the provider's clock may be from ours.
func Windows(caps map[int]int, from, to time.Time, skew time.Duration, loc *time.Location) []Window {
	var out []Window
	for _, seconds := range Lengths(caps) {
		limit := caps[seconds]
		for _, s := range WindowsTouched(from.Add(-skew), to.Add(skew), seconds, loc) {
			s.Cap, s.Lag = limit, skew
			out = append(out, s)
		}
	}
	return out
}

// LongestWindow is longer than any window: a day can have 25 hours.
const LongestWindow = 26 * time.Hour

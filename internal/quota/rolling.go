package quota

import (
	"maps"
	"slices"
	"time"
)

// Caps are the caps of a budget in calls, by window length in seconds: of windows that begin and end by the clock, and
// of windows that roll, where no interval of the length may hold more. A length is in one of the two.
type Caps struct{ Aligned, Rolling map[int]int }

// All are the caps of both kinds.
func (c Caps) All() map[int]int {
	out := maps.Clone(c.Aligned)
	if out == nil {
		out = map[int]int{}
	}
	maps.Copy(out, c.Rolling)
	return out
}

// Of are the caps in calls where each costs up to so much: at least one call, of a cap that allows any.
func (c Caps) Of(cost int) Caps {
	if cost <= 1 {
		return c
	}
	out := Caps{map[int]int{}, map[int]int{}}
	for seconds, limit := range c.Aligned {
		out.Aligned[seconds] = max(limit/cost, min(limit, 1))
	}
	for seconds, limit := range c.Rolling {
		out.Rolling[seconds] = max(limit/cost, min(limit, 1))
	}
	return out
}

// Lengths are the lengths of windows with these caps, in ascending order.
func Lengths(caps map[int]int) []int { return slices.Sorted(maps.Keys(caps)) }

// A rolling window is kept as a log of calls by the latest time at which they can have arrived. The log has cells, so
// that it stays short whatever the cap is: a call counts until no interval of the window's length can hold both the end
// of its cell and now.
//
// That is enough for every interval. All calls of the log were claimed by now, so none can arrive together with a later
// one but in an interval that reaches back from now; and those that cannot lie in the one that reaches back furthest
// count no more. It depends on no clock but ours: where the provider's is late, it is late for all.

// cellsOfWindow is how many cells a rolling window has. A call counts for at most one cell too long, which costs a
// twentieth of the rate.
const cellsOfWindow = 20

// CellLength is how long a cell of a rolling window of this length is.
func CellLength(seconds int) time.Duration {
	return time.Duration(seconds) * time.Second / cellsOfWindow
}

// CellAt is the number of the cell that holds t.
func CellAt(t time.Time, seconds int) int64 { return t.UnixNano() / int64(CellLength(seconds)) }

// CellOver is from when on calls of a cell count no more.
func CellOver(cell int64, seconds int) time.Time {
	return time.Unix(0, (cell+1)*int64(CellLength(seconds))).UTC().Add(time.Duration(seconds) * time.Second)
}

// Cell is what a cell of a rolling window holds: calls of ours, and of others.
type Cell struct {
	// No is as CellAt counts.
	No int64
	// Own and Foreign are units of the budget, as in a Window.
	Own, Foreign int
}

// Roll is a rolling window at a time, with what counts of its cells, for calls that cannot arrive after until. Its End
// is when the first of what counts may do so no more; now where nothing counts. A call that is under way may be
// answered now, and counts less long then.
func Roll(seconds, limit int, cells []Cell, now, until time.Time) Window {
	w := Window{Seconds: seconds, Cap: limit, Rolls: true, Cell: CellAt(until, seconds),
		Start: now.Add(-time.Duration(seconds) * time.Second), End: now}
	for _, c := range cells {
		over := CellOver(c.No, seconds)
		if !over.After(now) || c.Own+c.Foreign == 0 {
			continue
		}
		if answered := CellOver(CellAt(now, seconds), seconds); answered.Before(over) {
			over = answered
		}
		if w.Used() == 0 || over.Before(w.End) {
			w.End = over
		}
		w.Own, w.Foreign = w.Own+c.Own, w.Foreign+c.Foreign
	}
	return w
}

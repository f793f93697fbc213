package forecast

import (
	"slices"
	"time"
)

const (
	// lastsMost bounds how many works are tried out as the last one, and portionsTried how many portions tell how long one takes.
	lastsMost, portionsTried = 4, 100
)

// lasts are the numbers of the work that may come last of what lapses and is waited for: whoever misses its portion waits for
// another, which may be a day. Of very many these are the ones that would take longest alone; any will do where there are not two.
func lasts(now time.Time, work []Work) []int {
	var nos []int
	for i := range work {
		if w := &work[i]; w.Lapses && w.awaited() && w.Calls > 0 {
			nos = append(nos, i)
		}
	}
	if len(nos) < 2 {
		return []int{-1}
	}
	if len(nos) <= lastsMost {
		return nos
	}
	alone := map[int]time.Duration{}
	for _, i := range nos {
		alone[i] = work[i].alone(now)
	}
	slices.SortStableFunc(nos, func(a, b int) int { return int(alone[b]/time.Second - alone[a]/time.Second) })
	return nos[:lastsMost]
}

// alone is about how long the portions of some work take to come.
func (w *Work) alone(now time.Time) time.Duration {
	at, given := later(now, w.From).Add(-1), int64(0)
	for range portionsTried {
		next, n := w.Release(at)
		if at, given = next, given+n; given >= w.Calls {
			return at.Sub(now)
		}
	}
	return time.Duration(float64(at.Sub(now)) * float64(w.Calls) / float64(max(given, 1)))
}

package forecast

import (
	"slices"
	"time"

	"flowlane/internal/moment"
)

const (
	// lastsMost bounds how many works are tried out as the last one, and portionsTried how many portions tell how long
	// one takes.
	lastsMost, portionsTried = 4, 100
)

// order is one in which work that is waited for may go.
type order struct {
	// last is the number of the work that is taken last; negative where it does not matter.
	last int
	// soon: all else goes as soon as it can, what lapses first, and others have no more than their turns. Then the last
	// work has a portion only when all of that is done; else the rest is missed, too, and goes when it comes again.
	soon bool
}

// orders are those that are tried out.
func orders(now time.Time, work []Work) (out []order) {
	lasts := lasts(now, work)
	rest := len(lasts) > 1 && slices.ContainsFunc(work, func(w Work) bool {
		return w.Calls > 0 && !w.Background && (w.Others || !w.Lapses)
	})
	for _, last := range lasts {
		out = append(out, order{last: last})
		if rest {
			out = append(out, order{last: last, soon: true})
		}
	}
	return out
}

// lasts are the numbers of the work that may come last of what lapses and is waited for: whoever misses its portion
// waits for another, which may be a day. Of very many these are the ones that would take longest alone; any will do
// where there are not two.
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
	at, given := moment.Later(now, w.From).Add(-1), int64(0)
	for range portionsTried {
		next, n := w.Release(at)
		if at, given = next, given+n; given >= w.Calls {
			return at.Sub(now)
		}
	}
	return time.Duration(float64(at.Sub(now)) * float64(w.Calls) / float64(max(given, 1)))
}

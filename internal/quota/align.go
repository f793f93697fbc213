package quota

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Spending is calls that can have arrived in the same time.
type Spending struct {
	Arrival
	CredentialID uuid.UUID
	// Calls is what they cost together, in units of the budget.
	Calls int
}

// Aligned is a window with what may count in it.
type Aligned struct {
	Window
	By Tally
}

// Align returns the windows that are not over, of budgets with these effective caps by window length, with all that may
// count in them: our calls by when they can have arrived, and what others spent by windows of another zone, in any of
// which it may lie.
func Align(caps map[int]int, calls []Spending, others []Window, now time.Time, skew time.Duration,
	loc *time.Location) []Aligned {
	var out []Aligned
	at := map[[2]int64]int{}
	window := func(s *Window) *Aligned {
		k := [2]int64{int64(s.Seconds), s.Start.Unix()}
		if i, ok := at[k]; ok {
			return &out[i]
		}
		at[k] = len(out)
		out = append(out, Aligned{Window: *s, By: Tally{}})
		return &out[len(out)-1]
	}
	open := func(spans []Window) []Window {
		return slices.DeleteFunc(spans, func(s Window) bool { return !s.End.Add(skew).After(now) })
	}
	for _, c := range calls {
		for _, s := range open(Windows(caps, c.From, c.To, skew, loc)) {
			w := window(&s)
			w.Own += c.Calls
			w.By[c.CredentialID] += c.Calls
		}
	}
	for i := range others {
		o := &others[i]
		limit, limited := caps[o.Seconds]
		if !limited || o.Foreign == 0 {
			continue
		}
		last := o.End.Add(-time.Nanosecond)
		for _, s := range open(Windows(map[int]int{o.Seconds: limit}, o.Start, last, 0, loc)) {
			s.Lag = skew
			window(&s).Foreign += o.Foreign
		}
	}
	return out
}

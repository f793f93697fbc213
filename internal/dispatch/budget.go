package dispatch

import (
	"slices"
	"time"
)

// WindowLengths are the lengths of rate windows in seconds.
var WindowLengths = []int{60, 3600, 86400}

// WindowAt returns the window of this length that holds t. Windows are aligned to the wall clock of loc: a day with a
// daylight-saving change has 23 or 25 hours.
func WindowAt(t time.Time, seconds int, loc *time.Location) (start, end time.Time) {
	t = t.In(loc)
	if seconds == 86400 {
		y, m, d := t.Date()
		return time.Date(y, m, d, 0, 0, 0, 0, loc).UTC(), time.Date(y, m, d+1, 0, 0, 0, 0, loc).UTC()
	}
	_, offset := t.Zone()
	length := int64(seconds)
	local := t.Unix() + int64(offset)
	begin := local - ((local%length)+length)%length - int64(offset)
	return time.Unix(begin, 0).UTC(), time.Unix(begin+length, 0).UTC()
}

// Span is one window of a budget.
type Span struct {
	Seconds      int
	Start, End   time.Time
	Cap          int
	Own, Foreign int
}

// Used is the spend that counts: our own debits, clamped up to what the provider counted.
func (s *Span) Used() int { return s.Own + s.Foreign }

// Remaining is what may still be spent; negative after a clamp.
func (s *Span) Remaining() int { return s.Cap - s.Used() }

// Touched returns the windows of one length that a call may count in which arrives between from and to.
func Touched(from, to time.Time, seconds int, loc *time.Location) []Span {
	var out []Span
	for at := from; ; {
		start, end := WindowAt(at, seconds, loc)
		out = append(out, Span{Seconds: seconds, Start: start, End: end})
		if end.After(to) {
			return out
		}
		at = end
	}
}

// Grant is how many calls a budget allows.
type Grant struct {
	// Calls may be sent now.
	Calls int
	// NextAt is when to ask again where Calls is less than was wanted; zero where nothing but work is missing.
	NextAt time.Time
	// Binding is the length in seconds of the window that binds; 0 for none.
	Binding int
}

// Decide says how many of the wanted calls may be sent now, given every window that they may count in. Each call counts
// once in each span. It is the only rule about budgets: the dispatcher and the projections both ask it.
func Decide(now time.Time, spans []Span, wanted int) Grant {
	g := Grant{Calls: wanted}
	for i := range spans {
		s := &spans[i]
		room := max(0, s.Remaining())
		if room < g.Calls {
			g.Calls, g.Binding = room, s.Seconds
		}
	}
	if g.Calls == wanted {
		return g
	}
	// Ask again when the first full window that is already open ends: a later one may be full because of this one.
	for i := range spans {
		s := &spans[i]
		if s.Remaining() > g.Calls {
			continue
		}
		at := s.End
		if s.Start.After(now) {
			at = s.Start
		}
		if g.NextAt.IsZero() || at.After(g.NextAt) {
			g.NextAt = at
		}
	}
	return g
}

// Fair charges the lane that sent n calls of a lane of this weight, in the units of a lane's virtual time.
func Fair(n, weight int) int64 { return int64(n) * fairUnit / int64(weight) }

const fairUnit = 1 << 20

// floorOf returns the least virtual time among lanes that have work.
func floorOf(vtimes []int64) int64 {
	if len(vtimes) == 0 {
		return 0
	}
	return slices.Min(vtimes)
}

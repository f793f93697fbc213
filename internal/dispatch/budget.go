package dispatch

import "time"

// WindowLengths are the lengths of rate windows in seconds.
var WindowLengths = []int{60, 3600, 86400}

// WindowAt returns the window of this length that holds t. Windows are aligned to the wall clock of loc and follow each
// other without gap or overlap: a day with a daylight-saving change has 23 or 25 hours, and a change that is no multiple of
// the length cuts a window short.
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
	from, until := t.ZoneBounds()
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

// midnight returns the first instant at which the clocks of loc show this day or a later one: there may be no midnight, or
// two.
func midnight(y int, m time.Month, d int, loc *time.Location) time.Time {
	wall := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix()
	for probe := time.Unix(wall, 0).Add(-26 * time.Hour).In(loc); ; {
		_, until := probe.ZoneBounds()
		_, offset := probe.Zone()
		at := time.Unix(max(probe.Unix(), wall-int64(offset)), 0)
		if until.IsZero() || at.Before(until) {
			return at.UTC()
		}
		probe = until
	}
}

// Span is one window of a budget.
type Span struct {
	Seconds      int
	Start, End   time.Time
	Cap          int
	Own, Foreign int
	// Bucket is the budget of the window, where a call spends it beside that of its queue.
	Bucket string
	// Unsure is how much of Foreign may be calls of our own that were too young for the provider's counter.
	Unsure int
	// Lag is how long after End a call of ours may still count in it: the provider's clock may be late.
	Lag time.Duration
}

// Used is the spend that counts: our own debits, clamped up to what the provider counted.
func (s *Span) Used() int { return s.Own + s.Foreign }

// Remaining is what may still be spent; negative after a clamp.
func (s *Span) Remaining() int { return s.Cap - s.Used() }

// Likely is the span without what is unsure, which is likelier our own than others': what is shown to people. Claims go by the span
// itself, which is never below what the provider has counted.
func (s Span) Likely() Span {
	s.Foreign, s.Unsure = s.Foreign-s.Unsure, 0
	return s
}

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

// Spans returns every window in which a call may count that arrives between from and to, of budgets with these effective caps
// by window length. skew is how far the provider's clock may be from ours.
func Spans(caps map[int]int, from, to time.Time, skew time.Duration, loc *time.Location) []Span {
	var out []Span
	for _, seconds := range WindowLengths {
		limit, limited := caps[seconds]
		if !limited {
			continue
		}
		for _, s := range Touched(from.Add(-skew), to.Add(skew), seconds, loc) {
			s.Cap, s.Lag = limit, skew
			out = append(out, s)
		}
	}
	return out
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
	// Ask again when no full window can hold a call any more. One that has not begun is full of calls that may yet turn out
	// to count before it: ask when it begins.
	for i := range spans {
		s := &spans[i]
		if s.Remaining() > g.Calls {
			continue
		}
		at := s.End.Add(s.Lag)
		if s.Start.After(now) {
			at = s.Start
		}
		if g.NextAt.IsZero() || at.After(g.NextAt) {
			g.NextAt = at
		}
	}
	return g
}

// Space says how many of the wanted calls the least time between two calls allows: without one all of them, else one, and the
// next from NextAt on. nextAt is what it said last.
func Space(now, nextAt time.Time, spacing time.Duration, wanted int) Grant {
	switch {
	case nextAt.After(now):
		return Grant{NextAt: nextAt}
	case spacing <= 0:
		return Grant{Calls: wanted}
	}
	return Grant{Calls: min(wanted, 1), NextAt: now.Add(spacing)}
}

// BackoffUntil is when a budget may be tried again whose call was refused for a rate limit: after the pause that the provider
// names, else when the window that it names, of this length in seconds, is over by its clock, else after a second.
func BackoffUntil(now time.Time, retryAfter time.Duration, seconds int, skew time.Duration, loc *time.Location) time.Time {
	if seconds > 0 && retryAfter == 0 {
		_, end := WindowAt(now, seconds, loc)
		return end.Add(skew)
	}
	return now.Add(max(retryAfter, time.Second))
}

// RateBackoff is how long a budget without windows is closed after a call was refused for a rate limit by a receiver that names no
// time: a second after the first refusal, twice as long after each further one in a row, a minute at most, and up to half of
// that less, so that those who were refused together do not come back together. random is in [0, 1).
func RateBackoff(refusals int, random float64) time.Duration {
	d := min(time.Second<<min(max(refusals, 1)-1, 6), time.Minute)
	return d/2 + time.Duration(float64(d/2)*random)
}

package quota

import (
	"math"
	"time"
)

// Grant is how many calls a budget allows.
type Grant struct {
	// Calls may be sent now.
	Calls int
	// Delay is when to ask again where Calls is less than was wanted; zero where nothing but work is missing.
	Delay Delay
}

// Decide says how many of the wanted calls may be sent now, given every window that they may count in. Each call counts
// once in each span. It is the only rule about budgets: the dispatcher and the projections both ask it.
func Decide(now time.Time, spans []Window, wanted int) Grant {
	g := Grant{Calls: wanted}
	for i := range spans {
		g.Calls = min(g.Calls, spans[i].Room())
	}
	if g.Calls == wanted {
		return g
	}
	// Ask again when no full window can hold a call any more. One that has not begun is full of calls that may yet turn
	// out to count before it: ask when it begins.
	for i := range spans {
		s := &spans[i]
		if s.Room() > g.Calls {
			continue
		}
		at := s.End.Add(s.Lag)
		if s.Start.After(now) {
			at = s.Start
		}
		g.Delay = g.Delay.And(Delay{at, ReasonWindow, s.Seconds})
	}
	return g
}

// Space says how many of the wanted calls the least time between two calls allows: without one all of them, else one,
// and the next after its Delay. nextAt is when that is over.
func Space(now, nextAt time.Time, spacing time.Duration, wanted int) Grant {
	switch {
	case nextAt.After(now):
		return Grant{Delay: Delay{Until: nextAt, Reason: ReasonSpacing}}
	case spacing <= 0:
		return Grant{Calls: wanted}
	}
	return Grant{Calls: min(wanted, 1), Delay: Delay{Until: now.Add(spacing), Reason: ReasonSpacing}}
}

// reserve is what is left of a cap when its bucket is nearly spent: a tenth, at least one call.
func reserve(limit int) int { return max(1, limit/10) }

// BeforeEscalation is how many calls may go before a budget escalates; none where it is not above 0.
func BeforeEscalation(spans []Window) int {
	n := math.MaxInt
	for i := range spans {
		n = min(n, spans[i].calls(spans[i].Remaining()-reserve(spans[i].Cap)))
	}
	return n
}

// Escalated reports whether a budget is so nearly spent that the provider's own counters are read before each claim. It
// is the rule of the dispatcher, and what headroom shows.
func Escalated(spans []Window) bool { return BeforeEscalation(spans) <= 0 }

// Afford says how many of the wanted calls may be sent now, given every window that they may count in: what Decide
// says, and, where the provider's counters must be read first (unread), what is left before the budget escalates.
// escalated: that is nothing, and the counters must be read.
func Afford(now time.Time, spans []Window, wanted int, unread bool) (g Grant, escalated bool) {
	g = Decide(now, spans, wanted)
	if !unread || g.Calls == 0 {
		return g, false
	}
	free := max(0, BeforeEscalation(spans))
	if free >= g.Calls {
		return g, false
	}
	return Grant{Calls: free}, free == 0
}

// AfterMargin is what a margin leaves of a cap, in whole calls: at least one of a cap that allows any. A margin slows
// an account down, and never stops it.
func AfterMargin(limit, percent int) int { return max(limit*percent/100, min(limit, 1)) }

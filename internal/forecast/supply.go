package forecast

import (
	"slices"
	"time"

	"flowlane/internal/moment"
	"flowlane/internal/quota"
)

// supply is work of which ready calls may go, and portion more will be ready at next; next is zero where no more will
// be.
type supply struct {
	Work
	// no is the place of the work in the question.
	no             int
	ready, portion int64
	// taken are its calls that went.
	taken int64
	next  time.Time
	// again is when there is some of it again if what is ready lapses.
	again time.Time
}

// more says when the next portion comes; after is when the last one did.
func (s *supply) more(after time.Time) {
	s.next, s.portion = time.Time{}, 0
	switch {
	case s.Calls == 0 && (!s.Lapses || s.ready == 0):
	case s.Release == nil:
		s.next, s.portion = s.From, s.Calls
	default:
		s.next, s.portion = s.Release(after)
	}
	s.again = s.next
	if s.Lapses && s.portion == 0 && !s.next.IsZero() {
		s.again, _ = s.Release(s.next)
	}
}

// give makes the next portion ready.
func (s *supply) give() {
	if s.Lapses {
		s.Calls, s.ready = s.Calls+s.ready, 0
	}
	n := min(s.portion, s.Calls)
	s.ready += n
	s.Calls -= n
	s.more(s.next)
}

// waits tells that another portion comes: all at once even without a hold.
func (s *supply) waits() bool { return s.portion > 0 || s.Lapses && !s.next.IsZero() }

func (d *drain) queue(work []Work) {
	for i, w := range work {
		if w.Calls <= 0 {
			continue
		}
		if w.awaited() {
			d.left += w.Calls
		}
		s := supply{Work: w, no: i}
		s.more(moment.Later(w.From, d.at).Add(-1))
		d.supply = append(d.supply, s)
	}
}

// release makes ready what is due, and says what keeps the rest.
func (d *drain) release() (ready int64, next quota.Delay) {
	for i := range d.supply {
		s := &d.supply[i]
		for s.waits() && !s.next.After(d.at) {
			s.give()
		}
		ready += s.ready
		if !s.waits() {
			continue
		}
		delay := quota.Delay{Until: s.next, Reason: quota.ReasonPause}
		if s.Release != nil && s.next.After(s.From) {
			delay.Reason = quota.ReasonPacing
		}
		next = next.Or(delay)
	}
	return ready, next
}

// take takes calls that are ready, in the order that is worst for what is waited for: of that what lapses goes last, or
// but one work of it first, as the order says, and of what goes before it first, so that as little as may be of it
// lapses: what lapses comes later, which may be after what is waited for.
func (d *drain) take(n int64) {
	d.sent += n
	ours, others := d.ready()
	theirs := d.share(n, ours, others)
	n -= theirs
	theirs -= d.takeLapsing(theirs, func(s *supply) bool { return s.Others }, first)
	d.takeOf(theirs, func(s *supply) bool { return s.Others && !s.Lapses })
	n -= d.takeLapsing(n, func(s *supply) bool { return s.Background }, first)
	n -= d.takeOf(n, func(s *supply) bool { return s.Background && !s.Lapses })
	if d.soon {
		n -= d.takeLapsing(n, func(s *supply) bool { return s.awaited() && s.no != d.last }, d.sooner)
	}
	n -= d.takeOf(n, func(s *supply) bool { return s.awaited() && !s.Lapses })
	d.takeLapsing(n, func(s *supply) bool { return s.awaited() }, d.sooner)
	if left, others := d.ready(); left == 0 || others == 0 { // who comes back has no more than a group before others
		d.ahead = d.lead()
	}
}

// ready are the calls that may go now, of this organization and of others.
func (d *drain) ready() (ours, others int64) {
	for i := range d.supply {
		if d.supply[i].Others {
			others += d.supply[i].ready
		} else {
			ours += d.supply[i].ready
		}
	}
	return ours, others
}

// turns is how many calls others may have for each of this organization's: one each, or more where it may have fewer
// under way.
func (d *drain) turns() int64 {
	k := int64(d.Rate.Others)
	if d.Own > 0 && d.Own < d.InFlight && k > 0 {
		k = max(k, int64((d.InFlight-1)/d.Own))
	}
	return k
}

// lead is how many calls of others may go before any of an organization that begins to wait: the group that was chosen
// before, as far as windows let it go now, or one of each, and one more where the order of theirs decides how many of
// them lapse.
func (d *drain) lead() int64 {
	if d.soon || d.Rate.Others == 0 {
		return 0
	}
	group, lapsing := max(d.InFlight, 1), 0
	for i := range d.spans {
		group = min(group, d.spans[i].Remaining())
	}
	for i := range d.supply {
		if s := &d.supply[i]; s.Others && s.Lapses {
			lapsing++
		}
	}
	n := int64(max(group, d.Rate.Others))
	if lapsing > 1 {
		n++
	}
	return n
}

// missed gives the work that may be last some calls more, once, where all is done but took long, and reports whether it
// did: what lapses may have missed a portion that it has here. Where many share the budget, so that nobody knows whose
// turn of a round falls into whose portion, that may be more than one.
func (d *drain) missed(now time.Time) bool {
	lapsing := d.last >= 0
	contended := d.Rate.Others > 1 && (lapsing || slices.ContainsFunc(d.supply, func(s supply) bool {
		return s.Others &&
			s.Lapses
	}))
	if d.again || !lapsing && !contended || d.at.Sub(now) < long {
		return false
	}
	d.again = true
	var last *supply
	ours := int64(0)
	for i := range d.supply {
		if s := &d.supply[i]; s.awaited() {
			ours += s.taken
			if last == nil || s.no == d.last {
				last = s
			}
		}
	}
	n := int64(1)
	if contended {
		n += ours / contention
	}
	last.Calls, d.left = last.Calls+n, d.left+n
	last.more(d.at)
	return true
}

// share is how many of n calls others have: by turns, those first that they are ahead by.
func (d *drain) share(n, ours, others int64) int64 {
	if n == 1 && d.ahead == 0 && !d.owed && d.seldom() {
		d.owed = true
		return n
	}
	d.owed = false
	first := min(n, d.ahead, others)
	turns, k := n-first, d.turns()
	own := (turns + k) / (k + 1)
	own = min(max(own, turns-(others-first)), ours, turns)
	d.ahead += k*own - (n - own)
	d.ahead = max(0, d.ahead)
	return n - own
}

// seldom reports whether something of others may go that lapses, and is not there any more once windows change. Whose
// turn of a round is first nobody knows: if theirs is, this organization's comes with the next call, and if it is not,
// they may miss this one.
func (d *drain) seldom() bool {
	return slices.ContainsFunc(d.supply, func(s supply) bool {
		return s.Others && s.Lapses && s.ready > 0 && !s.there(d.change)
	})
}

// there reports whether some of what lapses is ready at a time, too, as far as its next portions tell.
func (s *supply) there(at time.Time) bool {
	ready, next, portion := s.ready, s.next, s.portion
	for i := 0; i < portionsAhead && !next.IsZero() && !next.After(at); i++ {
		ready = portion
		next, portion = s.Release(next)
	}
	return ready > 0
}

// takeOf takes up to n ready calls of some work, and returns how many that was.
func (d *drain) takeOf(n int64, of func(*supply) bool) (took int64) {
	for i := range d.supply {
		if s := &d.supply[i]; of(s) {
			took += d.takeFrom(s, n-took)
		}
	}
	return took
}

// takeLapsing takes up to n ready calls of some work that lapses, in an order, and returns how many that was.
func (d *drain) takeLapsing(n int64, of func(*supply) bool, before func(s, other *supply) bool) (took int64) {
	for took < n {
		var next *supply
		for i := range d.supply {
			if s := &d.supply[i]; s.Lapses && s.ready > 0 && of(s) && (next == nil || before(s, next)) {
				next = s
			}
		}
		if next == nil {
			break
		}
		took += d.takeFrom(next, n-took)
	}
	return took
}

// first tells whether what is ready of one work lapses before that of another: so the least of all lapses.
func first(s, other *supply) bool { return s.next.Before(other.next) }

// sooner tells whether one work that lapses is taken before another, of what is waited for: that of which there is more
// soonest.
func (d *drain) sooner(s, other *supply) bool {
	if last := s.no == d.last; last != (other.no == d.last) {
		return !last
	}
	return s.again.Before(other.again)
}

// takeFrom takes up to n ready calls of one work, and returns how many that was.
func (d *drain) takeFrom(s *supply, n int64) int64 {
	n = min(n, s.ready)
	s.ready -= n
	s.taken += n
	if s.awaited() {
		d.left -= n
	}
	return n
}

package forecast

import (
	"time"
)

// stock is work of which ready calls may go, and portion more will be ready at next; next is zero where no more will be.
type stock struct {
	Work
	ready, portion int64
	// taken are its calls that went.
	taken int64
	next  time.Time
}

// more says when the next portion comes; after is when the last one did.
func (s *stock) more(after time.Time) {
	s.next, s.portion = time.Time{}, 0
	switch {
	case s.Calls == 0 && (!s.Lapses || s.ready == 0):
	case s.Release == nil:
		s.next, s.portion = s.From, s.Calls
	default:
		s.next, s.portion = s.Release(after)
	}
}

// give makes the next portion ready.
func (s *stock) give() {
	if s.Lapses {
		s.Calls, s.ready = s.Calls+s.ready, 0
	}
	n := min(s.portion, s.Calls)
	s.ready += n
	s.Calls -= n
	s.more(s.next)
}

// waits tells that another portion comes: all at once even without a hold.
func (s *stock) waits() bool { return s.portion > 0 || s.Lapses && !s.next.IsZero() }

func (d *drain) queue(work []Work) {
	for _, w := range work {
		if w.Calls <= 0 {
			continue
		}
		if w.awaited() {
			d.left += w.Calls
		}
		s := stock{Work: w}
		s.more(later(w.From, d.at.Add(-1)))
		d.stock = append(d.stock, s)
	}
}

// release makes ready what is due, and says when more will be, and what that waits for.
func (d *drain) release() (ready int64, next time.Time, source Source) {
	for i := range d.stock {
		s := &d.stock[i]
		for s.waits() && !s.next.After(d.at) {
			s.give()
		}
		ready += s.ready
		if s.waits() && (next.IsZero() || s.next.Before(next)) {
			next, source = s.next, SourceHold
			if s.Release != nil && s.next.After(s.From) {
				source = SourcePacing
			}
		}
	}
	return ready, next, source
}

// take takes calls that are ready, in the order that is worst for what is waited for: what lapses goes last.
func (d *drain) take(n int64) {
	d.sent += n
	ours, others := d.ready()
	n -= d.takeOf(d.share(n, ours, others), func(w *Work) bool { return w.Others })
	for _, lapses := range []bool{false, true} {
		n -= d.takeOf(n, func(w *Work) bool { return w.Background && w.Lapses == lapses })
	}
	for _, lapses := range []bool{false, true} {
		n -= d.takeOf(n, func(w *Work) bool { return w.awaited() && w.Lapses == lapses })
	}
	if left, others := d.ready(); left == 0 || others == 0 { // who comes back has no more than a group before others
		d.ahead = d.lead()
	}
}

// ready are the calls that may go now, of this organization and of others.
func (d *drain) ready() (ours, others int64) {
	for i := range d.stock {
		if d.stock[i].Others {
			others += d.stock[i].ready
		} else {
			ours += d.stock[i].ready
		}
	}
	return ours, others
}

// lead is how many calls of others may go before any of an organization that begins to wait: a group of each.
func (d *drain) lead() int64 { return int64(d.Rate.Others) * int64(max(d.InFlight, 1)) }

// share is how many of n calls others have: each organization one for every call of ours, those first that they are ahead by.
func (d *drain) share(n, ours, others int64) int64 {
	first := min(n, d.ahead, others)
	turns, k := n-first, int64(d.Rate.Others)
	own := (turns + k) / (k + 1)
	own = min(max(own, turns-(others-first)), ours, turns)
	d.ahead += k*own - (n - own)
	d.ahead = max(0, d.ahead)
	return n - own
}

// takeOf takes up to n ready calls of some work, and returns how many that was.
func (d *drain) takeOf(n int64, of func(*Work) bool) (took int64) {
	for i := range d.stock {
		s := &d.stock[i]
		if !of(&s.Work) {
			continue
		}
		k := min(n-took, s.ready)
		s.ready -= k
		s.taken += k
		took += k
		if s.awaited() {
			d.left -= k
		}
	}
	return took
}

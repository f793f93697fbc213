package simulation

import (
	"slices"
	"time"

	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
)

// platform is the other side of a bucket. It counts what it takes, and some what they refuse, by its own clock, and
// takes no more than its caps.
type platform struct {
	b *budget
	// ours and others are what it took, by its windows.
	ours, others map[window]int
	// log is what counters may not hold yet.
	log []counted
	// rolled are when the calls of ours came that count in windows that roll.
	rolled []time.Time
	// held is up to when the last reading held everything: counters do not go back.
	held time.Time
	// downUntil: it answers nothing before, and where it hangs, takes connections.
	downUntil time.Time
	hangs     bool
}

// fall has the provider be down for some hours.
func (p *platform) fall() {
	w := p.b.w
	p.downUntil, p.hangs = w.now.Add(time.Duration(w.crowd.Int64N(int64(6*time.Hour)))), w.crowd.IntN(2) == 0
}

// counted is one call that the provider took.
type counted struct {
	at      time.Time
	windows []window
	ours    bool
}

// kind is what an answer proves.
type kind int

const (
	success kind = iota
	refused
	retryLater
	notArrived
	// absent: a lookup does not find it; failed: it was taken, and its work failed later.
	absent
	failed
	unknown
)

// reading is the verdict as the dispatcher reads it.
func (v verdict) reading() *provider.Reading {
	switch v.kind {
	case success:
		return &provider.Reading{Kind: provider.Success}
	case refused:
		return &provider.Reading{Kind: provider.Refused, Reason: provider.ReasonRefused}
	case failed:
		return &provider.Reading{Kind: provider.Refused, Reason: provider.ReasonImportFailed}
	case retryLater:
		return &provider.Reading{Kind: provider.RetryLater, Reason: provider.ReasonRateLimited}
	case notArrived:
		return &provider.Reading{Kind: provider.NotArrived, Reason: provider.ReasonUnreachable}
	case absent:
		return &provider.Reading{Kind: provider.NotArrived}
	}
	return &provider.Reading{Kind: provider.Unknown}
}

// verdict is what is known of an open call.
type verdict struct {
	kind    kind
	tooLate bool
	// limited: for the rate limit; seconds is the window that the provider names, retryAfter the pause.
	limited    bool
	seconds    int
	retryAfter time.Duration
	unresolved bool
}

// windows are those that a call counts in which arrives now, by the provider's clock.
func (p *platform) windows() (out []window) {
	at := p.b.w.now.Add(p.b.account.offset)
	for _, seconds := range quota.WindowLengths {
		if _, limited := p.b.raw[seconds]; limited {
			start, _ := quota.WindowAt(at, seconds, p.b.account.loc)
			out = append(out, window{seconds, start.Unix()})
		}
	}
	return out
}

// full returns a window without room; zero for none.
func (p *platform) full(windows []window) (k window) {
	for _, k := range windows {
		if p.ours[k]+p.others[k] >= p.b.raw[k.seconds] {
			return k
		}
	}
	return k
}

func (p *platform) count(windows []window, ours bool) {
	for _, k := range windows {
		if ours {
			p.ours[k]++
		} else {
			p.others[k]++
		}
	}
	w := p.b.w
	p.log = append(p.log, counted{w.now, windows, ours})
	for len(p.log) > 0 && w.now.Sub(p.log[0].at) > 5*time.Minute {
		p.log = p.log[1:]
	}
}

// spend is what others do.
func (p *platform) spend(n int) {
	for range n {
		windows := p.windows()
		if p.full(windows) != (window{}) {
			return
		}
		p.b.w.stats.foreign++
		p.count(windows, false)
	}
}

// request sends a call, whose answer comes after a while, or none.
func (p *platform) request(c *call, answer func(time.Duration, verdict)) {
	w := p.b.w
	left := c.sendBefore.Sub(w.now)
	way := min(w.upTo(p.b.latency/2), left)
	back := w.upTo(p.b.latency / 2)
	silence := max(c.sendBefore.Sub(w.now), 0) // until the sender gives up
	switch {
	case w.now.Before(p.downUntil):
		w.stats.down++
		if p.hangs {
			answer(silence, verdict{kind: unknown})
		} else {
			answer(back, verdict{kind: notArrived})
		}
		return
	case w.trouble(60): // no connection
		answer(back, verdict{kind: notArrived})
		return
	case w.trouble(61): // the request is lost on the way
		w.stats.lost++
		answer(silence, verdict{kind: unknown})
		return
	case w.trouble(40): // it comes late
		way = w.upTo(left)
	}
	w.after(way, func() {
		v := p.arrive(c)
		switch {
		case w.trouble(40): // the answer is lost
			w.stats.lost++
			answer(max(c.sendBefore.Sub(w.now), 0), verdict{kind: unknown})
		case w.now.Add(back).After(c.sendBefore): // the sender has given up
			answer(max(c.sendBefore.Sub(w.now), 0), verdict{kind: unknown})
		default:
			answer(back, v)
		}
	})
}

// arrive takes a call, or refuses it.
func (p *platform) arrive(c *call) verdict {
	w := p.b.w
	windows := p.windows()
	w.check.arrives(c, windows)
	if k := p.full(windows); k != (window{}) {
		w.stats.limited++
		w.check.limits(p.b, k)
		p.refuse(windows)
		v := verdict{kind: retryLater, limited: true, seconds: k.seconds}
		if w.chance(2) {
			v.retryAfter = time.Duration(1+w.r.IntN(120)) * time.Second
		}
		return v
	}
	switch {
	case w.trouble(100): // for a limit that nobody told us of
		w.stats.limited++
		p.refuse(windows)
		return verdict{kind: retryLater, limited: true, seconds: []int{0, 60, 3600}[w.r.IntN(3)]}
	case w.trouble(101):
		p.refuse(windows)
		return verdict{kind: retryLater, retryAfter: time.Duration(w.r.IntN(60)) * time.Second}
	case w.trouble(80):
		w.stats.refused++
		p.refuse(windows)
		return verdict{kind: refused}
	case w.trouble(81): // a failure before anything is done
		return verdict{kind: unknown}
	}
	p.count(windows, true)
	w.check.counted(p.b, windows)
	p.roll()
	c.accepted, c.arrivedAt = true, w.now
	if c.batch != nil {
		c.visibleAt = w.now.Add(w.upTo(c.batch.settles))
	}
	w.stats.accepted++
	w.check.accepts(c)
	switch {
	case w.trouble(80): // a failure after
		return verdict{kind: unknown}
	case w.trouble(82): // what it took could not be done
		return verdict{kind: failed}
	}
	return verdict{kind: success}
}

// refuse counts a call that is refused, where the platform does that.
func (p *platform) refuse(windows []window) {
	if p.b.refusals {
		p.count(windows, true)
		p.b.w.check.counted(p.b, windows)
		p.roll()
	}
}

// roll counts a call of ours in the windows that roll, of which none is ever over its cap.
func (p *platform) roll() {
	now := p.b.w.now
	for _, seconds := range quota.Lengths(p.b.rolling) {
		since := now.Add(-time.Duration(seconds) * time.Second)
		p.rolled = append(slices.DeleteFunc(p.rolled, func(at time.Time) bool { return !at.After(since) }), now)
		if len(p.rolled) > p.b.rolling[seconds] {
			p.b.w.check.fail("budget %d: %d calls came within %d s, at most %d may", p.b.no, len(p.rolled), seconds,
				p.b.rolling[seconds])
		}
	}
	p.b.w.stats.rolled += len(p.b.rolling)
}

// find answers a lookup: whether it knows of a call.
func (p *platform) find(c *call) int {
	if c.accepted && !c.visibleAt.After(p.b.w.now) {
		if p.b.w.trouble(50) {
			return 2 // another client did the same
		}
		return 1
	}
	return 0
}

// counter is one of the provider's own counters: a window of its clock, what it counted of ours and others', and what
// of that the reading holds.
type counter struct {
	seconds             int
	window              window
	value, ours, others int
}

// read reads the counters of a bucket, which lag.
func (p *platform) read(lag time.Duration) (out []counter) {
	p.held = later(p.held, p.b.w.now.Add(-lag))
	for _, k := range p.windows() {
		c := counter{seconds: k.seconds, window: k, ours: p.ours[k], others: p.others[k]}
		for i := len(p.log) - 1; i >= 0 && p.log[i].at.After(p.held); i-- {
			for _, o := range p.log[i].windows {
				switch {
				case o != k:
				case p.log[i].ours:
					c.ours--
				default:
					c.others--
				}
			}
		}
		c.value = c.ours + c.others
		out = append(out, c)
	}
	return out
}

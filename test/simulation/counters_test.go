package simulation

import (
	"slices"
	"time"

	"flowlane/internal/dispatch"
	"flowlane/internal/quota"
)

func (a *account) countersKey() dueKey { return dueKey{dispatch.DueCounters, a.no} }

func (a *account) world() *world { return a.budgets[0].w }

// look reads the account's counters for a process, which then goes on whether that succeeded or not.
func (a *account) look(p *process, then func()) {
	w := a.world()
	now := w.now
	a.read(p, func(ok, young, scarce bool) {
		if ok {
			p.looked[a.no] = now
			if young {
				w.wake(a.countersKey(), now.Add(quota.NextReading(true, scarce, true, a.every, a.mature())))
			}
		}
		then()
	})
}

// count is the reading on schedule.
func (a *account) count(p *process, r *dueRow, lease int) {
	w := a.world()
	a.read(p, func(ok, young, scarce bool) {
		if !ok {
			young = true
		}
		open := a.spentUntil.After(w.now)
		pause := quota.NextReading(young, scarce, open, a.every, a.mature())
		if pause == 0 || !open {
			w.finish(r, lease, time.Time{})
			return
		}
		w.finish(r, lease, w.now.Add(pause))
	})
}

// read asks the provider for its counters, and takes them over.
func (a *account) read(p *process, then func(ok, young, scarce bool)) {
	w := a.world()
	asked := w.now
	p.then(w.upTo(2*time.Second), func() {
		if w.trouble(30) {
			then(false, false, false)
			return
		}
		w.stats.readings++
		asOf, tells := asked, a.tells
		if tells {
			asOf = w.now.Add(a.offset)
		}
		read := make([][]counter, len(a.budgets))
		for i, b := range a.budgets {
			read[i] = b.provider.read(w.upTo(a.lag))
		}
		p.then(w.upTo(time.Second), func() {
			a.answersIn = max(w.now.Sub(asked), a.answersIn*9/10)
			young, scarce := false, false
			from, to, until := asOf, asOf, asOf
			if !tells {
				from, to, until = asked.Add(-a.skew), w.now.Add(a.skew), w.now
			}
			for i, b := range a.budgets {
				y, s := b.takeOver(read[i], asOf, until, from, to)
				young, scarce = young || y, scarce || y && s
			}
			then(true, young, scarce)
		})
	})
}

// takeOver writes what the provider counted, up to a time between asOf and until, which is between from and to by its
// own clock.
func (b *budget) takeOver(counters []counter, asOf, until, from, to time.Time) (young, scarce bool) {
	a, w := b.account, b.w
	since := asOf.Add(-a.mature())
	b.recent = slices.DeleteFunc(b.recent, func(c *call) bool {
		switch c.state {
		case "intent", "unknown":
			return false
		case "unresolved":
			return !c.claimedAt.After(since.Add(-keptFor))
		}
		return !c.claimedAt.After(since.Add(-time.Minute)) && !c.answeredAt.After(since.Add(-time.Minute))
	})
	recent, calls := map[window]int{}, 0
	for _, c := range b.recent {
		if !c.mayBeMissing(since) {
			continue
		}
		if c.state != "unresolved" {
			calls++
		}
		eachWindow(c.counts, func(k window) { recent[k]++ })
	}
	freed := false
	caps := b.caps()
	for _, c := range counters {
		start, _, ok := quota.Counted(from, to, c.seconds, a.loc)
		if !ok {
			calls++
			continue
		}
		k := window{c.seconds, start.Unix()}
		r := b.row(k)
		if quota.Outdated(r.observedAt, asOf) {
			continue
		}
		r.observedAt = until
		taken := quota.Compare(&quota.Window{Own: r.own, Foreign: r.foreign, Unsure: r.unsure}, c.value, recent[k])
		r.foreign, r.unsure = taken.Foreign, taken.Unsure
		freed = freed || taken.Freed
		scarce = scarce || quota.Escalated([]quota.Window{{Cap: caps[c.seconds], Own: r.own, Foreign: r.foreign}})
		w.check.observes(b, k, c)
	}
	if freed {
		w.wake(b.dispatchKey(), w.now)
	}
	return calls > 0, scarce
}

// keptFor is longer than any window.
const keptFor = 26 * time.Hour

// mayBeMissing reports whether a reading that holds everything up to since may not hold a call, as the query of the
// dispatcher does: it went since then, was answered since then, or nobody knows whether it arrived.
func (c *call) mayBeMissing(since time.Time) bool {
	if len(c.counts) == 0 { // the provider did not count it
		return false
	}
	switch c.state {
	case "intent", "unknown":
		return true
	case "unresolved":
		return c.claimedAt.After(since.Add(-keptFor))
	}
	return c.claimedAt.After(since) || c.answeredAt.After(since)
}

package simulation

import (
	"time"

	"flowlane/internal/dispatch"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// process is a dispatcher. A crash takes its memory: what it was about to do does not happen. While it is stopped
// nothing happens, and then everything that was to.
type process struct {
	w *world
	// no is its number, epoch which of its lives this is.
	no, epoch int
	// offset is how far its clock is from the database's: any time, because only differences of it count.
	offset       time.Duration
	downUntil    time.Time
	stoppedUntil time.Time
	// looked, asked and planned are when it last read an account's counters, did so before a pass, and planned a
	// reading.
	looked, asked, planned map[int]time.Time
}

func (p *process) clock() time.Time { return p.w.now.Add(p.offset) }

// works reports whether the process can take new work.
func (p *process) works(now time.Time) bool {
	return !p.downUntil.After(now) && !p.stoppedUntil.After(now)
}

// then has the process go on after a while, if it still lives then, and where it does not crash or stop just before.
func (p *process) then(d time.Duration, do func()) {
	epoch := p.epoch
	var on func()
	on = func() {
		switch w := p.w; {
		case p.epoch != epoch:
			return
		case p.stoppedUntil.After(w.now):
			w.at(p.stoppedUntil, on)
			return
		case w.trouble(400):
			p.crash()
			return
		case w.trouble(300):
			p.stop()
			w.at(p.stoppedUntil, on)
			return
		}
		do()
	}
	p.w.after(d, on)
}

// crash takes the process's memory; it starts again after a while.
func (p *process) crash() {
	p.w.stats.crashes++
	p.w.lose(p)
	p.epoch++
	p.downUntil = p.w.now.Add(time.Second + p.w.upTo(40*time.Second))
	p.looked, p.asked, p.planned = map[int]time.Time{}, map[int]time.Time{}, map[int]time.Time{}
	for _, b := range p.w.budgets {
		if ps := p.w.passing[b.dispatchKey()]; ps != nil && ps.p == p {
			delete(p.w.passing, b.dispatchKey())
		}
	}
}

// stop stops the process for a while, sometimes for longer than its leases last.
func (p *process) stop() {
	p.w.stats.stops++
	p.stoppedUntil = p.w.now.Add(p.w.upTo(90 * time.Second))
	p.w.lose(p)
}

// restart has the process go on at once.
func (p *process) restart() {
	p.downUntil, p.stoppedUntil = p.w.now, later(p.w.now, p.stoppedUntil)
}

// lapsed reports whether a time in the process's memory is so long ago, and remembers that it is now.
func (p *process) lapsed(m map[int]time.Time, account int, every time.Duration) bool {
	if at, is := m[account]; is && p.clock().Sub(at) < every {
		return false
	}
	m[account] = p.clock()
	return true
}

// handle does the work of a due row.
func (w *world) handle(p *process, r *dueRow, lease int) {
	switch r.key.kind {
	case run.DueDispatch:
		w.budgets[r.key.id].pass(p, r, lease)
	case dispatch.DueReconcile:
		w.budgets[r.key.id].reconcile(p, r, lease)
	case dispatch.DueCounters:
		w.accounts[r.key.id].count(p, r, lease)
	case run.DuePacing: // one transaction
		w.finish(r, lease, w.batches[r.key.id].tick())
	case dueExpiry:
		w.finish(r, lease, w.expire(w.holds[r.key.id]))
	}
}

const (
	glance = 20 * time.Millisecond
	// restMax is the longest time between two calls that a pass waits for itself.
	restMax = 2 * time.Second
	// hop is how long a step takes at most between two transactions.
	hop = 60 * time.Millisecond
)

// pass sends what waits for one budget.
type pass struct {
	b        *budget
	p        *process
	r        *dueRow
	lease    int
	inFlight int
	flying   map[quota.LaneKey]int
	blocked  map[*simBatch]bool
	full     map[quota.LaneKey]bool
	// poked is when the pass looks again.
	poked time.Time
	ended bool
}

func (b *budget) pass(p *process, r *dueRow, lease int) {
	ps := &pass{b: b, p: p, r: r, lease: lease, flying: map[quota.LaneKey]int{}, blocked: map[*simBatch]bool{},
		full: map[quota.LaneKey]bool{}}
	b.w.passing[r.key] = ps
	if a := b.account; a.every > 0 && p.lapsed(p.asked, a.no, a.every) {
		a.look(p, func() { ps.poke(0) })
		return
	}
	ps.poke(0)
}

// poke has the pass look again after a while.
func (ps *pass) poke(d time.Duration) {
	at := ps.b.w.now.Add(d)
	if ps.ended || !ps.poked.IsZero() && !at.Before(ps.poked) {
		return
	}
	ps.poked = at
	ps.p.then(d, func() {
		if ps.poked.Equal(at) {
			ps.poked = time.Time{}
			ps.step()
		}
	})
}

// leased reports whether the budget is the pass's own still.
func (ps *pass) leased() bool { return ps.r.leaseNo == ps.lease && ps.r.holder == ps.p }

// step chooses calls, without locks, and claims them a little later.
func (ps *pass) step() {
	w := ps.b.w
	if !ps.leased() {
		ps.ended = true
		return
	}
	calls, among := ps.choose()
	if len(calls) == 0 {
		ps.idle(time.Time{})
		return
	}
	ps.p.then(w.upTo(hop), func() { ps.claim(calls, false, among) })
}

// choose renders a group of small calls, shared among the batches that are ready, or one bulk call; among are the lanes
// that compete for it.
func (ps *pass) choose() (calls []rendered, among []quota.LaneKey) {
	b, now := ps.b, ps.b.w.now
	free := b.most - ps.inFlight
	if b.spacing > 0 {
		free = min(free, 1)
	}
	waits, room := map[quota.LaneKey][]rendered{}, map[quota.LaneKey]int{}
	for _, t := range b.choose(ps.blocked) {
		if _, is := room[t.lane]; !is {
			if room[t.lane] = free; b.account.lanes[t.lane].most > 0 {
				room[t.lane] = min(free, b.account.lanes[t.lane].most-ps.flying[t.lane])
			}
		}
		if room[t.lane] <= 0 || ps.full[t.lane] {
			continue
		}
		among = append(among, t.lane)
		if b.perCall > 1 {
			if calls == nil {
				calls = []rendered{{t, t.ready(b.perCall, now)}}
			}
			continue
		}
		for _, rec := range t.ready(room[t.lane]-len(waits[t.lane]), now) {
			waits[t.lane] = append(waits[t.lane], rendered{t, []*record{rec}})
		}
	}
	if len(waits) == 0 {
		return calls, among
	}
	lanes := make([]quota.Demand, len(b.standings))
	for i, s := range b.standings {
		lanes[i] = quota.Demand{LaneShare: s, Ready: len(waits[s.LaneKey])}
	}
	for _, i := range quota.Allot(lanes, min(free, b.group)) {
		lane := lanes[i].LaneKey
		calls, waits[lane] = append(calls, waits[lane][0]), waits[lane][1:]
	}
	return calls, among
}

// claim claims what was rendered, and sends what it got.
func (ps *pass) claim(calls []rendered, checked bool, among []quota.LaneKey) {
	w, a, p := ps.b.w, ps.b.account, ps.p
	unread := a.every > 0 && !checked && !quota.ReadingHolds(p.looked[a.no], w.now)
	started := p.clock()
	got := ps.b.claim(calls, unread, among)
	if got.escalated {
		w.stats.escalated++
		a.look(p, func() { ps.claim(calls, true, among) })
		return
	}
	for _, c := range got.calls {
		ps.inFlight++
		ps.flying[c.lane]++
		p.then(w.upTo(hop), func() { ps.send(c, started.Add(c.b.timeout)) })
	}
	for _, t := range got.blocked {
		ps.blocked[t] = true
	}
	for _, lane := range got.full {
		ps.full[lane] = true
	}
	switch {
	case got.spaced && got.nextAt.Sub(w.now) <= restMax:
		ps.poke(got.nextAt.Sub(w.now))
	case got.nextAt.IsZero() && len(got.calls)+len(got.blocked)+len(got.full) > 0, got.moved:
		ps.poke(0)
	default:
		ps.idle(got.nextAt)
	}
}

// send makes one round trip, unless the call's time is over by the process's own clock.
func (ps *pass) send(c *call, before time.Time) {
	if !ps.p.clock().Before(before) {
		ps.b.w.stats.late++
		ps.answered(c, verdict{kind: notArrived, tooLate: true})
		return
	}
	c.b.provider.request(c, func(d time.Duration, v verdict) {
		ps.p.then(d, func() { ps.answered(c, v) })
	})
}

// answered settles a call.
func (ps *pass) answered(c *call, v verdict) {
	c.b.settle(c, v, false)
	ps.inFlight--
	ps.flying[c.lane]--
	clear(ps.blocked)
	clear(ps.full)
	ps.poke(0)
}

// idle waits for the calls in flight, or ends the pass.
func (ps *pass) idle(nextAt time.Time) {
	w, b := ps.b.w, ps.b
	if ps.inFlight > 0 {
		if !nextAt.IsZero() {
			ps.poke(nextAt.Sub(w.now))
		}
		return
	}
	if nextAt.IsZero() {
		for _, t := range b.batches {
			for _, rec := range t.queue {
				if rec.readyAt.After(w.now) {
					nextAt = sooner(nextAt, rec.readyAt)
				}
			}
		}
		if len(ps.blocked) > 0 || len(ps.full) > 0 {
			nextAt = sooner(nextAt, w.now.Add(time.Second))
		}
	}
	ps.ended = true
	if w.passing[ps.r.key] == ps {
		delete(w.passing, ps.r.key)
	}
	w.finish(ps.r, ps.lease, nextAt)
}

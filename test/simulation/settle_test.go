package simulation

import (
	"slices"
	"time"

	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
)

// from is where the records of an open call stand; empty for one that is over.
func (c *call) from() batch.Status {
	switch c.state {
	case "intent", "awaiting":
		return batch.Started
	case "unknown":
		return batch.NeedsReconcile
	case "unresolved":
		return batch.Unresolved
	}
	return ""
}

// settle is transaction 2: what a verdict comes to. wake makes the budget due, where no pass waits for the outcome.
func (b *budget) settle(c *call, v verdict, wake bool) {
	w := b.w
	if c.from() == "" {
		if v.kind == success && c.state == "refused" {
			w.check.fail("call %d was held for not sent, and has arrived", c.no)
		}
		return
	}
	again := c.state == "intent" && v.kind == success && len(c.records) > 0 && w.strike(faultSettleTwice)
	b.one(c, v)
	if again {
		c.state = "intent"
		b.one(c, v)
	}
	if c.batch != nil {
		c.batch.end()
	}
	if wake {
		b.wakeWaiting()
	}
}

func (b *budget) one(c *call, v verdict) {
	w := b.w
	switch v.kind {
	case success:
		for _, rec := range c.records {
			to := batch.Completed
			if b.perCall > 1 {
				to = batch.Accepted
				if w.trouble(50) {
					to = batch.Rejected
				}
			}
			c.batch.move(rec, to)
		}
		b.moveCall(c, "settled", v)
	case failed:
		b.failAll(c)
		b.moveCall(c, "settled", v)
	case refused:
		b.failAll(c)
		b.moveCall(c, "refused", v)
	case retryLater:
		until := w.now.Add(max(v.retryAfter, time.Second))
		if v.limited {
			until = quota.BackoffUntil(w.now, v.retryAfter, v.seconds, b.account.skew, b.account.loc)
			b.backoff = later(b.backoff, until)
		}
		b.moveCall(c, "refused", v)
		b.requeue(c, until, false)
	case notArrived, absent:
		b.moveCall(c, "refused", v)
		if v.tooLate {
			b.requeue(c, w.now, false)
			return
		}
		b.again(c)
	default:
		b.doubt(c, v)
	}
}

func (b *budget) failAll(c *call) {
	for _, rec := range c.records {
		c.batch.move(rec, batch.Failed)
	}
}

func (b *budget) requeue(c *call, at time.Time, attempted bool) {
	if c.batch == nil {
		return
	}
	b.w.stats.resent += len(c.records)
	c.batch.requeue(c.records, at, attempted)
}

// again tries records again by their retry policy.
func (b *budget) again(c *call) {
	if c.batch == nil {
		return
	}
	jitter := b.w.r.Float64()
	for _, rec := range c.records {
		if rec.attempt >= c.batch.retry.MaxAttempts {
			c.batch.move(rec, batch.Failed)
			continue
		}
		c.batch.requeue([]*record{rec}, b.w.now.Add(c.batch.retry.Delay(rec.attempt, jitter)), true)
	}
}

// doubt decides where nobody knows whether the call arrived.
func (b *budget) doubt(c *call, v verdict) {
	to := func(s batch.Status) {
		for _, rec := range c.records {
			c.batch.move(rec, s)
		}
	}
	switch next := dispatch.Uncertain(c.state, c.check, v.unresolved); next {
	case c.state:
	case "settled":
		b.moveCall(c, "settled", v)
		b.again(c)
	case "unresolved":
		if c.state == "intent" {
			to(batch.NeedsReconcile)
		}
		to(batch.Unresolved)
		b.moveCall(c, "unresolved", v)
	case "unknown":
		b.moveCall(c, "unknown", v)
		c.nextAt = b.w.now
		to(batch.NeedsReconcile)
		b.w.wake(b.reconcileKey(), b.w.now)
	}
}

// moveCall notes the new state of a call, and gives back the windows that it did not count in.
func (b *budget) moveCall(c *call, state string, v verdict) {
	w := b.w
	if state != "unknown" && state != "unresolved" {
		arrival := quota.ArrivalOf(c.claimedAt, c.sendBefore, w.now, dispatch.Counts(v.reading(), b.refusals))
		kept, released := c.counts.Keep(arrival, b.account.skew, b.account.loc)
		c.counts = kept
		for k := range released {
			if k.Rolls {
				b.count(quota.CountsIn{k: released[k]}, -1)
				if !w.strike(faultForgetRolled) {
					b.count(quota.CountsIn{k: kept[k]}, 1)
				}
			}
		}
		eachWindow(released, func(k window) {
			r := b.row(k)
			r.own = max(0, r.own-1)
		})
		w.check.releases(b, released)
	}
	if state == "settled" && !c.probe && !w.now.After(c.sendBefore) {
		b.took = append(b.took, took{c.claimedAt, w.now.Sub(c.claimedAt)})
		b.took = b.took[max(0, len(b.took)-200):]
	}
	c.state, c.answeredAt = state, w.now
	if state != "unknown" {
		b.open = slices.DeleteFunc(b.open, func(o *call) bool { return o == c })
	}
}

// reconcile finds out what became of calls whose sender is silent, or whose answer was unclear.
func (b *budget) reconcile(p *process, r *dueRow, lease int) {
	now := b.w.now
	for _, c := range slices.Clone(b.open) {
		if c.state == "intent" && !c.sendBefore.After(now.Add(-margin)) {
			b.settle(c, verdict{kind: unknown}, true)
		}
	}
	var calls []*call
	for _, c := range b.open {
		if c.state == "unknown" && !c.nextAt.After(now) {
			calls = append(calls, c)
		}
	}
	b.checkAll(p, calls, func() {
		var next time.Time
		for _, c := range b.open {
			if c.state == "unknown" {
				next = sooner(next, c.nextAt)
			} else {
				next = sooner(next, c.sendBefore.Add(margin))
			}
		}
		b.w.finish(r, lease, next)
	})
}

// checkAll asks about one call after the other.
func (b *budget) checkAll(p *process, calls []*call, done func()) {
	if len(calls) == 0 {
		done()
		return
	}
	b.lookUp(p, calls[0], func() { b.checkAll(p, calls[1:], done) })
}

// horizon is how long the provider remembers.
const horizon = 2 * day

// lookUp asks the provider about a call, by a call that passes the same gate.
func (b *budget) lookUp(p *process, c *call, done func()) {
	w, a := b.w, b.account
	asked := w.now
	nextAt := asked.Add(dispatch.LookupPause(c.checks))
	later := func(at time.Time) {
		if at.After(nextAt) {
			nextAt = at
		}
		if c.state == "unknown" {
			c.nextAt, c.checks = nextAt, c.checks+1
		}
		done()
	}
	if asked.Sub(c.claimedAt) > horizon {
		b.settle(c, verdict{kind: unknown, unresolved: true}, true)
		done()
		return
	}
	started := p.clock()
	ask := func(probe *call) {
		p.then(w.upTo(b.latency), func() {
			matches, v := 0, verdict{kind: notArrived, tooLate: true}
			if p.clock().Before(started.Add(b.timeout)) {
				v = b.provider.arrive(probe)
			}
			if v.kind == success {
				matches = b.provider.find(c)
			}
			b.settle(probe, v, false)
			if v.kind != success {
				later(w.now.Add(v.retryAfter))
				return
			}
			settled := c.sendBefore.Add(margin + a.skew + c.batch.settles)
			switch dispatch.Found(matches, asked, settled) {
			case provider.Success:
				b.settle(c, verdict{kind: success}, true)
			case provider.Unknown:
				b.settle(c, verdict{kind: unknown, unresolved: true}, true)
			case provider.NotArrived:
				b.settle(c, verdict{kind: absent}, true)
			default:
				later(time.Time{})
				return
			}
			done()
		})
	}
	probe, escalated, next := b.debitOne(a.every > 0 && !quota.ReadingHolds(p.looked[a.no], w.now))
	if escalated {
		a.look(p, func() {
			started = p.clock()
			if probe, _, next := b.debitOne(false); probe != nil {
				ask(probe)
			} else {
				later(next)
			}
		})
		return
	}
	if probe == nil {
		later(next)
		return
	}
	ask(probe)
}

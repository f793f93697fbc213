package simulation

import (
	"fmt"
	"time"

	"flowlane/internal/batch"
	"flowlane/internal/pacing"
	"flowlane/internal/quota"
)

// violation is what a checker stops a world with.
type violation struct{ text string }

// checker keeps books of its own, from what is visible from outside, and holds the world against them after every step.
type checker struct {
	w *world
	// books are those of budgets, by number.
	books map[*budget]*books
	// active are the holds that people were told of, paused what a batch was when it was paused.
	active map[*hold]bool
	paused map[*simBatch]batch.BatchStatus
	paced  map[*simBatch]*released
}

// books are those of a budget.
type books struct {
	// booked are the calls that count in a window, arrived those that the provider counted there.
	booked, arrived map[window]int
	// seen is what others spent by the last readings, seenAt what of it was known at the last debit.
	seen, seenAt map[window]int
	// waited is how many calls of others went since a lane that had work had its last one.
	waited map[quota.LaneKey]int
	// paid is the weight with which each lane was charged last, among the most that all of its organization weighed
	// since: it waits as long as that explains, whatever it weighs now.
	paid, among map[quota.LaneKey]int
}

// released is what a paced batch was given and took since its last tick.
type released struct {
	policy *pacing.Policy
	tick   time.Time
	taken  int64
}

func newChecker(w *world) *checker {
	return &checker{w: w, books: map[*budget]*books{}, active: map[*hold]bool{}, paused: map[*simBatch]batch.BatchStatus{},
		paced: map[*simBatch]*released{}}
}

func (c *checker) fail(format string, args ...any) {
	panic(violation{fmt.Sprintf("%s: %s", c.w.now.Format(time.RFC3339Nano), fmt.Sprintf(format, args...))})
}

func (c *checker) of(b *budget) *books {
	if c.books[b] == nil {
		c.books[b] = &books{map[window]int{}, map[window]int{}, map[window]int{}, map[window]int{},
			map[quota.LaneKey]int{}, map[quota.LaneKey]int{}, map[quota.LaneKey]int{}}
	}
	return c.books[b]
}

// window holds one row of the ledger against the books: it counts each of our calls that may be in the window once, at
// least those that the provider has, and with what others are known to have spent it is not less than the provider's
// own count.
func (c *checker) window(b *budget, k window) {
	k2, r := c.of(b), b.row(k)
	switch {
	case r.own != k2.booked[k]:
		c.fail("budget %d, window %v: the ledger counts %d calls, %d were claimed", b.no, k, r.own, k2.booked[k])
	case k2.arrived[k] > r.own:
		c.fail("budget %d, window %v: the provider has %d calls of ours, the ledger %d", b.no, k, k2.arrived[k], r.own)
	case k2.arrived[k]+k2.seen[k] > r.own+r.foreign:
		c.fail("budget %d, window %v: the provider has %d calls of ours and told of %d of others, "+
			"the ledger counts %d and %d",
			b.no, k, k2.arrived[k], k2.seen[k], r.own, r.foreign)
	}
}

// claims: no debit raises a window above its effective cap; nothing goes that is held, over, or not released; no more
// calls of a lane are under way than may be; and no lane that has work waits longer than its weight explains.
func (c *checker) claims(b *budget, calls []*call, spans []quota.Window, among []quota.LaneKey) {
	k := c.of(b)
	lowest := 100
	for _, org := range b.account.orgs {
		if n := b.margins[org]; n > 0 && n < lowest {
			lowest = n
		}
	}
	for _, call := range calls {
		eachWindow(call.counts, func(at window) { k.booked[at]++ })
		if !call.probe {
			c.claim(call)
		}
	}
	for i := range spans {
		if spans[i].Rolls {
			continue // the provider counts in each interval
		}
		at := windowOf(&spans[i])
		c.window(b, at)
		k.seenAt[at] = k.seen[at]
		raw := b.raw[at.seconds] // of which a margin leaves at least one
		if r, limit := b.row(at), max(raw*lowest/100, min(raw, 1)); r.own+r.foreign > limit {
			c.fail("budget %d, window %v: %d and %d are spent of %d", b.no, at, r.own, r.foreign, limit)
		}
	}
	if calls[0].probe {
		return
	}
	for _, call := range calls {
		if most := b.account.lanes[call.lane].most; most > 0 && b.inFlight(call.lane, c.w.now) > most {
			c.fail("budget %d: more than %d calls of %v are under way", b.no, most, call.lane)
		}
		c.turns(b, call.lane, among)
	}
}

// claim checks one call.
func (c *checker) claim(call *call) {
	t := call.batch
	if t.status != batch.BatchRunning {
		c.fail("call %d: batch %d is %s", call.no, t.no, t.status)
	}
	for h := range c.active {
		if h.covers(t) && (h.expiresAt.IsZero() || h.expiresAt.After(c.w.now)) {
			c.fail("call %d: batch %d is covered by hold %d", call.no, t.no, h.no)
		}
	}
	p := c.paced[t]
	if t.policy == nil {
		return
	}
	if p == nil || p.policy != t.policy && p.tick.IsZero() {
		c.fail("call %d: batch %d was never released", call.no, t.no)
	}
	p.taken += int64(len(call.records))
	if p.taken > t.policy.Records || !t.policy.Open(c.w.now) {
		c.fail("call %d: batch %d sends %d records since %s, its policy allows %d (open: %t)", call.no, t.no, p.taken,
			p.tick, t.policy.Records, t.policy.Open(c.w.now))
	}
}

// turns counts how long lanes wait that have work, while a call of one goes.
func (c *checker) turns(b *budget, went quota.LaneKey, among []quota.LaneKey) {
	k := c.of(b)
	waited := k.waited
	k.waited = map[quota.LaneKey]int{}
	weigh := func(lane quota.LaneKey) (all, lanes int) {
		for l, s := range b.account.lanes {
			if l.Org == lane.Org {
				all, lanes = all+s.weight, lanes+1
			}
		}
		return all, lanes
	}
	k.paid[went], k.among[went] = b.account.lanes[went].weight, 0
	for _, lane := range among {
		if lane == went || k.waited[lane] > 0 {
			continue
		}
		k.waited[lane] = waited[lane] + 1
		all, lanes := weigh(lane)
		k.among[lane] = max(k.among[lane], all)
		least := b.account.lanes[lane].weight
		if paid := k.paid[lane]; paid > 0 {
			least = min(least, paid)
		}
		orgs := len(b.account.orgs)
		turn := b.group * (lanes + k.among[lane]/least + 2)
		if most := 2*turn*orgs + 2*b.group*orgs; k.waited[lane] > most {
			c.fail("budget %d: %d calls went before one of %v, at most %d should", b.no, k.waited[lane], lane, most)
		}
	}
}

// reweighs: shares begin anew.
func (c *checker) reweighs(b *budget) { clear(c.of(b).waited) }

// arrives: each window of the provider in which a call arrives is one that it was debited in.
func (c *checker) arrives(call *call, windows []window) {
	for _, k := range windows {
		found := false
		eachWindow(call.counts, func(at window) { found = found || at == k })
		if !found {
			c.fail("call %d of budget %d counts in window %v, in which it was not debited", call.no, call.b.no, k)
		}
	}
}

// counted: the provider counted a call of ours.
func (c *checker) counted(b *budget, windows []window) {
	for _, k := range windows {
		c.of(b).arrived[k]++
		c.window(b, k)
	}
}

// limits: the provider refuses a call of ours for a full window only where others spent what no reading had told at the
// debit.
func (c *checker) limits(b *budget, k window) {
	if told := c.of(b).seenAt[k]; b.provider.others[k] <= told {
		c.fail("budget %d, window %v: the provider refuses a call: %d of ours, %d of others, of which %d were known",
			b.no, k, b.provider.ours[k], b.provider.others[k], told)
	}
}

// accepts: no record is taken twice, but by actions that say that it does no harm.
func (c *checker) accepts(call *call) {
	for _, rec := range call.records {
		rec.accepted++
		if rec.accepted > 1 && (call.check == "lookup" || call.check == "none") {
			c.fail("record %d of batch %d was sent twice, the second time by call %d", rec.no, rec.batch.no, call.no)
		}
	}
}

// releases: a settled call gives back windows.
func (c *checker) releases(b *budget, out quota.CountsIn) {
	eachWindow(out, func(k window) {
		c.of(b).booked[k]--
		c.window(b, k)
	})
}

// observes: a reading was taken over.
func (c *checker) observes(b *budget, k window, n counter) {
	if n.window == k {
		c.of(b).seen[k] = max(c.of(b).seen[k], n.others)
	}
	switch r := b.row(k); {
	case n.window == k && n.value > r.own+r.foreign-r.unsure:
		c.fail("budget %d, window %v: the provider told of %d calls, %d and %d are shown", b.no, k, n.value, r.own,
			r.foreign-r.unsure)
	case !b.account.others && r.foreign != r.unsure:
		c.fail("budget %d, window %v: nobody else spends, and %d are shown for that", b.no, k, r.foreign-r.unsure)
	}
	c.window(b, k)
}

// moves: a record moves as drawn, and a completed one was taken by the provider.
func (c *checker) moves(rec *record, to batch.Status) {
	if !batch.MayMove(rec.status, to) {
		c.fail("record %d of batch %d goes from %s to %s", rec.no, rec.batch.no, rec.status, to)
	}
	if (to == batch.Completed || to == batch.Accepted) && rec.accepted == 0 {
		c.fail("record %d of batch %d is %s, and the provider never had it", rec.no, rec.batch.no, to)
	}
}

var batchMoves = map[batch.BatchStatus][]batch.BatchStatus{
	batch.BatchQueued: {batch.BatchRunning, batch.BatchPaused, batch.BatchCancelled, batch.BatchCompleted},
	batch.BatchPaused: {batch.BatchQueued, batch.BatchRunning, batch.BatchCancelled},
	batch.BatchRunning: {batch.BatchPaused, batch.BatchCompleted, batch.BatchPartiallyFailed, batch.BatchFailed,
		batch.BatchCancelled},
}

// becomes: a batch moves as drawn, and from a pause back to exactly what it was.
func (c *checker) becomes(t *simBatch, to batch.BatchStatus) {
	legal := false
	for _, s := range batchMoves[t.status] {
		legal = legal || s == to
	}
	if was, is := c.paused[t]; !legal || is && to != was && to != batch.BatchCancelled {
		c.fail("batch %d goes from %s to %s", t.no, t.status, to)
	}
	delete(c.paused, t)
	if to == batch.BatchPaused {
		c.paused[t] = t.status
	}
}

func (c *checker) holds(h *hold) { c.active[h] = true }
func (c *checker) freed(h *hold) { delete(c.active, h) }

// paces: a batch has another policy.
func (c *checker) paces(t *simBatch) {
	if c.paced[t] == nil {
		c.paced[t] = &released{}
	}
	c.paced[t].policy = t.policy
}

// ticks: ticks of one policy are a period apart, and each gives anew.
func (c *checker) ticks(t *simBatch) {
	if p := c.paced[t]; p != nil && !p.tick.IsZero() && t.pacedAt.Sub(p.tick) < t.policy.Period() {
		c.fail("batch %d: ticks at %s and %s, %s apart", t.no, p.tick, t.pacedAt, t.policy.Period())
	}
	c.paced[t] = &released{policy: t.policy, tick: t.pacedAt}
}

// audit looks at everything.
func (c *checker) audit() {
	for _, t := range c.w.batches {
		n := 0
		for _, s := range batch.Statuses {
			n += t.counts[s]
		}
		if n != len(t.records) || t.counts[batch.Queued] != len(t.queue) {
			c.fail("batch %d has %d records, %v of them, and %d in its queue", t.no, len(t.records), t.counts,
				len(t.queue))
		}
		_, held := c.paused[t]
		if t.paused != held || held != (t.status == batch.BatchPaused) {
			c.fail("batch %d is %s; its queue is paused: %t", t.no, t.status, t.paused)
		}
		if len(t.queue) > 0 && t.w.due[t.budget.dispatchKey()] == nil && !c.explained(t) {
			c.fail("batch %d waits, and nobody will look at it", t.no)
		}
	}
	for _, b := range c.w.budgets {
		for _, call := range b.open {
			if c.w.due[b.reconcileKey()] == nil {
				c.fail("call %d is %s, and nobody will look at it", call.no, call.state)
			}
		}
	}
}

// explained reports whether a batch waits for people or for its next tick.
func (c *checker) explained(t *simBatch) bool {
	for h := range c.active {
		if h.covers(t) {
			return true
		}
	}
	return t.policy != nil && c.w.due[t.pacingKey()] != nil
}

// over: at the end nothing is left but what waits for a person.
func (c *checker) over() {
	c.audit()
	for _, t := range c.w.batches {
		for _, rec := range t.records {
			if !batch.Terminal(rec.status) && rec.status != batch.Unresolved {
				c.fail("record %d of batch %d is still %s", rec.no, t.no, rec.status)
			}
		}
		if t.counts[batch.Unresolved] == 0 && !batch.BatchTerminal(t.status) {
			c.fail("batch %d is still %s", t.no, t.status)
		}
	}
	if len(c.active) > 0 {
		c.fail("%d holds are open", len(c.active))
	}
}

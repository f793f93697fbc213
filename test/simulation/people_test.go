package simulation

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/pacing"
	"flowlane/internal/quota"
)

// dueExpiry is the kind of due rows that end holds.
const dueExpiry = "pause_expiry"

// hold is what people keep from being claimed: a batch, else all of an organization, of an account of it, or of a lane
// there.
type hold struct {
	no        int
	org       uuid.UUID
	account   *account
	lane      db.FlowLane
	batch     *simBatch
	expiresAt time.Time
	over      bool
	// ignored: claims do not see it, by a deliberate fault.
	ignored bool
}

func (h *hold) open(now time.Time) bool {
	return !h.over && (h.batch != nil || h.expiresAt.IsZero() || h.expiresAt.After(now))
}

func (h *hold) covers(t *simBatch) bool {
	if h.batch != nil {
		return h.batch == t
	}
	return h.org == t.lane.Org && (h.account == nil || h.account == t.budget.account) &&
		(h.lane == "" || h.lane == t.lane.Lane)
}

// planWork has batches start over the week, each with some work to do.
func (w *world) planWork() {
	start := func() { w.start(w.drawBatch()) }
	for range 10 {
		w.after(w.upTo(time.Hour), start)
	}
	w.sometimes(110, start)
	if w.crowd != nil {
		w.sometimes(400, func() {
			t := w.drawBatch()
			t.records = t.records[:1]
			w.start(t)
		})
	}
}

func (w *world) drawBatch() *simBatch {
	r := w.r
	b := w.budgets[r.IntN(len(w.budgets))]
	lane := db.AllFlowLaneValues()[r.IntN(4)]
	t := &simBatch{budget: b, lane: quota.LaneKey{Org: b.account.orgs[r.IntN(len(b.account.orgs))], Lane: lane},
		high: w.chance(4)}
	t.check = []string{"safe", "keyed", "lookup", "lookup", "none", "at_least_once"}[r.IntN(6)]
	t.settles = time.Duration(r.IntN(30)) * time.Second
	t.retry = definition.Retry{MaxAttempts: 1 + r.IntN(5), Initial: time.Duration(r.IntN(20)) * time.Second,
		Max: 5 * time.Minute, Factor: 2}
	n := 1 + r.IntN(1+b.daily*b.perCall/4) // what a day lets through, or less
	if w.chance(6) {
		n *= 3
	}
	for i := range n {
		t.records = append(t.records, &record{batch: t, no: i, status: batch.Staged, attempt: 1})
	}
	if w.chance(4) {
		t.policy = w.drawPolicy(b.perCall)
	}
	return t
}

func (w *world) drawPolicy(perCall int) *pacing.Policy {
	p := &pacing.Policy{Records: int64((1 + w.r.IntN(12)) * perCall), PeriodMinutes: 5 + w.r.IntN(120)}
	if w.chance(3) {
		from := w.r.IntN(1200)
		p.Window = &pacing.Hours{Timezone: w.zone, Start: from, End: from + 30 + w.r.IntN(1440-from-30)}
		if w.chance(3) {
			p.Window.Days = []string{"monday", "wednesday", "saturday", "sunday"}
		}
	}
	if bad := p.Check(); len(bad) > 0 {
		panic(bad[0].Msg)
	}
	return p
}

// start queues a batch.
func (w *world) start(t *simBatch) {
	t.w, t.no, t.status = w, len(w.batches), batch.BatchQueued
	t.counts = map[batch.Status]int{batch.Staged: len(t.records)}
	w.batches = append(w.batches, t)
	for _, rec := range t.records {
		t.move(rec, batch.Queued)
		rec.readyAt = w.now
	}
	t.queue = append(t.queue, t.records...)
	t.budget.batches = append(t.budget.batches, t)
	if t.policy != nil {
		t.paceNextAt = t.policy.First(time.Time{}, w.now)
		w.wake(t.pacingKey(), t.paceNextAt)
	}
	w.wake(t.budget.dispatchKey(), w.now)
}

// planPeople has people steer over the week.
func (w *world) planPeople() {
	w.sometimes(25, w.openPause)
	w.sometimes(40, func() {
		if h := w.anyPause(); h != nil && h.open(w.now) {
			w.release(h)
		}
	})
	w.sometimes(10, func() {
		if h := w.anyPause(); h != nil && h.open(w.now) && !h.expiresAt.IsZero() {
			h.expiresAt = h.expiresAt.Add(w.upTo(8 * time.Hour)) // its due row finds that out
		}
	})
	w.sometimes(40, w.steer)
	w.sometimes(6, func() {
		if t := w.anyBatch(); t != nil {
			t.cancel()
		}
	})
	w.sometimes(12, func() {
		b := w.budgets[w.r.IntN(len(w.budgets))]
		b.setMargin(b.account.orgs[w.r.IntN(len(b.account.orgs))], 1+w.r.IntN(100))
	})
	w.sometimes(12, func() {
		a := w.accounts[w.r.IntN(len(w.accounts))]
		k := quota.LaneKey{Org: a.orgs[w.r.IntN(len(a.orgs))], Lane: db.AllFlowLaneValues()[w.r.IntN(4)]}
		a.lanes[k] = laneSetting{weight: 1 + w.r.IntN(60), most: w.r.IntN(4)}
		for _, b := range a.budgets {
			w.check.reweighs(b)
			b.wakeWaiting()
		}
	})
}

func (w *world) anyPause() *hold {
	if len(w.holds) == 0 {
		return nil
	}
	return w.holds[len(w.holds)-1-w.r.IntN(min(len(w.holds), 8))]
}

// anyBatch returns a batch that is not over; nil for none.
func (w *world) anyBatch() *simBatch {
	for range 20 {
		if len(w.batches) == 0 {
			return nil
		}
		if t := w.batches[w.r.IntN(len(w.batches))]; !batch.BatchTerminal(t.status) {
			return t
		}
	}
	return nil
}

// openPause opens a hold. When it is there, no claim that it covers commits: the gate of holds makes it one step.
func (w *world) openPause() {
	a := w.accounts[w.r.IntN(len(w.accounts))]
	h := &hold{no: len(w.holds), org: a.orgs[w.r.IntN(len(a.orgs))]}
	switch w.r.IntN(6) {
	case 0:
	case 1, 2:
		h.account = a
	case 3:
		h.account, h.lane = a, db.AllFlowLaneValues()[w.r.IntN(4)]
	default:
		t := w.anyBatch()
		if t == nil || t.status == batch.BatchPaused {
			return
		}
		h.batch = t
		t.become(batch.BatchPaused)
		t.paused = true
	}
	if !w.chance(3) {
		h.expiresAt = w.now.Add(time.Minute + w.upTo(10*time.Hour))
		w.wake(dueKey{dueExpiry, h.no}, h.expiresAt)
	}
	w.stats.holds++
	w.holds, w.open = append(w.holds, h), append(w.open, h)
	w.check.holds(h)
	if h.ignored = h.batch == nil && w.strike(faultIgnoreHold); h.ignored {
		w.faultAt = 0
	}
}

// release ends a hold, and wakes what waits.
func (w *world) release(h *hold) {
	if h.over {
		return
	}
	w.end(h)
	if t := h.batch; t != nil {
		if t.status != batch.BatchPaused {
			return
		}
		t.become(t.pausedFrom)
		t.paused = false
		t.end()
		w.wake(t.budget.dispatchKey(), w.now)
		return
	}
	for _, b := range w.budgets {
		if h.account == nil || h.account == b.account {
			b.wakeWaiting()
		}
	}
}

// end writes down that a hold is over.
func (w *world) end(h *hold) {
	h.over = true
	w.open = slices.DeleteFunc(w.open, func(o *hold) bool { return o == h })
	w.check.freed(h)
}

// expire ends a hold whose time is over, and returns when to come back where it was extended.
func (w *world) expire(h *hold) time.Time {
	switch {
	case h.over || h.expiresAt.IsZero():
		return time.Time{}
	case h.expiresAt.After(w.now):
		return h.expiresAt
	}
	w.release(h)
	return time.Time{}
}

// steer changes priority or pacing of a batch.
func (w *world) steer() {
	t := w.anyBatch()
	if t == nil {
		return
	}
	switch w.r.IntN(4) {
	case 0:
		t.high = !t.high
	case 1:
		if t.policy != nil {
			t.policy, t.allowance, t.lapsesAt = nil, 0, time.Time{}
			w.check.paces(t)
			w.wake(t.budget.dispatchKey(), w.now)
		}
	default:
		t.pace(w.drawPolicy(t.budget.perCall))
	}
}

// pace puts a batch under a policy: what was released and not used stays, as far as both policies allow it.
func (t *simBatch) pace(p *pacing.Policy) {
	now := t.w.now
	was, until := int64(0), now
	if t.policy != nil {
		was, until = t.policy.Records, p.Until(now, now.Add(p.Period()))
	}
	t.allowance = max(0, min(t.allowance, p.Records-(was-t.allowance)))
	if !t.lapsesAt.IsZero() && until.Before(t.lapsesAt) || t.lapsesAt.IsZero() {
		t.lapsesAt = until
	}
	t.policy = p
	t.paceNextAt = p.First(t.pacedAt, now)
	t.w.check.paces(t)
	t.w.wake(t.pacingKey(), t.paceNextAt)
}

// tick releases what a policy allows from now on, and returns when the next tick is due.
func (t *simBatch) tick() time.Time {
	w := t.w
	if t.policy == nil || batch.BatchTerminal(t.status) {
		return time.Time{}
	}
	if t.paceNextAt.After(w.now) {
		return t.paceNextAt
	}
	tick := t.policy.Tick(t.paceNextAt, w.now)
	t.pacedAt, t.paceNextAt = tick, t.policy.Next(tick)
	t.allowance, t.lapsesAt = t.policy.Records, t.policy.Lapses(tick)
	w.stats.ticks++
	w.check.ticks(t)
	if len(t.queue) > 0 {
		w.wake(t.budget.dispatchKey(), w.now)
	}
	return t.paceNextAt
}

// cancel ends a batch: what waits is not processed, calls under way settle later, its hold is over.
func (t *simBatch) cancel() {
	for _, h := range t.w.holds {
		if h.batch == t && !h.over {
			t.w.end(h)
		}
	}
	t.become(batch.BatchCancelled)
	t.paused = false
	for _, rec := range t.queue {
		t.move(rec, batch.Unprocessed)
	}
	t.queue = nil
}

// planTrouble has processes crash and stop, and others spend.
func (w *world) planTrouble() {
	for _, p := range w.processes {
		w.sometimes(20, p.crash)
		w.sometimes(20, p.stop)
	}
	for _, b := range w.budgets {
		if w.crowd != nil {
			w.sometimes(3, b.provider.fall)
		}
		if b.account.others {
			w.sometimes(30, func() { b.provider.spend(1 + w.r.IntN(1+minOf(b.raw)/2)) })
		}
	}
}

package simulation

import (
	"slices"
	"time"

	"flowlane/internal/batch"
	"flowlane/internal/quota"
)

// margin is how long after a call's last moment of sending its outcome is looked into.
const margin = 3 * time.Second

// rendered is a call that may go next.
type rendered struct {
	batch   *simBatch
	records []*record
}

// claimed is what came of a claim. Of the batches that are blocked, and of the lanes that are full, nothing goes for
// now.
type claimed struct {
	calls     []*call
	nextAt    time.Time
	spaced    bool
	escalated bool
	blocked   []*simBatch
	full      []quota.LaneKey
	moved     bool
}

// covered reports whether an open hold of people keeps claims off a batch.
func (w *world) covered(t *simBatch) bool {
	for _, h := range w.open {
		if h.open(w.now) && h.covers(t) && !h.ignored {
			return true
		}
	}
	return false
}

// choose returns the batches that may go next, in order, as the query of the dispatcher does.
func (b *budget) choose(skip map[*simBatch]bool) []*simBatch {
	var out []*simBatch
	b.batches = slices.DeleteFunc(b.batches, func(t *simBatch) bool { return batch.BatchTerminal(t.status) })
	for _, t := range b.batches {
		if !t.paused && !skip[t] && t.claimable(b.w.now) && !b.w.covered(t) {
			out = append(out, t)
		}
	}
	turn := b.turns(out)
	slices.SortStableFunc(out, func(x, y *simBatch) int {
		if x.lane != y.lane {
			return turn[x.lane] - turn[y.lane]
		}
		if x.high != y.high {
			if x.high {
				return -1
			}
			return 1
		}
		return x.no - y.no
	})
	return out
}

// turns says in what order the lanes of batches go.
func (b *budget) turns(out []*simBatch) map[quota.LaneKey]int {
	ready := map[quota.LaneKey]int{}
	for _, t := range out {
		b.standing(t.lane)
		ready[t.lane] = 1
	}
	lanes := make([]quota.Demand, len(b.standings))
	for i, s := range b.standings {
		lanes[i] = quota.Demand{LaneShare: s, Ready: ready[s.LaneKey]}
	}
	turn := map[quota.LaneKey]int{}
	for no, i := range quota.Allot(lanes, len(lanes)) {
		turn[lanes[i].LaneKey] = no
	}
	return turn
}

// claimable reports whether some of a batch is ready, and allowed where it is paced.
func (t *simBatch) claimable(now time.Time) bool {
	return len(t.queue) > 0 && !t.queue[0].readyAt.After(now) && (t.policy == nil || t.allowance > 0 &&
		t.lapsesAt.After(now))
}

// claim is transaction 1: it writes calls down as intents, of all batches from which they come, or changes nothing.
// unread tells that the provider's counters must be read first near exhaustion; among are the lanes that compete for
// it.
func (b *budget) claim(calls []rendered, unread bool, among []quota.LaneKey) (out claimed) {
	if calls = b.admitted(calls, &out); len(calls) == 0 {
		return out
	}
	grant, spans, spaced, escalated := b.afford(len(calls), unread)
	out.nextAt, out.spaced, out.escalated = grant.Delay.Until, spaced, escalated
	if grant.Calls == 0 {
		return out
	}
	calls = calls[:grant.Calls]
	if !b.debit(spans, len(calls)) {
		panic("a debit met a fuller window than was read under the lock")
	}
	b.take(calls, spans, &out)
	b.w.check.claims(b, out.calls, spans, among)
	return out
}

// admitted are the calls that may still go: their lanes have room, their batches are neither held nor over, and their
// records are where they were when they were looked at.
func (b *budget) admitted(calls []rendered, out *claimed) []rendered {
	w := b.w
	room, wanted, gone := map[quota.LaneKey]int{}, map[*simBatch]int64{}, map[*simBatch]bool{}
	for _, k := range calls {
		t := k.batch
		if _, is := room[t.lane]; !is {
			room[t.lane] = b.laneRoom(t.lane)
		}
		wanted[t] += int64(len(k.records))
		switch {
		case gone[t]:
		case t.status == batch.BatchPaused || batch.BatchTerminal(t.status) || w.covered(t):
			gone[t], out.blocked = true, append(out.blocked, t)
		case slices.ContainsFunc(k.records, func(rec *record) bool {
			return rec.status != batch.Queued ||
				rec.readyAt.After(w.now)
		}):
			gone[t] = true
		case t.policy != nil && (wanted[t] > t.allowance || !w.now.Before(t.lapsesAt)):
			gone[t] = true
		default:
			continue
		}
		if len(out.blocked) == 0 || out.blocked[len(out.blocked)-1] != t {
			w.stats.moved++
			out.moved = true
		}
	}
	return slices.DeleteFunc(slices.Clone(calls), func(k rendered) bool {
		lane := k.batch.lane
		if gone[k.batch] {
			return true
		}
		if room[lane]--; room[lane] == -1 {
			out.full = append(out.full, lane)
		}
		return room[lane] < 0
	})
}

// laneRoom is how many more calls of a lane may be under way.
func (b *budget) laneRoom(lane quota.LaneKey) int {
	room := b.most
	if most := b.account.lanes[lane].most; most > 0 {
		room = min(room, most)
	}
	return room - b.inFlight(lane, b.w.now)
}

// afford asks what the backoff, the spacing and the windows of the budget allow.
func (b *budget) afford(wanted int, unread bool) (grant quota.Grant, spans []quota.Window, spaced, escalated bool) {
	now := b.w.now
	if b.backoff.After(now) {
		return quota.Grant{Delay: quota.Delay{Until: b.backoff, Reason: quota.ReasonBackoff}}, nil, false, false
	}
	grant = quota.Space(now, b.nextCallAt, b.spacing, wanted)
	spaced = grant.Delay.Until.After(now)
	if grant.Calls == 0 {
		return grant, nil, spaced, false
	}
	spans = b.spans(now)
	within, escalated := quota.Afford(now, spans, grant.Calls, unread)
	if within.Calls < grant.Calls {
		grant, spaced = within, false
	}
	return grant, spans, spaced, escalated
}

// take writes the calls down and takes their records off the queues.
func (b *budget) take(calls []rendered, spans []quota.Window, out *claimed) {
	w := b.w
	var lanes []quota.LaneKey
	for _, k := range calls {
		t := k.batch
		c := w.newCall(b, spans)
		c.lane, c.batch, c.records, c.check = t.lane, t, k.records, t.check
		for _, rec := range k.records {
			t.move(rec, batch.Started)
			rec.call = c
		}
		t.queue = slices.DeleteFunc(t.queue, func(rec *record) bool { return rec.status != batch.Queued })
		if t.policy != nil {
			t.allowance -= int64(len(k.records))
		}
		if t.status == batch.BatchQueued {
			t.become(batch.BatchRunning)
		}
		b.standing(t.lane)
		lanes, out.calls = append(lanes, t.lane), append(out.calls, c)
	}
	quota.Charge(b.standings, lanes)
	b.spent()
}

// newCall writes down a call.
func (w *world) newCall(b *budget, spans []quota.Window) *call {
	w.calls++
	w.stats.calls++
	c := &call{no: w.calls, b: b, state: "intent", claimedAt: w.now, sendBefore: w.now.Add(b.timeout),
		counts: quota.CountsOf(spans)}
	b.open, b.recent = append(b.open, c), append(b.recent, c)
	return c
}

// spent plans what follows a debit.
func (b *budget) spent() {
	w, a := b.w, b.account
	if b.spacing > 0 {
		b.nextCallAt = w.now.Add(b.spacing)
	}
	w.wake(b.reconcileKey(), w.now.Add(b.timeout+margin))
	if a.every > 0 {
		w.wake(a.countersKey(), w.now.Add(a.mature()))
	}
}

// debitOne is the gate for a call without records; it charges no lane.
func (b *budget) debitOne(unread bool) (c *call, escalated bool, next time.Time) {
	grant, spans, _, escalated := b.afford(1, unread)
	if grant.Calls == 0 {
		return nil, escalated, grant.Delay.Until
	}
	if !b.debit(spans, 1) {
		panic("a debit met a fuller window than was read under the lock")
	}
	c = b.w.newCall(b, spans)
	c.probe, c.check = true, "safe"
	b.spent()
	b.w.check.claims(b, []*call{c}, spans, nil)
	return c, false, time.Time{}
}

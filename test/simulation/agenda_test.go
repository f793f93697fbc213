package simulation

import "time"

// agenda is virtual time: what happens next, in order.
type agenda struct {
	now    time.Time
	events events
	seq    int
}

type event struct {
	at  time.Time
	seq int
	do  func()
}

// events are a heap, the next one first.
type events []event

func (e events) before(i, j int) bool {
	if e[i].at.Equal(e[j].at) {
		return e[i].seq < e[j].seq
	}
	return e[i].at.Before(e[j].at)
}

func (e *events) push(x event) {
	h := append(*e, x)
	*e = h
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.before(i, parent) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (e *events) pop() event {
	h := *e
	top, last := h[0], len(h)-1
	h[0], h[last] = h[last], event{}
	h = h[:last]
	*e = h
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if h.before(child, least) {
				least = child
			}
		}
		if least == i {
			return top
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// at has something happen at a time, at once if that is over.
func (a *agenda) at(t time.Time, do func()) {
	a.seq++
	a.events.push(event{later(t, a.now), a.seq, do})
}

// after has something happen after a while.
func (a *agenda) after(d time.Duration, do func()) { a.at(a.now.Add(d), do) }

// run goes on until nothing more happens before end, or stop says so.
func (a *agenda) run(end time.Time, stop func() bool) {
	for len(a.events) > 0 && !a.events[0].at.After(end) && (stop == nil || !stop()) {
		e := a.events.pop()
		a.now = e.at
		e.do()
	}
	if stop == nil || !stop() {
		a.now = later(a.now, end)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// sooner is the earlier of two times of which the zero time is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// dueKey names a due row.
type dueKey struct {
	kind string
	id   int
}

// dueRow is work at a time; while somebody works on it, leaseNo is the fence, and woken is a wake-up that came
// meanwhile.
type dueRow struct {
	key     dueKey
	at      time.Time
	leaseNo int
	holder  *process
	woken   time.Time
}

// leaseFor is how long a row stays with a process that is silent.
const leaseFor = 20 * time.Second

// wake has a row looked at at a time, or before.
func (w *world) wake(key dueKey, at time.Time) {
	at = later(at, w.now)
	r := w.due[key]
	switch {
	case r == nil:
		r = &dueRow{key: key, at: at}
		w.due[key] = r
	case r.holder != nil:
		r.woken = sooner(r.woken, at)
		if ps := w.passing[key]; ps != nil && !at.After(w.now) {
			ps.poke(glance)
		}
		return
	case !at.Before(r.at):
		return
	}
	r.at = at
	w.at(at, func() { w.take(r) })
}

// take gives a due row to a process.
func (w *world) take(r *dueRow) {
	if w.due[r.key] != r || r.holder != nil || r.at.After(w.now) {
		return
	}
	p := w.processes[w.r.IntN(len(w.processes))]
	if !p.works(w.now) {
		w.after(time.Duration(1+w.r.IntN(1000))*time.Millisecond, func() { w.take(r) })
		return
	}
	w.leases++
	r.leaseNo, r.holder, r.woken = w.leases, p, time.Time{}
	w.handle(p, r, r.leaseNo)
}

// finish ends the work on a row; next is when to come back, zero for never.
func (w *world) finish(r *dueRow, leaseNo int, next time.Time) {
	if r.leaseNo != leaseNo || r.holder == nil {
		return // somebody else has it
	}
	r.holder = nil
	if next = sooner(next, r.woken); next.IsZero() {
		delete(w.due, r.key)
		return
	}
	r.at = later(next, w.now)
	w.at(r.at, func() { w.take(r) })
}

// lose has the rows of a silent process go to others when their leases are over, unless it works again by then.
func (w *world) lose(p *process) {
	epoch := p.epoch
	w.after(leaseFor, func() {
		if p.epoch == epoch && p.works(w.now) {
			return
		}
		for _, key := range w.dueOf(p) {
			r := w.due[key]
			r.holder, r.at = nil, w.now
			w.take(r)
		}
	})
}

package forecast

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"flowlane/internal/moment"
	"flowlane/internal/pacing"
)

const (
	// pacedMost bounds how many paced queues are played tick by tick.
	pacedMost = 30
	// portionsMost bounds how finely the releases of paced queues are played, of one and of all together.
	portionsMost, portionsAll = 1000, 20_000
	// endsMost bounds how many different ends of holds are told apart.
	endsMost = 100
)

// waitingWork is work of some queues; paced tells of a queue that a policy releases.
type waitingWork struct {
	Work
	// by is when the last of it can go at once, where some waits for longer than From.
	by    time.Time
	paced *Paced
}

// from is when the work can go: the first of it, or all.
func (w *waitingWork) from(early bool) time.Time {
	if early {
		return w.From
	}
	return moment.Later(w.From, w.by)
}

// portion is calls that are released together, between two times: where many are taken together, the first and the last
// of them.
type portion struct {
	from, to time.Time
	calls    int64
}

// Paced is a queue of which a policy releases so many records at each tick.
type Paced struct {
	Policy *pacing.Policy
	// Records wait, and PerCall of them go in one call.
	Records int64
	PerCall int
	// Allowance is what the last tick left, until LapsesAt; NextAt is when the next tick is due.
	Allowance        int64
	LapsesAt, NextAt time.Time
}

// Work is what waits in the queue, which is held up to from.
func (p *Paced) Work(now, from time.Time) Work {
	each := calls(p.Policy.Records, p.PerCall)
	t := ticks{Paced: p, each: each, start: moment.Later(now, from), tick: p.NextAt}
	left, all := p.Records, int64(0)
	if p.Allowance > 0 && p.LapsesAt.After(t.start) {
		now := min(p.Allowance, left)
		left, all = left-now, calls(now, p.PerCall)
		t.add(t.start, all)
		if p.LapsesAt.Before(t.tick) {
			t.add(p.LapsesAt, 0)
		}
	}
	t.tick = p.Policy.Tick(t.tick, t.start)
	all += left/p.Policy.Records*each + calls(left%p.Policy.Records, p.PerCall)
	return Work{Calls: all, From: from, Lapses: true, Release: t.release}
}

// ticks are what a policy gives, as far as somebody asked.
type ticks struct {
	*Paced
	// each is how many calls a tick gives, start from when on there is something to give, tick the next one that is not
	// known.
	each        int64
	start, tick time.Time
	known       []portion
}

// add notes what there is from a time on, in place of what there was from then on.
func (t *ticks) add(at time.Time, n int64) {
	if last := len(t.known) - 1; last >= 0 && !at.After(t.known[last].from) {
		t.known = t.known[:last]
	}
	t.known = append(t.known, portion{from: at, calls: n})
}

// release gives the first portion after a time: what a tick gives, or nothing when that lapses before the next one.
func (t *ticks) release(after time.Time) (at time.Time, n int64) {
	for {
		// The next tick may take the place of the last portion.
		i := sort.Search(len(t.known), func(i int) bool { return t.known[i].from.After(after) })
		if i < len(t.known)-1 {
			return t.known[i].from, t.known[i].calls
		}
		next, lapses := t.Policy.Next(t.tick), t.Policy.Lapses(t.tick)
		if lapses.After(t.start) {
			t.add(moment.Later(t.tick, t.start), t.each)
			if lapses.Before(next) {
				t.add(lapses, 0)
			}
		}
		t.tick = next
	}
}

// releases returns the calls of a paced queue as its ticks release them, from a time on, as if all of them could go
// then. Where there are more than most, some come together.
func (p *Paced) releases(now, from time.Time, most int64) []portion {
	var out []portion
	left, due := p.Records, p.NextAt
	if p.Allowance > 0 && p.LapsesAt.After(now) && !from.After(now) {
		n := min(p.Allowance, left)
		out = append(out, portion{now, now, calls(n, p.PerCall)})
		left -= n
	}
	if due.Before(now) { // what was not released in time is gone, but for the last of it
		due = p.Policy.Tick(due, now)
	}
	for due.Before(from) { // what is released under a hold lapses
		due = p.Policy.Next(p.Policy.Tick(due, from))
	}
	each := p.Policy.Records
	ticks := (left + each - 1) / each
	together := (ticks + most - 1) / most
	for done := int64(0); done < ticks; {
		n := min(together, ticks-done)
		records := min(n*each, left)
		left -= records
		q := portion{from: moment.Later(p.Policy.Through(due, done*each+1), now),
			calls: records/each*calls(each, p.PerCall) + calls(records%each, p.PerCall)}
		done += n
		if q.to = q.from; n > 1 {
			q.to = p.Policy.Through(due, done*each)
		}
		out = append(out, q)
	}
	return out
}

// together are works with those merged that wait for the same. What waits for very many different times is taken
// together so that it errs late: what is waited for comes at the last of them, and what goes before it at the first.
// asBackground makes all of it go before. Of very many paced queues the longest are played as they are; what lapses of
// the others is not made out.
func together(now time.Time, work []waitingWork, asBackground bool) []Work {
	kinds := map[kind][]waitingWork{}
	for _, w := range work {
		k := kind{w.Background || asBackground && !w.Others, w.Others}
		kinds[k] = append(kinds[k], w)
	}
	var out []Work
	for _, k := range []kind{{others: true}, {background: true}, {}} {
		for _, w := range merged(now, kinds[k], k != kind{}) {
			w.Background, w.Others = k.background, k.others
			out = append(out, w)
		}
	}
	return out
}

// kind is what work is to what is waited for.
type kind struct{ background, others bool }

// merged is work of one kind; early makes it err early.
func merged(now time.Time, work []waitingWork, early bool) (out []Work) {
	var held, released []portion
	var paced []waitingWork
	for _, w := range work {
		if w.paced != nil {
			paced = append(paced, w)
		} else {
			held = append(held, portion{w.from(true), w.from(false), w.Calls})
		}
	}
	for _, p := range merge(held, endsMost) {
		out = append(out, Work{Calls: p.calls, From: p.at(early)})
	}
	slices.SortStableFunc(paced, func(a, b waitingWork) int { return cmp.Compare(b.paced.Records, a.paced.Records) })
	exact := min(len(paced), pacedMost)
	for _, w := range paced[:exact] {
		out = append(out, w.paced.Work(now, w.from(early)))
	}
	most := min(max(portionsAll/int64(max(len(paced)-exact, 1)), 1), portionsMost)
	for _, w := range paced[exact:] {
		released = append(released, w.paced.releases(now, w.from(early), most)...)
	}
	if released = merge(released, portionsMost); len(released) > 0 {
		out = append(out, inPortions(released, early))
	}
	return out
}

// at is when the portion counts as released.
func (p *portion) at(early bool) time.Time {
	if early {
		return p.from
	}
	return p.to
}

// merge puts portions in order and takes those of the same time together, and others where there are more than most.
func merge(list []portion, most int) []portion {
	slices.SortFunc(list, func(a, b portion) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
	var out []portion
	for _, p := range list {
		if last := len(out) - 1; last >= 0 && out[last].from.Equal(p.from) && out[last].to.Equal(p.to) {
			out[last].calls += p.calls
			continue
		}
		out = append(out, p)
	}
	if len(out) <= most {
		return out
	}
	size := (len(out) + most - 1) / most
	var few []portion
	for chunk := range slices.Chunk(out, size) {
		p := portion{from: chunk[0].from}
		for _, q := range chunk {
			p.calls += q.calls
			if q.to.After(p.to) {
				p.to = q.to
			}
		}
		few = append(few, p)
	}
	return few
}

// inPortions is work that comes in portions.
func inPortions(list []portion, early bool) Work {
	slices.SortStableFunc(list, func(a, b portion) int { return a.at(early).Compare(b.at(early)) })
	var w Work
	for _, p := range list {
		w.Calls += p.calls
	}
	w.Release = func(after time.Time) (time.Time, int64) {
		i := sort.Search(len(list), func(i int) bool { return list[i].at(early).After(after) })
		if i == len(list) {
			return time.Time{}, math.MaxInt64
		}
		at, calls := list[i].at(early), int64(0)
		for ; i < len(list) && list[i].at(early).Equal(at); i++ {
			calls += list[i].calls
		}
		return at, calls
	}
	return w
}

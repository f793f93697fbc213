package forecast

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/pacing"
)

const (
	// portionsMost bounds how finely the releases of paced queues are played, of one and of all together.
	portionsMost, portionsAll = 1000, 20_000
	// endsMost bounds how many different ends of holds are told apart.
	endsMost = 100
)

// waitingWork is work of some queues; that of a paced one comes in portions, in place of all of it at From.
type waitingWork struct {
	Work
	portions []portion
}

// portion is calls that are released together, between two times: where many are taken together, the first and the last of them.
type portion struct {
	from, to time.Time
	calls    int64
}

// portionsOf is into how many portions the releases of each paced queue are cut where so many of them wait.
func portionsOf(rows []db.QueueWaitsRow) int64 {
	paced := int64(0)
	for i := range rows {
		if rows[i].Pacing != nil {
			paced++
		}
	}
	return min(max(portionsAll/max(paced, 1), 1), portionsMost)
}

// releases returns the calls of a paced queue as its ticks release them, from a time on. Where there are more than most, some come
// together.
func releases(p *pacing.Policy, now, from time.Time, r *db.QueueWaitsRow, perCall int, most int64) []portion {
	var out []portion
	left, due := r.Records, now
	if r.PaceNextAt != nil {
		due = *r.PaceNextAt
	}
	if r.Allowance > 0 && r.LapsesAt.After(now) && !from.After(now) {
		n := min(r.Allowance, left)
		out = append(out, portion{now, now, calls(n, perCall)})
		left -= n
	}
	if due.Before(now) { // what was not released in time is gone, but for the last of it
		due = p.Tick(due, now)
	}
	for due.Before(from) { // what is released under a hold lapses
		due = p.Next(p.Tick(due, from))
	}
	ticks := (left + p.Records - 1) / p.Records
	together := (ticks + most - 1) / most
	for done := int64(0); done < ticks; {
		n := min(together, ticks-done)
		records := min(n*p.Records, left)
		left -= records
		q := portion{from: later(p.Through(due, done*p.Records+1), now), calls: records/p.Records*calls(p.Records, perCall) + calls(records%p.Records, perCall)}
		done += n
		if q.to = q.from; n > 1 {
			q.to = p.Through(due, done*p.Records)
		}
		out = append(out, q)
	}
	return out
}

// together are works with those merged that wait for the same. What waits for very many different times is taken together so that
// it errs late: what is waited for comes at the last of them, and what goes before it at the first. asBackground makes all of it
// go before.
func together(work []waitingWork, asBackground bool) []Work {
	var out []Work
	for _, background := range []bool{true, false} {
		var held, paced []portion
		for _, w := range work {
			switch {
			case (w.Background || asBackground) != background:
			case w.portions != nil:
				paced = append(paced, w.portions...)
			default:
				held = append(held, portion{w.From, w.From, w.Calls})
			}
		}
		for _, p := range merge(held, endsMost) {
			out = append(out, Work{Calls: p.calls, From: p.at(background), Background: background})
		}
		if paced = merge(paced, portionsMost); len(paced) > 0 {
			out = append(out, released(paced, background))
		}
	}
	return out
}

// at is when the portion counts as released.
func (p *portion) at(background bool) time.Time {
	if background {
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

// released is work that comes in portions.
func released(list []portion, background bool) Work {
	slices.SortStableFunc(list, func(a, b portion) int { return a.at(background).Compare(b.at(background)) })
	w := Work{Background: background}
	for _, p := range list {
		w.Calls += p.calls
	}
	w.Release = func(after time.Time) (time.Time, int64) {
		i := sort.Search(len(list), func(i int) bool { return list[i].at(background).After(after) })
		if i == len(list) {
			return time.Time{}, math.MaxInt64
		}
		at, calls := list[i].at(background), int64(0)
		for ; i < len(list) && list[i].at(background).Equal(at); i++ {
			calls += list[i].calls
		}
		return at, calls
	}
	return w
}

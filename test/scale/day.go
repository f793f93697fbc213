package main

import (
	"math/rand/v2"
)

// size is what a cell has: processors for Postgres and for the service, bytes a second that its log may write, bytes of
// disk.
type size struct {
	name                         string
	postgres, service, log, disk float64
}

// demand is what a cell is asked for in each step, starts apart: they are what somebody waits for.
type demand struct{ starts, rest [steps]cost }

// result is how the day went in the fullest cell.
type result struct {
	cells int
	size  size
	// postgres, service and log are what the busiest five minutes took of the cell's, starts alone: what can wait,
	// waits for its turn.
	postgres, service, log float64
	// late is for how many seconds starts waited at most, done for how many large batches and their calls did.
	late, done float64
	// kept is which share of the disk is taken once as much is deleted as comes.
	kept float64
}

// full is what is full first when there is more of the same, and with how many times as much.
func (r *result) full() (what string, times float64) {
	for _, of := range []struct {
		what  string
		share float64
	}{{"Postgres", r.postgres / most}, {"service", r.service / most}, {"log", r.log / most}, {"disk", r.kept / mostKept}} {
		if times == 0 || 1/of.share < times {
			what, times = of.what, 1/of.share
		}
	}
	return what, times
}

// live has a day pass in so many cells.
func live(l load, s size, cells int) result {
	random := rand.New(rand.NewPCG(1, 2))
	orgs := l.spread(random)
	demands := make([]demand, cells)
	all := make([]cost, cells)
	small := make([]org, cells) // those whose starts never meet, as one
	for i := range orgs {
		o := &orgs[i]
		o.cell = random.IntN(cells)
		if o.starts/steps/step*together < 0.01 {
			small[o.cell].starts += o.starts
			o.starts = 0
		}
		sum := o.ask(&demands[o.cell], start)
		all[o.cell] = all[o.cell].plus(sum)
	}
	for i := range small {
		all[i] = all[i].plus(small[i].ask(&demands[i], func(float64) cost { return lone }))
	}
	out := result{cells: cells, size: s}
	for i := range demands {
		out.worst(&demands[i], all[i])
	}
	return out
}

// ask spreads what an organization does over the day, and returns its sum. A large batch comes at once; what a start
// costs depends on how many there are a second.
func (o *org) ask(d *demand, start func(rate float64) cost) (sum cost) {
	for at := range steps {
		n := o.starts / steps * busy(at)
		if n == 0 {
			break
		}
		c := start(n / step).times(n)
		d.starts[at] = d.starts[at].plus(c)
		sum = sum.plus(c)
	}
	for _, at := range o.batches {
		n := float64(len(o.batches))
		c := bulk.times(o.bulk / n).plus(call.times(o.calls / n))
		d.rest[at] = d.rest[at].plus(c)
		sum = sum.plus(c)
	}
	return sum
}

// days is for how long results are kept, most which share of processors and log may be taken at noon, mostKept which of
// the disk: the rest is for days like no other, for vacuum, and for a backup under way.
const (
	days     = 30
	most     = 0.7
	mostKept = 0.7
)

// busiest is the length, in steps, of the time over which the busiest part is taken.
const busiest = 300 / step

// worst notes how the day went in a cell where it went worse than in those before. Starts go first; what they leave is
// for batches and their calls.
func (r *result) worst(d *demand, day cost) {
	s := r.size
	var late, rest, window cost
	var peak cost
	var lateness, longest float64
	for at := range steps {
		late = late.plus(d.starts[at])
		rest = rest.plus(d.rest[at])
		window = window.plus(d.starts[at])
		if at >= busiest {
			window = window.plus(d.starts[at-busiest].times(-1))
		}
		peak.postgres = max(peak.postgres, window.postgres)
		peak.service = max(peak.service, window.service)
		peak.log = max(peak.log, window.log)
		spent := s.take(&late, cost{s.postgres * step, s.service * step, s.log * step, 0})
		s.take(&rest, cost{s.postgres*step - spent.postgres, s.service*step - spent.service, s.log*step - spent.log, 0})
		lateness = max(lateness, s.seconds(late))
		longest = max(longest, s.seconds(rest))
	}
	r.postgres = max(r.postgres, peak.postgres/(s.postgres*step*busiest))
	r.service = max(r.service, peak.service/(s.service*step*busiest))
	r.log = max(r.log, peak.log/(s.log*step*busiest))
	r.late, r.done = max(r.late, lateness), max(r.done, longest)
	r.kept = max(r.kept, day.kept*days/s.disk)
}

// take works off as much of what waits as there is room for, and returns what that took.
func (s size) take(waits *cost, room cost) (spent cost) {
	part := 1.0
	for _, of := range [][2]float64{
		{waits.postgres, room.postgres}, {waits.service, room.service}, {waits.log, room.log},
	} {
		if of[0] > 0 {
			part = min(part, max(0, of[1])/of[0])
		}
	}
	spent = waits.times(part)
	*waits = waits.plus(spent.times(-1))
	return spent
}

// seconds is how long the cell has to do with what waits.
func (s size) seconds(waits cost) float64 {
	return max(waits.postgres/s.postgres, waits.service/s.service, waits.log/s.log)
}

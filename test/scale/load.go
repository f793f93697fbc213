package main

import (
	"math"
	"math/rand/v2"
)

// load is what all organizations together do in a day.
type load struct {
	organizations int
	// records a day, and which share of them come as records with a call of their own, and as starts of flows.
	records, calls, starts float64
	// skew is the exponent of Zipf's law by which records are shared out: 1 gives the largest of 100,000 a twelfth.
	skew float64
}

// billion is the load that docs/scale.md reckons with.
var billion = load{organizations: 100_000, records: 1e9, calls: 0.15, starts: 0.05, skew: 1}

// org is what an organization does in a day.
type org struct {
	bulk, calls, starts float64
	// batches are the steps of the day at which its large batches begin.
	batches []int
	cell    int
}

// step is the resolution of a day in seconds.
const (
	step  = 10
	steps = 24 * 3600 / step
)

// spread shares the load out. Who is large sends batches; who is small starts flows one by one.
func (l load) spread(random *rand.Rand) []org {
	out := make([]org, l.organizations)
	var volumes, smallness float64
	weigh := func(i int) float64 { return math.Pow(float64(i+1), -l.skew) }
	for i := range out {
		volumes += weigh(i)
		smallness += math.Sqrt(weigh(i))
	}
	for i := range out {
		share, small := weigh(i)/volumes, math.Sqrt(weigh(i))/smallness
		o := &out[i]
		o.bulk = l.records * (1 - l.calls - l.starts) * share
		o.calls = l.records * l.calls * share
		o.starts = l.records * l.starts * small
		for range 1 + int(math.Log10(1+o.bulk)) {
			hour := 7 + random.IntN(12)
			o.batches = append(o.batches, (hour*3600+random.IntN(300))/step)
		}
	}
	return out
}

// busy is how busy a time of the day is, on average 1: three times as much at noon as at night.
func busy(at int) float64 {
	return 1 - 0.5*math.Cos(2*math.Pi*float64(at)/steps)
}

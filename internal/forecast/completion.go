package forecast

import (
	"maps"
	"slices"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/moment"
	"flowlane/internal/quota"
)

// Completion is when the work of a budget will be done, if nothing is added and nobody steers.
type Completion struct {
	// At is nil where that cannot be told, and Unknown says why.
	At      *time.Time
	Unknown Unknown
	Drained
	// HoldCauses are what holds some of it, in order.
	HoldCauses []string
	Caveats    []string
	// Paced is how many paced batches have work here.
	Paced int
	// cost is the most that a call of it costs.
	cost int
}

// Unknown is why nobody can tell when work will be done.
type Unknown string

// The reasons.
const (
	// UnknownPaused: all of it is held until a person releases it.
	UnknownPaused Unknown = "paused_indefinitely"
	// UnknownEscalated: others spend what is nearly exhausted.
	UnknownEscalated Unknown = "escalated_near_exhaustion"
	// UnknownNoCap: the budget lets it through within no year.
	UnknownNoCap Unknown = "no_effective_cap"
)

// CaveatCalls: calls are counted as if no two batches shared one.
const CaveatCalls = "estimated_calls_pre_coalescing_projection"

// CaveatSample: not every call can be told before it is rendered.
const CaveatSample = "batch_sample_truncated"

// completion says when what waits for a budget will be done.
func (w *waiting) completion(b *backlog, k bucket, caps quota.Caps) Completion {
	c := Completion{HoldCauses: []string{}, Caveats: []string{}, Paced: w.paced}
	c.HoldCauses = slices.AppendSeq(c.HoldCauses, maps.Keys(w.causes))
	rate := b.rate(k, caps, w, w.inFlight)
	if cause := b.delays[k.name].backoff; cause != "" && w.depth.Records > 0 {
		c.HoldCauses = append(c.HoldCauses, cause)
	}
	slices.Sort(c.HoldCauses)
	if w.depth.Records > 0 {
		c.Caveats = append(c.Caveats, CaveatCalls)
	}
	if w.guessed || w.sampled {
		c.Caveats = append(c.Caveats, CaveatSample)
	}
	c.cost = w.cost
	c.finish(b, k.name, caps, rate, together(b.spend.now, w.work, false), w.depth.Records > 0)
	return c
}

// behind says when the calls of an estimate will be done, once everything that waits now went before them, and what
// holds them is over. Of what waits, work that is held without an end is not waited for. Where no lane is chosen each
// may be: then all limits of lanes are reckoned with.
func (w *waiting) behind(b *backlog, k bucket, caps quota.Caps, e *Estimate, held db.LanesPausedUntilRow) Completion {
	c := Completion{HoldCauses: []string{}, Caveats: []string{}, Paced: len(e.paced)}
	inFlight, all := w.inFlight, *w
	all.timeout, all.exclusive, all.cost = max(w.timeout, e.timeout), w.exclusive || e.exclusive, max(w.cost, e.cost)
	all.made = maps.Clone(w.made)
	for action, calls := range e.made {
		all.made[maker{action: action}] += calls
	}
	if len(e.made) == 0 {
		all.made[maker{action: b.pace[k.name].slowest()}] += e.most
	}
	c.cost = all.cost
	for l := range b.atOnce {
		if len(e.lanes) == 0 || slices.Contains(e.lanes, l) {
			inFlight = b.inLane(inFlight, l)
		}
	}
	rate := b.rate(k, caps, &all, inFlight)
	rate.Steps = e.steps
	if e.Calls == 0 {
		c.finish(b, k.name, caps, rate, nil, false)
		return c
	}
	c.Caveats = append(c.Caveats, CaveatCalls)
	c.HoldCauses = append(c.HoldCauses, held.Causes...)
	if cause := b.delays[k.name].backoff; cause != "" {
		c.HoldCauses = append(c.HoldCauses, cause)
	}
	slices.Sort(c.HoldCauses)
	if held.Until.Year() >= endlessYear {
		c.finish(b, k.name, caps, rate, nil, true)
		return c
	}
	work, from := together(b.spend.now, w.work, true), moment.Later(e.from, held.Until)
	for i := range e.paced {
		work = append(work, e.paced[i].Work(b.spend.now, from))
	}
	if len(e.paced) == 0 {
		work = append(work, Work{Calls: e.most, From: from})
	}
	c.finish(b, k.name, caps, rate, work, false)
	if c.At != nil { // as if all waited at the end: who goes later finds no less room
		*c.At = c.At.Add(e.waits)
	}
	return c
}

// all is when records are done that need what c and o say: as and, and held where one of them is.
func (c Completion) all(o Completion) Completion {
	if o.Unknown == UnknownPaused && c.Unknown == "" {
		o.Caveats, o.Paced = c.Caveats, max(c.Paced, o.Paced)
		return o
	}
	if c.Source == SourceEmpty {
		return o
	}
	return c.and(o)
}

// and is when work is done that may spend another budget, too, whose work is done as o says: by the later of the two
// and, where both make it wait, no later than if the one began when the other ends.
func (c Completion) and(o Completion) Completion {
	if o.Unknown == UnknownPaused || o.Source == SourceEmpty {
		return c
	}
	for _, cause := range o.HoldCauses {
		if !slices.Contains(c.HoldCauses, cause) {
			c.HoldCauses = append(slices.Clone(c.HoldCauses), cause)
		}
	}
	slices.Sort(c.HoldCauses)
	switch {
	case c.Unknown != "":
		return c
	case o.At == nil:
		c.At, c.Unknown, c.Drained = nil, o.Unknown, o.Drained
		return c
	}
	first := min(c.waits, o.waits)
	if o.At.After(*c.At) {
		c.Drained = o.Drained
	}
	c.waits += first
	c.Drained.At = c.Drained.At.Add(first)
	c.At = &c.Drained.At
	return c
}

// finish plays the work forward. waits tells that some is there, be it held without an end.
func (c *Completion) finish(b *backlog, bucket string, caps quota.Caps, rate Rate, work []Work, waits bool) {
	calls := int64(0)
	for _, k := range work {
		if k.awaited() {
			calls += k.Calls
		}
	}
	c.Drained = Drain(b.spend.now, rate, work)
	switch {
	case waits && calls == 0:
		c.Unknown, c.Source = UnknownPaused, SourceHold
	case contested(b.spend.current(bucket, caps), calls*int64(max(c.cost, 1))):
		c.Unknown = UnknownEscalated
	case c.Drained.At.IsZero():
		c.Unknown = UnknownNoCap
	default:
		c.At = &c.Drained.At
	}
}

// contested tells that a window is nearly spent of which others spend, too, and which the work does not fit into: how
// much they will leave of it nobody can tell.
func contested(spans []quota.Window, units int64) bool {
	for i := range spans {
		if s := &spans[i]; s.Foreign > 0 && units > int64(s.Remaining()) && quota.Escalated(spans[i:i+1]) {
			return true
		}
	}
	return false
}

package forecast

import (
	"maps"
	"math"
	"slices"
	"time"

	"flowlane/internal/dispatch"
	"flowlane/internal/moment"
	"flowlane/internal/quota"
)

// horizon is how far Drain looks ahead: what takes longer is not promised at all.
const horizon = 366 * 24 * time.Hour

// Rate is everything that decides how fast the calls of one budget may go.
type Rate struct {
	// Caps are the effective caps in calls, by window length in seconds, and Loc the zone whose clock windows follow.
	Caps map[int]int
	Loc  *time.Location
	// Used says what is spent already of the window of this length that begins at start.
	Used func(seconds int, start time.Time) int
	// Rolling are the windows that roll.
	Rolling []Rolling
	// Skew is how far the provider's clock may be from ours: near the edge of a window a call counts on both sides.
	Skew time.Duration
	// Delay is what keeps all calls now, besides windows.
	Delay quota.Delay
	// Spacing is the least time between two calls.
	Spacing time.Duration
	// Latency is how long most calls are under way at most, Longest how long any may be, and InFlight how many may be
	// at once. CountsFor is how long after it was claimed a call may count in a window. Own is how many the
	// organization that asks may have under way, of all that may be; 0 for no such bound.
	Latency, Longest, CountsFor time.Duration
	InFlight, Own               int
	// UnderWay is how many are now.
	UnderWay int
	// Others is how many other organizations have work here. Each has at most as large a share as the one that asks.
	Others int
	// Wake is how late the dispatcher may be after a time that it waits for.
	Wake time.Duration
	// Idle is how long it takes at most from now to the answers of calls that all go at once; zero where nobody knows.
	Idle time.Duration
	// Steps is how many calls a record takes one after another; 0 for one.
	Steps int
	// Young is how long a call may be missing in the provider's counters, which are read before each call near
	// exhaustion; zero where there are none.
	Young time.Duration
	// Recent is how many calls a reading may count twice that went before now: within Settled.
	Recent int
}

// Work is calls that wait under the same conditions.
type Work struct {
	// Calls is how many.
	Calls int64
	// From is when a hold on it ends; zero where nobody holds it.
	From time.Time
	// Release gives the calls in portions: the next one after a time, and when. It must move on. Nil gives all of them
	// at From.
	Release func(after time.Time) (at time.Time, calls int64)
	// Lapses: what is not used of a portion goes back when the next one comes, be it of none. Then Release must never
	// end.
	Lapses bool
	// Background is work that goes before what is waited for, and Others work of other organizations: neither is waited
	// for.
	Background, Others bool
}

// Source is what keeps a queue from being done sooner.
type Source string

// The sources.
const (
	SourceWindow  Source = "window"
	SourceSpacing Source = "spacing"
	SourcePacing  Source = "pacing"
	SourceHold    Source = "hold"
	SourceEmpty   Source = "empty"
)

// sourceOf is what is told of a reason: who waits cannot change whether people or the provider close a budget.
func sourceOf(reason quota.Reason) Source {
	switch reason {
	case quota.ReasonBackoff, quota.ReasonPause:
		return SourceHold
	case quota.ReasonPacing:
		return SourcePacing
	case quota.ReasonSpacing:
		return SourceSpacing
	case quota.ReasonWindow:
	}
	return SourceWindow
}

// Drained is when the work of a budget is done, and what it waits for most.
type Drained struct {
	// At is when the last call has its answer; zero where that is past the horizon.
	At time.Time
	// Source binds; Window is the length in seconds of the window that binds, or would first; 0 for a budget without
	// windows.
	Source Source
	Window int
	// waits is how long the last call waits for its turn; zero where all go at once.
	waits time.Duration
}

// Drain says when work will be done that waits now, if nothing else comes and nobody steers. It plays the dispatcher's
// own rules forward and takes the later of two possibilities wherever it has to choose, so that it errs late:
// background work goes first, a call near the edge of a window counts in both, and each wait ends as late as the
// dispatcher may notice. Which of the work that lapses comes last, and whether all else goes as soon as it can, it
// tries out.
func Drain(now time.Time, rate Rate, work []Work) Drained {
	return drainWithin(mostEffort, now, rate, work)
}

// drainWithin is Drain that plays forward as long as that costs no more than an effort.
func drainWithin(effort int, now time.Time, rate Rate, work []Work) (out Drained) {
	orders := orders(now, work)
	for i, o := range orders {
		d := drainOnce(effort/len(orders), now, rate, work, o)
		if i == 0 || d.At.IsZero() || !out.At.IsZero() && d.At.After(out.At) {
			out = d
		}
	}
	return out
}

// drainOnce is Drain where the work goes in an order.
func drainOnce(effort int, now time.Time, rate Rate, work []Work, o order) Drained {
	d := drain{Rate: rate, order: o, at: now, sentAt: now, own: map[spanKey]int{}, waited: map[Source]time.Duration{},
		bound: map[int]time.Duration{}, lengths: quota.Lengths(rate.Caps), windows: make([]touched, len(rate.Caps)),
		rolling: slices.Clone(rate.Rolling)}
	d.refreshWindows()
	d.queue(work)
	d.tightest, d.ahead = tightest(slices.Concat(d.spans, rolled(rate.Rolling))), d.lead()
	if rate.Recent > 0 {
		d.young = append(d.young, portion{from: now, to: now, calls: int64(rate.Recent)})
	}
	if d.left == 0 {
		return Drained{At: now, Source: SourceEmpty, Window: d.tightest}
	}
	if shut := d.shut(); shut > 0 {
		return Drained{Source: SourceWindow, Window: shut}
	}
	d.wait(rate.Delay)
	for end := now.Add(horizon); d.left > 0 || d.missed(now); {
		if d.at.After(end) {
			return Drained{Source: d.source(), Window: d.window()}
		}
		if d.effort += len(d.supply) + stepEffort; d.effort > effort {
			return d.beyond(now)
		}
		d.step()
	}
	if d.last >= 0 {
		d.at = d.at.Add(d.at.Sub(now) / disorder)
	}
	at, waits := d.at.Add(rate.each(rate.Longest+rate.Wake)), time.Duration(0)
	if d.kept {
		waits = d.at.Sub(now)
	}
	if rate.Idle > 0 && !d.kept && rate.Spacing == 0 && d.sent+int64(rate.UnderWay) <= int64(d.atOnce()) {
		at = moment.Earlier(at, now.Add(rate.each(rate.Idle)))
	}
	return Drained{At: at, Source: d.source(), Window: d.window(), waits: waits}
}

const (
	// mostEffort bounds what a run may cost: a step looks at all work, and the rest of it is as much as this.
	mostEffort, stepEffort = 800_000, 20
	// unplayed is how much later it may be than it was so far where the rest is not played: weeks differ by their days.
	unplayed = 7 * 24 * time.Hour
	// disorder is what part of its time more it may take where several works lapse: in what order they go decides which
	// portions are missed. Where that takes long, one of the last work is.
	disorder, long = 32, 48 * time.Hour
	// contention is of how many calls one misses its portion more where more than two organizations share the budget.
	contention = 16
	// portionsAhead is how many portions are looked at for one that is there when windows change.
	portionsAhead = 16
)

// beyond says when the rest is done where to play it would cost too much: it goes as slowly as the slowest of it went
// so far.
func (d *drain) beyond(now time.Time) Drained {
	out := Drained{Source: d.source(), Window: d.window()}
	took, ours, slowest := float64(d.at.Sub(now)), int64(0), 0.0
	for i := range d.supply {
		s := &d.supply[i]
		if s.Others {
			continue
		}
		ours += s.Calls + s.ready
		if s.taken > 0 {
			slowest = max(slowest, float64(s.Calls+s.ready)/float64(s.taken))
		}
	}
	if d.sent == 0 {
		return out
	}
	slowest = max(slowest, float64(ours)*float64(1+d.Rate.Others)/float64(d.sent))
	if more := took*slowest + float64(unplayed); more < float64(now.Add(horizon).Sub(d.at)) {
		out.At = d.at.Add(time.Duration(more))
		out.waits = out.At.Sub(now)
	}
	return out
}

// each is how long calls take that follow each other, where one takes so long.
func (r *Rate) each(d time.Duration) time.Duration { return time.Duration(max(r.Steps, 1)) * d }

// awaited reports whether the work is what is waited for.
func (w *Work) awaited() bool { return !w.Background && !w.Others }

type spanKey struct {
	seconds int
	start   int64
}

// drain is a run of Drain.
type drain struct {
	Rate
	order
	at     time.Time
	supply []supply
	// again tells that the last work has missed a portion.
	again bool
	// left are the calls that are waited for.
	left int64
	// own is what windows hold that no call counts in at the moment, spans those that one counts in until they change.
	own    map[spanKey]int
	spans  []quota.Window
	change time.Time
	// windows are spans by length, lengths theirs in order.
	windows []touched
	lengths []int
	// rolling are the rolling windows as this run has used them.
	rolling []Rolling
	// waited is the time spent on each source, bound that on each window; tightest is the window with the least left at
	// first.
	waited   map[Source]time.Duration
	bound    map[int]time.Duration
	tightest int
	// sentAt is when the last call went; the one before this run may be as young as can be. read tells that the
	// provider's counters were read since.
	sentAt time.Time
	read   bool
	// kept tells that something was waited for.
	kept bool
	// each: the counters are read for what goes now.
	each bool
	// young are the calls of this run that a reading may miss.
	young []portion
	// ahead is how many calls of other organizations may still go before any of this one, beyond their share.
	ahead int64
	// owed tells that the call before this one was this organization's turn, and went to others.
	owed bool
	// effort is what the run has cost. sent are all calls of this run, hour how it stood when the current hour began.
	effort int
	sent   int64
	hour   hour
}

// step sends what may go now, or waits.
func (d *drain) step() {
	ready, next := d.release()
	switch {
	case ready == 0 && !next.Until.After(d.at): // nothing comes any more
		d.at = d.at.Add(2 * horizon)
		return
	case ready == 0:
		d.wait(next)
		return
	}
	d.refreshWindows()
	if next.IsZero() {
		ours, _ := d.ready()
		d.skipHours(ours)
	}
	grant := quota.Decide(d.at, d.spans, int(min(ready, math.MaxInt32)))
	if grant.Calls == 0 {
		d.wait(grant.Delay)
		return
	}
	n, per := int64(grant.Calls), d.interval()
	if n = d.roll(n); n == 0 {
		return
	}
	if per > 0 { // until windows change, or more comes that may go first
		until := d.change
		if !next.IsZero() {
			until = moment.Earlier(until, next.Until)
		}
		n = min(n, int64((until.Sub(d.at)+per-1)/per))
	}
	if n = d.betweenReadings(n); n == 0 {
		return
	}
	if d.each && per > quota.ReadingHoldsFor { // calls so far apart that each has a look of its own
		per += dispatch.LookFor
		n = max(1, min(n, int64(d.change.Sub(d.at)/per)))
	}
	for i := range d.spans {
		d.spans[i].Own += int(n)
	}
	d.take(n)
	d.rollOn(n, d.at.Add(time.Duration(n)*per))
	if d.Young > 0 {
		d.young = append(d.young, portion{from: d.at, to: d.at.Add(time.Duration(n) * per), calls: n})
	}
	d.at = d.at.Add(time.Duration(n) * per)
	if d.Spacing > 0 && per >= d.Spacing && d.Spacing >= d.Latency/time.Duration(d.atOnce()) {
		d.waited[SourceSpacing] += time.Duration(n) * per
	}
	if seconds, spread := d.spread(); seconds > 0 && per >= spread {
		d.waited[SourceWindow] += time.Duration(n) * per
		d.bound[seconds] += time.Duration(n) * per
	}
}

// interval is the time from one call to the next.
func (d *drain) interval() time.Duration {
	spacing := d.Spacing
	if spacing > 0 { // the dispatcher comes back for each of them
		spacing += d.Wake / 10
	}
	_, spread := d.spread()
	return max(spacing, spread, d.Latency/time.Duration(d.atOnce()))
}

// atOnce is how many calls may be under way.
func (d *drain) atOnce() int {
	if d.Own > 0 {
		return max(min(d.Own, d.InFlight), 1)
	}
	return max(d.InFlight, 1)
}

// shut is the length of a window that lets nothing through; 0 for none.
func (d *drain) shut() int {
	for _, seconds := range d.lengths {
		if d.Caps[seconds] <= 0 {
			return seconds
		}
	}
	for _, r := range d.rolling {
		if r.Cap <= 0 {
			return r.Seconds
		}
	}
	return 0
}

// touched are the windows of one length that a call may count in, until others do.
type touched struct {
	spans  []quota.Window
	change time.Time
}

// refreshWindows finds the windows that a call counts in which is sent now.
func (d *drain) refreshWindows() {
	if d.at.Before(d.change) {
		return
	}
	held := d.spans
	for i := range d.windows {
		held = held[copy(d.windows[i].spans, held):]
	}
	d.spans, d.change = d.spans[:0], d.at.Add(horizon)
	for i, seconds := range d.lengths {
		t := &d.windows[i]
		if !d.at.Before(t.change) {
			d.touch(t, seconds, d.Caps[seconds])
		}
		d.spans = append(d.spans, t.spans...)
		d.change = moment.Earlier(d.change, t.change)
	}
}

// touch finds those of one length.
func (d *drain) touch(t *touched, seconds, limit int) {
	for i := range t.spans {
		d.own[keyOfSpan(&t.spans[i])] = t.spans[i].Own
	}
	ahead := d.CountsFor + d.Skew
	t.spans = quota.WindowsTouched(d.at.Add(-d.Skew), d.at.Add(ahead), seconds, d.Loc)
	for i := range t.spans {
		s := &t.spans[i]
		own, seen := d.own[keyOfSpan(s)]
		if !seen {
			own = d.Used(seconds, s.Start)
		}
		s.Cap, s.Lag, s.Own = limit, d.Skew, own
	}
	t.change = t.spans[0].End.Add(d.Skew)
	if begins := t.spans[len(t.spans)-1].End.Add(-ahead); begins.After(d.at) {
		t.change = moment.Earlier(t.change, begins)
	}
}

// wait goes on when a delay is over, or a little after that.
func (d *drain) wait(delay quota.Delay) {
	until := delay.Until
	if !until.After(d.at) {
		return
	}
	if delay.Seconds > 0 {
		d.bound[delay.Seconds] += until.Sub(d.at)
	}
	d.kept, until = true, until.Add(d.Wake)
	d.waited[sourceOf(delay.Reason)] += until.Sub(d.at)
	d.at = until
}

// source is what was waited for most; a budget that lets all go at once is bound by its windows.
func (d *drain) source() Source {
	out := SourceWindow
	for _, s := range []Source{SourceSpacing, SourcePacing, SourceHold} {
		if d.waited[s] > d.waited[out] {
			out = s
		}
	}
	return out
}

// window is the one that was waited for most; else the one with the least left.
func (d *drain) window() int {
	out := 0
	for _, seconds := range slices.Sorted(maps.Keys(d.bound)) {
		if d.bound[seconds] > d.bound[out] {
			out = seconds
		}
	}
	if out == 0 {
		out = d.tightest
	}
	return out
}

func tightest(spans []quota.Window) int {
	out, least := 0, math.MaxInt
	for i := range spans {
		if left := spans[i].Remaining(); left <= least {
			out, least = spans[i].Seconds, left
		}
	}
	return out
}

func keyOfSpan(s *quota.Window) spanKey { return spanKey{s.Seconds, s.Start.Unix()} }

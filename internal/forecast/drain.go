package forecast

import (
	"maps"
	"math"
	"time"

	"flowlane/internal/dispatch"
)

// Horizon is how far Drain looks ahead: what takes longer is not promised at all.
const Horizon = 366 * 24 * time.Hour

// Rate is everything that decides how fast the calls of one budget may go.
type Rate struct {
	// Caps are the effective caps in calls, by window length in seconds, and Loc the zone whose clock windows follow.
	Caps map[int]int
	Loc  *time.Location
	// Used says what is spent already of the window of this length that begins at start.
	Used func(seconds int, start time.Time) int
	// Skew is how far the provider's clock may be from ours: near the edge of a window a call counts on both sides.
	Skew time.Duration
	// HeldUntil is when an automatic backoff ends, and NotBefore when the spacing of calls allows the next; zero for none.
	HeldUntil, NotBefore time.Time
	// Spacing is the least time between two calls.
	Spacing time.Duration
	// Latency is how long a call is under way, and InFlight how many may be at once.
	Latency  time.Duration
	InFlight int
	// Wake is how late the dispatcher may be after a time that it waits for.
	Wake time.Duration
	// Young is how long a call may be missing in the provider's counters, which are read before each call near exhaustion; zero
	// where there are none.
	Young time.Duration
}

// Work is calls that wait under the same conditions.
type Work struct {
	Calls int64
	// From is when a hold on it ends; zero where nobody holds it.
	From time.Time
	// Release gives the calls in portions: the next one after a time, and when. It must move on. Nil gives all of them at From.
	Release func(after time.Time) (at time.Time, calls int64)
	// Background is work that takes its share of the budget and is not waited for.
	Background bool
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

// Drained is when the work of a budget is done, and what it waits for most.
type Drained struct {
	// At is when the last call has its answer; zero where that is past the Horizon.
	At time.Time
	// Source binds; Window is the length in seconds of the window that binds, or would first; 0 for a budget without windows.
	Source Source
	Window int
}

// Drain says when work will be done that waits now, if nothing else comes and nobody steers. It plays the dispatcher's own
// rules forward and takes the later of two possibilities wherever it has to choose, so that it errs late: background work goes
// first, a call near the edge of a window counts in both, and each wait ends as late as the dispatcher may notice.
func Drain(now time.Time, rate Rate, work []Work) Drained {
	d := drain{Rate: rate, at: now, sentAt: now, used: map[spanKey]int{}, waited: map[Source]time.Duration{}, bound: map[int]time.Duration{}}
	d.look()
	d.tightest = tightest(d.spans)
	d.queue(work)
	if d.left == 0 {
		return Drained{At: now, Source: SourceEmpty, Window: d.tightest}
	}
	d.wait(rate.HeldUntil, SourceHold)
	d.wait(rate.NotBefore, SourceSpacing)
	for end := now.Add(Horizon); d.left > 0; {
		if d.at.After(end) {
			return Drained{Source: d.source(), Window: d.window()}
		}
		d.step()
	}
	return Drained{At: d.at.Add(rate.Latency), Source: d.source(), Window: d.window()}
}

type spanKey struct {
	seconds int
	start   int64
}

// stock is work of which ready calls may go, and portion more will be ready at next; next is zero where no more will be.
type stock struct {
	Work
	ready, portion int64
	next           time.Time
}

// more says when the next portion comes; after is when the last one did.
func (s *stock) more(after time.Time) {
	s.next, s.portion = time.Time{}, 0
	switch {
	case s.Calls == 0:
	case s.Release == nil:
		s.next, s.portion = s.From, s.Calls
	default:
		s.next, s.portion = s.Release(after)
		s.portion = min(s.portion, s.Calls)
	}
}

// drain is a run of Drain.
type drain struct {
	Rate
	at    time.Time
	stock []stock
	// left are the calls that are waited for.
	left int64
	// used are the calls of this run by window, spans the windows that a call counts in until they change.
	used   map[spanKey]int
	spans  []dispatch.Span
	change time.Time
	// waited is the time spent on each source, bound that on each window; tightest is the window with the least left at first.
	waited   map[Source]time.Duration
	bound    map[int]time.Duration
	tightest int
	// sentAt is when the last call went; the one before this run may be as young as can be.
	sentAt time.Time
	// sent are all calls of this run, hour how it stood when the current hour began.
	sent int64
	hour hour
}

func (d *drain) queue(work []Work) {
	for _, w := range work {
		if w.Calls <= 0 {
			continue
		}
		if !w.Background {
			d.left += w.Calls
		}
		s := stock{Work: w}
		s.more(later(w.From, d.at.Add(-1)))
		d.stock = append(d.stock, s)
	}
}

// release makes ready what is due, and says when more will be, and what that waits for.
func (d *drain) release() (ready int64, next time.Time, source Source) {
	for i := range d.stock {
		s := &d.stock[i]
		for s.portion > 0 && !s.next.After(d.at) {
			s.ready += s.portion
			s.Calls -= s.portion
			s.more(s.next)
		}
		ready += s.ready
		if s.portion > 0 && (next.IsZero() || s.next.Before(next)) {
			next, source = s.next, SourceHold
			if s.Release != nil && s.next.After(s.From) {
				source = SourcePacing
			}
		}
	}
	return ready, next, source
}

// step sends what may go now, or waits.
func (d *drain) step() {
	ready, next, source := d.release()
	if ready == 0 {
		d.wait(next, source)
		return
	}
	d.look()
	if next.IsZero() {
		d.leap(ready)
	}
	grant := dispatch.Decide(d.at, d.spans, int(min(ready, math.MaxInt32)))
	if grant.Calls == 0 {
		d.bound[grant.Binding] += grant.NextAt.Sub(d.at)
		d.wait(grant.NextAt, SourceWindow)
		return
	}
	n, per := int64(grant.Calls), d.interval()
	if per > 0 { // until windows change, or more comes that may go first
		until := d.change
		if !next.IsZero() {
			until = earlier(until, next)
		}
		n = min(n, int64((until.Sub(d.at)+per-1)/per))
	}
	if n = d.careful(n); n == 0 {
		return
	}
	for i := range d.spans {
		d.spans[i].Own += int(n)
		d.used[keyOfSpan(&d.spans[i])] += int(n)
	}
	d.take(n)
	d.at = d.at.Add(time.Duration(n) * per)
	if d.Spacing > 0 && per == d.Spacing {
		d.waited[SourceSpacing] += time.Duration(n) * per
	}
}

// careful is how many of n calls go where the provider's counters are read before each: a reading counts young calls twice, so
// that half of what is left goes, and the next half once these are old enough. With none, it has waited for that.
func (d *drain) careful(n int64) int64 {
	if d.Young == 0 || len(d.spans) == 0 {
		return n
	}
	if before := int64(dispatch.BeforeEscalation(d.spans)); before > 0 {
		d.sentAt = d.at
		return min(n, before)
	}
	if old := d.sentAt.Add(d.Young); old.After(d.at) {
		d.wait(old, SourceWindow)
		return 0
	}
	d.sentAt = d.at
	left := math.MaxInt
	for i := range d.spans {
		left = min(left, d.spans[i].Remaining())
	}
	return min(n, int64(left+1)/2)
}

// interval is the time from one call to the next.
func (d *drain) interval() time.Duration {
	return max(d.Spacing, d.Latency/time.Duration(max(d.InFlight, 1)))
}

// take takes calls that are ready: of the background first.
func (d *drain) take(n int64) {
	for _, background := range []bool{true, false} {
		for i := range d.stock {
			s := &d.stock[i]
			if s.Background != background {
				continue
			}
			k := min(n, s.ready)
			s.ready -= k
			n -= k
			d.sent += k
			if !background {
				d.left -= k
			}
		}
	}
}

// look finds the windows that a call counts in which is sent now.
func (d *drain) look() {
	if d.at.Before(d.change) {
		return
	}
	d.spans, d.change = d.spans[:0], d.at.Add(Horizon)
	ahead := d.Latency + d.Skew
	for _, seconds := range dispatch.WindowLengths {
		limit, limited := d.Caps[seconds]
		if !limited {
			continue
		}
		touched := dispatch.Touched(d.at.Add(-d.Skew), d.at.Add(ahead), seconds, d.Loc)
		for i := range touched {
			s := &touched[i]
			s.Cap, s.Lag, s.Own = limit, d.Skew, d.Used(seconds, s.Start)+d.used[keyOfSpan(s)]
			d.change = earlier(d.change, s.End.Add(d.Skew))
		}
		if begins := touched[len(touched)-1].End.Add(-ahead); begins.After(d.at) {
			d.change = earlier(d.change, begins)
		}
		d.spans = append(d.spans, touched...)
	}
}

// wait goes on at a time, or a little after it.
func (d *drain) wait(until time.Time, source Source) {
	if !until.After(d.at) {
		return
	}
	until = until.Add(d.Wake)
	d.waited[source] += until.Sub(d.at)
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
	for _, seconds := range dispatch.WindowLengths {
		if d.bound[seconds] > d.bound[out] {
			out = seconds
		}
	}
	if out == 0 {
		out = d.tightest
	}
	return out
}

func tightest(spans []dispatch.Span) int {
	out, least := 0, math.MaxInt
	for i := range spans {
		if left := spans[i].Remaining(); left <= least {
			out, least = spans[i].Seconds, left
		}
	}
	return out
}

func keyOfSpan(s *dispatch.Span) spanKey { return spanKey{s.Seconds, s.Start.Unix()} }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// hour is how a run stood at its first step in an hour: when, how far into the hour, and what its windows below a day held.
type hour struct {
	began time.Time
	into  time.Duration
	own   [4]int
	sent  int64
	bound map[int]time.Duration
}

// leap passes over hours that go exactly as the last one did, up to the day's end. A million calls under minute windows are a
// week of minutes, and nearly all are alike.
func (d *drain) leap(ready int64) {
	began, _ := dispatch.WindowAt(d.at, 3600, d.Loc)
	last := d.hour
	if began.Equal(last.began) {
		return
	}
	d.hour = hour{began: began, into: d.at.Sub(began), sent: d.sent, bound: maps.Clone(d.bound)}
	day, n := math.MaxInt, 0
	for i := range d.spans {
		switch s := &d.spans[i]; {
		case s.Seconds == daySeconds:
			day = min(day, s.Remaining())
		case n < len(d.hour.own):
			d.hour.own[n] = s.Own
			n++
		default:
			return
		}
	}
	calls := d.sent - last.sent
	if d.hour.into != last.into || d.hour.own != last.own || calls == 0 || !began.Equal(last.began.Add(time.Hour)) {
		return
	}
	_, ends := dispatch.WindowAt(d.at, daySeconds, d.Loc)
	if _, changes := d.at.In(d.Loc).ZoneBounds(); !changes.IsZero() {
		ends = earlier(ends, changes)
	}
	hours := min(int64(ends.Sub(d.at)/time.Hour), int64(day)/calls, ready/calls) - 1
	if hours <= 0 {
		return
	}
	for _, s := range d.spans {
		if s.Seconds == daySeconds {
			d.used[keyOfSpan(&s)] += int(hours * calls)
		}
	}
	for seconds, total := range d.bound {
		each := total - last.bound[seconds]
		d.bound[seconds] += each * time.Duration(hours)
		d.waited[SourceWindow] += each * time.Duration(hours)
	}
	d.take(hours * calls)
	d.at = d.at.Add(time.Duration(hours) * time.Hour)
	d.change = time.Time{}
	d.carry(time.Duration(hours) * time.Hour)
	d.look()
	d.hour = hour{}
}

// carry puts what the windows below a day held where they are after so many hours.
func (d *drain) carry(passed time.Duration) {
	for _, s := range d.spans {
		if s.Seconds != daySeconds {
			d.used[spanKey{s.Seconds, s.Start.Add(passed).Unix()}] = s.Own
		}
	}
}

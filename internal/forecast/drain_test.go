package forecast_test

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/dispatch"
	"flowlane/internal/forecast"
	"flowlane/internal/quota"
)

// world is a budget and its work, as Drain is asked about it, and as a dispatcher then goes about it call by call.
type world struct {
	now     time.Time
	rate    forecast.Rate
	work    []forecast.Work
	timeout time.Duration
	used    map[window]int
}

// window names a window by its length and its start in Unix seconds.
type window [2]int64

func windowKey(seconds int, start time.Time) window { return window{int64(seconds), start.Unix()} }

var zones = []string{"UTC", "America/New_York", "Europe/Prague", "Australia/Lord_Howe", "Asia/Kathmandu",
	"America/St_Johns"}

// newWorld makes any world whose work takes at most some thousand calls.
func newWorld(r *rand.Rand) *world {
	zone := zones[r.IntN(len(zones))]
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	// Around the changes of 2026, as often as not.
	day := []int{66, 86, 94, 303, 276, 1 + r.IntN(365)}[r.IntN(6)]
	w := &world{now: time.Date(2026, 1, day, r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e9), time.UTC),
		used: map[window]int{}}
	minute := 1 + r.IntN(200)
	hour := 1 + r.IntN(60*minute)
	daily := 1 + r.IntN(24*hour)
	caps := map[int]int{60: minute, 3600: hour, 86400: daily}
	for _, seconds := range quota.WindowLengths {
		if r.IntN(5) == 0 && len(caps) > 1 {
			delete(caps, seconds)
		}
	}
	w.rate = forecast.Rate{Caps: caps, Loc: loc, Skew: time.Duration(r.IntN(4)) * time.Second, Latency: time.Duration(1+
		r.IntN(5000)) * time.Millisecond,

		InFlight: 1 + r.IntN(32), Wake: time.Duration(r.IntN(1000)) * time.Millisecond,
		Used: func(seconds int, start time.Time) int { return w.used[windowKey(seconds, start)] }}
	w.rate.Longest, w.rate.CountsFor = w.rate.Latency, w.rate.Latency
	w.timeout = w.rate.Latency + time.Duration(r.IntN(60))*time.Second
	if r.IntN(3) == 0 {
		w.rate.Spacing = time.Duration(r.IntN(3000)) * time.Millisecond
	}
	if r.IntN(5) == 0 {
		w.rate.Delay = quota.Delay{Until: w.now.Add(time.Duration(r.IntN(5000)) * time.Second),
			Reason: quota.ReasonBackoff}
	}
	if r.IntN(5) == 0 {
		w.rate.Delay = w.rate.Delay.And(quota.Delay{Until: w.now.Add(time.Duration(r.IntN(5000)) * time.Second),
			Reason: quota.ReasonSpacing})
	}
	for seconds, limit := range caps {
		start, _ := quota.WindowAt(w.now, seconds, loc)
		w.used[windowKey(seconds, start)] = r.IntN(limit + limit/5 + 1)
	}
	for range 1 + r.IntN(3) {
		w.work = append(w.work, w.newWork(r))
	}
	return w
}

func (w *world) newWork(r *rand.Rand) forecast.Work {
	k := forecast.Work{Calls: int64(r.IntN(1500)), Background: r.IntN(4) == 0}
	if r.IntN(4) == 0 {
		k.From = w.now.Add(time.Duration(r.IntN(20000)) * time.Second)
	}
	if r.IntN(4) == 0 {
		k.Calls = int64(r.IntN(300))
		every, portion := time.Duration(1+r.IntN(30))*time.Minute, int64(1+r.IntN(50))
		k.Release = func(after time.Time) (time.Time, int64) {
			return w.now.Add(after.Sub(w.now).Truncate(every) + every), portion
		}
	}
	return k
}

// played is a world in which a dispatcher works.
type played struct {
	*world
	r        *rand.Rand
	at       time.Time
	own      map[window]int
	stock    []forecast.Work
	released []int64
	nextAt   []time.Time
	portions []int64
	underWay []flight
	cells    []map[int64]int
	nextCall time.Time
}

type flight struct {
	claimed, ends time.Time
	work          int
	cells         []int64
}

// play has a dispatcher work: it claims by dispatch.Decide, counts a call in every window that it may touch, and gives
// back what it missed when it has its answer. It returns when the last call that is waited for was answered.
func (w *world) play(r *rand.Rand) time.Time {
	p := &played{world: w, r: r, at: w.now, own: map[window]int{}, stock: slices.Clone(w.work), released: make([]int64,
		len(w.work)),
		nextAt: make([]time.Time, len(w.work)), portions: make([]int64, len(w.work))}
	for i, k := range w.work {
		p.nextAt[i], p.portions[i] = k.From, k.Calls
		if k.Release != nil {
			after := w.now.Add(-1)
			if k.From.After(after) {
				after = k.From
			}
			p.nextAt[i], p.portions[i] = k.Release(after)
		}
	}
	p.wait(w.rate.Delay.Until)
	end := w.now
	for p.left() > 0 || len(p.underWay) > 0 {
		if done := p.settle(); done.After(end) {
			end = done
		}
		p.release()
		next := p.claim()
		if !next.IsZero() {
			p.at = next
		}
	}
	return end
}

func (p *played) left() (n int64) {
	for i, k := range p.stock {
		if !k.Background {
			n += k.Calls + p.released[i]
		}
	}
	return n
}

func (p *played) wait(until time.Time) {
	if until.After(p.at) {
		p.at = until.Add(p.late())
	}
}

func (p *played) late() time.Duration { return time.Duration(p.r.Int64N(int64(p.rate.Wake) + 1)) }

func (p *played) release() {
	for i := range p.stock {
		k := &p.stock[i]
		for k.Calls > 0 && !p.nextAt[i].After(p.at) {
			n := min(k.Calls, p.portions[i])
			k.Calls -= n
			p.released[i] += n
			if k.Release != nil {
				p.nextAt[i], p.portions[i] = k.Release(p.nextAt[i])
			}
		}
	}
}

// settle answers what is due, and returns when the last answer came that is waited for.
func (p *played) settle() (last time.Time) {
	p.underWay = slices.DeleteFunc(p.underWay, func(f flight) bool {
		if f.ends.After(p.at) {
			return false
		}
		for seconds := range p.rate.Caps {
			kept := map[time.Time]bool{}
			for _, s := range quota.WindowsTouched(f.claimed.Add(-p.rate.Skew), f.ends.Add(p.rate.Skew), seconds,
				p.rate.Loc) {
				kept[s.Start] = true
			}
			for _, s := range quota.WindowsTouched(f.claimed.Add(-p.rate.Skew), f.claimed.Add(p.timeout+p.rate.Skew),
				seconds, p.rate.Loc) {
				if !kept[s.Start] {
					p.own[windowKey(seconds, s.Start)]--
				}
			}
		}
		for i, w := range p.rate.Rolling {
			p.cells[i][f.cells[i]]--
			p.cells[i][quota.CellAt(f.ends, w.Seconds)]++
		}
		if !p.stock[f.work].Background && f.ends.After(last) {
			last = f.ends
		}
		return true
	})
	return last
}

// rolls are the rolling windows now.
func (p *played) rolls() (out []quota.Window) {
	for i, w := range p.rate.Rolling {
		if p.cells == nil {
			p.cells = make([]map[int64]int, len(p.rate.Rolling))
		}
		if p.cells[i] == nil { // what was there before: all as young as it can be
			p.cells[i] = map[int64]int{quota.CellAt(w.Until.Add(-time.Duration(w.Seconds)*time.Second),
				w.Seconds) - 1: w.Used}
		}
		maps.DeleteFunc(p.cells[i], func(no int64, _ int) bool { return !quota.CellOver(no, w.Seconds).After(p.at) })
		var cells []quota.Cell
		for no, n := range p.cells[i] {
			cells = append(cells, quota.Cell{No: no, Own: n})
		}
		out = append(out, quota.Roll(w.Seconds, w.Cap, cells, p.at, p.at.Add(p.timeout)))
	}
	return out
}

// claim sends what may go, and returns when to look again.
func (p *played) claim() time.Time {
	ready := []int{}
	next := time.Time{}
	sooner := func(t time.Time) {
		if t.After(p.at) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for i := range p.stock {
		if p.released[i] > 0 {
			ready = append(ready, i)
		}
		if p.stock[i].Calls > 0 {
			sooner(p.nextAt[i].Add(p.late()))
		}
	}
	for _, f := range p.underWay {
		sooner(f.ends)
	}
	if len(ready) == 0 || len(p.underWay) >= p.rate.InFlight {
		return next
	}
	if p.nextCall.After(p.at) {
		sooner(p.nextCall)
		return next
	}
	var spans []quota.Window
	for _, seconds := range quota.WindowLengths {
		limit, limited := p.rate.Caps[seconds]
		if !limited {
			continue
		}
		for _, s := range quota.WindowsTouched(p.at.Add(-p.rate.Skew), p.at.Add(p.timeout+p.rate.Skew), seconds,
			p.rate.Loc) {
			s.Cap, s.Lag, s.Own = limit, p.rate.Skew, p.own[windowKey(seconds, s.Start)]
			s.Foreign = p.used[windowKey(seconds, s.Start)]
			spans = append(spans, s)
		}
	}
	rolls := p.rolls()
	grant := quota.Decide(p.at, append(spans, rolls...), 1)
	if grant.Calls == 0 {
		sooner(grant.Delay.Until.Add(p.late()))
		return next
	}
	for _, s := range spans {
		p.own[windowKey(s.Seconds, s.Start)]++
	}
	i := ready[p.r.IntN(len(ready))]
	p.released[i]--
	var cells []int64
	for no, s := range rolls {
		p.cells[no][s.Cell]++
		cells = append(cells, s.Cell)
	}
	p.underWay = append(p.underWay, flight{p.at, p.at.Add(time.Duration(1 + p.r.Int64N(int64(p.rate.Latency)))), i,
		cells})
	p.nextCall = p.at.Add(p.rate.Spacing)
	return p.at
}

// TestDrain_NeverEarly: whatever the budget, the work is done by the time that Drain names, and seldom much sooner.
func TestDrain_NeverEarly(t *testing.T) {
	t.Parallel()
	var late []float64
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(r)
		out := forecast.Drain(w.now, w.rate, w.work)
		if out.At.IsZero() {
			continue
		}
		done := w.play(r)
		require.False(t, done.After(out.At), "seed %d: said %s, done %s later; %s %d\n%+v", seed, out.At,
			done.Sub(out.At), out.Source, out.Window, w)
		if took := done.Sub(w.now); took > 0 {
			late = append(late, float64(out.At.Sub(done))/float64(took))
		}
	}
	slices.SortFunc(late, cmp.Compare[float64])
	t.Logf("late, of %d worlds: p50 %.1f%%, p90 %.1f%%", len(late), 100*late[len(late)/2], 100*late[len(late)*9/10])
	assert.LessOrEqual(t, late[len(late)/2], 0.05)
	assert.LessOrEqual(t, late[len(late)*9/10], 0.15)
}

// TestDrain_RollingNeverEarly: neither is it with windows that roll, beside others or alone.
func TestDrain_RollingNeverEarly(t *testing.T) {
	t.Parallel()
	var late []float64
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(r)
		if r.IntN(2) == 0 {
			w.rate.Caps = map[int]int{}
		}
		for _, seconds := range [][]int{{1}, {10}, {300}, {1, 60}, {10, 3600}}[r.IntN(5)] {
			roll := forecast.Rolling{Seconds: seconds, Cap: 1 + r.IntN(20*seconds)}
			if r.IntN(2) == 0 {
				roll.Used, roll.Until = r.IntN(roll.Cap+1),
					w.now.Add(time.Duration(r.Int64N(int64(seconds)*int64(time.Second))))
			}
			w.rate.Rolling = append(w.rate.Rolling, roll)
		}
		out := forecast.Drain(w.now, w.rate, w.work)
		if out.At.IsZero() {
			continue
		}
		done := w.play(r)
		require.False(t, done.After(out.At), "seed %d: said %s, done %s later; %s %d\n%+v", seed, out.At,
			done.Sub(out.At), out.Source, out.Window, w)
		if took := done.Sub(w.now); took > 0 {
			late = append(late, float64(out.At.Sub(done))/float64(took))
		}
	}
	slices.SortFunc(late, cmp.Compare[float64])
	t.Logf("late, of %d worlds: p50 %.1f%%, p90 %.1f%%", len(late), 100*late[len(late)/2], 100*late[len(late)*9/10])
	assert.LessOrEqual(t, late[len(late)/2], 0.05)
	assert.LessOrEqual(t, late[len(late)*9/10], 1.0)
}

// TestDrain_NearExhaustion: what is left of a budget goes by halves, each once the provider's counters can hold the one
// before.
func TestDrain_NearExhaustion(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 1, 0, time.UTC)
	rate := forecast.Rate{Caps: map[int]int{86400: 100}, Loc: time.UTC, InFlight: 10,
		Used: func(int, time.Time) int { return 88 }}
	work := []forecast.Work{{Calls: 8}}
	assert.Equal(t, now, forecast.Drain(now, rate, work).At)
	rate.Young = 8 * time.Second
	// 2 at once, then half of 10, then what is left to do: each when a reading holds those before.
	settled := 2*rate.Young + dispatch.LookFor
	assert.Equal(t, now.Add(2*(settled+dispatch.LookFor)), forecast.Drain(now, rate, work).At)
	// A reading that comes while calls are young counts them twice: in the last window half of what is left goes, far
	// from exhaustion, too. So do those of just before the question.
	rate.Recent, work[0].Calls = 12, 1
	assert.True(t, forecast.Drain(now, rate, work).At.After(now))
	rate.Recent = 0
	assert.Equal(t, now, forecast.Drain(now, rate, work).At)
	rate.Used = func(int, time.Time) int { return 60 }
	work[0].Calls = 20
	assert.Equal(t, now, forecast.Drain(now, rate, work).At)
	work[0].Calls = 21
	assert.Equal(t, now.Add(settled), forecast.Drain(now, rate, work).At)
}

// TestDrain_Others: other organizations have a call each for every one of ours, and a group that may go first; what
// they have beyond that does not delay ours.
func TestDrain_Others(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	rate := forecast.Rate{Caps: map[int]int{3600: 5}, Loc: time.UTC, InFlight: 1, Others: 1,
		Used: func(int, time.Time) int { return 0 }}
	work := []forecast.Work{{Calls: 10}, {Calls: 1000, Others: true}}
	// 2 of ours in the first hour, then 3 and 2 by turns.
	assert.Equal(t, now.Add(3*time.Hour), forecast.Drain(now, rate, work).At)
	work[1].Calls = 3
	assert.Equal(t, now.Add(2*time.Hour), forecast.Drain(now, rate, work).At)
	// Of 4 calls under way 1 may be ours: the other 3 are theirs, whatever our share.
	work[1].Calls, rate.InFlight, rate.Own = 1000, 4, 1
	assert.Equal(t, now.Add(8*time.Hour), forecast.Drain(now, rate, work).At)
	rate.InFlight, rate.Own = 1, 0
	// Which of theirs lapses is their own order: one more of them may go first.
	rate.Caps = map[int]int{3600: 1}
	theirs := forecast.Work{Calls: 1000, Others: true, Lapses: true, Release: func(after time.Time) (time.Time, int64) {
		return after.Truncate(time.Minute).Add(time.Minute), 5
	}}
	ours := forecast.Work{Calls: 1, From: now.Add(55 * time.Minute)}
	at := forecast.Drain(now, rate, []forecast.Work{ours, theirs}).At
	assert.Equal(t, time.Hour, forecast.Drain(now, rate, []forecast.Work{ours, theirs, theirs}).At.Sub(at))
	rate.Caps = map[int]int{3600: 5}
	work[1] = forecast.Work{Calls: 1000, Background: true}
	assert.Equal(t, now.Add(201*time.Hour), forecast.Drain(now, rate, work).At)
}

// TestDrain_Shut: a budget that lets nothing through is never done.
func TestDrain_Shut(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	rate := forecast.Rate{Caps: map[int]int{60: 7, 3600: 0}, Loc: time.UTC, InFlight: 1,
		Used: func(int, time.Time) int { return 0 }}
	out := forecast.Drain(now, rate, []forecast.Work{{Calls: 1}})
	assert.Equal(t, forecast.Drained{Source: forecast.SourceWindow, Window: 3600}, out)
}

// TestDrain_Source: what is waited for most is what keeps the work: a backoff counts as a hold, as a pause of people
// does.
func TestDrain_Source(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 30, 0, time.UTC)
	in := now.Add(10 * time.Minute)
	source := func(delay quota.Delay, work forecast.Work) forecast.Source {
		return forecast.Drain(now, forecast.Rate{Caps: map[int]int{60: 7}, Loc: time.UTC, InFlight: 1, Delay: delay,
			Used: func(int, time.Time) int { return 0 }}, []forecast.Work{work}).Source
	}
	late := func(reason quota.Reason) quota.Delay { return quota.Delay{Until: in, Reason: reason} }
	assert.Equal(t, forecast.SourceHold, source(late(quota.ReasonBackoff), forecast.Work{Calls: 1}))
	assert.Equal(t, forecast.SourceHold, source(late(quota.ReasonPause), forecast.Work{Calls: 1}))
	assert.Equal(t, forecast.SourceSpacing, source(late(quota.ReasonSpacing), forecast.Work{Calls: 1}))
	assert.Equal(t, forecast.SourceHold, source(quota.Delay{}, forecast.Work{Calls: 1, From: in}))
	assert.Equal(t, forecast.SourcePacing, source(quota.Delay{}, forecast.Work{Calls: 1,
		Release: func(time.Time) (time.Time, int64) { return in, 1 }}))
	assert.Equal(t, forecast.SourceWindow, source(quota.Delay{}, forecast.Work{Calls: 99}))
}

// TestDrain_Idle: few calls that go at once are done about when their provider has answered, which is known from what
// it was asked before; where it never was, they may take their time.
func TestDrain_Idle(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 30, 0, time.UTC)
	in := func(p forecast.Pace, change func(*forecast.Rate)) time.Duration {
		p.Timeout = time.Minute
		rate := forecast.Rate{Caps: map[int]int{60: 100}, Loc: time.UTC, InFlight: 4, Young: 8 * time.Second,
			Used: func(int, time.Time) int { return 0 }}
		p.Set(&rate)
		change(&rate)
		return forecast.Drain(now, rate, []forecast.Work{{Calls: 3}}).At.Sub(now)
	}
	fast := 20 * time.Millisecond
	as := func(*forecast.Rate) {}
	for _, p := range []forecast.Pace{{Readings: fast}, {Calls: 1, Slow: fast, Readings: fast}, {Calls: 200, Slow: fast,
		Readings: fast}} {
		assert.LessOrEqual(t, in(p, as), 2*time.Second, "%+v", p)
		assert.GreaterOrEqual(t, in(p, as), 10*fast, "%+v", p)
	}
	assert.Greater(t, in(forecast.Pace{}, as), time.Minute, "nothing is known")
	assert.Greater(t, in(forecast.Pace{Calls: 1, Slow: 2 * time.Second, Readings: fast}, as), 40*time.Second,
		"little is known")
	p := forecast.Pace{Readings: fast}
	assert.Greater(t, in(p, func(r *forecast.Rate) { r.UnderWay = 2 }), time.Minute, "they wait for others")
	assert.Greater(t, in(p, func(r *forecast.Rate) { r.Spacing = time.Second }), time.Minute)
	assert.Greater(t, in(p, func(r *forecast.Rate) { r.Caps[60] = 2 }), time.Minute)
	assert.Greater(t, in(p, func(r *forecast.Rate) { r.Delay.Until = now.Add(time.Millisecond) }), time.Minute)
}

// TestDrain_Beyond: what is too long to be played ends no sooner than it would, and costs no more for that.
func TestDrain_Beyond(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	rate := forecast.Rate{Caps: map[int]int{60: 9}, Loc: time.UTC, InFlight: 1,
		Used: func(int, time.Time) int { return 0 }}
	minutely := func(n int64) func(time.Time) (time.Time, int64) {
		return func(after time.Time) (time.Time, int64) { return after.Truncate(time.Minute).Add(time.Minute), n }
	}
	slow := forecast.Work{Calls: 200_000, Release: minutely(1), Lapses: true}
	at := forecast.Drain(now, rate, []forecast.Work{slow, {Calls: 5000}}).At
	assert.WithinRange(t, at, now.Add(200_000*time.Minute), now.Add(260_000*time.Minute))
	slow.Calls = 600_000
	assert.Zero(t, forecast.Drain(now, rate, []forecast.Work{slow}).At, "more than a year")
}

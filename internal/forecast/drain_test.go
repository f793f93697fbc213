package forecast_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/dispatch"
	"flowlane/internal/forecast"
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

var zones = []string{"UTC", "America/New_York", "Europe/Prague", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns"}

// newWorld makes any world whose work takes at most some thousand calls.
func newWorld(r *rand.Rand) *world {
	zone := zones[r.IntN(len(zones))]
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	// Around the changes of 2026, as often as not.
	day := []int{66, 86, 94, 303, 276, 1 + r.IntN(365)}[r.IntN(6)]
	w := &world{now: time.Date(2026, 1, day, r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e9), time.UTC), used: map[window]int{}}
	minute := 1 + r.IntN(200)
	hour := 1 + r.IntN(60*minute)
	daily := 1 + r.IntN(24*hour)
	caps := map[int]int{60: minute, 3600: hour, 86400: daily}
	for _, seconds := range dispatch.WindowLengths {
		if r.IntN(5) == 0 && len(caps) > 1 {
			delete(caps, seconds)
		}
	}
	w.rate = forecast.Rate{Caps: caps, Loc: loc, Skew: time.Duration(r.IntN(4)) * time.Second, Latency: time.Duration(1+r.IntN(5000)) * time.Millisecond,
		InFlight: 1 + r.IntN(32), Wake: time.Duration(r.IntN(1000)) * time.Millisecond,
		Used: func(seconds int, start time.Time) int { return w.used[windowKey(seconds, start)] }}
	w.timeout = w.rate.Latency + time.Duration(r.IntN(60))*time.Second
	if r.IntN(3) == 0 {
		w.rate.Spacing = time.Duration(r.IntN(3000)) * time.Millisecond
	}
	if r.IntN(5) == 0 {
		w.rate.HeldUntil = w.now.Add(time.Duration(r.IntN(5000)) * time.Second)
	}
	if r.IntN(5) == 0 {
		w.rate.NotBefore = w.now.Add(time.Duration(r.IntN(5000)) * time.Second)
	}
	for seconds, limit := range caps {
		start, _ := dispatch.WindowAt(w.now, seconds, loc)
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
	nextCall time.Time
}

type flight struct {
	claimed, ends time.Time
	work          int
}

// play has a dispatcher work: it claims by dispatch.Decide, counts a call in every window that it may touch, and gives back
// what it missed when it has its answer. It returns when the last call that is waited for was answered.
func (w *world) play(r *rand.Rand) time.Time {
	p := &played{world: w, r: r, at: w.now, own: map[window]int{}, stock: slices.Clone(w.work), released: make([]int64, len(w.work)),
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
	p.wait(w.rate.HeldUntil)
	p.wait(w.rate.NotBefore)
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
			for _, s := range dispatch.Touched(f.claimed.Add(-p.rate.Skew), f.ends.Add(p.rate.Skew), seconds, p.rate.Loc) {
				kept[s.Start] = true
			}
			for _, s := range dispatch.Touched(f.claimed.Add(-p.rate.Skew), f.claimed.Add(p.timeout+p.rate.Skew), seconds, p.rate.Loc) {
				if !kept[s.Start] {
					p.own[windowKey(seconds, s.Start)]--
				}
			}
		}
		if !p.stock[f.work].Background && f.ends.After(last) {
			last = f.ends
		}
		return true
	})
	return last
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
	var spans []dispatch.Span
	for _, seconds := range dispatch.WindowLengths {
		limit, limited := p.rate.Caps[seconds]
		if !limited {
			continue
		}
		for _, s := range dispatch.Touched(p.at.Add(-p.rate.Skew), p.at.Add(p.timeout+p.rate.Skew), seconds, p.rate.Loc) {
			s.Cap, s.Lag, s.Own = limit, p.rate.Skew, p.own[windowKey(seconds, s.Start)]
			s.Foreign = p.used[windowKey(seconds, s.Start)]
			spans = append(spans, s)
		}
	}
	grant := dispatch.Decide(p.at, spans, 1)
	if grant.Calls == 0 {
		sooner(grant.NextAt.Add(p.late()))
		return next
	}
	for _, s := range spans {
		p.own[windowKey(s.Seconds, s.Start)]++
	}
	i := ready[p.r.IntN(len(ready))]
	p.released[i]--
	p.underWay = append(p.underWay, flight{p.at, p.at.Add(time.Duration(1 + p.r.Int64N(int64(p.rate.Latency)))), i})
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
		require.False(t, done.After(out.At), "seed %d: said %s, done %s later; %s %d\n%+v", seed, out.At, done.Sub(out.At), out.Source, out.Window, w)
		if took := done.Sub(w.now); took > 0 {
			late = append(late, float64(out.At.Sub(done))/float64(took))
		}
	}
	slices.SortFunc(late, cmp.Compare[float64])
	t.Logf("late, of %d worlds: p50 %.1f%%, p90 %.1f%%", len(late), 100*late[len(late)/2], 100*late[len(late)*9/10])
	assert.LessOrEqual(t, late[len(late)/2], 0.05)
	assert.LessOrEqual(t, late[len(late)*9/10], 0.15)
}

// TestDrain_NearExhaustion: what is left of a budget goes by halves, each once the provider's counters can hold the one before.
func TestDrain_NearExhaustion(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 1, 0, time.UTC)
	rate := forecast.Rate{Caps: map[int]int{86400: 100}, Loc: time.UTC, InFlight: 10, Used: func(int, time.Time) int { return 88 }}
	work := []forecast.Work{{Calls: 8}}
	assert.Equal(t, now, forecast.Drain(now, rate, work).At)
	rate.Young = 8 * time.Second
	// 2 at once, then half of 10, then what is left to do.
	assert.Equal(t, now.Add(2*rate.Young), forecast.Drain(now, rate, work).At)
}

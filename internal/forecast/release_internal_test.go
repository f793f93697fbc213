package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pacing"
)

// However many queues are held and paced, taking them together never makes the answer earlier where nothing lapses, and
// costs little where they are few.
func TestTogether_ErrsLate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 8, 59, 30, 0, time.UTC)
	rate := Rate{Loc: time.UTC, Latency: 200 * time.Millisecond, CountsFor: 200 * time.Millisecond, InFlight: 400,
		Wake: time.Second, Others: 1,
		Used: func(int, time.Time) int { return 0 }}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		most := []int{3, 30, 900}[seed%3]
		rate.Caps = map[int]int{60: 40_000}
		if most == 3 {
			rate.Caps[60] = []int{40, 4000}[seed/3%2]
		}
		var work []waitingWork
		var exact []Work
		for range 1 + r.IntN(most) {
			w := waitingWork{Work: Work{Calls: 1 + r.Int64N(3)}}
			w.Background, w.Others = r.IntN(4) == 0, r.IntN(4) == 0
			w.Background = w.Background && !w.Others
			if r.IntN(2) == 0 {
				w.From = now.Add(time.Duration(r.IntN(2400)) * time.Second)
			}
			if r.IntN(2) == 0 {
				policy := &pacing.Policy{Records: 1 + r.Int64N(3), PeriodMinutes: 1 + r.IntN(9)}
				tick := now.Add(time.Duration(r.IntN(1200)-300) * time.Second)
				w.paced = &Paced{Policy: policy, Records: 1 + r.Int64N(40), PerCall: 1, NextAt: tick}
				k := w.paced.Work(now, w.From)
				k.Background, k.Others = w.Background, w.Others
				exact = append(exact, k)
			} else {
				exact = append(exact, w.Work)
			}
			work = append(work, w)
		}
		want, got := drainWithin(math.MaxInt, now, rate, exact), Drain(now, rate, together(now, work, false))
		require.False(t, got.At.Before(want.At), "seed %d: %s is before %s", seed, got.At, want.At)
		if most == 3 {
			require.WithinDuration(t, want.At, got.At, 5*time.Second, "seed %d", seed)
		}
		for i := range work {
			exact[i].Background = !exact[i].Others
		}
		last := Work{Calls: 400}
		require.False(t, Drain(now, rate, append(together(now, work, true), last)).At.Before(drainWithin(math.MaxInt,
			now, rate, append(exact, last)).At), "seed %d: behind all of it", seed)
	}
}

// A tick that is late releases once, whatever others were missed meanwhile.
func TestReleases_LateTick(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 9, 0, 30, 0, time.UTC)
	due := now.Add(-25 * time.Minute)
	p := Paced{Policy: &pacing.Policy{Records: 10, PeriodMinutes: 10}, Records: 35, PerCall: 1, NextAt: due}
	at := func(minutes int) time.Time { return due.Add(time.Duration(minutes) * time.Minute) }
	assert.Equal(t, []portion{{now, now, 10}, {at(30), at(30), 10}, {at(40), at(40), 10}, {at(50), at(50), 5}},
		p.releases(now, time.Time{}, portionsMost))
	assert.Equal(t, []portion{{from: now, calls: 10}, {from: at(30), calls: 10}, {from: at(40), calls: 10}},
		given(p.Work(now, time.Time{}), now, 3))
}

// given are the first portions of work.
func given(w Work, now time.Time, n int) (out []portion) {
	for after := now.Add(-1); len(out) < n; after = out[len(out)-1].from {
		at, calls := w.Release(after)
		out = append(out, portion{from: at, calls: calls})
	}
	return out
}

// What a tick gives is there until the next one, or until the window closes; what the last one left counts, too, and of
// what was given under a hold that which has not lapsed when it ends.
func TestPaced_Work(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	p := Paced{Policy: &pacing.Policy{Records: 5, PeriodMinutes: 20}, Records: 50, PerCall: 2, Allowance: 3,
		LapsesAt: at(10), NextAt: at(10)}
	w := p.Work(now, time.Time{})
	assert.EqualValues(t, 30, w.Calls)
	assert.Equal(t, []portion{{from: now, calls: 2}, {from: at(10), calls: 3}, {from: at(30), calls: 3}},
		given(w, now, 3))
	assert.Equal(t, []portion{{from: now, calls: 2}, {from: at(10), calls: 3}}, given(w, now, 2), "again")
	assert.Equal(t, []portion{{from: at(35), calls: 3}, {from: at(50), calls: 3}}, given(p.Work(now, at(35)), now, 2))
	q := Paced{Policy: &pacing.Policy{Records: 1000, PeriodMinutes: 1440}, Records: 9750, PerCall: 300, Allowance: 700,
		LapsesAt: at(1440), NextAt: at(1440)}
	assert.EqualValues(t, 3+9*4+1, q.Work(now, time.Time{}).Calls, "what is left now leaves 9050")
	assert.EqualValues(t, 9*4+3, q.Work(now, at(1440)).Calls, "which a hold has lapse")
	p.Policy.Window = &pacing.Hours{Timezone: "UTC", Start: 9 * 60, End: 9*60 + 40}
	p.LapsesAt = at(5)
	want := []portion{{from: now, calls: 2}, {from: at(5)}, {from: at(10), calls: 3}, {from: at(30), calls: 3},
		{from: at(40)}, {from: at(24 * 60), calls: 3}}
	assert.Equal(t, want, given(p.Work(now, time.Time{}), now, 6))
	assert.Equal(t, []portion{{from: at(24 * 60), calls: 3}}, given(p.Work(now, at(45)), now, 1),
		"what the hold covered has lapsed")
}

// TestTogether_Delayed: what waits for its next attempt may go before other work at once, and is awaited until it may.
func TestTogether_Delayed(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := now.Add(time.Hour)
	for name, c := range map[string]struct {
		work       waitingWork
		background bool
		from       time.Time
	}{
		"ours":             {waitingWork{Work: Work{Calls: 5, From: now}, by: later}, false, later},
		"before an upload": {waitingWork{Work: Work{Calls: 5, From: now}, by: later}, true, now},
		"of others":        {waitingWork{Work: Work{Calls: 5, From: now, Others: true}, by: later}, false, now},
		"held for longer":  {waitingWork{Work: Work{Calls: 5, From: later}, by: now}, false, later},
	} {
		all := together(now, []waitingWork{c.work}, c.background)
		require.Len(t, all, 1, name)
		assert.Equal(t, c.from, all[0].From, name)
	}
}

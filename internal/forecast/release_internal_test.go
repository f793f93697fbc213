package forecast

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/pacing"
)

// However many queues are held and paced, taking them together never makes the answer earlier, and costs little where they are few.
func TestTogether_ErrsLate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 8, 59, 30, 0, time.UTC)
	rate := Rate{Loc: time.UTC, Latency: 200 * time.Millisecond, InFlight: 4, Wake: time.Second,
		Used: func(int, time.Time) int { return 0 }}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		rate.Caps = map[int]int{60: []int{40, 4000}[seed/3%2]}
		most := []int{3, 30, 900}[seed%3]
		var work []waitingWork
		var exact []Work
		for range 1 + r.IntN(most) {
			w := waitingWork{Work: Work{Calls: 1 + r.Int64N(3), Background: r.IntN(3) == 0}}
			if r.IntN(2) == 0 {
				w.From = now.Add(time.Duration(r.IntN(2400)) * time.Second)
			}
			if r.IntN(2) == 0 {
				policy := &pacing.Policy{Records: 1 + r.Int64N(3), PeriodMinutes: 1 + r.IntN(9)}
				tick := now.Add(time.Duration(r.IntN(1200)-300) * time.Second)
				row := &db.QueueWaitsRow{Records: 1 + r.Int64N(40), PaceNextAt: &tick}
				w.portions = releases(policy, now, w.From, row, 1, portionsMost)
				exact = append(exact, released(w.portions, w.Background))
			} else {
				exact = append(exact, w.Work)
			}
			work = append(work, w)
		}
		want, got := Drain(now, rate, exact), Drain(now, rate, together(work, false))
		require.False(t, got.At.Before(want.At), "seed %d: %s is before %s", seed, got.At, want.At)
		if most == 3 {
			require.WithinDuration(t, want.At, got.At, 5*time.Second, "seed %d", seed)
		}
		for i := range work {
			work[i].Background, exact[i].Background = true, true
			if work[i].portions != nil {
				exact[i] = released(work[i].portions, true)
			}
		}
		last := Work{Calls: 400}
		require.False(t, Drain(now, rate, append(together(work, true), last)).At.Before(Drain(now, rate, append(exact, last)).At), "seed %d: behind all of it", seed)
	}
}

// A tick that is late releases once, whatever others were missed meanwhile.
func TestReleases_LateTick(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 9, 0, 30, 0, time.UTC)
	due := now.Add(-25 * time.Minute)
	got := releases(&pacing.Policy{Records: 10, PeriodMinutes: 10}, now, time.Time{}, &db.QueueWaitsRow{Records: 35, PaceNextAt: &due}, 1, portionsMost)
	at := func(minutes int) time.Time { return due.Add(time.Duration(minutes) * time.Minute) }
	assert.Equal(t, []portion{{now, now, 10}, {at(30), at(30), 10}, {at(40), at(40), 10}, {at(50), at(50), 5}}, got)
}

package forecast_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/forecast"
)

// TestDrain_Lapses: what a tick released and the budget had no room for waits for a later tick, and a tick of nothing
// closes the window of delivery.
func TestDrain_Lapses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	rate := forecast.Rate{Caps: map[int]int{3600: 3}, Loc: time.UTC, InFlight: 10,
		Used: func(int, time.Time) int { return 0 }}
	every := func(d time.Duration, n int64) func(time.Time) (time.Time, int64) {
		return func(after time.Time) (time.Time, int64) { return now.Add(after.Sub(now).Truncate(d) + d), n }
	}
	work := forecast.Work{Calls: 9, Release: every(40*time.Minute, 2), Lapses: true}
	// Two at 10:40; of each hour's three one goes at its second tick, if it has one.
	assert.Equal(t, now.Add(200*time.Minute), forecast.Drain(now, rate, []forecast.Work{work}).At)
	work = forecast.Work{Calls: 4, Release: every(time.Minute, 2), Lapses: true}
	rate.Delay.Until = now.Add(10 * time.Minute)
	// Nothing of the ticks before is left but the last one's.
	assert.Equal(t, now.Add(time.Hour), forecast.Drain(now, rate, []forecast.Work{work}).At)
	work.Release = func(after time.Time) (time.Time, int64) { // open for half a minute each day
		day := now.Add(after.Sub(now).Truncate(24 * time.Hour))
		if open := day.Add(30 * time.Second); after.Before(day.Add(time.Second)) {
			return day.Add(time.Second), 2
		} else if after.Before(open) {
			return open, 0
		}
		return day.Add(24*time.Hour + time.Second), 2
	}
	assert.Equal(t, now.Add(48*time.Hour+time.Second), forecast.Drain(now, rate, []forecast.Work{work}).At)
}

// TestDrain_LapsesInAnyOrder: of several works that lapse it may be the one that goes seldom which misses its turn.
func TestDrain_LapsesInAnyOrder(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	rate := forecast.Rate{Caps: map[int]int{3600: 1}, Loc: time.UTC, InFlight: 10,
		Used: func(int, time.Time) int { return 0 }}
	daily := daily(11)
	often := forecast.Work{Calls: 2, Lapses: true, Release: func(after time.Time) (time.Time, int64) {
		return after.Truncate(30 * time.Minute).Add(30 * time.Minute), 2
	}}
	alone := forecast.Drain(now, rate, []forecast.Work{daily}).At
	assert.Equal(t, now.Add(time.Hour), alone)
	for _, work := range [][]forecast.Work{{daily, often}, {often, daily}} {
		at := forecast.Drain(now, rate, work).At
		assert.WithinRange(t, at, now.Add(25*time.Hour), now.Add(26*time.Hour),
			"the hours from 10 and from 11 on may both go to the other")
	}
	daily.Calls = 3
	at := forecast.Drain(now, rate, []forecast.Work{daily, often}).At
	assert.WithinRange(t, at, now.Add(97*time.Hour), now.Add(101*time.Hour), "of so many days it may miss another")
}

// TestDrain_LapsesBeforeTheRest: where other work that lapses goes in time, what is left goes when the last could have.
func TestDrain_LapsesBeforeTheRest(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	rate := forecast.Rate{Caps: map[int]int{3600: 1}, Loc: time.UTC, InFlight: 10}
	rate.Used = func(int, time.Time) int { return 0 }
	// Of the hours from 10 on, the second may be the first daily work's, and the fifth then the plain work's: the other
	// waits a day.
	at := forecast.Drain(now, rate, []forecast.Work{daily(11), daily(14), {Calls: 4}}).At
	assert.WithinRange(t, at, now.Add(28*time.Hour), now.Add(29*time.Hour))
	// By turns with another organization the first goes today, and the day is spent before the other may go.
	rate.Caps[86400], rate.Others = 6, 1
	at = forecast.Drain(now, rate, []forecast.Work{daily(11), daily(20), {Calls: 5, Others: true}}).At
	assert.WithinRange(t, at, now.Add(34*time.Hour), now.Add(36*time.Hour))
}

// daily is a call that lapses each ten minutes of the hour in which it may go, each day.
func daily(hour int) forecast.Work {
	return forecast.Work{Calls: 1, Lapses: true, Release: func(after time.Time) (time.Time, int64) {
		next := after.Truncate(10 * time.Minute).Add(10 * time.Minute)
		switch open := after.Truncate(24 * time.Hour).Add(time.Duration(hour) * time.Hour); {
		case next.Before(open):
			return open, 1
		case next.Before(open.Add(time.Hour)):
			return next, 1
		case after.Before(open.Add(time.Hour)):
			return open.Add(time.Hour), 0
		default:
			return open.Add(24 * time.Hour), 1
		}
	}}
}

// TestDrain_HeldPaced: a portion that is there when a hold ends may go then, and before others do.
func TestDrain_HeldPaced(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	rate := forecast.Rate{Caps: map[int]int{3600: 2}, Loc: time.UTC, InFlight: 1,
		Used: func(int, time.Time) int { return 0 }}
	paced := forecast.Work{Calls: 2, From: now.Add(10 * time.Minute), Lapses: true,
		Release: func(after time.Time) (time.Time, int64) {
			return after.Truncate(10 * time.Minute).Add(10 * time.Minute), 2
		}}
	assert.Equal(t, now.Add(10*time.Minute), forecast.Drain(now, rate, []forecast.Work{paced}).At)
	paced.Background = true
	own := forecast.Work{Calls: 1, From: now.Add(10 * time.Minute)}
	assert.Equal(t, now.Add(time.Hour), forecast.Drain(now, rate, []forecast.Work{paced, own}).At)
}

// TestDrain_OthersLapse: whose turn of a round comes first nobody knows: a call of others that is there but for an hour
// of the day may take the one that would be ours.
func TestDrain_OthersLapse(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	rate := forecast.Rate{Caps: map[int]int{3600: 1}, Loc: time.UTC, InFlight: 1, Others: 2,
		Used: func(int, time.Time) int { return 0 }}
	theirs := daily(12)
	theirs.Others = true
	work := []forecast.Work{{Calls: 1}, {Calls: 9, Others: true}, theirs}
	assert.Equal(t, now.Add(3*time.Hour), forecast.Drain(now, rate, work).At, "two of theirs, the daily one, ours")
	theirs.Release = func(after time.Time) (time.Time, int64) { return after.Truncate(time.Hour).Add(time.Hour), 1 }
	work[2] = theirs
	assert.Equal(t, now.Add(2*time.Hour), forecast.Drain(now, rate, work).At, "what comes each hour has its own turn")
	// Over days more than one of ours may go to them.
	work = []forecast.Work{{Calls: 32}, {Calls: 200, Others: true}, daily(12)}
	work[2].Others, work[2].Calls = true, 10
	alone := forecast.Drain(now, rate, work[:2]).At
	assert.WithinRange(t, forecast.Drain(now, rate, work).At, alone.Add(7*time.Hour), alone.Add(12*time.Hour))
}

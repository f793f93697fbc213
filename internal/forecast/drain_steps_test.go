package forecast_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/forecast"
)

// TestDrain_Steps: where calls of a record follow each other, and something must be waited for, each may take its time.
func TestDrain_Steps(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 12, 0, 30, 0, time.UTC)
	rate := forecast.Rate{Caps: map[int]int{60: 100}, Loc: time.UTC, InFlight: 32, Used: func(_ int, start time.Time) int {
		if start.Before(now) {
			return 100 // of this minute, nothing is left
		}
		return 0
	}}
	forecast.Pace{Calls: 200, Slow: 5 * time.Second, Timeout: time.Minute}.Set(&rate)
	one := forecast.Drain(now, rate, []forecast.Work{{Calls: 10}}).At
	rate.Steps = 10
	ten := forecast.Drain(now, rate, []forecast.Work{{Calls: 10}}).At
	assert.Equal(t, 9*(rate.Longest+rate.Wake), ten.Sub(one))
	assert.False(t, ten.Before(now.Add(30*time.Second+10*5*time.Second)), "one after another, from the next minute on")
}

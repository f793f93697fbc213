package forecast_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/dispatch"
	"flowlane/internal/forecast"
)

// TestPace_Set: how long the last call may take is known by those before it, where these are some; else by its timeout.
func TestPace_Set(t *testing.T) {
	t.Parallel()
	var r forecast.Rate
	forecast.Pace{Calls: 9, Slow: 3 * time.Second, Timeout: time.Minute}.Set(&r)
	assert.Equal(t, forecast.Rate{Latency: 3 * time.Second, Longest: time.Minute, CountsFor: time.Minute,
		Wake: time.Second, Idle: 11 * time.Second}, r)
	r = forecast.Rate{Young: time.Second}
	forecast.Pace{Calls: 10, Slow: 3 * time.Second, Timeout: time.Minute}.Set(&r)
	assert.Equal(t, forecast.Rate{Young: time.Second, Latency: 3 * time.Second, Longest: 9 * time.Second,
		CountsFor: 3 * time.Second, Wake: time.Second + dispatch.LookFor,
		Idle: 10*time.Second + dispatch.LookFor}, r)
	r = forecast.Rate{}
	forecast.Pace{Readings: time.Second, Timeout: time.Minute, UntilResult: true}.Set(&r)
	day := 24 * time.Hour
	assert.Equal(t, forecast.Rate{Latency: day, Longest: day, CountsFor: time.Minute, Wake: time.Second,
		Idle: day + time.Second}, r, "nobody knows how long an import takes")
	r = forecast.Rate{}
	forecast.Pace{Calls: 10, Slow: 5 * time.Minute, Timeout: time.Minute, UntilResult: true}.Set(&r)
	assert.Equal(t, forecast.Rate{Latency: 5 * time.Minute, Longest: 15 * time.Minute, CountsFor: time.Minute,
		Wake: time.Second, Idle: 15*time.Minute + time.Second}, r)
}

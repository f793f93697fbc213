package moment_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/moment"
)

var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata",
	"Africa/Casablanca", "Pacific/Auckland"}

// TestStretch: it has its moment, the offset within it is one, and another on either side; also at the end of years of
// which only a rule is known.
func TestStretch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(r, "zone"))
		require.NoError(r, err)
		year := rapid.IntRange(1990, 9998).Draw(r, "year")
		at := time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC).
			Add(time.Duration(rapid.Int64Range(-86400*200, 86400*3).Draw(r, "seconds")) * time.Second).In(loc)
		from, until := moment.Stretch(at)
		_, offset := at.Zone()
		if !from.IsZero() {
			assert.False(r, from.After(at))
			assertOffset(r, offset, from, true)
			assertOffset(r, offset, from.Add(-time.Second), false)
		}
		if !until.IsZero() {
			assert.True(r, until.After(at))
			assertOffset(r, offset, until.Add(-time.Second), true)
			assertOffset(r, offset, until, false)
		}
	})
}

func assertOffset(t assert.TestingT, offset int, at time.Time, same bool) {
	_, is := at.Zone()
	assert.Equal(t, same, is == offset, "%s", at)
}

// TestStretch_LeapYear: what Time.ZoneBounds says of the last day of a leap year lies before it.
func TestStretch_LeapYear(t *testing.T) {
	t.Parallel()
	loc, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	at := time.Date(2040, 12, 31, 20, 0, 0, 0, loc)
	_, until := moment.Stretch(at)
	assert.Equal(t, time.Date(2041, 3, 31, 1, 0, 0, 0, time.UTC), until.UTC())
}

func TestCompare(t *testing.T) {
	t.Parallel()
	a, b := time.Unix(1, 0), time.Unix(2, 0)
	assert.Equal(t, []time.Time{b, b, a, a, a, a, b, {}}, []time.Time{moment.Later(a, b), moment.Later(b, a),
		moment.Earlier(a, b), moment.Earlier(b, a), moment.Soonest(a, b), moment.Soonest(a, time.Time{}),
		moment.Soonest(time.Time{}, b), moment.Soonest(time.Time{}, time.Time{})})
}

// TestBackoff: each pause is twice the one before, up to the longest; also behind so many failures that doubling them
// one by one would overflow, and where even the first is longer.
func TestBackoff(t *testing.T) {
	t.Parallel()
	var got []time.Duration
	for _, earlier := range []int{-1, 0, 1, 2, 4, 5, 99, math.MaxInt} {
		got = append(got, moment.Backoff(earlier, time.Second, 30*time.Second)/time.Second)
	}
	assert.Equal(t, []time.Duration{1, 1, 2, 4, 16, 30, 30, 30}, got)
	assert.Equal(t, time.Second, moment.Backoff(3, time.Minute, time.Second))
}

func TestSpread(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		pause := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(r, "pause"))
		got := moment.Spread(pause, rapid.Float64Range(0, 1).Draw(r, "random"))
		require.GreaterOrEqual(t, got, pause/2)
		require.LessOrEqual(t, got, pause)
	})
	assert.Equal(t, time.Second, moment.Spread(2*time.Second, 0))
	assert.Equal(t, 1500*time.Millisecond, moment.Spread(2*time.Second, 0.5))
}

package schedule_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/trigger/schedule"
)

// TestParseIn: what becomes of slots where clocks go forward or back.
func TestParseIn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		expression, zone, after string
		want                    []string
		note                    string
	}{
		"Plain": {"30 6 * * *", "Europe/Berlin", "2026-01-10T00:00:00Z", []string{"2026-01-10T06:30:00+01:00",
			"2026-01-11T06:30:00+01:00"}, ""},
		"Gap": {"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
			"Clocks go forward from 02:00 to 03:00: 02:30 is left out, so it fires at 03:00"},
		"GapAndItsEnd": {"0,30 2,3 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00", "2026-03-30T02:00:00+02:00"},
			"Clocks go forward from 02:00 to 03:00: 02:00 is left out, so it fires at 03:00"},
		"Overlap": {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T02:30:00+02:00",
			"2026-10-26T02:30:00+01:00"},
			"Clocks go back: 02:30 comes twice, and it fires the first time only"},
		"OverlapFromInside": {"30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z",
			[]string{"2026-10-26T02:30:00+01:00"}, ""},
		"EveryHourInTheGap": {"0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"}, ""},
		"EveryHourInTheOverlap": {"0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"}, ""},
		"EveryHourFromInsideTheOverlap": {"15 * * * *", "Europe/Berlin", "2026-10-25T00:50:00Z",
			[]string{"2026-10-25T02:15:00+01:00", "2026-10-25T03:15:00+01:00"}, ""},
		"EveryHourWithoutMidnight": {"0 * * * 5", "Africa/Cairo", "2026-04-17T20:30:00Z",
			[]string{"2026-04-17T23:00:00+02:00", "2026-04-24T01:00:00+03:00", "2026-04-24T02:00:00+03:00"}, ""},
		"EveryHourWithoutMidnightOnSunday": {"0 * * * 0", "Asia/Beirut", "2026-03-22T20:30:00Z",
			[]string{"2026-03-22T23:00:00+02:00", "2026-03-29T01:00:00+03:00", "2026-03-29T02:00:00+03:00"}, ""},
		"QuartersWithoutMidnight": {"*/15 * * * 5", "Africa/Cairo", "2026-04-17T21:30:00Z",
			[]string{"2026-04-17T23:45:00+02:00", "2026-04-24T01:00:00+03:00", "2026-04-24T01:15:00+03:00"}, ""},
		"DateWithoutMidnight": {"0 * 24 4 *", "Africa/Cairo", "2026-01-01T00:00:00Z",
			[]string{"2026-04-24T01:00:00+03:00", "2026-04-24T02:00:00+03:00"}, ""},
		"EitherDayWithoutMidnight": {"30 * 1 * 5", "Africa/Cairo", "2026-04-17T21:00:00Z",
			[]string{"2026-04-17T23:30:00+02:00", "2026-04-24T01:30:00+03:00"}, ""},
		"MonthWithoutMidnight": {"0 * * 10 *", "America/Asuncion", "2017-09-01T00:00:00Z",
			[]string{"2017-10-01T01:00:00-03:00", "2017-10-01T02:00:00-03:00"}, ""},
		"MidnightTwice": {"0 * * * 0", "America/Havana", "2026-10-26T12:00:00Z",
			[]string{"2026-11-01T00:00:00-04:00", "2026-11-01T00:00:00-05:00", "2026-11-01T01:00:00-05:00"}, ""},
		"LastHourTwice": {"0 * * * 4", "Africa/Cairo", "2026-10-29T19:30:00Z",
			[]string{"2026-10-29T23:00:00+03:00", "2026-10-29T23:00:00+02:00", "2026-11-05T00:00:00+02:00"}, ""},
		"SkippedDate": {"0 * 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z",
			[]string{"2012-12-30T00:00:00+14:00", "2012-12-30T01:00:00+14:00"}, ""},
		"SkippedWeekday": {"0 * * * 5", "Pacific/Apia", "2011-12-24T08:30:00Z",
			[]string{"2011-12-23T23:00:00-10:00", "2012-01-06T00:00:00+14:00"}, ""},
		"AroundASkippedDay": {"0 * 29-31 12 *", "Pacific/Apia", "2011-12-30T08:30:00Z",
			[]string{"2011-12-29T23:00:00-10:00", "2011-12-31T00:00:00+14:00"}, ""},
		"EveryHourInAGapOfHalfAnHour": {"*/15 * * * 0", "Australia/Lord_Howe", "2026-10-03T15:20:00Z",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-04T02:45:00+11:00"}, ""},
		"EveryHourOverAGapOfHalfAnHour": {"0 * * * 0", "Australia/Lord_Howe", "2026-10-03T14:20:00Z",
			[]string{"2026-10-04T01:00:00+10:30", "2026-10-04T03:00:00+11:00"}, ""},
		"EveryHourInAnOverlapOfHalfAnHour": {"*/15 * * * 0", "Australia/Lord_Howe", "2026-04-04T14:40:00Z",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-05T01:30:00+10:30", "2026-04-05T01:45:00+10:30",
				"2026-04-05T02:00:00+10:30"}, ""},
		"EveryHourNever": {"* * 30 2 *", "Africa/Cairo", "2026-03-28T12:00:00Z", nil, ""},
		// Of years that far ahead only a rule is known.
		"EveryHourAtTheEndOfALeapYear": {"0 * * * *", "Europe/Berlin", "2040-12-31T12:00:00Z",
			[]string{"2040-12-31T14:00:00+01:00", "2040-12-31T15:00:00+01:00"}, ""},
		"EveryHourBehindTheEndOfALeapYear": {"0 * 1 7 *", "Europe/Berlin", "2040-12-31T12:00:00Z",
			[]string{"2041-07-01T00:00:00+02:00", "2041-07-01T01:00:00+02:00"}, ""},
		"HalfAnHour": {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"},
			"Clocks go forward from 02:00 to 02:30: 02:15 is left out, so it fires at 02:30"},
		"UTC":   {"30 2 * * *", "UTC", "2026-03-28T12:00:00Z", []string{"2026-03-29T02:30:00Z"}, ""},
		"Never": {"0 0 30 2 *", "Europe/Berlin", "2026-03-28T12:00:00Z", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := schedule.ParseIn(tt.expression, tt.zone)
			require.NoError(t, err)
			after, err := time.Parse(time.RFC3339, tt.after)
			require.NoError(t, err)
			var got []string
			note := ""
			for _, slot := range c.Upcoming(after, max(len(tt.want), 1)) {
				got = append(got, slot.At.Format(time.RFC3339))
				note += slot.Note
			}
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.note, note)
		})
	}
	_, err := schedule.ParseIn("0 0 * * *", "Berlin/Europe")
	assert.Error(t, err)
}

// TestParseIn_EachDayOnce: whatever the zone, an expression for a time of the day fires once a day for years.
func TestParseIn_EachDayOnce(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo",
		"Africa/Cairo", "Asia/Kolkata"} {
		for _, expression := range []string{"30 2 * * *", "0 0 * * *", "30 23 * * *", "45 1 * * *"} {
			c, err := schedule.ParseIn(expression, zone)
			require.NoError(t, err)
			at := time.Date(2024, 12, 31, 12, 0, 0, 0, time.UTC)
			days := map[string]int{}
			loc, err := time.LoadLocation(zone)
			require.NoError(t, err)
			for at = c.Next(at); at.Before(time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)); at = c.Next(at) {
				days[at.In(loc).Format(time.DateOnly)]++
			}
			assert.InDelta(t, 1095, len(days), 2, "%s in %s", expression, zone)
			for day, n := range days {
				assert.Equal(t, 1, n, "%s in %s on %s", expression, zone, day)
			}
		}
	}
}

// TestProperty_EveryHour: around a change of the clocks, an expression for every hour fires in each minute that passes
// in which a clock on the wall shows what it asks for.
func TestProperty_EveryHour(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{"Africa/Cairo", "Asia/Beirut", "America/Asuncion", "America/Havana",
			"America/Sao_Paulo", "America/Santiago", "Asia/Amman", "Asia/Tehran", "Australia/Lord_Howe",
			"Europe/Berlin", "Pacific/Apia"}).Draw(t, "zone")
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		change := time.Date(2008, 1, 1, 0, 0, 0, 0, loc).AddDate(0, 0, rapid.IntRange(0, 24*365).Draw(t, "day"))
		if _, end := change.ZoneBounds(); !end.IsZero() {
			change = end
		}
		minute, minutes := drawField(t, "minute", rapid.IntRange(0, 59))
		// Days about the change, which would else be met too seldom.
		near := rapid.Custom(func(t *rapid.T) time.Time {
			return change.Add(time.Duration(rapid.IntRange(-36, 36).Draw(t, "hours")) * time.Hour)
		})
		date, dates := drawField(t, "date", rapid.Map(near, time.Time.Day))
		month, months := drawField(t, "month", rapid.Map(near, func(at time.Time) int { return int(at.Month()) }))
		weekday, weekdays := drawField(t, "weekday",
			rapid.Map(near, func(at time.Time) int { return int(at.Weekday()) }))
		c, err := schedule.ParseIn(strings.Join([]string{minute, "*", date, month, weekday}, " "), zone)
		require.NoError(t, err)

		from := change.Add(-time.Duration(rapid.IntRange(1, 60*60*60).Draw(t, "before")) * time.Second)
		upto := change.Add(60 * time.Hour)
		var want []time.Time
		for at := from.UTC().Truncate(time.Minute).Add(time.Minute); !at.After(upto); at = at.Add(time.Minute) {
			shown := at.In(loc)
			day := dates[shown.Day()] && weekdays[int(shown.Weekday())]
			if date != "*" && weekday != "*" {
				day = dates[shown.Day()] || weekdays[int(shown.Weekday())]
			}
			if day && months[int(shown.Month())] && minutes[shown.Minute()] {
				want = append(want, at)
			}
		}
		got, _ := c.Between(from, upto, math.MaxInt)
		require.Equal(t, want, got)
	})
}

// drawField draws a field of an expression, and what matches it.
func drawField(t *rapid.T, name string, values *rapid.Generator[int]) (string, map[int]bool) {
	matches := map[int]bool{}
	if rapid.Bool().Draw(t, name+" is *") {
		for n := range 60 {
			matches[n] = true
		}
		return "*", matches
	}
	var parts []string
	for _, n := range rapid.SliceOfN(values, 1, 3).Draw(t, name) {
		parts, matches[n] = append(parts, itoa(n)), true
	}
	return strings.Join(parts, ","), matches
}

package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

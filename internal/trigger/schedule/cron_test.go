package schedule_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/trigger/schedule"
)

func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	for expression, why := range map[string]string{
		"":                                "it has 0 fields",
		"* * * *":                         "it has 4 fields",
		"0 * * * * *":                     "seconds and years are not accepted",
		"0 0 * * * * *":                   "seconds and years are not accepted",
		"@hourly":                         "aliases such as @hourly",
		"@every 5m":                       "aliases such as @hourly",
		"@reboot":                         "aliases such as @hourly",
		"TZ=UTC * * * * *":                "a time zone is not accepted here",
		"cron_tz=Asia/Tokyo * * * * *":    "a time zone is not accepted here",
		"? * * * *":                       "minute: ? is not accepted",
		"0 0 ? * 1":                       "day of the month: ? is not accepted",
		"0 0 L * *":                       "day of the month: L is not accepted",
		"0 0 l * *":                       "day of the month: L is not accepted",
		"0 0 15W * *":                     "day of the month: 15W is not accepted",
		"0 0 LW * *":                      "day of the month: LW is not accepted",
		"0 0 * * 5L":                      "day of the week: 5L is not accepted",
		"0 0 * * 5#2":                     `day of the week: '#' is not accepted`,
		"60 * * * *":                      "minute:",
		"* 24 * * *":                      "hour:",
		"* * 0 * *":                       "day of the month:",
		"* * 32 * *":                      "day of the month:",
		"* * * 13 *":                      "month:",
		"* * * foo *":                     "month:",
		"* * * * 8":                       "day of the week:",
		"* * * * 6-8":                     "day of the week:",
		"* * * * 7-1":                     "day of the week: 7-1 is no range",
		"* * * * 1-7/0":                   "day of the week: the step of 1-7/0",
		"*/0 * * * *":                     "minute:",
		"5-1 * * * *":                     "minute:",
		"1,,2 * * * *":                    "minute:",
		"-1 * * * *":                      `minute: "-1" is not accepted: write a number, a range such as 1-5, or *`,
		"*-5 * * * *":                     `minute: "*-5" is not accepted`,
		"0 */2,*-3 * * *":                 `hour: "*-3" is not accepted`,
		"0 0 * * *-1":                     `day of the week: "*-1" is not accepted`,
		"** * * * *":                      `minute: "**" is not accepted`,
		"1- * * * *":                      `minute: "1-" is not accepted`,
		"1-2-3 * * * *":                   `minute: "1-2-3" is not accepted`,
		"/5 * * * *":                      `minute: "/5" is not accepted`,
		"5/ * * * *":                      `minute: "5/" is not accepted`,
		"0x5 * * * *":                     `minute: "0x5" is not accepted`,
		"jan * * * *":                     `minute: "jan" is not accepted`,
		"0 0 * MONDAY *":                  `month: "MONDAY" is not accepted`,
		"0 0 * * 6-7/9223372036854775801": `day of the week: "6-7/9223372036854775801" is not accepted`,
		"1.5 * * * *":                     `minute: '.' is not accepted`,
		"99999999999999999999 * * * *":    "minute:",
		"0 0 * * 7-99999999999999999999":  "day of the week:",
	} {
		_, err := schedule.Parse(expression)
		if assert.Error(t, err, "%q", expression) {
			assert.Contains(t, err.Error(), why, "%q", expression)
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ expression, after, next string }{
		{"* * * * *", "2026-03-01T00:00:00Z", "2026-03-01T00:01:00Z"},
		{"* * * * *", "2026-03-01T00:00:59.999Z", "2026-03-01T00:01:00Z"},
		{" 30\t6 * *  1-5 ", "2026-03-06T06:30:00Z", "2026-03-09T06:30:00Z"}, // a Friday
		{"0 0 * * 7", "2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z"},        // a Sunday
		{"0 0 * * 0", "2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z"},
		{"0 0 * * SUN", "2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z"},
		{"0 0 * * 5-7", "2026-03-07T00:00:00Z", "2026-03-08T00:00:00Z"},
		{"0 0 * * 5-7", "2026-03-08T00:00:00Z", "2026-03-13T00:00:00Z"},
		{"0 0 * * fri-7/2", "2026-03-06T00:00:00Z", "2026-03-08T00:00:00Z"},
		{"0 0 * * 07", "2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z"},
		{"0 0 * JAN-mar/2 *", "2026-01-31T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"0 0 * * 1,7", "2026-03-07T00:00:00Z", "2026-03-08T00:00:00Z"},
		{"15/20 * * * *", "2026-03-01T00:15:00Z", "2026-03-01T00:35:00Z"},
		{"0 0 13 * 5", "2026-03-01T00:00:00Z", "2026-03-06T00:00:00Z"}, // either day
		{"0 0 29 2 *", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 31 JAN,apr *", "2026-03-01T00:00:00Z", "2027-01-31T00:00:00Z"},
		{"0 0 30 2 *", "2026-03-01T00:00:00Z", ""},
		{"30 2 29 3 *", "2026-03-01T00:00:00Z", "2026-03-29T02:30:00Z"}, // which Berlin does not have
	} {
		c, err := schedule.Parse(tt.expression)
		require.NoError(t, err, tt.expression)
		after, err := time.Parse(time.RFC3339Nano, tt.after)
		require.NoError(t, err)
		got := ""
		if next := c.Next(after.In(time.FixedZone("", 5400))); !next.IsZero() {
			got = next.Format(time.RFC3339Nano)
		}
		assert.Equal(t, tt.next, got, "%s after %s", tt.expression, tt.after)
	}
}

// Slots between two times are those that one finds minute by minute.
func TestProperty_Between(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		field := func(name string, low, high int) string {
			a := rapid.IntRange(low, high).Draw(t, name)
			return rapid.SampledFrom([]string{"*", "*", itoa(a), itoa(a) + "-" + itoa(high), "*/" + itoa(max(a, 1)),
				itoa(low) + "," + itoa(a)}).Draw(t, name)
		}
		c, err := schedule.Parse(field("minute", 0, 59) + " " + field("hour", 0, 23) + " " + field("day", 1, 28) +
			" * " + field("weekday", 0, 7))
		require.NoError(t, err)
		from := time.Date(2026, 2, 20, 3, 0, 17, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 30*24*60).Draw(t,
			"from")) * time.Minute)
		upto := from.Add(time.Duration(rapid.IntRange(0, 3*24*60).Draw(t, "long")) * time.Minute)
		most := rapid.IntRange(1, 50).Draw(t, "most")
		var want []time.Time
		for at := from.Truncate(time.Minute).Add(time.Minute); !at.After(upto); at = at.Add(time.Minute) {
			if c.Next(at.Add(-time.Nanosecond)).Equal(at) {
				want = append(want, at)
			}
		}
		var got []time.Time
		for after, more := from, true; more; {
			var some []time.Time
			if some, more = c.Between(after, upto, most); len(some) > 0 {
				require.LessOrEqual(t, len(some), most)
				got, after = append(got, some...), some[len(some)-1]
			}
		}
		require.Equal(t, want, got)
	})
}

func itoa(n int) string { return strconv.Itoa(n) }

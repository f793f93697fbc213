package torture_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// field is a field of a cron expression, with what it means.
type field struct {
	text string
	has  func(n int) bool
}

var always = field{"*", func(int) bool { return true }}

// each is every so many from a number to another.
func each(first, last, step int) field {
	return field{fmt.Sprintf("%d-%d/%d", first, last, step), func(n int) bool {
		return n >= first && n <= last &&
			(n-first)%step == 0
	}}
}

// these are some numbers.
func these(numbers ...int) field {
	var text []string
	set := map[int]bool{}
	for _, n := range numbers {
		text = append(text, strconv.Itoa(n))
		set[n] = true
	}
	return field{strings.Join(text, ","), func(n int) bool { return set[n] }}
}

// written is the same field, written in another way.
func (f field) written(text string) field { return field{text, f.has} }

// crontab is a cron expression that is known without reading it.
type crontab struct{ minute, hour, day, month, weekday field }

func (c *crontab) String() string {
	return strings.Join([]string{c.minute.text, c.hour.text, c.day.text, c.month.text, c.weekday.text}, " ")
}

// names says whether a minute is a slot. Of day and weekday one is enough where both are named, as ever in cron.
func (c *crontab) names(t time.Time) bool {
	day, weekday := c.day.has(t.Day()), c.weekday.has(int(t.Weekday()))
	on := day && weekday
	if c.day.text != "*" && c.weekday.text != "*" {
		on = day || weekday
	}
	return on && c.minute.has(t.Minute()) && c.hour.has(t.Hour()) && c.month.has(int(t.Month()))
}

// slots are those after a time, up to another: it looks at every minute.
func (c *crontab) slots(after, upto time.Time) (slots []time.Time) {
	for at := after.UTC().Truncate(time.Minute).Add(time.Minute); !at.After(upto); at = at.Add(time.Minute) {
		if c.names(at) {
			slots = append(slots, at)
		}
	}
	return slots
}

// next is the first slot after a time; zero where there is none for two years.
func (c *crontab) next(after time.Time) time.Time {
	for day := range 2 * 366 {
		from := after.Add(time.Duration(day) * 24 * time.Hour)
		if slots := c.slots(from, from.Add(24*time.Hour)); len(slots) > 0 {
			return slots[0]
		}
	}
	return time.Time{}
}

// weekdays are days of the week as people write them.
var weekdays = []field{
	each(1, 5, 1).written("1-5"), each(1, 5, 1).written("MON-FRI"), these(0, 6).written("SAT,SUN"),
	these(0, 5, 6).written("5-7"), these(0).written("7"),
	these(0), these(1, 3, 5), each(2, 6, 2).written("tue-sat/2"), these(0).written("sun"),
}

// newCrontab makes an expression whose slots come, more or less often, on the days from a date on: of 100 kinds, which
// go from each minute to never and each day, one of the first so many.
func newCrontab(r *rand.Rand, date time.Time, rarest int) *crontab {
	c := &crontab{these(r.IntN(60)), always, always, always, always}
	hours := these(r.IntN(24))
	switch n := r.IntN(rarest); {
	case n < 1:
		c.minute = always
	case n < 10:
		c.minute = pick(r, []field{each(0, 59, 5).written("*/5"), each(r.IntN(5), 59, 5),
			each(0, 58, 1).written("0-58")})
		if c.minute.text == "0-58" {
			c.hour = these(r.IntN(24), r.IntN(24))
		}
	case n < 20:
		c.minute = pick(r, []field{each(0, 59, 15).written("*/15"), these(r.IntN(30), 30+r.IntN(30)),
			each(r.IntN(20), 59, 20)})
	case n < 60: // each hour
	case n < 68:
		first := r.IntN(12)
		c.hour = pick(r, []field{each(0, 23, 2).written("*/2"), each(first, first+10, 3),
			each(first, first+10, 1).written(fmt.Sprintf("%d-%d", first, first+10))})
	case n < 76:
		c.hour, c.weekday = pick(r, []field{always, hours}), pick(r, weekdays)
	case n < 84: // on days of the month, or of the week
		c.hour, c.day = pick(r, []field{always, hours}),
			pick(r, []field{these(date.Day()), these(date.AddDate(0, 0, 1).Day()), each(1, 31, 2).written("1-31/2"),
				these(31)})
		c.weekday = pick(r, append(weekdays, always, always, always))
	case n < 88:
		c.hour = hours
		c.month = pick(r, []field{these(int(date.Month())).written(strings.ToUpper(date.Month().String()[:3])),
			each(1, 12, 2).written("*/2"), each(2, 12, 2)})
	case n < 89: // never
		c.minute, c.hour, c.day, c.month = these(0), these(0), these(30), these(2)
	default: // each day
		c.hour = hours
	}
	return c
}

package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Cron is a compiled expression: five fields, in UTC or in a zone.
type Cron struct {
	spec *cron.SpecSchedule
	// zone is nil for UTC.
	zone *time.Location
}

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// fieldNames are the fields of an expression, in their order.
var fieldNames = []string{"minute", "hour", "day of the month", "month", "day of the week"}

// fieldForms are what a field is made of, between its commas.
var fieldForms = []*regexp.Regexp{form(""), form(""), form(""),
	form("|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"),
	form("|" + strings.Join(weekdayNames, "|"))}

// form is that of a field in which names may stand for numbers.
func form(names string) *regexp.Regexp {
	value := "([0-9]{1,9}" + names + ")"
	return regexp.MustCompile("^(?i)([*]|" + value + "(-" + value + ")?)(/[0-9]{1,9})?$")
}

// Parse compiles an expression. Its errors are for whoever wrote it: they say what to write instead.
func Parse(expression string) (*Cron, error) {
	text := strings.TrimSpace(expression)
	switch upper := strings.ToUpper(text); {
	case strings.HasPrefix(text, "@"):
		return nil, unaliased(text)
	case strings.HasPrefix(upper, "TZ=") || strings.HasPrefix(upper, "CRON_TZ="):
		return nil, errors.New("a time zone is not accepted here: write five fields, " +
			"and the zone as timezone beside them")
	}
	fields := strings.Fields(text)
	switch n := len(fields); {
	case n == 6 || n == 7:
		return nil, fmt.Errorf("it has %d fields; seconds and years are not accepted: write minute, hour, "+
			"day of the month, month, day of the week, for example %s", n,
			strings.Join(fields[1:1+len(fieldNames)], " "))
	case n != len(fieldNames):
		return nil, fmt.Errorf("it has %d fields: write minute, hour, day of the month, month, day of the week", n)
	}
	for i, field := range fields {
		err := plain(field)
		if err == nil {
			err = spelled(field, fieldForms[i])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fieldNames[i], err)
		}
	}
	var err error
	if fields[4], err = weekdays(fields[4]); err != nil {
		return nil, fmt.Errorf("%s: %w", fieldNames[4], err)
	}
	for i, field := range fields {
		// One by one, because the parser does not say which field it means.
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = field
		if _, err := parser.Parse(strings.Join(alone, " ")); err != nil {
			return nil, fmt.Errorf("%s: %w", fieldNames[i], err)
		}
	}
	parsed, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("write five fields")
	}
	spec.Location = time.UTC
	return &Cron{spec: spec}, nil
}

// aliases are names of other dialects, each with what to write instead.
var aliases = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// unaliased refuses an alias, and says what to write instead.
func unaliased(text string) error {
	if fields, ok := aliases[strings.ToLower(text)]; ok {
		return fmt.Errorf("aliases such as @hourly are not accepted: for %s write %s", text, fields)
	}
	return errors.New("aliases such as @hourly are not accepted: write five fields, for example 0 * * * *")
}

// spelled refuses what the parser would take for something else, such as *-5 for *, or say nothing clear about.
func spelled(field string, part *regexp.Regexp) error {
	for text := range strings.SplitSeq(field, ",") {
		if !part.MatchString(text) {
			return fmt.Errorf("%q is not accepted: write a number, a range such as 1-5, or *, "+
				"with or without a step such as /5", text)
		}
	}
	return nil
}

// plain refuses what other dialects have, some of which the parser would take for something else.
func plain(field string) error {
	for _, r := range field {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', strings.ContainsRune("*,-/", r):
		case r == '?':
			return errors.New("? is not accepted: write *")
		default:
			return fmt.Errorf("%q is not accepted", r)
		}
	}
	for part := range strings.SplitSeq(field, ",") {
		if part == "" {
			return errors.New("a comma stands between two values")
		}
	}
	for _, part := range strings.FieldsFunc(strings.ToUpper(field),
		func(r rune) bool { return strings.ContainsRune(",-/", r) }) {
		if strings.Trim(part, "0123456789LW") == "" && strings.ContainsAny(part, "LW") {
			return fmt.Errorf("%s is not accepted: L and W are of another dialect", part)
		}
	}
	return nil
}

var weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

// weekdays writes out what has 7, which is Sunday and which the parser does not know: 5-7 as 5,6,0.
func weekdays(field string) (string, error) {
	parts := strings.Split(field, ",")
	for i, part := range parts {
		days, step, stepped := strings.Cut(part, "/")
		low, high, ranged := strings.Cut(days, "-")
		if weekday(low) != 7 && weekday(high) != 7 {
			continue
		}
		from, to, by := weekday(low), weekday(low), 1
		if ranged {
			to = weekday(high)
		}
		if stepped {
			var err error
			if by, err = strconv.Atoi(step); err != nil || by < 1 {
				return "", fmt.Errorf("the step of %s must be a number from 1 on", part)
			}
		}
		if from < 0 || to < from || to > 7 {
			return "", fmt.Errorf("%s is no range of days 0 to 7", part)
		}
		var out []string
		for day := from; day <= to; day += by {
			out = append(out, strconv.Itoa(day%7))
		}
		parts[i] = strings.Join(out, ",")
	}
	return strings.Join(parts, ","), nil
}

// weekday returns the number of a day, 0 to 7; -1 for what is none.
func weekday(text string) int {
	for i, name := range weekdayNames {
		if strings.EqualFold(text, name) {
			return i
		}
	}
	if n, err := strconv.Atoi(text); err == nil && n <= 7 {
		return n
	}
	return -1
}

// Next returns the first slot after a time; the zero time where there is none within five years.
func (c *Cron) Next(after time.Time) time.Time {
	if c.zone != nil {
		return c.nextInZone(after)
	}
	return c.spec.Next(after.UTC())
}

// Between returns the slots after one time up to another, oldest first, at most so many; more tells that there are
// others.
func (c *Cron) Between(after, upto time.Time, most int) (slots []time.Time, more bool) {
	for at := c.Next(after); !at.IsZero() && !at.After(upto); at = c.Next(at) {
		if len(slots) == most {
			return slots, true
		}
		slots = append(slots, at)
	}
	return slots, false
}

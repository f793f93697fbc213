package schedule

import (
	"fmt"
	"time"

	"flowlane/internal/fault"
	"flowlane/internal/moment"
	"flowlane/internal/pacing"
)

// UTC is the zone of an expression that names none.
const UTC = "UTC"

// everyHour is how the parser writes * for the hours.
const everyHour = 1<<24 - 1

// ParseIn compiles an expression whose fields are in a zone. Its errors are as those of Parse, and those of the zone.
func ParseIn(expression, zone string) (*Cron, error) {
	c, err := Parse(expression)
	if err != nil || zone == UTC {
		return c, err
	}
	if c.zone, err = pacing.Zone(zone); err != nil {
		return nil, err //nolint:wrapcheck // says what to write
	}
	return c, nil
}

// CheckZone refuses what is no zone. Fault: Unprocessable.
func CheckZone(zone string) error {
	if zone == UTC {
		return nil
	}
	if _, err := pacing.Zone(zone); err != nil {
		return fault.Value([]string{"body", "timezone"}, "%q is no IANA time zone; give a name such as Europe/Berlin",
			zone)
	}
	return nil
}

// Slot is a time at which a schedule fires.
type Slot struct {
	// At is in the zone of the schedule.
	At time.Time
	// Note says how clocks that go forward or back have moved it; empty where they have not.
	Note string
}

// Upcoming are the slots after a time, at most so many.
func (c *Cron) Upcoming(after time.Time, most int) []Slot {
	var out []Slot
	for at := c.Next(after); !at.IsZero() && len(out) < most; at = c.Next(at) {
		slot := Slot{At: at}
		if c.zone != nil {
			slot.At = at.In(c.zone)
			slot.Note = c.note(at)
		}
		out = append(out, slot)
	}
	return out
}

// nextInZone is Next in a zone. An expression for every hour follows the time that passes: it leaves an hour out that
// is left out, and fires in both where one comes twice. One that names hours fires once for each: at the end of the
// gap where its time is left out, and the first time where it comes twice.
func (c *Cron) nextInZone(after time.Time) time.Time {
	if c.spec.Hour&everyHour == everyHour {
		return c.passing(after)
	}
	// The clock on the wall, as if it were in UTC; it may have been put back since, so a day earlier.
	wall := onWall(after.In(c.zone)).AddDate(0, 0, -1)
	for {
		if wall = c.spec.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		if at, _ := c.resolve(wall); at.After(after) {
			return at.UTC()
		}
	}
}

// searchYears is how far a search goes, as the library's own does.
const searchYears = 5

// passing is Next for every hour: the first time after another at which a clock on the wall shows what the expression
// asks for. The search is in UTC from one change of the clocks to the next, as between them the wall is as far from UTC
// throughout. The library is not asked to search the zone: it goes from midnight to midnight, and loses a day that
// begins later.
func (c *Cron) passing(after time.Time) time.Time {
	at := after.In(c.zone)
	wall, last := onWall(at), at.Year()+searchYears
	for at.Year() <= last {
		_, ahead := at.Zone()
		_, change := moment.Stretch(at)
		// None on the wall does not end it: clocks put back at the change show again what is behind.
		if slot := c.spec.Next(wall); !slot.IsZero() {
			slot = slot.Add(-time.Duration(ahead) * time.Second)
			if change.IsZero() || slot.Before(change) {
				return slot
			}
		}
		if change.IsZero() {
			break
		}
		at, wall = change, onWall(change).Add(-time.Second) // the change itself may be a slot
	}
	return time.Time{}
}

// onWall is what a clock on the wall shows, as a time in UTC.
func onWall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// What becomes of a time on the wall.
const (
	once = iota
	leftOut
	twice
)

// resolve returns when a clock on the wall shows a time: the end of the gap for one that is left out, and the first of
// two.
func (c *Cron) resolve(wall time.Time) (at time.Time, what int) {
	at = time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), 0, 0, c.zone)
	start, end := at.ZoneBounds()
	switch shown := onWall(at); {
	case shown.After(wall):
		return start, leftOut
	case shown.Before(wall):
		return end, leftOut
	}
	for _, change := range []time.Time{start, end} { // clocks may have been put back before it, or be put back after it
		if change.IsZero() {
			continue
		}
		_, before := change.Add(-time.Second).Zone()
		_, behind := change.Zone()
		first := wall.Add(-time.Duration(before) * time.Second)
		second := wall.Add(-time.Duration(behind) * time.Second)
		if behind < before && first.Before(change) && !second.Before(change) {
			return first.In(c.zone), twice
		}
	}
	return at, once
}

// note says how a slot was moved.
func (c *Cron) note(at time.Time) string {
	local := at.In(c.zone)
	if c.spec.Hour&everyHour == everyHour {
		return ""
	}
	if start, _ := local.ZoneBounds(); start.Equal(at) {
		_, before := start.Add(-time.Second).Zone()
		_, behind := start.Zone()
		from := onWall(local).Add(-time.Duration(behind-before) * time.Second)
		if asked := c.spec.Next(from.Add(-time.Second)); behind > before && asked.Before(onWall(local)) {
			return fmt.Sprintf("Clocks go forward from %s to %s: %s is left out, so it fires at %s",
				from.Format("15:04"), local.Format("15:04"), asked.Format("15:04"), local.Format("15:04"))
		}
	}
	if _, what := c.resolve(onWall(local)); what == twice {
		return fmt.Sprintf("Clocks go back: %s comes twice, and it fires the first time only", local.Format("15:04"))
	}
	return ""
}

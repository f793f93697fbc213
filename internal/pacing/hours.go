package pacing

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // the zones of policies must be known wherever the binary runs

	"flowlane/internal/moment"
)

// Hours is when records may be delivered: while the clocks of a time zone show a minute from Start up to, but not
// including, End, on these days of the week; every day where Days is empty. So it follows daylight saving: an hour that
// clocks skip is not there, and one that they repeat is there twice.
type Hours struct {
	Timezone string   `json:"timezone"`
	Start    int      `json:"start_minute_of_day"`
	End      int      `json:"end_minute_of_day"`
	Days     []string `json:"days,omitempty"`
}

// weekdays are the names of days, from the one that Unix time began with.
var weekdays = []string{"thursday", "friday", "saturday", "sunday", "monday", "tuesday", "wednesday"}

func (w *Hours) check() []Mistake {
	var bad []Mistake
	add := func(field, format string, args ...any) {
		bad = append(bad, Mistake{[]string{field}, fmt.Sprintf(format, args...)})
	}
	if _, err := Zone(w.Timezone); err != nil {
		add("timezone", "Give the name of an IANA time zone, for example Europe/Berlin; fixed offsets are not accepted")
	}
	if w.Start < 0 || w.Start >= minutesOfDay {
		add("start_minute_of_day", "Give a number from 0 to %d", minutesOfDay-1)
	}
	switch {
	case w.End < 1 || w.End > minutesOfDay:
		add("end_minute_of_day", "Give a number from 1 to %d", minutesOfDay)
	case w.End <= w.Start:
		add("end_minute_of_day", "Give a minute after start_minute_of_day; a window does not go past midnight")
	}
	for _, d := range w.Days {
		if !slices.Contains(weekdays, d) {
			add("days", "Give names of weekdays, from monday to sunday")
			break
		}
	}
	return bad
}

// zones are those that were asked for, by name: reading one costs a file.
var zones sync.Map

// fixed are names of offsets: they stand still where the places that people mean by them do not.
var fixed = []string{"EST", "MST", "HST", "Factory", "Local"}

// Zone returns an IANA time zone by its name. Names of fixed offsets, such as Etc/GMT+3, are none; UTC and GMT are.
func Zone(name string) (*time.Location, error) {
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil
	}
	// What begins otherwise are files beside the zones; each zone is kept under one name.
	named := name != "" && name[0] >= 'A' && name[0] <= 'Z' && name == path.Clean(name) && !slices.Contains(fixed, name)
	if offset, is := strings.CutPrefix(strings.TrimPrefix(name, "Etc/"), "GMT"); !named || is && offset != "" {
		return nil, fmt.Errorf("%q does not name a time zone", name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("find a time zone: %w", err)
	}
	zones.Store(name, loc)
	return loc, nil
}

// stretch returns how far the clocks of the window's zone are ahead of UTC at t, in seconds, and until when; zero for
// ever.
func (w *Hours) stretch(t time.Time) (offset int64, until time.Time) {
	loc, err := Zone(w.Timezone)
	if err != nil {
		loc = time.UTC // Check has refused it
	}
	t = t.In(loc)
	_, seconds := t.Zone()
	_, until = moment.Stretch(t)
	return int64(seconds), until
}

// from returns the first moment of the window from local on, both as what clocks show, in seconds since they showed the
// beginning of 1970.
func (w *Hours) from(local int64) int64 {
	for today := floorDiv(local, daySeconds); ; today++ {
		name := weekdays[((today%7)+7)%7]
		if end := today*daySeconds + int64(w.End)*60; local < end && (len(w.Days) == 0 || slices.Contains(w.Days,
			name)) {
			return max(local, today*daySeconds+int64(w.Start)*60)
		}
	}
}

const daySeconds = 86400

func floorDiv(a, b int64) int64 { return (a - ((a%b)+b)%b) / b }

// Open reports whether the window is open at t.
func (w *Hours) Open(t time.Time) bool {
	offset, _ := w.stretch(t)
	local := t.Unix() + offset
	return w.from(local) == local
}

// Opens returns t where the window is open, else when it opens next.
func (w *Hours) Opens(t time.Time) time.Time {
	for {
		offset, until := w.stretch(t)
		local := t.Unix() + offset
		opens := w.from(local)
		if opens == local {
			return t
		}
		if at := time.Unix(opens-offset, 0).UTC(); until.IsZero() || at.Before(until) {
			return at
		}
		t = until.UTC()
	}
}

// closes returns when the window closes that is open at t, at most limit.
func (w *Hours) closes(t, limit time.Time) time.Time {
	for {
		offset, until := w.stretch(t)
		today := floorDiv(t.Unix()+offset, daySeconds)
		at := time.Unix(today*daySeconds+int64(w.End)*60-offset, 0).UTC()
		if !until.IsZero() && until.Before(at) {
			at = until.UTC()
		}
		switch {
		case !at.Before(limit):
			return limit
		case !w.Open(at):
			return at
		}
		t = at
	}
}

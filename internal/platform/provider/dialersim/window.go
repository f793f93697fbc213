package dialersim

import (
	"sort"
	"time"
)

// windowAt returns the window of this span that holds now: the minute, hour or day of the wall clock in loc. Windows
// never overlap and leave no gap. A day has 23 or 25 hours when the clock changes, and an hour in which the zone
// changes its offset ends there.
func windowAt(now time.Time, loc *time.Location, span int) (start, end time.Time) {
	local := now.In(loc)
	if span == 86400 {
		y, m, d := local.Date()
		return dayStart(y, m, d, loc), dayStart(y, m, d+1, loc)
	}
	_, offset := local.Zone()
	wall := now.Unix() + int64(offset)
	into := ((wall % int64(span)) + int64(span)) % int64(span)
	start = time.Unix(now.Unix()-into, 0)
	end = start.Add(time.Duration(span) * time.Second)
	zoneStart, zoneEnd := local.ZoneBounds()
	if !zoneStart.IsZero() && zoneStart.After(start) {
		start = zoneStart
	}
	if !zoneEnd.IsZero() && zoneEnd.Before(end) {
		end = zoneEnd
	}
	return start, end
}

// dayStart returns the first instant of a date in loc. It searches instead of asking for midnight, because in some
// zones the clock jumps over midnight, or shows it twice.
func dayStart(y int, m time.Month, d int, loc *time.Location) time.Time {
	date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	const span = 26 * 3600
	from := date.Unix() - span
	n := sort.Search(2*span, func(i int) bool {
		ly, lm, ld := time.Unix(from+int64(i), 0).In(loc).Date()
		return !time.Date(ly, lm, ld, 0, 0, 0, 0, time.UTC).Before(date)
	})
	return time.Unix(from+int64(n), 0)
}

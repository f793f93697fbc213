package forecast

import (
	"maps"
	"math"
	"time"

	"flowlane/internal/moment"
	"flowlane/internal/quota"
)

// hour is how a run stood at its first step in an hour: when, how far into the hour, and what its windows below a day
// held.
type hour struct {
	began, ends time.Time
	into        time.Duration
	own         [4]int
	sent        int64
	bound       map[int]time.Duration
}

// skipHours passes over hours that go exactly as the last one did, up to the day's end. A million calls under minute
// windows are a week of minutes, and nearly all are alike.
func (d *drain) skipHours(ours int64) {
	for i := range d.rolling {
		if !d.rolling[i].spread { // it has room that every call takes some of
			d.hour = hour{}
			return
		}
	}
	last := d.hour
	if d.at.Before(last.ends) {
		return
	}
	began, over := quota.WindowAt(d.at, 3600, d.Loc)
	d.hour = hour{began: began, ends: over, into: d.at.Sub(began), sent: d.sent, bound: maps.Clone(d.bound)}
	day, n := math.MaxInt, 0
	for i := range d.spans {
		switch s := &d.spans[i]; {
		case s.Seconds == daySeconds:
			day = min(day, s.Remaining())
		case n < len(d.hour.own) && time.Hour%(time.Duration(s.Seconds)*time.Second) == 0:
			d.hour.own[n] = s.Own
			n++
		default:
			return
		}
	}
	calls := d.sent - last.sent
	if d.hour.into != last.into || d.hour.own != last.own || calls == 0 || !began.Equal(last.began.Add(time.Hour)) {
		return
	}
	_, ends := quota.WindowAt(d.at, daySeconds, d.Loc)
	if _, changes := moment.Stretch(d.at.In(d.Loc)); !changes.IsZero() {
		ends = moment.Earlier(ends, changes)
	}
	hours := min(int64(ends.Sub(d.at)/time.Hour), int64(day)/calls, ours/calls) - 1
	if hours <= 0 {
		return
	}
	for i := range d.spans {
		if s := &d.spans[i]; s.Seconds == daySeconds {
			s.Own += int(hours * calls)
		}
	}
	for seconds, total := range d.bound {
		each := total - last.bound[seconds]
		d.bound[seconds] += each * time.Duration(hours)
		d.waited[SourceWindow] += each * time.Duration(hours)
	}
	d.take(hours * calls)
	d.at = d.at.Add(time.Duration(hours) * time.Hour)
	d.change = time.Time{}
	d.carry(time.Duration(hours) * time.Hour)
	d.refreshWindows()
	d.hour = hour{}
}

// carry puts what the windows below a day held where they are after so many hours.
func (d *drain) carry(passed time.Duration) {
	for _, s := range d.spans {
		if s.Seconds != daySeconds {
			d.own[spanKey{s.Seconds, s.Start.Add(passed).Unix()}] = s.Own
		}
	}
}

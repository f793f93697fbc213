package pacing_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/pacing"
)

// zones differ in what they do to clocks: by an hour or by half of one, at night or at midnight, or by a whole day.
var zones = []string{
	"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Sao_Paulo", "Asia/Beirut",
	"Pacific/Apia",
	"Asia/Kathmandu", "America/St_Johns", "Pacific/Chatham", "Africa/Casablanca", "UTC",
}

var weekdays = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

func drawWindow(t *rapid.T) *pacing.Hours {
	w := &pacing.Hours{Timezone: rapid.SampledFrom(zones).Draw(t, "zone")}
	w.Start = rapid.OneOf(rapid.IntRange(0, 240), rapid.IntRange(0, 1439)).Draw(t, "start")
	w.End = rapid.OneOf(rapid.IntRange(w.Start+1, min(w.Start+90, 1440)), rapid.IntRange(w.Start+1, 1440)).Draw(t,
		"end")
	if rapid.Bool().Draw(t, "some days") {
		w.Days = rapid.SliceOfNDistinct(rapid.SampledFrom(weekdays), 1, 7, rapid.ID[string]).Draw(t, "days")
	}
	return w
}

func drawPolicy(t *rapid.T) *pacing.Policy {
	p := &pacing.Policy{Records: rapid.Int64Range(1, 50).Draw(t, "records")}
	p.PeriodMinutes = rapid.OneOf(rapid.IntRange(1, 90), rapid.IntRange(1, 1440)).Draw(t, "period")
	if rapid.Bool().Draw(t, "windowed") {
		p.Window = drawWindow(t)
	}
	if bad := p.Check(); len(bad) > 0 {
		t.Fatalf("%+v is wrong: %v", p, bad)
	}
	return p
}

// drawTime is any time of 2005 to 2035, often close to a change of the zone's clocks.
func drawTime(t *rapid.T, zone string) time.Time {
	at := time.Unix(rapid.Int64Range(1104537600, 2051222400).Draw(t, "time"), rapid.Int64Range(0, 999_999_999).Draw(t,
		"ns")).UTC()
	loc, _ := time.LoadLocation(zone)
	if _, change := at.In(loc).ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near a change") {
		at = change.Add(time.Duration(rapid.Int64Range(-int64(26*time.Hour), int64(26*time.Hour)).Draw(t, "off"))).UTC()
	}
	return at
}

// open asks the clocks themselves.
func open(w *pacing.Hours, at time.Time) bool {
	loc, _ := time.LoadLocation(w.Timezone)
	at = at.In(loc)
	minute := at.Hour()*60 + at.Minute()
	return minute >= w.Start && minute < w.End && (len(w.Days) == 0 || slices.Contains(w.Days,
		strings.ToLower(at.Weekday().String())))
}

func TestWindow_FollowsTheClocks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWindow(t)
		from := drawTime(t, w.Timezone)
		opens := w.Opens(from)
		if opens.Before(from) || opens.Sub(from) > 15*24*time.Hour {
			t.Fatalf("from %s on it opens at %s", from, opens)
		}
		at := from
		for at.Before(opens) {
			if open(w, at) || w.Open(at) {
				t.Fatalf("open at %s, but Opens says %s", at, opens)
			}
			at = at.Truncate(time.Minute).Add(time.Minute)
		}
		if !open(w, opens) || !w.Open(opens) {
			t.Fatalf("closed at %s, when it opens", opens)
		}
	})
}

// What a tick releases may be claimed from then on, as long as the window is open and no other tick comes.
func TestPolicy_TicksAndLapses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		zone := "UTC"
		if p.Window != nil {
			zone = p.Window.Timezone
		}
		tick := p.First(time.Time{}, drawTime(t, zone))
		for range 4 {
			next, lapses := p.Next(tick), p.Lapses(tick)
			if next.Sub(tick) < p.Period() || lapses.After(next) || !lapses.After(tick) {
				t.Fatalf("tick %s lapses %s, next %s", tick, lapses, next)
			}
			if p.Window == nil {
				if !lapses.Equal(next) || next.Sub(tick) != p.Period() {
					t.Fatalf("without a window: tick %s lapses %s, next %s", tick, lapses, next)
				}
				tick = next
				continue
			}
			for at := tick; at.Before(lapses); at = at.Truncate(time.Minute).Add(time.Minute) {
				if !open(p.Window, at) {
					t.Fatalf("closed at %s, but what %s released lapses at %s", at, tick, lapses)
				}
			}
			if lapses.Before(next) && open(p.Window, lapses) {
				t.Fatalf("what %s released lapses at %s, when the window is open", tick, lapses)
			}
			for at := tick.Add(p.Period()); at.Before(next); at = at.Truncate(time.Minute).Add(time.Minute) {
				if open(p.Window, at) {
					t.Fatalf("the tick after %s is %s, but the window is open at %s", tick, next, at)
				}
			}
			tick = next
		}
	})
}

// However late somebody looks, ticks are where they would have been, and how many records are through by one is their
// number.
func TestPolicy_TickAndThrough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		zone := "UTC"
		if p.Window != nil {
			zone = p.Window.Timezone
		}
		due := p.First(time.Time{}, drawTime(t, zone))
		ticks := []time.Time{due}
		for range rapid.IntRange(0, 300).Draw(t, "ticks") {
			ticks = append(ticks, p.Next(ticks[len(ticks)-1]))
		}
		last := ticks[len(ticks)-1]
		late := time.Duration(rapid.Int64Range(0, int64(p.Next(last).Sub(last))-1).Draw(t, "late"))
		if got := p.Tick(due, last.Add(late)); !got.Equal(last) {
			t.Fatalf("the last tick by %s is %s, not %s", last.Add(late), last, got)
		}
		n := int64(len(ticks)-1)*p.Records + rapid.Int64Range(1, p.Records).Draw(t, "records of the last")
		if got := p.Through(due, n); !got.Equal(last) {
			t.Fatalf("%d records are through at %s, not %s", n, last, got)
		}
		if got := p.Tick(due, due.Add(-1)); !got.Equal(due) {
			t.Fatalf("before it is due, the next tick is %s, not %s", due, got)
		}
	})
}

func TestPolicy_ThroughIsNeverEarly(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	slow := pacing.Policy{Records: 1, PeriodMinutes: 1440}
	assert.Equal(t, due, slow.Through(due, 0))
	assert.Equal(t, due.AddDate(0, 0, 3649), slow.Through(due, 3650))
	assert.GreaterOrEqual(t, slow.Through(due, 100_000).Sub(due), 36500*24*time.Hour, "within what a duration can hold")
	slow.Window = &pacing.Hours{Timezone: "Europe/Berlin", Start: 540, End: 541, Days: []string{"friday"}}
	assert.True(t, slow.Through(due, 1000).After(due.AddDate(0, 0, 999*7-1)))
}

func TestPolicy_FirstAfterAChange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		last := drawTime(t, "Europe/Berlin")
		from := last.Add(time.Duration(rapid.Int64Range(0, int64(72*time.Hour)).Draw(t, "later")))
		first := p.First(last, from)
		switch {
		case first.Before(from) || first.Sub(last) < p.Period() || !p.Open(first):
			t.Fatalf("after %s, from %s on, the first tick is %s", last, from, first)
		case p.Open(from) && from.Sub(last) >= p.Period() && !first.Equal(from):
			t.Fatalf("the first tick could come at %s, not %s", from, first)
		}
	})
}

func TestWindow_AtDaylightSaving(t *testing.T) {
	t.Parallel()
	berlin := func(start, end int, days ...string) *pacing.Hours {
		return &pacing.Hours{Timezone: "Europe/Berlin", Start: start, End: end, Days: days}
	}
	at := func(text string) time.Time {
		v, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return v.UTC()
	}
	for name, c := range map[string]struct {
		w           *pacing.Hours
		from, opens string
	}{
		"begins in the hour that is skipped":   {berlin(150, 240), "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"},
		"lies within the hour that is skipped": {berlin(130, 170), "2026-03-29T00:00:00Z", "2026-03-30T00:10:00Z"},
		"lies there on the only day of the week": {berlin(130, 170, "sunday"), "2026-03-29T00:00:00Z",
			"2026-04-05T00:10:00Z"},
		"repeated, the first time":  {berlin(150, 165), "2026-10-24T23:00:00Z", "2026-10-25T00:30:00Z"},
		"repeated, the second time": {berlin(150, 165), "2026-10-25T00:45:00Z", "2026-10-25T01:30:00Z"},
		"on a weekday": {berlin(540, 1020, "monday"), "2026-03-28T08:00:00Z",
			"2026-03-30T07:00:00Z"},
		"the day that Samoa never had": {&pacing.Hours{Timezone: "Pacific/Apia", Start: 0, End: 1440,
			Days: []string{"friday"}}, "2011-12-29T12:00:00Z", "2012-01-05T10:00:00Z"},
	} {
		assert.Equal(t, at(c.opens), c.w.Opens(at(c.from)), name)
	}
	p := pacing.Policy{Records: 1, PeriodMinutes: 60, Window: berlin(0, 1440)}
	assert.Equal(t, at("2026-03-29T01:00:00Z"), p.Lapses(at("2026-03-29T00:00:00Z")),
		"a window of all day never closes")
	p.Window = berlin(60, 180)
	assert.Equal(t, at("2026-03-29T01:00:00Z"), p.Lapses(at("2026-03-29T00:30:00Z")),
		"the skipped hour ends the window")
	assert.Equal(t, at("2026-10-25T02:00:00Z"), p.Lapses(at("2026-10-25T01:30:00Z")), "the repeated hour is open twice")
}

func TestZone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Europe/Berlin", "America/Argentina/Buenos_Aires", "UTC", "Etc/UTC", "GMT", "Japan",
		"America/Port-au-Prince"} {
		_, err := pacing.Zone(name)
		assert.NoError(t, err, name)
	}
	for _, name := range []string{
		"", "Local", "+02:00", "-05:00", "02:00", "UTC+2", "UTC+02:00", "GMT+1", "GMT0", "Etc/GMT+3", "Etc/GMT-14",
		"Etc/GMT0", "Europe//Berlin", "Europe/./Berlin", "EST", "MST", "HST", "CEST", "Z",
		"Mars/Olympus", "europe/berlin", "Europe", "Europe/Berlin ", "posix/Europe/Berlin", "right/UTC", "../UTC",
		"Etc/../UTC", "/etc/localtime", "localtime", "posixrules",
		"Factory", "Europe/Berlin\x00",
	} {
		_, err := pacing.Zone(name)
		assert.Error(t, err, name)
	}
}

func TestPolicy_CheckAndParse(t *testing.T) {
	t.Parallel()
	good := pacing.Policy{Records: 100, PeriodMinutes: 15, Window: &pacing.Hours{Timezone: "Europe/Berlin", Start: 540,
		End: 1020, Days: []string{"monday", "friday"}}}
	back, err := pacing.Parse(good.Encode())
	require.NoError(t, err)
	assert.True(t, good.Equal(back))
	assert.False(t, good.Equal(nil))
	back.Window.Days[0] = "sunday"
	assert.False(t, good.Equal(back))
	for _, raw := range []string{"", "{}",
		`{"records_per_period":1,"period_minutes":1,"window":{"timezone":"Mars/Olympus","start_minute_of_day":0,"end_minute_of_day":1}}`} {
		_, err := pacing.Parse([]byte(raw))
		assert.Error(t, err, raw)
	}
	everything := pacing.Policy{Records: 1_000_001, PeriodMinutes: 1441, Window: &pacing.Hours{Timezone: "UTC+2",
		Start: 1440, End: 1441, Days: []string{"Monday"}}}
	var locs []string
	for _, m := range everything.Check() {
		locs = append(locs, strings.Join(m.Loc, "."))
	}
	assert.Equal(t, []string{"records_per_period", "period_minutes", "window.timezone", "window.start_minute_of_day",
		"window.end_minute_of_day", "window.days"}, locs)
	for end := range 2 {
		past := pacing.Hours{Timezone: "UTC", Start: 600, End: 599 + end}
		policy := pacing.Policy{Records: 1, PeriodMinutes: 1, Window: &past}
		assert.Len(t, policy.Check(), 1, "end %d", past.End)
	}
}

// TestHours_LeapYear: a window opens behind the last day of a leap year of which only a rule is known.
func TestHours_LeapYear(t *testing.T) {
	t.Parallel()
	w := pacing.Hours{Timezone: "Europe/Berlin", Start: 9 * 60, End: 17 * 60}
	assert.Equal(t, time.Date(2041, 1, 1, 8, 0, 0, 0, time.UTC),
		w.Opens(time.Date(2040, 12, 31, 20, 0, 0, 0, time.UTC)).UTC())
}

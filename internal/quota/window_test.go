package quota

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/internal/moment"
)

// zones are time zones with every kind of change: none, a half hour, at midnight, across it, a day left out.
var zones = []string{"UTC", "Asia/Kolkata", "Asia/Kathmandu", "America/New_York", "Europe/Berlin", "America/St_Johns",
	"Australia/Lord_Howe",
	"Pacific/Chatham", "Pacific/Apia", "Asia/Beirut", "Africa/Cairo", "Asia/Gaza", "Africa/Casablanca",
	"America/Havana", "America/Santiago",
	"America/Asuncion", "America/Sao_Paulo", "America/Nuuk", "America/Scoresbysund", "Atlantic/Azores",
	"Antarctica/Troll", "Asia/Tehran"}

func zone(t require.TestingT, name string) *time.Location {
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

// Windows of one length follow each other without gap or overlap, and every instant of one names it.
func TestWindowAt_Partitions(t *testing.T) {
	t.Parallel()
	for _, name := range zones {
		loc := zone(t, name)
		for _, year := range []int{2011, 2018, 2025, 2026, 2040} {
			from := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
			walk(t, loc, from, from.AddDate(1, 0, 0), 86400)
			walk(t, loc, from, from.AddDate(1, 0, 0), 3600)
			for _, change := range changes(loc, from, from.AddDate(1, 0, 0)) {
				walk(t, loc, change.Add(-3*time.Hour), change.Add(3*time.Hour), 60)
			}
		}
	}
}

// TestWindowAt_YearEnds: a year that only a rule is known of ends no window.
func TestWindowAt_YearEnds(t *testing.T) {
	t.Parallel()
	start, end := WindowAt(time.Date(2040, 12, 31, 23, 45, 0, 0, time.UTC), 3600, zone(t, "America/St_Johns"))
	require.Equal(t, "23:30 to 00:30", start.UTC().Format("15:04")+" to "+end.UTC().Format("15:04"))
}

// walk goes from window to window.
func walk(t *testing.T, loc *time.Location, from, to time.Time, seconds int) {
	t.Helper()
	at, _ := WindowAt(from, seconds, loc)
	for at.Before(to) {
		start, end := WindowAt(at, seconds, loc)
		if !start.Equal(at) || !end.After(start) || end.Sub(start) > time.Duration(seconds)*time.Second+2*time.Hour {
			t.Fatalf("%s: the window of %d s at %v goes from %v to %v", loc, seconds, at.In(loc), start.In(loc),
				end.In(loc))
		}
		length := end.Sub(start)
		for _, d := range []time.Duration{length / 3, length / 2, length - time.Nanosecond} {
			if s, e := WindowAt(start.Add(d), seconds, loc); !s.Equal(start) || !e.Equal(end) {
				t.Fatalf("%s: %v lies in the window from %v to %v, and in that from %v to %v", loc,
					start.Add(d).In(loc), start, end, s, e)
			}
		}
		at = end
	}
}

// changes returns when the clocks of a zone change between two times.
func changes(loc *time.Location, from, to time.Time) (out []time.Time) {
	for {
		_, end := moment.Stretch(from.In(loc))
		if end.IsZero() || !end.Before(to) {
			return out
		}
		out = append(out, end)
		from = end
	}
}

func TestWindowAt_Aligns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone, at   string
		seconds    int
		start, end string
	}{
		{"UTC", "2026-01-05T10:20:30Z", 60, "2026-01-05T10:20:00Z", "2026-01-05T10:21:00Z"},
		{"Asia/Kathmandu", "2026-01-05T10:20:30Z", 3600, "2026-01-05T10:15:00Z", "2026-01-05T11:15:00Z"},
		{"America/New_York", "2026-01-05T10:20:30Z", 86400, "2026-01-05T05:00:00Z", "2026-01-06T05:00:00Z"},
		// 23 and 25 hours.
		{"America/New_York", "2026-03-08T12:00:00Z", 86400, "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"America/New_York", "2026-11-01T12:00:00Z", 86400, "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		// Midnight does not exist: the day starts at one o'clock.
		{"America/Santiago", "2025-09-07T12:00:00Z", 86400, "2025-09-07T04:00:00Z", "2025-09-08T03:00:00Z"},
		{"America/Santiago", "2025-09-07T03:30:00Z", 86400, "2025-09-06T04:00:00Z", "2025-09-07T04:00:00Z"},
		// It exists twice: the day starts with the first.
		{"America/Havana", "2025-11-02T04:30:00Z", 86400, "2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z"},
		{"America/Havana", "2025-11-02T05:30:00Z", 86400, "2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z"},
		// An hour that a change of half an hour cuts.
		{"Australia/Lord_Howe", "2025-10-04T15:45:00Z", 3600, "2025-10-04T15:30:00Z", "2025-10-04T16:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		require.NoError(t, err)
		start, end := WindowAt(at, c.seconds, zone(t, c.zone))
		require.Equal(t, c.start+" "+c.end, start.Format(time.RFC3339)+" "+end.Format(time.RFC3339), "%s %s %d", c.zone,
			c.at, c.seconds)
	}
}

// ledger is a budget as the rule about it sees it: spend by window.
type ledger struct {
	loc           *time.Location
	skew, timeout time.Duration
	caps          map[int]int
	own           map[[2]int64]int
}

func (l *ledger) spans(now time.Time) []Window {
	var out []Window
	for _, seconds := range WindowLengths {
		for _, s := range WindowsTouched(now.Add(-l.skew), now.Add(l.timeout+l.skew), seconds, l.loc) {
			s.Cap, s.Own, s.Lag = l.caps[seconds], l.own[[2]int64{int64(seconds), s.Start.Unix()}], l.skew
			out = append(out, s)
		}
	}
	return out
}

func (l *ledger) debit(spans []Window, n int) {
	for _, s := range spans {
		l.own[[2]int64{int64(s.Seconds), s.Start.Unix()}] += n
	}
}

func anyLedger(t *rapid.T) (*ledger, time.Time) {
	l := &ledger{loc: zone(t, rapid.SampledFrom(zones).Draw(t, "zone")), caps: map[int]int{}, own: map[[2]int64]int{},
		skew:    time.Duration(rapid.IntRange(0, 5000).Draw(t, "skew")) * time.Millisecond,
		timeout: time.Duration(rapid.IntRange(0, 90).Draw(t, "timeout")) * time.Second}
	now := time.Unix(rapid.Int64Range(1_700_000_000, 1_800_000_000).Draw(t, "now"),
		rapid.Int64Range(0, 999_999_999).Draw(t, "nanos"))
	if rapid.Bool().Draw(t, "edge") {
		_, end := WindowAt(now, rapid.SampledFrom(WindowLengths).Draw(t, "length"), l.loc)
		now = end.Add(time.Duration(rapid.IntRange(-3000, 3000).Draw(t, "off")) * time.Millisecond)
	}
	for _, seconds := range WindowLengths {
		l.caps[seconds] = rapid.IntRange(1, 12).Draw(t, fmt.Sprint("cap", seconds))
	}
	for _, s := range l.spans(now) {
		l.own[[2]int64{int64(s.Seconds), s.Start.Unix()}] = max(0, l.caps[s.Seconds]-rapid.IntRange(-2, 9).Draw(t,
			"room"))
	}
	return l, now
}

// WindowsTouched names every window that holds an instant between two times, and no other.
func TestProperty_Touched(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		loc := zone(t, rapid.SampledFrom(zones).Draw(t, "zone"))
		seconds := rapid.SampledFrom(WindowLengths).Draw(t, "length")
		from := time.Unix(rapid.Int64Range(1_700_000_000, 1_800_000_000).Draw(t, "from"), 0)
		to := from.Add(time.Duration(rapid.IntRange(0, 3*seconds).Draw(t, "span")) * time.Second)
		if rapid.Bool().Draw(t, "edge") {
			_, to = WindowAt(to, seconds, loc)
		}
		spans := WindowsTouched(from, to, seconds, loc)
		require.False(t, spans[0].Start.After(from))
		require.True(t, spans[len(spans)-1].End.After(to))
		require.False(t, spans[len(spans)-1].Start.After(to))
		for i := 1; i < len(spans); i++ {
			require.Equal(t, spans[i-1].End, spans[i].Start)
		}
	})
}

// A grant is what the fullest window leaves, no more and no less. Whoever sleeps until NextAt loses nothing, and
// whoever comes back then goes on in the end.
func TestProperty_Decide(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, now := anyLedger(t)
		wanted := rapid.IntRange(1, 8).Draw(t, "wanted")
		spans := l.spans(now)
		g := Decide(now, spans, wanted)
		least := wanted
		for _, s := range spans {
			least = min(least, max(0, s.Cap-s.Own))
		}
		require.Equal(t, least, g.Calls)
		if g.Calls == wanted {
			require.Zero(t, g.Delay.Until)
			require.Zero(t, g.Delay.Seconds)
			return
		}
		require.Contains(t, WindowLengths, g.Delay.Seconds)
		require.True(t, g.Delay.Until.After(now), "next at %v, now %v", g.Delay.Until, now)
		l.debit(spans, g.Calls)
		later := false // a window is full that has not begun
		for _, s := range spans {
			later = later || s.Start.After(now) && s.Cap-s.Own <= g.Calls
		}
		for range 8 {
			between := now.Add(time.Duration(rapid.Float64Range(0, 0.999999).Draw(t,
				"between") * float64(g.Delay.Until.Sub(now))))
			require.Zero(t, Decide(between, l.spans(between), 1).Calls, "there was room at %v already, before %v",
				between, g.Delay.Until)
			now = g.Delay.Until
			if g = Decide(now, l.spans(now), 1); g.Calls > 0 {
				return
			}
			require.True(t, later, "no room when there should be")
			require.True(t, g.Delay.Until.After(now), "next at %v, now %v", g.Delay.Until, now)
		}
		t.Fatal("nothing but sleeping")
	})
}

// Others are never held to have spent less than they did, and more only by our own calls that the reading may hold or
// not.
func TestProperty_Foreign(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		others, own := rapid.IntRange(0, 200).Draw(t, "others"), rapid.IntRange(0, 200).Draw(t, "own")
		recent := rapid.IntRange(0, own).Draw(t, "recent")
		seen := rapid.IntRange(0, recent).Draw(t, "seen")
		require.Equal(t, others+seen, Foreign(own-recent+seen+others, own, recent))
	})
	require.Zero(t, Foreign(3, 9, 2), "a provider that counts less than we do")
}

// Whoever asks when, calls are never granted closer together than the spacing, and one is granted as soon as it may be.
func TestProperty_Space(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spacing := time.Duration(rapid.IntRange(1, 5000).Draw(t, "spacing")) * time.Millisecond
		now, next, last := time.Unix(1_000_000, 0), time.Time{}, time.Time{}
		for range 50 {
			now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "later")) * time.Millisecond)
			if rapid.Bool().Draw(t, "at once") && next.After(now) {
				now = next
			}
			wanted := rapid.IntRange(1, 5).Draw(t, "wanted")
			g := Space(now, next, spacing, wanted)
			if !next.After(now) {
				require.Equal(t, 1, g.Calls)
				require.True(t, last.IsZero() || now.Sub(last) >= spacing)
				next, last = g.Delay.Until, now
				require.Equal(t, now.Add(spacing), next)
				continue
			}
			require.Equal(t, Grant{Delay: Delay{Until: next, Reason: ReasonSpacing}}, g)
		}
		require.Equal(t, Grant{Calls: 7}, Space(now, time.Time{}, 0, 7), "no spacing")
	})
}

func TestRateBackoff(t *testing.T) {
	t.Parallel()
	for refusals, most := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 6: 32 * time.Second, 7: time.Minute,
		8: time.Minute, 1 << 30: time.Minute,
	} {
		if got := RateBackoff(refusals, 0); got != most/2 {
			t.Errorf("after %d refusals it is %s at least, want %s", refusals, got, most/2)
		}
		if got := RateBackoff(refusals, 1); got != most {
			t.Errorf("after %d refusals it is %s at most, want %s", refusals, got, most)
		}
	}
}

// A margin rounds down to whole calls, and leaves at least one of a cap that allows any.
func TestAfterMargin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ limit, percent, want int }{
		{20, 100, 20}, {20, 51, 10}, {20, 5, 1}, {20, 4, 1}, {20, 1, 1}, {1, 1, 1}, {1, 100, 1}, {0, 1, 0}, {0, 100, 0},
		{2000, 1, 20},
	} {
		require.Equal(t, c.want, AfterMargin(c.limit, c.percent), "%d percent of %d", c.percent, c.limit)
	}
}

package dialersim

import (
	"testing"
	"time"
)

func TestWindowAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, zone, now string
		span            int
		start, end      string
	}{
		{"minute", "UTC", "2026-03-04T10:30:59Z", 60, "2026-03-04T10:30:00Z", "2026-03-04T10:31:00Z"},
		{"minute edge", "UTC", "2026-03-04T10:31:00Z", 60, "2026-03-04T10:31:00Z", "2026-03-04T10:32:00Z"},
		{"hour of a zone with half hours", "Asia/Kolkata", "2026-03-04T10:10:00Z", 3600, "2026-03-04T09:30:00Z",
			"2026-03-04T10:30:00Z"},
		{"hour before 1970", "America/New_York", "1965-03-04T10:10:00Z", 3600, "1965-03-04T10:00:00Z",
			"1965-03-04T11:00:00Z"},
		{"day", "America/New_York", "2026-03-04T03:00:00Z", 86400, "2026-03-03T05:00:00Z", "2026-03-04T05:00:00Z"},
		{"day of 23 hours", "America/New_York", "2026-03-08T12:00:00Z", 86400, "2026-03-08T05:00:00Z",
			"2026-03-09T04:00:00Z"},
		{"day of 25 hours", "America/New_York", "2026-11-01T12:00:00Z", 86400, "2026-11-01T04:00:00Z",
			"2026-11-02T05:00:00Z"},
		{"first of two equal hours", "America/New_York", "2026-11-01T05:30:00Z", 3600, "2026-11-01T05:00:00Z",
			"2026-11-01T06:00:00Z"},
		{"second of two equal hours", "America/New_York", "2026-11-01T06:30:00Z", 3600, "2026-11-01T06:00:00Z",
			"2026-11-01T07:00:00Z"},
		{"day whose midnight is jumped over", "America/Santiago", "2025-09-07T12:00:00Z", 86400, "2025-09-07T04:00:00Z",
			"2025-09-08T03:00:00Z"},
		{"day with two midnights", "America/Havana", "2025-11-02T12:00:00Z", 86400, "2025-11-02T04:00:00Z",
			"2025-11-03T05:00:00Z"},
		{"hour cut short by a change of half an hour", "Australia/Lord_Howe", "2026-04-04T14:45:00Z", 3600,
			"2026-04-04T14:00:00Z", "2026-04-04T15:00:00Z"},
		{"half an hour after it", "Australia/Lord_Howe", "2026-04-04T15:10:00Z", 3600, "2026-04-04T15:00:00Z",
			"2026-04-04T15:30:00Z"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		from, to := windowAt(at(t, c.now), zone, c.span)
		if !from.Equal(at(t, c.start)) || !to.Equal(at(t, c.end)) {
			t.Errorf("%s: %s to %s, want %s to %s", c.name, from.UTC().Format(time.RFC3339),
				to.UTC().Format(time.RFC3339), c.start, c.end)
		}
	}
}

// TestWindowAt_Partition walks through a year of clocks: every window holds its instant, and the next one starts at its
// end.
func TestWindowAt_Partition(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"UTC", "America/New_York", "Europe/Berlin", "America/Santiago", "America/Havana",
		"Australia/Lord_Howe", "Asia/Kathmandu"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range []int{3600, 86400} {
			now := at(t, "2025-12-30T00:00:00Z")
			_, end := windowAt(now, zone, span)
			for end.Before(at(t, "2027-01-02T00:00:00Z")) {
				from, next := windowAt(end, zone, span)
				last, until := windowAt(next.Add(-1), zone, span)
				if !from.Equal(end) || !last.Equal(from) || !until.Equal(next) || !next.After(from) {
					t.Fatalf("%s, %d s, at %s: %s to %s", name, span, end.UTC(), from.UTC(), next.UTC())
				}
				end = next
			}
		}
	}
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

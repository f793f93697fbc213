package forecast

import (
	"testing"
	"time"
)

func BenchmarkDrain(b *testing.B) {
	for name, young := range map[string]time.Duration{"counted": 33 * time.Second, "uncounted": 0} {
		b.Run(name, func(b *testing.B) { drainMillion(b, young) })
	}
}

func drainMillion(b *testing.B, young time.Duration) {
	b.Helper()
	loc, _ := time.LoadLocation("America/New_York")
	now := time.Date(2026, 3, 7, 10, 0, 30, 0, time.UTC)
	rate := Rate{Caps: map[int]int{60: 140, 3600: 7200, 86400: 172800}, Loc: loc,
		Used: func(int, time.Time) int { return 0 }, Skew: 2 * time.Second, Latency: time.Second, CountsFor: time.Second,
		InFlight: 32, Wake: time.Second, Longest: time.Second, Young: young}
	var out Drained
	for b.Loop() {
		out = Drain(now, rate, []Work{{Calls: 1_000_000}})
	}
	b.Log(out.At.Sub(now), out.Source, out.Window)
}

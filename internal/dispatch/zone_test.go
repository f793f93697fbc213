package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"flowlane/gen/db"
	"flowlane/internal/dispatch"
	"flowlane/internal/provider/dialersim"
	"flowlane/internal/run"
)

// TestZone_LearnedLater: budgets follow the time zone that their account tells in a later test, and what was spent before goes on
// counting in the windows of it.
func TestZone_LearnedLater(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.daily(20)
	def := b.define(hundreds)
	b.await(b.start(def, 1000, plainRow))
	b.matured()
	zone := "Asia/Kathmandu"
	if at := time.Now().Add(b.moved).UTC(); at.Hour() == 17 || at.Hour() == 18 { // its midnight is near
		zone = "Asia/Tokyo"
	}
	b.sim.SetAccount("acme", dialersim.AccountSettings{TimeZone: zone})
	require.True(t, must(b.creds.Test(t.Context(), b.org, b.cred)).Success)
	b.eventually(`SELECT count(*) = 1 FROM flow.budget WHERE bucket = 'upload' AND time_zone = '` + zone + `'`)
	start, end := dispatch.WindowAt(time.Now().Add(b.moved), 86400, must(time.LoadLocation(zone)))
	day := b.used(b.heads, "upload")[86400]
	require.Equal(t, []time.Time{start, end}, []time.Time{day.Start, day.End})
	require.Equal(t, 10, day.Used())
	id := b.start(def, 1500, func(i int) string { return plainRow(1000 + i) })
	b.awaitUntil(id, func(_ run.BatchStatus, c db.FlowBatchCount) bool { return c.Accepted >= 1000 })
	b.eventually(`SELECT EXISTS (SELECT FROM flow.due WHERE kind = 'dispatch' AND NOT leased AND due_at > flow.clock() + interval '1 second')`)
	require.EqualValues(t, 20, b.sim.Totals().Operations["upload"].Accepted, "the cap of the day, across the change")
}

// TestZone_AtTheNextClaim: a budget follows even where nobody was told of the change.
func TestZone_AtTheNextClaim(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.daily(20)
	def := b.define(hundreds)
	b.await(b.start(def, 1000, plainRow))
	b.exec(`UPDATE flow.domain SET time_zone = 'Asia/Kolkata'`)
	b.await(b.start(def, 100, func(i int) string { return plainRow(1000 + i) }))
	b.eventually(`SELECT count(*) = 1 FROM flow.budget WHERE bucket = 'upload' AND time_zone = 'Asia/Kolkata'`)
	require.Equal(t, 11, b.used(b.heads, "upload")[86400].Own)
}

// Every window of the new zone that is not over holds each call that may count in it, and at least what others spent at any time of it.
func TestProperty_Align(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Asia/Kathmandu", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"}
	caps := map[int]int{60: 5, 3600: 50, 86400: 100}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 86400*2).Draw(t, "now")) * time.Second)
		was := must(time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "was")))
		is := must(time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "is")))
		skew := time.Duration(rapid.IntRange(0, 5).Draw(t, "skew")) * time.Second
		ago := func(what string) time.Time {
			return now.Add(-time.Duration(rapid.IntRange(0, 27*3600).Draw(t, what)) * time.Second)
		}
		var calls []dispatch.Spending
		for range rapid.IntRange(0, 8).Draw(t, "calls") {
			from := ago("from")
			to := from.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "for")) * time.Second)
			calls = append(calls, dispatch.Spending{Arrival: dispatch.Arrival{From: from, To: to}, Calls: rapid.IntRange(1, 3).Draw(t, "group")})
		}
		spentAt := ago("others")
		others := dispatch.Spans(caps, spentAt, spentAt, 0, was)
		for i := range others {
			others[i].Foreign = 7
		}
		all := dispatch.Align(caps, calls, others, now, skew, is)
		for at := now.Add(-skew); !at.After(now.Add(2 * time.Minute)); at = at.Add(time.Second) {
			for seconds := range caps {
				start, end := dispatch.WindowAt(at, seconds, is)
				own, foreign, found := 0, 0, dispatch.Aligned{}
				for _, c := range calls {
					if c.From.Add(-skew).Before(end) && !c.To.Add(skew).Before(start) {
						own += c.Calls
					}
				}
				if !spentAt.Before(start) && spentAt.Before(end) {
					foreign = 7
				}
				for _, w := range all {
					if w.Seconds == seconds && w.Start.Equal(start) {
						found = w
					}
				}
				if !end.Add(skew).After(now) {
					continue
				}
				require.Equal(t, own, found.Own, "%d s from %s", seconds, start)
				require.GreaterOrEqual(t, found.Foreign, foreign, "%d s from %s", seconds, start)
			}
		}
	})
}

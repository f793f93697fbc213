package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/quota"
)

// TestZone_LearnedLater: budgets follow the time zone that their account tells in a later test, and what was spent
// before goes on counting in the windows of it.
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
	start, end := quota.WindowAt(time.Now().Add(b.moved), 86400, must(time.LoadLocation(zone)))
	day := b.used(b.heads, "upload")[86400]
	require.Equal(t, []time.Time{start, end}, []time.Time{day.Start, day.End})
	require.Equal(t, 10, day.Used())
	id := b.start(def, 1500, func(i int) string { return plainRow(1000 + i) })
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Accepted >= 1000 })
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

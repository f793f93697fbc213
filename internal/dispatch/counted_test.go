package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/provider/dialersim"
)

func TestCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		r             provider.Reading
		usually, also bool
	}{
		{"accepted", provider.Reading{Kind: provider.Success}, true, true},
		{"accepted, the result comes later", provider.Reading{Kind: provider.Pending}, true, true},
		{"accepted, and failed later", provider.Reading{Kind: provider.Refused, Reason: provider.ReasonImportFailed},
			true, true},
		{"nobody knows", provider.Reading{Kind: provider.Unknown, Reason: provider.ReasonNoAnswer}, true, true},
		{"refused", provider.Reading{Kind: provider.Refused, Reason: provider.ReasonRefused}, false, true},
		{"refused for a limit", provider.Reading{Kind: provider.RetryLater, Reason: provider.ReasonRateLimited}, false,
			true},
		{"not found, so that it may have been refused", provider.Reading{Kind: provider.NotArrived}, false, true},
		{"no connection", provider.Reading{Kind: provider.NotArrived, Reason: provider.ReasonUnreachable}, false,
			false},
		{"a job that came as far as its upload", provider.Reading{Kind: provider.NotArrived,
			Reason: provider.ReasonNoAnswer, Spent: true}, true, true},
		{"too late to be sent", provider.Reading{Kind: provider.NotArrived, Reason: provider.ReasonTooLate}, false,
			false},
		{"no request can be made", provider.Reading{Kind: provider.Refused, Reason: provider.ReasonRequest}, false,
			false},
		{"an address that is not called", provider.Reading{Kind: provider.Refused, Reason: provider.ReasonAddress},
			false, false},
	} {
		require.Equal(t, c.usually, dispatch.Counts(&c.r, false), c.name)
		require.Equal(t, c.also, dispatch.Counts(&c.r, true), "%s, where refusals count", c.name)
	}
}

// same holds what the ledger of the day has of our calls against what the platform counts, and what it lays to
// credentials against that.
func (b *bundle) same(bucket string, want int64) {
	b.t.Helper()
	own := int64(0)
	rows, err := db.New().LedgerRead(b.t.Context(), b.pool, db.LedgerReadParams{Domain: b.tenancy, Bucket: bucket,
		Since: time.Now().Add(b.moved)})
	require.NoError(b.t, err)
	for _, r := range rows {
		if r.WindowSeconds == 86400 {
			own += int64(r.Own)
		}
	}
	require.Equal(b.t, []int64{want, want}, []int64{b.counted(bucket)[86400], own}, "the platform and the ledger")
	require.Zero(b.t, b.count(`SELECT count(*) FROM flow.ledger
		WHERE own < (SELECT coalesce(sum(value::int), 0) FROM jsonb_each_text(by_credential))`),
		"windows that lay more to credentials than was spent")
}

// TestImport_FailedCounts: an import that the provider took goes on counting when it fails later.
func TestImport_FailedCounts(t *testing.T) {
	t.Parallel()
	b := setupWith(t, dispatch.Options{}, func(cat *catalog.Catalog) {
		action, _ := cat.Action("dialer__api__upload_async")
		action.Call.Result.Failed = []string{"done"}
	})
	b.daily(20) // no midnight
	status, counts := b.await(b.start(b.define(asyncFlow), 250, plainRow))
	require.Equal(t, batch.BatchFailed, status)
	require.EqualValues(t, 250, counts.Failed)
	b.same("upload_async", 3)
}

// TestRefused_Counts: a call that the provider refuses counts where the catalog says that the provider counts such
// calls, whether it refuses it for good, or for a limit.
func TestRefused_Counts(t *testing.T) {
	t.Parallel()
	for name, counts := range map[string]bool{"refusals count": true, "refusals do not count": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupWith(t, dispatch.Options{}, func(cat *catalog.Catalog) {
				svc, _ := cat.Service("dialer__api")
				svc.RateBuckets["upload"].CountsRefused = counts
			})
			b.daily(20)
			b.sim.SetAccount("acme", dialersim.AccountSettings{StrictLists: ref(true), CountsRefused: ref(counts)})
			status, _ := b.await(b.start(b.define(hundreds), 100, plainRow))
			require.Equal(t, batch.BatchFailed, status)
			first := map[bool]int64{true: 1}[counts]
			b.same("upload", first)
			b.sim.SetAccount("acme", dialersim.AccountSettings{StrictLists: ref(false),
				Limits: map[string]map[int]int64{"upload": {86400: first + 1}}})
			require.Equal(t, 1, b.sim.Spend("acme", "upload", 1))
			b.start(b.define(hundreds), 100, plainRow)
			b.eventually(`SELECT EXISTS (SELECT FROM flow.pause WHERE scope = 'bucket' AND status = 'active')`)
			require.EqualValues(t, 2*first, b.day().Own)
			require.Equal(t, 2*first+1, b.counted("upload")[86400], "ours, and that of others")
		})
	}
}

// TestCounters_YoungOnce: a reading beside calls that it may not hold does not show them twice, and takes up what it
// holds beyond all of them.
func TestCounters_YoungOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.daily(500)
	b.await(b.start(b.define(hundreds), 4000, plainRow))
	b.refresh()
	shown := func(used int) {
		t.Helper()
		day := b.used(b.heads, "upload")[86400]
		require.Equal(t, []int{used, 500 - used}, []int{day.Used(), day.Remaining()})
	}
	shown(40)
	require.Nil(t, must(b.heads.Headroom(t.Context(), b.org, b.tenancy)).Buckets["upload"].NextAllowedAt)
	require.EqualValues(t, []int32{40, 40, 40}, []int32{b.day().Own, b.day().ForeignSpend, b.day().Unsure},
		"what claims go by")
	require.Equal(t, 30, b.sim.Spend("acme", "upload", 30))
	b.refresh()
	shown(70)
	b.matured()
	shown(70)
	require.EqualValues(t, []int32{40, 30, 0}, []int32{b.day().Own, b.day().ForeignSpend, b.day().Unsure})
}

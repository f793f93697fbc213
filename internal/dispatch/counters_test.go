package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider/dialersim"
)

// daily makes the day the only window of uploads that binds, and one that does not end meanwhile.
func (b *bundle) daily(limit int64) {
	b.t.Helper()
	now := time.Now().UTC()
	if left := now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now); left < 10*time.Minute {
		b.pass(left + time.Minute)
	}
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"upload": {60: 10_000,
		3600: 10_000, 86400: limit}}})
	b.refresh()
}

func (b *bundle) refresh() {
	b.t.Helper()
	_, err := b.disp.Refresh(b.t.Context(), b.org, b.tenancy)
	require.NoError(b.t, err)
}

// day reads the ledger row of the day for uploads.
func (b *bundle) day() db.FlowLedger {
	b.t.Helper()
	rows, err := db.New().LedgerRead(b.t.Context(), b.pool, db.LedgerReadParams{Domain: b.tenancy, Bucket: "upload",
		Since: time.Now().Add(b.moved)})
	require.NoError(b.t, err)
	for _, r := range rows {
		if r.WindowSeconds == 86400 {
			return r
		}
	}
	b.t.Fatal("no day in the ledger")
	return db.FlowLedger{}
}

// matured waits until every call is old enough for the counters, and they were read since.
func (b *bundle) matured() {
	b.t.Helper()
	b.pass(12 * time.Second)
	b.eventually(`SELECT EXISTS (SELECT FROM flow.due WHERE kind = 'counters' AND NOT leased AND due_at > flow.clock() + interval '5 minutes')`)
}

// TestEscalation_SeesOthers: of the last tenth of a budget no call goes that others have spent meanwhile.
func TestEscalation_SeesOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.daily(20)
	def := b.define(hundreds)
	b.await(b.start(def, 1800, plainRow))
	b.matured()
	head := must(b.heads.Headroom(t.Context(), b.org, b.tenancy)).Buckets["upload"]
	require.True(t, head.Escalated)
	require.False(t, must(b.heads.Headroom(t.Context(), b.org, b.tenancy)).Buckets["modify"].Escalated)
	require.Equal(t, 1, b.sim.Spend("acme", "upload", 1))
	id := b.start(def, 200, func(i int) string { return plainRow(1800 + i) })
	b.eventually(`SELECT EXISTS (SELECT FROM flow.due WHERE kind = 'dispatch' AND NOT leased AND due_at > flow.clock() + interval '1 second')`)
	_, counts := b.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool { return true })
	require.EqualValues(t, 100, counts.Accepted, "one call was left, for one of two")
	got := b.sim.Totals().Operations["upload"]
	require.Zero(t, got.OverLimit)
	require.EqualValues(t, 19, got.Accepted)
	require.EqualValues(t, 20, b.day().Own+b.day().ForeignSpend)
}

// TestCounters_OthersAreClampedUpAndAlarm: what others spent counts, and more than a fifth of the cap at once is an
// alarm.
func TestCounters_OthersAreClampedUpAndAlarm(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.daily(100)
	b.await(b.start(b.define(hundreds), 1000, plainRow))
	b.matured()
	day := b.day()
	require.EqualValues(t, []int32{10, 0, 0}, []int32{day.Own, day.ForeignSpend, *day.Drift})
	require.Nil(t, day.AlarmDrift)
	b.sim.Spend("acme", "upload", 20)
	b.refresh()
	day = b.day()
	require.EqualValues(t, []int32{10, 20, 20}, []int32{day.Own, day.ForeignSpend, *day.Drift})
	require.Nil(t, day.AlarmDrift, "a fifth of the cap is tolerated")
	b.sim.Spend("acme", "upload", 21)
	b.refresh()
	b.refresh()
	day = b.day()
	require.EqualValues(t, []int32{10, 41, 0, 21}, []int32{day.Own, day.ForeignSpend, *day.Drift, *day.AlarmDrift},
		"the alarm stays")
}

// TestCounters_Lag: a reading that does not hold our calls yet takes nothing away from what we know, and is no drift.
func TestCounters_Lag(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.daily(20)
	b.sim.SetAccount("acme", dialersim.AccountSettings{CounterLagMS: ref(int64(5000))})
	b.await(b.start(b.define(hundreds), 1000, plainRow))
	b.refresh()
	day := b.day()
	require.EqualValues(t, 10, day.Own)
	require.GreaterOrEqual(t, day.Own+day.ForeignSpend, int32(10))
	require.EqualValues(t, 0, *day.Drift)
	require.Nil(t, day.AlarmDrift)
	b.matured()
	day = b.day()
	require.EqualValues(t, []int32{10, 0, 0}, []int32{day.Own, day.ForeignSpend, *day.Drift})
}

// TestCounters_Lie: a provider that forgot what it counted lowers nothing of ours, and the alarm is raised.
func TestCounters_Lie(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.daily(20)
	b.await(b.start(b.define(hundreds), 1000, plainRow))
	b.matured()
	b.sim.Reset()
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"upload": {86400: 20}},
		ClockOffsetMS: ref(b.moved.Milliseconds())})
	b.refresh()
	day := b.day()
	require.EqualValues(t, []int32{10, 0, -10, -10}, []int32{day.Own, day.ForeignSpend, *day.Drift, *day.AlarmDrift})
	head := must(b.heads.Headroom(t.Context(), b.org, b.tenancy)).Buckets["upload"]
	require.Equal(t, 10, head.Windows[len(head.Windows)-1].Used())
}

// TestCounters_MayMiss: a call that a reading may miss, because it was slow or nobody knows whether it arrived, does
// not hide what others spent.
func TestCounters_MayMiss(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.daily(20)
	b.await(b.start(b.define(hundreds), 1000, plainRow))
	b.matured()
	for _, c := range []struct {
		name, set string
		missing   int32
	}{
		{"old and quick", `answered_at = claimed_at + interval '100 milliseconds'`, 0},
		{"slow, answered now", `answered_at = flow.clock(), claimed_at = flow.clock() - interval '10 minutes'`, 1},
		{"slow, answered long ago", `answered_at = flow.clock() - interval '5 minutes'`, 0},
		{"unknown", `state = 'unknown', next_check_at = flow.clock() + interval '1 hour'`, 1},
		{"unresolved", `state = 'unresolved', next_check_at = NULL`, 1},
		{"unresolved for longer than any window", `claimed_at = flow.clock() - interval '27 hours'`, 0},
		{"refused", `state = 'refused', counts_in = '{}', claimed_at = flow.clock()`, 0},
	} {
		b.exec(`UPDATE flow.call SET ` + c.set +
			` WHERE id = (SELECT id FROM flow.call WHERE bucket = 'upload' ORDER BY id LIMIT 1)`)
		b.refresh()
		require.Equal(t, []int32{10, c.missing}, []int32{b.day().Own, b.day().ForeignSpend}, c.name)
	}
}

func TestCounters_Outdated(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.daily(20)
	b.sim.Spend("acme", "upload", 3)
	b.refresh()
	require.EqualValues(t, 3, b.day().ForeignSpend)
	b.exec(`UPDATE flow.ledger SET observed_at = flow.clock() + interval '1 minute'`)
	b.sim.Spend("acme", "upload", 2)
	b.refresh()
	require.EqualValues(t, 3, b.day().ForeignSpend)
	b.pass(2 * time.Minute)
	b.refresh()
	require.EqualValues(t, 5, b.day().ForeignSpend)
}

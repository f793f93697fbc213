package dispatch_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider/dialersim"
)

// TestLanes_WaitIsBounded: however much a lane holds, a call of another waits for no more than the groups of calls that
// were chosen before it was there.
func TestLanes_WaitIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	def := b.define(flowOf(modify("m", "l", `{"n":"{{ input.n }}"}`)))
	const waiting = 100_000
	bulk := b.startIn(ref(db.FlowLaneBulk), def, waiting, plainRow)
	b.awaitUntil(bulk, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Completed > 0 })
	for i := range 6 {
		lane := []db.FlowLane{db.FlowLaneInteractive, db.FlowLaneCompliance}[i%2]
		id := b.startIn(&lane, def, 1, func(int) string { return plainRow(waiting + i) })
		since := must(db.New().Clock(t.Context(), b.pool))
		status, counts := b.await(id)
		require.Equal(t, batch.BatchCompleted, status)
		require.EqualValues(t, 1, counts.Completed)
		before := 0
		err := b.pool.QueryRow(t.Context(),
			`SELECT count(*) FROM flow.call c WHERE c.lane = 'bulk' AND c.claimed_at > $1 AND c.claimed_at <
			(SELECT max(claimed_at) FROM flow.call WHERE lane = $2)`, since, lane).Scan(&before)
		require.NoError(t, err)
		require.LessOrEqual(t, before, 2*dispatch.GroupMax, "calls of bulk that went before one of %s", lane)
	}
	_, counts := b.awaitUntil(bulk, func(batch.BatchStatus, db.FlowBatchCount) bool { return true })
	require.Positive(t, counts.Queued, "bulk was through already: there was nothing to wait for")
}

// TestLanes_OrganizationsShareEqually: an organization that comes to a busy account has half of it from then on,
// whatever weights were set.
func TestLanes_OrganizationsShareEqually(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	other := *b
	other.join("Beta")
	require.Equal(t, b.tenancy, other.tenancy, "one account")
	_, err := b.disp.SetLane(t.Context(), b.org, b.tenancy, "bulk", 100, 0)
	require.NoError(t, err)
	_, err = b.disp.SetLane(t.Context(), other.org, b.tenancy, "bulk", 1, 0)
	require.NoError(t, err)
	const many, few = 30_000, 600
	flow := flowOf(modify("m", "l", `{"n":"{{ input.n }}"}`))
	busy := b.startIn(ref(db.FlowLaneBulk), b.define(flow), many, plainRow)
	b.awaitUntil(busy, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Completed > 0 })
	id := other.startIn(ref(db.FlowLaneBulk), other.define(flow), few, func(i int) string { return plainRow(many + i) })
	since := must(db.New().Clock(t.Context(), b.pool))
	status, _ := other.await(id)
	require.Equal(t, batch.BatchCompleted, status)
	before := 0
	err = b.pool.QueryRow(t.Context(), `SELECT count(*) FROM flow.call WHERE org_id = $1 AND claimed_at > $2
		AND claimed_at < (SELECT max(claimed_at) FROM flow.call WHERE org_id = $3)`, b.org, since,
		other.org).Scan(&before)
	require.NoError(t, err)
	require.LessOrEqual(t, before, few+4*dispatch.GroupMax)
	_, counts := b.awaitUntil(busy, func(batch.BatchStatus, db.FlowBatchCount) bool { return true })
	require.Positive(t, counts.Queued, "the other organization was through already: there was nothing to share")
}

// TestLanes_Limit: no more calls of a lane are under way than it may have, and other lanes go beside them.
func TestLanes_Limit(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.sim.SetAccount("acme", dialersim.AccountSettings{LatencyByOperation: map[string]dialersim.Range{
		"modify": {FixedMS: 20}}})
	_, err := b.disp.SetLane(t.Context(), b.org, b.tenancy, "bulk", 15, 3)
	require.NoError(t, err)
	def := b.define(flowOf(modify("m", "l", `{"n":"{{ input.n }}"}`)))
	var mu sync.Mutex
	// the calls of a lane that the platform has not answered, and the most of them
	open, most := map[string]int{}, map[string]int{}
	watch := func(request []byte) func() {
		lane := "interactive"
		if bytes.Contains(request, []byte("bulk")) {
			lane = "bulk"
		}
		mu.Lock()
		defer mu.Unlock()
		open[lane]++
		most[lane] = max(most[lane], open[lane])
		return func() {
			mu.Lock()
			defer mu.Unlock()
			open[lane]--
		}
	}
	b.watch.Store(&watch)
	bulk := b.startIn(ref(db.FlowLaneBulk), def, 60, func(i int) string {
		return fmt.Sprintf(`{"id":"bulk-%d","n":%d}`,
			i, i)
	})
	other := b.startIn(ref(db.FlowLaneInteractive), def, 60, plainRow)
	b.await(bulk)
	b.await(other)
	b.once("l", dialersim.KindModify, 120)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 3, most["bulk"])
	require.Greater(t, most["interactive"], 3, "another lane goes beside it")
}

// TestLanes_LimitOfOthers: calls that another process left under way count, and the lane goes on when they are over.
func TestLanes_LimitOfOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	def := b.define(flowOf(modify("m", "l", `{"n":"{{ input.n }}"}`)))
	b.await(b.startIn(ref(db.FlowLaneBulk), def, 1, plainRow)) // makes the budget
	_, err := b.disp.SetLane(t.Context(), b.org, b.tenancy, "bulk", 15, 1)
	require.NoError(t, err)
	// Another process can only have left calls before this one had the lease.
	require.Eventually(t, func() bool { return b.count("SELECT count(*) FROM flow.due WHERE leased") == 0 },
		time.Minute, time.Millisecond)
	left := uuid.New()
	_, err = b.pool.Exec(t.Context(), `INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params, outcome_check,
			claimed_at, send_before, counts_in)
		SELECT $1, org_id, domain, bucket, lane, action_id, 'intent', 'gone', 0, '', '{}', 'safe', flow.clock(), flow.clock() + interval '1 hour', '{}' FROM flow.call LIMIT 1`, left)
	require.NoError(t, err)
	for i := range 12 {
		b.startIn(ref(db.FlowLaneBulk), def, 1, func(int) string { return plainRow(10 + i) })
	}
	b.await(b.startIn(ref(db.FlowLaneInteractive), def, 1, func(int) string { return plainRow(30) }))
	require.Len(t, b.sim.ArrivalsOf("", "l", dialersim.KindModify), 2, "the lane is full")
	_, err = b.pool.Exec(t.Context(), `DELETE FROM flow.call WHERE id = $1`, left)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(b.sim.ArrivalsOf("", "l", dialersim.KindModify)) == 14 },
		time.Minute, 10*time.Millisecond)
}

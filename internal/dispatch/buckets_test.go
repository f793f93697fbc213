package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/forecast"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/recordset"
	"flowlane/internal/run"
)

const (
	getTask  = `{"id":"q","action_id":"dialer__api__get_record","credential_id":"CRED","params":{"list":"l","key":"k0"}}`
	dialTask = `{"id":"d","action_id":"dialer__api__dial","credential_id":"CRED","params":{"number":"+1212555{{ input.n + 1000 }}","campaign":"c"}}`
)

// modifies are records whose calls spend two budgets.
var modifies = flowOf(modify("m", "l", `{"n":"{{ input.n }}"}`))

// twoBuckets is the stack where a modification counts as a query, too, which has such limits.
func twoBuckets(t *testing.T, queries map[int]int64, change ...func(*catalog.Catalog)) *bundle {
	t.Helper()
	b := setupWith(t, dispatch.Options{}, func(cat *catalog.Catalog) {
		a, _ := cat.Action("dialer__api__modify")
		a.Buckets = []string{"modify", "query"}
		only, _ := cat.Action("dialer__api__dial")
		only.Buckets = []string{"modify"}
		p, _ := cat.Platform("dialer")
		p.Account.Counters.LagSeconds = 0 // as it is here: the last calls of a window wait for what a reading may miss
		for _, c := range change {
			c(cat)
		}
	})
	b.daily(10_000) // no midnight
	b.sim.SetAccount("acme", dialersim.AccountSettings{AlsoSpends: map[string][]string{"modify": {"query"}},
		Limits: map[string]map[int]int64{"query": queries}})
	b.refresh()
	return b
}

// TestBuckets_Both: calls that spend two budgets are debited in both, and stop where the second is full until it has
// room again; what needs the first alone goes on.
func TestBuckets_Both(t *testing.T) {
	t.Parallel()
	b := twoBuckets(t, map[int]int64{60: 20, 3600: 1000, 86400: 1000})
	b.minutePasses()
	id := b.start(b.define(modifies), 50, plainRow)
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Completed == 20 })
	b.eventually(`SELECT EXISTS (SELECT FROM flow.due WHERE kind = 'dispatch' AND NOT leased AND due_at BETWEEN flow.clock() + interval '5 s' AND flow.clock() + interval '70 s')`)
	b.same("modify", 20)
	b.same("query", 20)
	q := must(b.heads.Queue(t.Context(), b.org, b.tenancy))
	for _, bucket := range []string{"modify", "query"} {
		require.EqualValues(t, 30, q.Buckets[bucket].Records, bucket)
		require.Equal(t, 60, q.Buckets[bucket].Completion.Window, bucket)
		at := q.Buckets[bucket].Completion.At
		require.NotNil(t, at, bucket)
		require.Greater(t, at.Sub(q.AsOf), time.Minute, bucket)
		require.Less(t, at.Sub(q.AsOf), 4*time.Minute, bucket)
	}
	require.EqualValues(t, 30, q.Totals.Records)
	b.minutePasses()
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Completed >= 40 })
	b.minutePasses()
	status, _ := b.await(id)
	require.Equal(t, batch.BatchCompleted, status)
	b.same("modify", 50)
	b.same("query", 50)
	b.once("l", dialersim.KindModify, 50)
	require.Zero(t, b.sim.Totals().Operations["modify"].OverLimit)
}

// TestBuckets_Backoff: a call waits for the backoff of any of its budgets, and work of its queue's budget alone does
// not.
func TestBuckets_Backoff(t *testing.T) {
	t.Parallel()
	b := twoBuckets(t, map[int]int64{60: 10_000, 3600: 10_000, 86400: 10_000})
	b.start(b.define(modifies), 1, plainRow)
	b.eventually(`SELECT EXISTS (SELECT FROM flow.batch_count WHERE status = 'completed')`)
	b.exec(`INSERT INTO flow.pause (id, scope, domain, bucket, cause, created_at, expires_at)
		SELECT gen_random_uuid(), 'bucket', domain, 'query', 'rate_limited', flow.clock(), flow.clock() + interval '1 hour' FROM flow.budget WHERE bucket = 'query'`)
	waits := b.start(b.define(modifies), 300, func(i int) string { return plainRow(1 + i) })
	status, _ := b.await(b.start(b.define(flowOf(dialTask)), 300, plainRow))
	require.Equal(t, batch.BatchCompleted, status)
	b.eventually(`SELECT EXISTS (SELECT FROM flow.due WHERE kind = 'dispatch' AND NOT leased AND due_at = (SELECT expires_at FROM flow.pause))`)
	require.EqualValues(t, 1, b.sim.Totals().Operations["modify"].Accepted)
	q := must(b.heads.Queue(t.Context(), b.org, b.tenancy)).Buckets
	for _, bucket := range []string{"modify", "query"} {
		require.Equal(t, []string{"rate_limited"}, q[bucket].Completion.HoldCauses, bucket)
		require.Equal(t, forecast.SourceHold, q[bucket].Completion.Source, bucket)
	}
	b.pass(time.Hour)
	status, _ = b.await(waits)
	require.Equal(t, batch.BatchCompleted, status)
	b.eventually(`SELECT count(*) = 0 FROM flow.pause WHERE status = 'active'`)
}

// TestBuckets_Settle: what a settlement gives back it gives back in every budget, what is lost counts in all, and a
// reading takes calls that wait in the queue of another budget for our own.
func TestBuckets_Settle(t *testing.T) {
	t.Parallel()
	b := twoBuckets(t, map[int]int64{60: 10_000, 3600: 10_000, 86400: 10_000})
	b.sim.AddFault(dialersim.Fault{Kind: "status", Status: 404, Operation: "modify", Count: 5})
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "modify", Count: 5})
	status, counts := b.await(b.start(b.define(modifies), 50, plainRow))
	require.Equal(t, batch.BatchPartiallyFailed, status, "%+v", counts)
	b.same("modify", 50)
	b.same("query", 50)
	b.refresh()
	day := b.used(b.heads, "query")[86400]
	require.Equal(t, 50, day.Used(), "calls that the reading may miss")
	require.Equal(t, 7, b.sim.Spend("acme", "query", 7))
	b.matured()
	day = b.used(b.heads, "query")[86400]
	require.Equal(t, []int{50, 7}, []int{day.Own, day.Foreign})
	b.exec(`UPDATE flow.domain SET time_zone = 'Asia/Kolkata'`)
	b.await(b.start(b.define(modifies), 1, plainRow))
	b.eventually(`SELECT count(*) = 1 FROM flow.budget WHERE bucket = 'query' AND time_zone = 'Asia/Kolkata'`)
	require.Equal(t, 51, b.used(b.heads, "query")[86400].Own)
}

// TestBuckets_Crossed: two queues each of which spends the budget of the other keep to the limits of both, and never
// wait for each other for good.
func TestBuckets_Crossed(t *testing.T) {
	t.Parallel()
	b := twoBuckets(t, map[int]int64{60: 10_000, 3600: 10_000, 86400: 10_000}, func(cat *catalog.Catalog) {
		a, _ := cat.Action("dialer__api__get_record")
		a.Buckets = []string{"query", "modify"}
	})
	b.sim.SetAccount("acme", dialersim.AccountSettings{AlsoSpends: map[string][]string{"query": {"modify"}}})
	b.await(b.start(b.define(modifies), 1, plainRow))
	var ids []uuid.UUID
	for range 4 {
		ids = append(ids, b.start(b.define(modifies), 250, plainRow), b.start(b.define(flowOf(getTask)), 250, plainRow))
	}
	for _, id := range ids {
		status, _ := b.await(id)
		require.Equal(t, batch.BatchCompleted, status)
	}
	b.same("modify", 2001)
	b.same("query", 2001)
}

// TestBuckets_Woken: room in the second budget wakes what waits in the queue of the first.
func TestBuckets_Woken(t *testing.T) {
	t.Parallel()
	b := twoBuckets(t, map[int]int64{60: 10_000, 3600: 10_000, 86400: 20})
	id := b.start(b.define(modifies), 30, plainRow)
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Completed == 20 })
	b.eventually(`SELECT EXISTS (SELECT FROM flow.due WHERE kind = 'dispatch' AND NOT leased AND due_at > flow.clock() + interval '1 minute')`)
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"query": {86400: 100}}})
	b.refresh()
	_, err := b.disp.SetMargin(t.Context(), b.org, b.tenancy, "query", 100)
	require.NoError(t, err)
	status, _ := b.await(id)
	require.Equal(t, batch.BatchCompleted, status)
	b.same("query", 30)
}

// TestBuckets_BackoffOfBoth: while both budgets of a call are closed, work of its queue's budget alone goes once that is
// open again, however long the other stays closed.
func TestBuckets_BackoffOfBoth(t *testing.T) {
	t.Parallel()
	b := twoBuckets(t, map[int]int64{60: 10_000, 3600: 10_000, 86400: 10_000})
	b.await(b.start(b.define(modifies), 1, plainRow))
	b.exec(`INSERT INTO flow.pause (id, scope, domain, bucket, cause, created_at, expires_at)
		SELECT gen_random_uuid(), 'bucket', domain, bucket, 'rate_limited', flow.clock(), flow.clock() +
			CASE bucket WHEN 'query' THEN interval '5 hours' ELSE interval '1 hour' END
		FROM flow.budget WHERE bucket IN ('modify', 'query')`)
	waits := b.start(b.define(modifies), 3, func(i int) string { return plainRow(1 + i) })
	goes := b.start(b.define(flowOf(dialTask)), 3, plainRow)
	b.eventually(`SELECT EXISTS (SELECT FROM flow.due WHERE kind = 'dispatch' AND NOT leased
		AND due_at = (SELECT expires_at FROM flow.pause WHERE bucket = 'modify'))`)
	b.pass(time.Hour)
	status, _ := b.await(goes)
	require.Equal(t, batch.BatchCompleted, status)
	require.EqualValues(t, 1, b.sim.Totals().Operations["modify"].Accepted)
	b.pass(4 * time.Hour)
	status, _ = b.await(waits)
	require.Equal(t, batch.BatchCompleted, status)
}

// TestBuckets_Refused: a refusal for the rate closes the budget that it names, and no other.
func TestBuckets_Refused(t *testing.T) {
	t.Parallel()
	b := twoBuckets(t, map[int]int64{60: 10_000, 3600: 10_000, 86400: 10_000})
	b.await(b.start(b.define(modifies), 1, plainRow))
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"query": {86400: 1}}})
	waits := b.start(b.define(modifies), 3, func(i int) string { return plainRow(1 + i) })
	b.eventually(`SELECT count(*) = 1 FROM flow.pause WHERE scope = 'bucket' AND status = 'active' AND bucket = 'query'`)
	status, _ := b.await(b.start(b.define(flowOf(dialTask)), 1, plainRow))
	require.Equal(t, batch.BatchCompleted, status)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM flow.pause`))
	b.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"query": {86400: 10_000}}})
	b.pass(24 * time.Hour)
	status, _ = b.await(waits)
	require.Equal(t, batch.BatchCompleted, status)
}

// TestBuckets_Estimate: what a start is told of work that spends two budgets goes by the one that lets it through
// later, and is not early.
func TestBuckets_Estimate(t *testing.T) {
	t.Parallel()
	b := twoBuckets(t, map[int]int64{60: 20, 3600: 1000, 86400: 1000})
	b.minutePasses()
	var e *forecast.Estimate
	var id uuid.UUID
	require.NoError(t, pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		in := run.StartInput{OrgID: b.org, DefinitionID: b.define(modifies), Version: 1,
			TriggerType: run.TriggerAPICall}
		for i := range 30 {
			in.Source.Records = append(in.Source.Records, []byte(plainRow(i)))
		}
		started, err := b.runs.Start(ctx, tx, in)
		if err != nil {
			return err
		}
		id = started.BatchID
		e, err = b.heads.OfBatch(ctx, tx, b.org, started)
		return err
	}))
	require.Equal(t, "query", e.Bucket)
	require.EqualValues(t, 30, e.Calls)
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Completed == 20 })
	b.minutePasses()
	b.await(id)
	require.NotNil(t, e.Completion.At)
	require.False(t, e.Completion.At.Before(b.now()), "promised for %s, done at %s", e.Completion.At, b.now())
}

// TestBuckets_EstimateTogether: batches that start together, and are estimated before any of them is written, are told
// what they are told if each starts by itself behind those before it; also while people hold all of them for an hour.
func TestBuckets_EstimateTogether(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held=%t", held), func(t *testing.T) {
			t.Parallel()
			testEstimateTogether(t, held)
		})
	}
}

func testEstimateTogether(t *testing.T, held bool) {
	t.Helper()
	b := twoBuckets(t, map[int]int64{60: 20, 3600: 1000, 86400: 1000}, func(cat *catalog.Catalog) {
		a, _ := cat.Action("dialer__api__upload")
		a.MaxBytesPerRequest = 200 // of which a page has many
	})
	b.minutePasses()
	if held {
		b.exec(fmt.Sprintf(`INSERT INTO flow.pause (id, org_id, scope, cause, created_at, expires_at) VALUES
			(gen_random_uuid(), '%s', 'global', 'admin_request', flow.clock(), flow.clock() + interval '1 hour')`, b.org))
	}
	var groups []*run.StartGroup
	steps := []string{modifies, flowOf(dialTask, modify("m", "l", `{"n":"{{ input.n }}"}`)), flowOf(getTask), uploadFlow,
		modifies}
	for i, steps := range steps {
		g := &run.StartGroup{In: run.StartInput{OrgID: b.org, DefinitionID: b.define(steps), Version: 1,
			TriggerType: run.TriggerAPICall}}
		for n := range 2 {
			var rows [][]byte
			for row := range 30 * (n + 1) {
				rows = append(rows, []byte(plainRow(100*i+row)))
			}
			g.Each = append(g.Each, run.Small{Sheet: recordset.OneSheet(rows), Metadata: []byte(`{}`)})
		}
		groups = append(groups, g)
	}
	undone := errors.New("undone")
	var together, alone []*forecast.Estimate
	require.ErrorIs(t, pg.InTxShared(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		return b.runs.StartAndClaim(ctx, tx, time.Time{}, func() (_ pg.Query, err error) {
			var all []*run.StartedBatch
			for _, g := range groups {
				all = append(all, g.Out...)
			}
			if together, err = b.heads.OfBatches(ctx, tx, b.org, all); err != nil {
				return nil, err
			}
			return nil, undone
		}, groups...)
	}), undone)
	require.ErrorIs(t, pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		for _, g := range groups {
			for _, one := range g.Each {
				next := &run.StartGroup{In: g.In, Each: []run.Small{one}}
				require.NoError(t, b.runs.StartGroups(ctx, tx, time.Time{}, next))
				alone = append(alone, must(b.heads.OfBatch(ctx, tx, b.org, next.Out[0])))
			}
		}
		return undone
	}), undone)
	require.Len(t, together, len(alone))
	last := map[string]time.Time{}
	for i, e := range together {
		o := alone[i]
		require.Equal(t, []any{o.Bucket, o.Calls, o.QueuedCalls, o.Day, o.Warning, o.Completion.Caveats},
			[]any{e.Bucket, e.Calls, e.QueuedCalls, e.Day, e.Warning, e.Completion.Caveats}, i)
		require.WithinDuration(t, *o.Completion.At, *e.Completion.At, 2*time.Second, i)
		// Behind a pause, one that spends two budgets may be over later than the next, which spends one.
		require.True(t, held || e.Completion.At.After(last[e.Bucket]), i)
		last[e.Bucket] = *e.Completion.At
	}
}

// TestBuckets_Later: work that was queued before there was its second budget, as the catalog may name more, spends
// that, too.
func TestBuckets_Later(t *testing.T) {
	t.Parallel()
	b := twoBuckets(t, map[int]int64{60: 10_000, 3600: 10_000, 86400: 10_000})
	b.exec("DELETE FROM flow.ledger", "DELETE FROM flow.budget") // as if nothing had spent it yet
	status, _ := b.await(b.start(b.define(modifies), 10, plainRow))
	require.Equal(t, batch.BatchCompleted, status)
	b.same("query", 10)
}

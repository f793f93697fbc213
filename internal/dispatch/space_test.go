package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider/dialersim"
)

// spaced has a bucket grant one call in so many milliseconds.
func spaced(bucket string, ms int) func(*catalog.Catalog) {
	return func(cat *catalog.Catalog) {
		svc, _ := cat.Service("dialer__api")
		svc.RateBuckets[bucket].MinSpacingMS = ms
	}
}

func (b *bundle) claims() []time.Time {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `SELECT claimed_at FROM flow.call ORDER BY claimed_at`)
	require.NoError(b.t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	require.NoError(b.t, err)
	return out
}

// TestSpacing: calls of a spaced bucket are never claimed closer together than the catalog says, whoever claims them,
// and whether or not it limits their number.
func TestSpacing(t *testing.T) {
	t.Parallel()
	t.Run("limited", func(t *testing.T) {
		t.Parallel()
		testSpacing(t, func(*catalog.Catalog) {})
	})
	t.Run("unlimited", func(t *testing.T) {
		t.Parallel()
		testSpacing(t, func(cat *catalog.Catalog) {
			svc, _ := cat.Service("dialer__api")
			svc.RateBuckets["modify"].Windows = nil
			platform, _ := cat.Platform(svc.PlatformID)
			platform.Account.Counters = nil // they name limits, too
		})
	})
}

func testSpacing(t *testing.T, change func(*catalog.Catalog)) {
	t.Helper()
	const ms = 60
	b := setupWith(t, dispatch.Options{}, func(cat *catalog.Catalog) {
		spaced("modify", ms)(cat)
		change(cat)
	})
	def := b.define(flowOf(modify("m", "l", `{"n":"{{ input.n }}"}`)))
	one, two := b.start(def, 8, plainRow), b.startIn(ref(db.FlowLaneInteractive), def, 4,
		func(i int) string { return plainRow(8 + i) })
	b.await(one)
	b.await(two)
	b.once("l", dialersim.KindModify, 12)
	at := b.claims()
	require.Len(t, at, 12)
	for i := range at[1:] {
		require.GreaterOrEqual(t, at[i+1].Sub(at[i]), ms*time.Millisecond, "call %d", i+1)
	}
}

// TestSpacing_Long: headroom says when the next call may go, nothing goes before, and then it goes by itself.
func TestSpacing_Long(t *testing.T) {
	t.Parallel()
	b := setupWith(t, dispatch.Options{}, spaced("upload", 3600_000))
	id := b.start(b.define(hundreds), 200, plainRow)
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Accepted == 100 })
	head := must(b.heads.Headroom(t.Context(), b.org, b.tenancy)).Buckets["upload"]
	first := b.claims()[0]
	require.NotNil(t, head.NextAllowedAt)
	require.Equal(t, first.Add(time.Hour).UTC(), head.NextAllowedAt.UTC())
	b.eventually(`SELECT EXISTS (SELECT FROM flow.due WHERE kind = 'dispatch' AND NOT leased AND due_at = (SELECT next_call_at FROM flow.budget WHERE bucket = 'upload'))`)
	require.Len(t, b.claims(), 1)
	b.pass(time.Hour)
	status, _ := b.await(id)
	require.Equal(t, batch.BatchCompleted, status)
	for i := range 2 {
		b.once(fmt.Sprintf("l%d", i), dialersim.KindUpload, 100)
	}
}

// eventually waits until a question is answered with true.
func (b *bundle) eventually(sql string) {
	b.t.Helper()
	require.Eventually(b.t, func() (yes bool) {
		require.NoError(b.t, b.pool.QueryRow(b.t.Context(), sql).Scan(&yes))
		return yes
	}, time.Minute, 10*time.Millisecond, sql)
}

package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/pgtest"
)

// listsFlow uploads each record to a list of its own, so that each is a call.
const listsFlow = `[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"{{ input.id }}","row":"{{ input }}"}}]}]`

// Calls about which nothing can be asked, more than are looked into at once, take no place from those that can.
func TestReconcile_FailingQuestions(t *testing.T) {
	t.Parallel()
	b := setup(t, hasty)
	b.exec(
		"CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.params := '[]'; RETURN NEW; END $$",
		"CREATE TRIGGER spoil BEFORE INSERT ON flow.call FOR EACH ROW WHEN (NEW.params LIKE '%spoilt%') EXECUTE FUNCTION spoil()")
	def := b.define(listsFlow)
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "upload", Count: 45})
	spoilt := b.start(def, 40, func(i int) string { return fmt.Sprintf(`{"id":"spoilt%d"}`, i) })
	b.awaitUntil(spoilt, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.NeedsReconcile == 40 })
	b.await(b.start(def, 5, plainRow))
	for i := range 5 {
		b.once(fmt.Sprintf("k%d", i), dialersim.KindUpload, 1)
	}
	pgtest.MoveClock(t, b.pool, 25*time.Hour) // the platform has forgotten
	b.awaitUntil(spoilt, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Unresolved == 40 })
}

// Questions that get no answer do not hold up the others.
func TestReconcile_HangingQuestions(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{Timeout: 50 * time.Second})
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "upload", Count: 40})
	b.sim.AddFault(dialersim.Fault{Kind: "hang", Operation: "query", Count: 8})
	id := b.start(b.define(listsFlow), 40, plainRow)
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Accepted == 32 })
}

// A result that never comes is left to a person in the end, also where nobody knows for how long the platform
// remembers.
func TestReconcile_ResultWithoutHorizon(t *testing.T) {
	t.Parallel()
	b := setupWith(t, dispatch.Options{}, func(c *catalog.Catalog) {
		action, _ := c.Action("dialer__api__upload_async")
		action.OutcomeCheck, action.Call.Lookup = catalog.CheckNone, nil
	})
	b.sim.SetAccount("acme", dialersim.AccountSettings{ImportDuration: &dialersim.Range{FixedMS: 600_000}})
	id := b.start(b.define(asyncFlow), 50, plainRow)
	b.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool {
		return b.count("SELECT count(*) FROM flow.call WHERE state = 'awaiting'") == 1
	})
	pgtest.MoveClock(t, b.pool, 25*time.Hour)
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Unresolved == 50 })
}

// TestReconcile_Same: what a lookup finds is no proof of a call while another one that was sent the same may have
// arrived; it is that one's, and the other is sent again.
func TestReconcile_Same(t *testing.T) {
	t.Parallel()
	b := setupWith(t, hasty, func(c *catalog.Catalog) {
		action, _ := c.Action("dialer__api__upload")
		action.Call.ExclusiveOver, action.Call.Compiled.ExclusiveOver = "", nil // so that both are under way at once
	})
	def := b.define(uploadFlow)
	b.sim.AddFault(dialersim.Fault{Kind: "slow_body", Operation: "upload", MS: 600})
	slow := b.start(def, 1, plainRow)
	arrived := func() int { return b.sim.ArrivalsOf("", "demo", dialersim.KindUpload)["k0"] }
	require.Eventually(t, func() bool { return arrived() == 1 }, time.Minute, time.Millisecond)
	b.sim.AddFault(dialersim.Fault{Kind: "cut_before", Operation: "upload"})
	for _, id := range []uuid.UUID{b.start(def, 1, plainRow), slow} {
		status, counts := b.await(id)
		require.Equal(t, batch.BatchCompleted, status, counts)
	}
	require.Equal(t, 2, arrived())
}

// A lookup whose answer comes in pages: a call that is on a later one has arrived.
func TestReconcile_Pages(t *testing.T) {
	t.Parallel()
	b := setup(t, hasty)
	b.sim.SetAccount("acme", dialersim.AccountSettings{PageSize: ref(2)})
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "upload", Skip: 7})
	def := b.define(`[{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",
		"params":{"list":"demo","row":{"id":"{{ input.id }}"}}}]}]`)
	for i := range 8 { // the last one is cut
		b.await(b.start(def, 1, func(int) string { return plainRow(i) }))
	}
	b.once("demo", dialersim.KindUpload, 8)
}

// Where there are more pages than are read, nobody says that a call is absent.
func TestReconcile_TooManyPages(t *testing.T) {
	t.Parallel()
	b := setupWith(t, hasty, func(c *catalog.Catalog) {
		action, _ := c.Action("dialer__api__upload")
		action.Call.Lookup.Page.MaxPages = 2
	})
	b.sim.SetAccount("acme", dialersim.AccountSettings{PageSize: ref(2)})
	b.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "upload", Skip: 7})
	def := b.define(uploadFlow)
	for i := range 7 {
		b.await(b.start(def, 1, func(int) string { return plainRow(i) }))
	}
	id := b.start(def, 1, func(int) string { return plainRow(7) })
	b.awaitUntil(id, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Unresolved == 1 })
	b.once("demo", dialersim.KindUpload, 8)
}

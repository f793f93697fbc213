package dispatch_test

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/pgtest"
)

// The clock of the database steps while calls are under way whose receiver takes its time. Nobody takes them for lost.
func TestClockStep(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"Forward": 90 * time.Second, "Back": -90 * time.Second,
		"ByADay": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, dispatch.Options{})
			var held atomic.Int64
			goOn := make(chan struct{})
			release := sync.OnceFunc(func() { close(goOn) })
			t.Cleanup(release)
			hold := func(request []byte) func() {
				if bytes.Contains(request, []byte("/upload")) {
					held.Add(1)
					<-goOn
				}
				return func() {}
			}
			b.watch.Store(&hold)
			id := b.start(b.define(listsFlow), 10, plainRow)
			b.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool { return held.Load() == 4 })
			pgtest.StepClock(t, b.pool, step)
			// Whoever looks for lost calls has looked.
			b.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool {
				return b.count("SELECT count(*) FROM flow.due WHERE kind = 'reconcile' AND (leased OR due_at <= flow.clock())") == 0
			})
			release()
			if status, counts := b.await(id); status != batch.BatchCompleted || counts.Accepted != 10 {
				t.Fatalf("batch ended %s with %+v", status, counts)
			}
			for i := range 10 {
				b.once("k"+string(rune('0'+i)), dialersim.KindUpload, 1)
			}
		})
	}
}

// A call of the one that may be under way at a time is under way however far the clock of the database steps meanwhile.
func TestClockStep_CatalogLimit(t *testing.T) {
	t.Parallel()
	b := setupWith(t, dispatch.Options{}, func(cat *catalog.Catalog) {
		svc, _ := cat.Service("dialer__api")
		svc.RateBuckets["upload"].MaxInFlight = 1
	})
	arrived, goOn := make(chan struct{}, 2), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	hold := func(request []byte) func() {
		if bytes.Contains(request, []byte("/upload")) {
			arrived <- struct{}{}
			<-goOn
		}
		return func() {}
	}
	b.watch.Store(&hold)
	id := b.start(b.define(listsFlow), 2, plainRow)
	<-arrived
	pgtest.StepClock(t, b.pool, 90*time.Second)
	b.passed("upload")
	if n := b.count("SELECT count(*) FROM flow.call WHERE state = 'intent' AND records > 0"); n != 1 {
		t.Errorf("%d calls are under way, want the one", n)
	}
	release()
	if status, counts := b.await(id); status != batch.BatchCompleted || counts.Accepted != 2 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	for _, list := range []string{"k0", "k1"} {
		b.once(list, dialersim.KindUpload, 1)
	}
}

// The same of a lane's limit, and of a call that another process has under way.
func TestClockStep_LaneLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	def := b.define(flowOf(modify("m", "l", `{"n":"{{ input.n }}"}`)))
	b.await(b.startIn(ref(db.FlowLaneBulk), def, 1, plainRow)) // makes the budget
	must(b.disp.SetLane(t.Context(), b.org, b.tenancy, "bulk", 15, 1))
	b.passed("modify") // which reads what others have under way when it begins
	b.exec(`INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params, outcome_check,
			claimed_at, send_before, counts_in)
		SELECT gen_random_uuid(), org_id, domain, bucket, lane, action_id, 'intent', 'other', 0, '', '{}', 'safe', flow.clock(),
			flow.clock() + interval '1 minute', '{}' FROM flow.call LIMIT 1`)
	pgtest.StepClock(t, b.pool, 90*time.Second)
	id := b.startIn(ref(db.FlowLaneBulk), def, 1, func(int) string { return plainRow(1) })
	b.passed("modify")
	b.once("l", dialersim.KindModify, 1)
	b.exec("DELETE FROM flow.call WHERE owner = 'other'")
	b.await(id)
	b.once("l", dialersim.KindModify, 2)
}

// passed waits until whoever looked for what may go in a bucket has looked by the clock as it is now.
func (b *bundle) passed(bucket string) {
	b.t.Helper()
	b.eventually("SELECT NOT EXISTS (SELECT FROM flow.due WHERE kind = 'dispatch' AND key LIKE '%\n" + bucket +
		"' AND (leased OR due_at <= flow.clock()))")
}

// The clock of the database goes back while nobody settles calls. They are found out about no later for that.
func TestClockStep_LostCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, hasty)
	b.exec(
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
		"CREATE TRIGGER refuse BEFORE UPDATE ON flow.call FOR EACH ROW WHEN (OLD.state = 'intent' AND NEW.records > 0) EXECUTE FUNCTION refuse()")
	id := b.start(b.define(uploadFlow), 100, plainRow)
	b.awaitUntil(id, func(batch.BatchStatus, db.FlowBatchCount) bool {
		return b.count("SELECT count(*) FROM flow.due WHERE kind = 'reconcile' AND failures > 0") > 0
	})
	pgtest.StepClock(t, b.pool, -24*time.Hour)
	b.exec("DROP TRIGGER refuse ON flow.call")
	if status, counts := b.await(id); status != batch.BatchCompleted || counts.Accepted != 100 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 100)
}

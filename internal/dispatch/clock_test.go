package dispatch_test

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/dispatch"
	"flowlane/internal/pg/pgtest"
	"flowlane/internal/provider/dialersim"
	"flowlane/internal/run"
)

// The clock of the database steps while calls are under way whose receiver takes its time. Nobody takes them for lost.
func TestClockStep(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"Forward": 90 * time.Second, "Back": -90 * time.Second, "ByADay": 24 * time.Hour} {
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
			b.awaitUntil(id, func(run.BatchStatus, db.FlowBatchCount) bool { return held.Load() == 4 })
			pgtest.StepClock(t, b.pool, step)
			// Whoever looks for lost calls has looked.
			b.awaitUntil(id, func(run.BatchStatus, db.FlowBatchCount) bool {
				return b.count("SELECT count(*) FROM flow.due WHERE kind = 'reconcile' AND (leased OR due_at <= flow.clock())") == 0
			})
			release()
			if status, counts := b.await(id); status != run.BatchCompleted || counts.Accepted != 10 {
				t.Fatalf("batch ended %s with %+v", status, counts)
			}
			for i := range 10 {
				b.once("k"+string(rune('0'+i)), dialersim.KindUpload, 1)
			}
		})
	}
}

// The clock of the database goes back while nobody settles calls. They are found out about no later for that.
func TestClockStep_LostCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, hasty)
	b.exec(
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
		"CREATE TRIGGER refuse BEFORE UPDATE ON flow.call FOR EACH ROW WHEN (OLD.state = 'intent' AND NEW.records > 0) EXECUTE FUNCTION refuse()")
	id := b.start(b.define(uploadFlow), 100, plainRow)
	b.awaitUntil(id, func(run.BatchStatus, db.FlowBatchCount) bool {
		return b.count("SELECT count(*) FROM flow.due WHERE kind = 'reconcile' AND failures > 0") > 0
	})
	pgtest.StepClock(t, b.pool, -24*time.Hour)
	b.exec("DROP TRIGGER refuse ON flow.call")
	if status, counts := b.await(id); status != run.BatchCompleted || counts.Accepted != 100 {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	b.once("demo", dialersim.KindUpload, 100)
}

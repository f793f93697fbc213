package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider/dialersim"
)

// TestScan: while all queues of a budget take long to read, new work goes at once, and older work that became ready
// unseen as soon as they are all read again, though nobody wakes it.
func TestScan(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	def := b.define(flowOf(modify("m", "l", `{"n":1}`)))
	old := b.startBroken(def, "UPDATE flow.lane_batch SET paused = true WHERE batch_id = $1")
	began := time.Now()
	require.Eventually(t, func() bool { return time.Since(began) > 2100*time.Millisecond }, time.Minute,
		10*time.Millisecond)
	b.eventually(`SELECT NOT EXISTS (SELECT FROM flow.due WHERE kind = 'dispatch')`)
	b.disp.Scanned(b.tenancy, "modify", time.Second)
	b.exec("UPDATE flow.lane_batch SET paused = false")
	if status, counts := b.await(b.start(def, 5, plainRow)); status != batch.BatchCompleted {
		t.Fatalf("batch ended %s with %+v", status, counts)
	}
	if n := len(b.sim.ArrivalsOf("acme", "l", dialersim.KindModify)); n != 5 {
		t.Errorf("%d records arrived, want those of the new batch: the old one was looked at", n)
	}
	if status, counts := b.await(old); status != batch.BatchCompleted {
		t.Errorf("batch ended %s with %+v", status, counts)
	}
}

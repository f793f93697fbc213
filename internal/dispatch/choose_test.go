package dispatch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider/dialersim"
)

// Any number of batches that wait for one list does not hold up a batch of another list.
func TestChoose_PassesOverManyBlockedBatches(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	other := b.start(b.define(strings.ReplaceAll(uploadFlow, "demo", "warmup")), 1, plainRow)
	b.await(other) // makes the budget
	_, err := b.pool.Exec(t.Context(), `INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params,
			outcome_check, exclusive_key, claimed_at, send_before, next_check_at, counts_in)
		SELECT gen_random_uuid(), org_id, domain, bucket, lane, action_id, 'awaiting', 'test', 0, '', '{}', 'lookup', 'demo', claimed_at, send_before,
			flow.clock() + interval '1 hour', '{}' FROM flow.call WHERE records = 1`)
	require.NoError(t, err)
	def := b.define(uploadFlow)
	for range 12 {
		b.start(def, 1, plainRow)
	}
	status, _ := b.await(b.start(b.define(strings.ReplaceAll(uploadFlow, "demo", "free")), 10, plainRow))
	require.Equal(t, batch.BatchCompleted, status)
	b.once("free", dialersim.KindUpload, 10)
	require.Empty(t, b.sim.ArrivalsOf("", "demo", dialersim.KindUpload))
}

// While a call waits for the one before it to the same list, calls to other lists go.
func TestChoose_GoesOnBesideAHeldCall(t *testing.T) {
	t.Parallel()
	b := setup(t, dispatch.Options{})
	b.sim.AddFault(dialersim.Fault{Kind: "hang", MS: 3000, Accept: true, Operation: "upload"})
	def := b.define(uploadFlow)
	slow := b.start(def, 5, plainRow)
	b.awaitUntil(slow, func(_ batch.BatchStatus, c db.FlowBatchCount) bool { return c.Started > 0 })
	held := b.start(def, 5, func(i int) string { return plainRow(i + 5) })
	free := b.define(strings.ReplaceAll(uploadFlow, "demo", "free"))
	for range 3 {
		b.await(b.start(free, 1, plainRow))
	}
	_, counts := b.awaitUntil(slow, func(batch.BatchStatus, db.FlowBatchCount) bool { return true })
	require.EqualValues(t, 5, counts.Started, "the slow call was answered before the others went")
	b.await(held)
	b.once("demo", dialersim.KindUpload, 10)
}

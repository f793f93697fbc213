package run

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/batch"
	"flowlane/internal/trigger/event"
)

// TestAbandon_Told: what is told of records that are left to people names the first of each change, and stops while
// there are many.
func TestAbandon_Told(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plan := modelPlan{{{kind: "upload"}}}
	def := w.define(t, plan, -1, false)
	_, err := w.pool.Exec(w.ctx, `INSERT INTO flow.event_subscription (id, org_id, definition_id, description, event_kind, enabled, created_by, created_at, updated_at)
		VALUES ($1, $2, $3, 'd', $4, true, $1, now(), now())`, uuid.Must(uuid.NewV7()), w.org, def, event.JobUnresolved)
	require.NoError(t, err)
	const each, pieces = 250, 6
	b := w.start(t, plan, def, make([]modelInput, each*pieces), each, false, false)
	_, err = w.pool.Exec(w.ctx, "UPDATE flow.batch SET event_depth = 5 WHERE id = $1", b.id)
	require.NoError(t, err)
	change := func(do func(ctx context.Context, tx pgx.Tx, c *Change) error) {
		w.do(t, func(ctx context.Context, tx pgx.Tx) error {
			c, err := w.s.Begin(ctx, tx, b.id)
			require.NoError(t, err)
			require.NoError(t, do(ctx, tx, c))
			return c.Apply(ctx)
		})
	}
	lose := func() {
		id := uuid.Must(uuid.NewV7())
		change(func(ctx context.Context, tx pgx.Tx, c *Change) error {
			require.NoError(t, c.Claim(ctx, []ClaimedRange{{Part: w.queued(t, b.id, 0, 0)[0], CallID: id}}))
			return w.insertCalls(ctx, tx, b.id, "dialer__api__upload", []uuid.UUID{id}, c.Now)
		})
		change(func(ctx context.Context, tx pgx.Tx, c *Change) error {
			calls := w.calls(t, []*modelBatch{b})
			last := calls[len(calls)-1]
			require.NoError(t, c.MarkUnknown(ctx, last.parts))
			require.NoError(t, c.MarkUnresolved(ctx, last.parts))
			_, err := tx.Exec(ctx, "UPDATE flow.call SET state = 'unresolved' WHERE id = $1", id)
			return err
		})
	}
	type told struct {
		BatchID, DefinitionID uuid.UUID
		JobCount              int64    `json:"job_count"`
		JobIDs                []string `json:"job_ids"`
		UnresolvedCount       int64    `json:"unresolved_count"`
		TaskID                string   `json:"task_id"`
	}
	var got []told
	read := func() {
		rows, err := w.pool.Query(w.ctx, "SELECT payload::text, depth FROM flow.event_delivery ORDER BY id")
		require.NoError(t, err)
		got = nil
		var text string
		var depth int
		_, err = pgx.ForEachRow(rows, []any{&text, &depth}, func() error {
			var one told
			got = append(got, one)
			assert.Equal(t, 5, depth)
			return json.Unmarshal([]byte(text), &got[len(got)-1])
		})
		require.NoError(t, err)
	}
	for range 5 {
		lose()
	}
	read()
	require.Len(t, got, 4, "the fifth comes when 1000 stand so")
	for i, one := range got {
		assert.Equal(t, []int64{each, int64(i+1) * each}, []int64{one.JobCount, one.UnresolvedCount})
		assert.Equal(t, "t0_0", one.TaskID)
		var want []string
		for j := range unresolvedNamed {
			want = append(want, fmt.Sprintf("%s.%d", b.id, i*each+j))
		}
		assert.Equal(t, want, one.JobIDs)
	}
	change(func(ctx context.Context, tx pgx.Tx, c *Change) error {
		var results []Result
		for _, call := range w.calls(t, []*modelBatch{b})[:2] {
			results = append(results, Result{Part: call.parts[0], From: batch.Unresolved, CallID: call.id})
			_, err := tx.Exec(ctx, "UPDATE flow.call SET state = 'settled' WHERE id = $1", call.id)
			require.NoError(t, err)
		}
		return c.Settle(ctx, results)
	})
	lose()
	read()
	require.Len(t, got, 5)
	assert.Equal(t, int64(1000), got[4].UnresolvedCount)
	assert.Contains(t, w.woken, fmt.Sprintf("%s %s", event.Due, w.subscriber(t)))
}

// subscriber is the one event subscription.
func (w *world) subscriber(t *testing.T) (id uuid.UUID) {
	t.Helper()
	require.NoError(t, w.pool.QueryRow(w.ctx, "SELECT id FROM flow.event_subscription").Scan(&id))
	return id
}

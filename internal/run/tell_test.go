package run

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
)

// TestTell: who wants to know is told of a change once others can see it, and of none that came to nothing.
func TestTell(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := modelPlan{{{kind: "transform"}}}
	b := w.start(t, p, w.define(t, p, -1, false), []modelInput{{}}, 1, false, false)
	var told [][]uuid.UUID
	var seen []string
	w.s.OnChange(func(batchIDs []uuid.UUID) {
		row, err := w.s.ReadBatch(w.ctx, w.org, b.id)
		require.NoError(t, err)
		told, seen = append(told, batchIDs), append(seen, string(row.FlowBatchCount.Status))
	})
	abort := errors.New("abort")
	cancel := func(result error) error {
		return pg.InTx(w.ctx, w.pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := w.s.Cancel(ctx, tx, w.org, b.id, Cancellation{})
			return errors.Join(err, result)
		})
	}
	require.ErrorIs(t, cancel(abort), abort)
	assert.Empty(t, told)
	require.NoError(t, cancel(nil))
	assert.Equal(t, [][]uuid.UUID{{b.id}}, told)
	assert.Equal(t, []string{"cancelled"}, seen)
}

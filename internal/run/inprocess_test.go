package run

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/definition"
)

// gonePlans are those of a process whose catalog lacks every action.
type gonePlans struct{ Planner }

func (p gonePlans) Plan(ctx context.Context, conn db.DBTX, orgID, definitionID uuid.UUID, version int32) (*definition.Plan, error) {
	found, err := p.Planner.Plan(ctx, conn, orgID, definitionID, version)
	if err != nil {
		return nil, err
	}
	plan := *found
	plan.Steps = nil
	for _, s := range found.Steps {
		tasks := s.Tasks
		s.Tasks = nil
		for _, t := range tasks {
			t.Gone, t.Params, t.When = "The catalog has it no more", nil, nil
			s.Tasks = append(s.Tasks, t)
		}
		plan.Steps = append(plan.Steps, s)
	}
	return &plan, nil
}

// TestWork_ActionGone: records wait for a process whose catalog has the action, such as the newer one of two.
func TestWork_ActionGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := modelPlan{{{kind: "transform"}}}
	b := w.start(t, p, w.define(t, p), []modelInput{{}, {}}, 2, false)
	older := New(w.pool, gonePlans{w.s.plans}, w, w, func() float64 { return 0 })
	more, err := older.Work(w.ctx, b.id)
	require.ErrorContains(t, err, "waits for a catalog that has its action")
	assert.False(t, more)
	row, err := w.s.ReadBatch(w.ctx, w.org, b.id)
	require.NoError(t, err)
	counts := JobCounts(row)
	assert.Equal(t, int64(2), counts.Of(Queued))

	_, err = w.s.Work(w.ctx, b.id)
	require.NoError(t, err)
	row, err = older.ReadBatch(w.ctx, w.org, b.id)
	require.NoError(t, err)
	counts = JobCounts(row)
	assert.Equal(t, int64(2), counts.Of(Completed))
}

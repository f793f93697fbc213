package run

import (
	"bufio"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
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
	b := w.start(t, p, w.define(t, p, -1, false), []modelInput{{}, {}}, 2, false, false)
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

// TestWork_Bounded: what is evaluated before it is settled is bounded, however much each record makes.
func TestWork_Bounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := modelPlan{{{kind: "transform"}}}
	def := w.define(t, p, -1, false)
	big := `{"steps":[{"id":"s0","tasks":[{"id":"t0_0","action_id":"core__flow__transform","params":{"value":"{{ metadata.big }}{{ batch.id }}"}}]}]}`
	_, err := w.q.CreateDefinitionVersion(w.ctx, w.pool, db.CreateDefinitionVersionParams{DefinitionID: def, Version: 2, OrgID: w.org, Doc: []byte(big), CreatedBy: "test"})
	require.NoError(t, err)
	const mib, perSlice = 1 << 20, 50
	var rows [][]byte
	for range 2 * perSlice {
		rows = append(rows, []byte(`{"pad":"`+strings.Repeat("x", 64<<10/perSlice-16)+`"}`))
	}
	var batch uuid.UUID
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		out, err := w.s.Start(ctx, tx, StartInput{OrgID: w.org, DefinitionID: def, Version: 2, Source: Source{Records: rows},
			Metadata: []byte(`{"big":"` + strings.Repeat("m", mib-200) + `"}`), TriggerType: db.FlowTriggerTypeApiCall})
		if err == nil {
			batch = out.BatchID
		}
		return err
	})
	counts := func() Counts {
		row, err := w.s.ReadBatch(w.ctx, w.org, batch)
		require.NoError(t, err)
		return JobCounts(row)
	}
	more, err := w.s.Work(w.ctx, batch)
	require.NoError(t, err)
	require.True(t, more)
	c := counts()
	assert.Equal(t, int64(perSlice), c.Of(Queued), "the second slice has to wait")
	assert.Equal(t, int64(sliceBytes/mib), c.Of(Completed))
	assert.Equal(t, int64(perSlice-sliceBytes/mib), c.Of(Failed))
	_, err = w.s.Work(w.ctx, batch)
	require.NoError(t, err)
	c = counts()
	assert.Zero(t, c.Of(Queued))
	page, err := w.s.Records(w.ctx, w.org, RecordFilter{BatchID: &batch, Status: ref(Failed), Limit: 1})
	require.NoError(t, err)
	assert.Contains(t, page.Records[0].Error.Message, "32 MiB")
	// Slices of large outputs are read in parts, which make together what there is.
	var positions []int64
	for f := (RecordFilter{BatchID: &batch, Want: Want{Output: true}, Limit: 1000}); ; {
		page, err := w.s.Records(w.ctx, w.org, f)
		require.NoError(t, err)
		held := 0
		for _, r := range page.Records {
			positions, held = append(positions, r.Position), held+len(r.Output)
		}
		assert.LessOrEqual(t, held, pageBytes+mib)
		if !page.More {
			break
		}
		f.FromBatch, f.FromPosition = batch, positions[len(positions)-1]+1
	}
	export, err := w.s.Export(w.ctx, w.org, batch, NDJSON, nil, 0, 0)
	require.NoError(t, err)
	lines := bufio.NewScanner(export)
	lines.Buffer(nil, 2*mib)
	n := int64(0)
	for ; lines.Scan(); n++ {
		var line struct{ Position int64 }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
		require.Equal(t, n, line.Position)
		require.Equal(t, n, positions[n])
	}
	require.NoError(t, lines.Err())
	assert.Equal(t, int64(2*perSlice), n)
	assert.Len(t, positions, 2*perSlice)
}

package run

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/definition"
	"flowlane/internal/pg"
	"flowlane/internal/store"
)

// gonePlans are those of a process whose catalog lacks every action.
type gonePlans struct{ query.Planner }

func (p gonePlans) Plan(ctx context.Context, conn db.DBTX, orgID, definitionID uuid.UUID,
	version int32) (*definition.Plan, error) {
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

// TestWork_ActionGone: records wait for a process whose catalog has the action.
func TestWork_ActionGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := modelPlan{{{kind: "transform"}}}
	b := w.start(t, p, w.define(t, p, -1, false), []modelInput{{}, {}}, 2, false, false)
	lacking := New(w.pool, gonePlans{w.s.plans}, w, w, func() float64 { return 0 })
	more, err := lacking.Work(w.ctx, b.id)
	require.ErrorContains(t, err, "waits for a catalog that has its action")
	assert.False(t, more)
	row, err := w.s.ReadBatch(w.ctx, w.org, b.id)
	require.NoError(t, err)
	counts := query.JobCounts(row)
	assert.Equal(t, int64(2), counts.Of(batch.Queued))

	_, err = w.s.Work(w.ctx, b.id)
	require.NoError(t, err)
	row, err = lacking.ReadBatch(w.ctx, w.org, b.id)
	require.NoError(t, err)
	counts = query.JobCounts(row)
	assert.Equal(t, int64(2), counts.Of(batch.Completed))
}

// TestWork_Bounded: what is evaluated before it is settled is bounded, however much each record makes.
func TestWork_Bounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := modelPlan{{{kind: "transform"}}}
	def := w.define(t, p, -1, false)
	big := `{"steps":[{"id":"s0","tasks":[{"id":"t0_0","action_id":"core__flow__transform","params":{"value":"{{ metadata.big }}{{ batch.id }}"}}]}]}`
	_, err := w.q.CreateDefinitionVersion(w.ctx, w.pool, db.CreateDefinitionVersionParams{DefinitionID: def, Version: 2,
		OrgID: w.org, Doc: []byte(big), CreatedBy: "test"})
	require.NoError(t, err)
	const mib, perSlice = 1 << 20, 50
	var rows [][]byte
	for range 2 * perSlice {
		rows = append(rows, []byte(`{"pad":"`+strings.Repeat("x", 64<<10/perSlice-16)+`"}`))
	}
	var batchID uuid.UUID
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		out, err := w.s.Start(ctx, tx, StartInput{OrgID: w.org, DefinitionID: def, Version: 2,
			Source:   Source{Records: rows},
			Metadata: []byte(`{"big":"` + strings.Repeat("m", mib-200) + `"}`), TriggerType: TriggerAPICall})
		if err == nil {
			batchID = out.BatchID
		}
		return err
	})
	counts := func() batch.Counts {
		row, err := w.s.ReadBatch(w.ctx, w.org, batchID)
		require.NoError(t, err)
		return query.JobCounts(row)
	}
	done := 0
	for more := true; more; {
		more, err = w.s.Work(w.ctx, batchID)
		require.NoError(t, err)
		c, before := counts(), done
		done = 0
		require.NoError(t, w.pool.QueryRow(w.ctx,
			"SELECT sum(CASE state WHEN 'done' THEN records ELSE remaining END) FROM flow.all_slices").Scan(&done))
		assert.LessOrEqual(t, done-before, turnBytes/mib+2, "records in one turn")
		assert.Zero(t, c.Of(batch.Failed))
	}
	c := counts()
	assert.Equal(t, int64(2*perSlice), c.Of(batch.Completed))
	// Slices of large outputs are read in parts, which make together what there is.
	var positions []int64
	for f := (query.RecordFilter{BatchID: &batchID, Want: query.Want{Output: true}, Limit: 1000}); ; {
		page, err := w.s.Records(w.ctx, w.org, f)
		require.NoError(t, err)
		held := 0
		for _, r := range page.Records {
			positions, held = append(positions, r.Position), held+len(r.Output)
		}
		assert.LessOrEqual(t, held, 17*mib, "what a page may have")
		if !page.More {
			break
		}
		f.FromBatch, f.FromPosition = batchID, positions[len(positions)-1]+1
	}
	export, err := w.s.Export(w.ctx, w.org, query.RecordFilter{BatchID: &batchID}, func(b []byte, r *query.Record) []byte {
		return fmt.Appendf(b, `{"position":%d,"output":%s}`+"\n", r.Position, r.Output)
	})
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

// TestWork_StoreWrites: a write to a store is done once, with the settlement of its record.
func TestWork_StoreWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stores := store.New(w.pool, w)
	_, err := stores.Create(w.ctx, w.org, "test", "s", store.Config{Fields: []store.Field{{Name: "n", Type: "integer"}},
		Layers: []string{"l"}})
	require.NoError(t, err)
	def := w.define(t, modelPlan{{{kind: "transform"}}}, -1, false)
	doc := `{"steps":[{"id":"s","tasks":[{"id":"t","action_id":"core__store__write","params":{"store":"s","key":"{{ input.id }}","layer":"l","values":{"n":"{{ input.n }}"}}}]},
		{"id":"next","tasks":[{"id":"u","action_id":"core__flow__transform","params":{"value":1}}]}]}`
	_, err = w.q.CreateDefinitionVersion(w.ctx, w.pool, db.CreateDefinitionVersionParams{DefinitionID: def, Version: 2,
		OrgID: w.org, Doc: []byte(doc), CreatedBy: "test"})
	require.NoError(t, err)
	start := func() (batchID uuid.UUID) {
		w.do(t, func(ctx context.Context, tx pgx.Tx) error {
			out, err := w.s.Start(ctx, tx, StartInput{OrgID: w.org, DefinitionID: def, Version: 2,
				TriggerType: TriggerAPICall,
				Source: Source{Records: [][]byte{[]byte(`{"id":"a","n":1}`), []byte(`{"id":"b","n":"x"}`),
					[]byte(`{"id":"a","n":2}`)}}})
			if err == nil {
				batchID = out.BatchID
			}
			return err
		})
		return batchID
	}
	evaluate := func(batchID uuid.UUID) []*sliceWork {
		b, err := w.s.Batch(w.ctx, w.pool, batchID)
		require.NoError(t, err)
		ready, err := w.q.SlicesReady(w.ctx, w.pool, db.SlicesReadyParams{BatchID: batchID, MaxSlices: slicesAtOnce})
		require.NoError(t, err)
		works, err := w.s.work(w.ctx, b, &turn{limits: &w.s.limits}, ready, nil)
		require.NoError(t, err)
		require.Len(t, works, 1)
		return works
	}
	settle := func(batchID uuid.UUID, works []*sliceWork, then error) error {
		return pg.InTx(w.ctx, w.pool, func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(w.s.settleWork(ctx, tx, batchID, works), then)
		})
	}
	shown := func() string {
		found, err := store.Read(w.ctx, w.pool, w.org, []store.Ref{{Store: "s", Key: "a"}})
		require.NoError(t, err)
		in, err := stores.Get(w.ctx, w.org, "s")
		require.NoError(t, err)
		return fmt.Sprintf("%d %s", in.Records, found[0].Resolved)
	}
	batchID := start()
	crash := errors.New("the process dies")
	require.ErrorIs(t, settle(batchID, evaluate(batchID), crash), crash)
	assert.Equal(t, "0 ", shown(), "nothing of work that is not settled")
	second := evaluate(batchID) // by a worker that is slow
	require.NoError(t, settle(batchID, evaluate(batchID), nil))
	assert.Equal(t, `1 {"n":2}`, shown())
	row, err := w.s.ReadBatch(w.ctx, w.org, batchID)
	require.NoError(t, err)
	counts := query.JobCounts(row)
	assert.Equal(t, []int64{2, 1}, []int64{counts.Of(batch.Queued), counts.Of(batch.Failed)})

	require.NoError(t, stores.DeleteLayer(w.ctx, w.org, "test", "s", "a", "l"))
	require.ErrorIs(t, settle(batchID, second, nil), ErrMoved)
	assert.Equal(t, "0 ", shown(), "what was settled is not written again")

	batchID = start()
	works := evaluate(batchID)
	w.do(t, func(ctx context.Context, tx pgx.Tx) error {
		_, err := w.s.Cancel(ctx, tx, w.org, batchID, Cancellation{})
		return err
	})
	require.ErrorIs(t, settle(batchID, works, nil), errBarred)
	assert.Equal(t, "0 ", shown(), "nothing of a batch that is cancelled")
}

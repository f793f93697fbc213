package run

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/expr"
	"flowlane/internal/recordset"
)

// Records is a slice opened for evaluation. Release it when done: rows and outputs point into its memory.
type Records struct {
	// No is the number of the slice in its batch, First the position of its first record; both from 0.
	No    int32
	First int64
	// Rows are the raw JSON records of the slice, by offset.
	Rows     [][]byte
	batch    *Batch
	page     *recordset.Page
	detached []int32
	// kept are the batches that made the idempotency keys of tasks of the step that it was opened for, where those are
	// of another batch.
	kept map[int16]uuid.UUID
	// results are those of earlier tasks, by offset.
	results map[expr.TaskRef][]json.RawMessage
	// from and to are the offsets between which outputs were read, bytes how much that is.
	from, to int32
	bytes    int
	// spansLoss are the records that waited for longer than a loss; nil for none.
	spansLoss []bool
}

// Release gives the memory of the slice back, and of slices that were opened with it from the same page.
func (r *Records) Release() { r.page.Release() }

// Detached returns the offsets, ascending, of records that left the slice before the step that it was opened for.
func (r *Records) Detached() []int32 { return r.detached }

// KeyBatch returns the batch whose idempotency keys the calls for a task have: another one, in a retry, where one of
// those may have arrived.
func (r *Records) KeyBatch(task int16) uuid.UUID {
	if id, kept := r.kept[task]; kept {
		return id
	}
	return r.batch.ID
}

// Env returns what the expressions of the record at this offset can see.
func (r *Records) Env(offset int32) expr.Env { return *r.Envs()(offset) }

// Envs returns what tells what the expressions of a record can see, by its offset. Each call overwrites what the one
// before returned: there are many records, and what differs among them is little.
func (r *Records) Envs() func(offset int32) *expr.Env {
	env, at := r.batch.env(), int32(0)
	env.Result = func(ref expr.TaskRef) json.RawMessage {
		if of := r.results[ref]; of != nil {
			return of[at]
		}
		return nil
	}
	return func(offset int32) *expr.Env {
		at, env.Input = offset, r.Rows[offset]
		return &env
	}
}

// env is what the expressions of every record of the batch can see.
func (b *Batch) env() expr.Env { return expr.Env{Metadata: b.Metadata, Vars: b.Vars, Batch: b.scope} }

// SliceRef names a slice by its number and first position.
type SliceRef struct {
	No    int32
	First int64
}

// Open reads slices of a batch for a step: their records, who left them, and the results of earlier tasks that are
// used.
func (s *Service) Open(
	ctx context.Context, conn db.DBTX, b *Batch, refs []SliceRef, step int16, used []expr.TaskRef,
) ([]*Records, error) {
	nos, at := make([]int32, len(refs)), make([]recordset.PageRef, len(refs))
	for i, r := range refs {
		nos[i] = r.No
	}
	parts := map[int32]db.SliceRowsRow{} // what slices of a retry have of their pages; all others are whole ones
	if b.retry {
		rows, err := s.q.SliceRows(ctx, conn, db.SliceRowsParams{BatchID: b.ID, Nos: nos})
		if err != nil {
			return nil, fmt.Errorf("read slices of batch %s: %w", b.ID, err)
		}
		for _, r := range rows {
			parts[r.No] = r
		}
	}
	for i, r := range refs {
		at[i] = recordset.PageRef{Set: b.PageSet, First: r.First - int64(parts[r.No].PageOff)}
	}
	pages, err := s.pagesOf(ctx, conn, b, at)
	if err != nil {
		return nil, fmt.Errorf("read records of batch %s: %w", b.ID, err)
	}
	var detached map[int32][]int32
	if step > 0 || batch.EntryState(&b.Plan.Steps[0]) == batch.SliceReady { // else nobody can have left yet
		if detached, err = s.detached(ctx, conn, b.ID, refs, step); err != nil {
			return nil, err
		}
	}
	out := make([]*Records, len(refs))
	for i, ref := range refs {
		page := pages[at[i]]
		rows, err := page.Rows()
		if err != nil {
			return nil, fmt.Errorf("records from %d of batch %s: %w", ref.First, b.ID, err)
		}
		if b.retry {
			rows = rows[parts[ref.No].PageOff:][:parts[ref.No].Records]
		}
		out[i] = &Records{No: ref.No, First: ref.First, Rows: rows, batch: b, page: page, detached: detached[ref.No],
			to: int32(len(rows))}
	}
	if b.retry && batch.Keyed(&b.Plan.Steps[step]) {
		if err := s.openKept(ctx, conn, b, out, nos, step); err != nil {
			return nil, err
		}
	}
	return out, s.openResults(ctx, conn, b, out, used, math.MaxInt)
}

// openKept reads which tasks of slices keep the keys of another batch.
func (s *Service) openKept(ctx context.Context, conn db.DBTX, b *Batch, recs []*Records, nos []int32,
	step int16) error {
	rows, err := s.q.KeptKeys(ctx, conn, db.KeptKeysParams{BatchID: b.ID, SliceNos: nos, StepNo: step})
	if err != nil {
		return fmt.Errorf("read the keys that batch %s keeps: %w", b.ID, err)
	}
	for _, r := range rows {
		for _, rec := range recs {
			if rec.No != r.SliceNo {
				continue
			}
			if rec.kept == nil {
				rec.kept = map[int16]uuid.UUID{}
			}
			rec.kept[r.TaskNo] = r.KeyBatch
		}
	}
	return nil
}

// pagesOf reads pages of the batch. Slices of a retry that lie in one page share it, so that it is unpacked once:
// release them when all are done.
func (s *Service) pagesOf(ctx context.Context, conn db.DBTX, b *Batch,
	at []recordset.PageRef) (map[recordset.PageRef]*recordset.Page, error) {
	if b.page == nil {
		return s.pages.Of(ctx, conn, at) //nolint:wrapcheck // by the caller
	}
	only, out := b.page.Again(), make(map[recordset.PageRef]*recordset.Page, len(at))
	for _, ref := range at {
		out[ref] = only
	}
	return out, nil
}

// detached returns the offsets, ascending, of the records that left slices before a step, by the number of the slice.
func (s *Service) detached(ctx context.Context, conn db.DBTX, batchID uuid.UUID, refs []SliceRef,
	step int16) (map[int32][]int32, error) {
	in, first := db.JobPositionsDetachedParams{BatchID: batchID, StepNo: step}, map[int32]int64{}
	for _, r := range refs {
		in.SliceNos, first[r.No] = append(in.SliceNos, r.No), r.First
	}
	rows, err := s.q.JobPositionsDetached(ctx, conn, in)
	if err != nil {
		return nil, fmt.Errorf("read who left slices of batch %s: %w", batchID, err)
	}
	out := map[int32][]int32{}
	for _, r := range rows {
		out[r.SliceNo] = append(out[r.SliceNo], int32(r.Position-first[r.SliceNo]))
	}
	return out, nil
}

// refsByTask returns the results that are used, by the numbers of their step and task.
func (b *Batch) refsByTask(used []expr.TaskRef) map[[2]int16][]expr.TaskRef {
	out := map[[2]int16][]expr.TaskRef{}
	for i := range b.Plan.Steps {
		for j := range b.Plan.Steps[i].Tasks {
			for _, ref := range used {
				at := [2]int16{int16(i), int16(j)}
				if ref.Step == b.Plan.Steps[i].ID && ref.Task == b.Plan.Steps[i].Tasks[j].ID &&
					!slices.Contains(out[at], ref) {
					out[at] = append(out[at], ref)
				}
			}
		}
	}
	return out
}

// openResults reads results of earlier tasks, of each slice for as many of its records as most bytes allow; of the
// first always.
func (s *Service) openResults(
	ctx context.Context, conn db.DBTX, b *Batch, recs []*Records, used []expr.TaskRef, most int,
) error {
	wanted := b.refsByTask(used)
	if len(wanted) == 0 {
		return nil
	}
	own := db.FragmentsReadParams{Small: batch.SmallFragment}
	if most == math.MaxInt { // all is read together
		own.Small = math.MaxInt32
	}
	for _, r := range recs {
		own.BatchIds, own.SliceNos, own.FromSteps = append(own.BatchIds, b.ID), append(own.SliceNos, r.No),
			append(own.FromSteps, 0)
	}
	var inherited db.InheritedReadParams
	if b.retry {
		inherited = db.InheritedReadParams{BatchIds: own.BatchIds, SliceNos: own.SliceNos, FromSteps: own.FromSteps}
	}
	bodies, err := batch.ReadFragments(ctx, conn, inherited, own)
	if err != nil {
		return err
	}
	for _, r := range recs {
		if err := r.takeResults(bodies[batch.SliceKey{Batch: b.ID, No: r.No}], wanted, most); err != nil {
			return fmt.Errorf("results of slice %d of batch %s: %w", r.No, b.ID, err)
		}
	}
	return nil
}

// takeResults takes the wanted results from fragments, and leaves out the last records where they are too much.
func (r *Records) takeResults(bodies []batch.Fragment, wanted map[[2]int16][]expr.TaskRef, most int) error {
	r.results = map[expr.TaskRef][]json.RawMessage{}
	for _, refs := range wanted {
		for _, ref := range refs {
			r.results[ref] = make([]json.RawMessage, len(r.Rows))
		}
	}
	bodies = slices.DeleteFunc(bodies, func(f batch.Fragment) bool { return wanted[[2]int16{f.Step, f.Task}] == nil })
	sizes := make([]int, len(r.Rows))
	skip := func(from, to int32) bool { return to <= r.from || from >= r.to }
	return batch.DecodeFragments(bodies, int32(len(r.Rows)), skip, batch.DecodeWhole,
		func(step, task int16, t *batch.Entry) {
			if !t.Decides() {
				return
			}
			for _, ref := range wanted[[2]int16{step, task}] {
				of, value := r.results[ref], t.Result(ref.Of)
				t.Each(func(at int32) { r.put(of, at, value, sizes, most) })
			}
		})
}

func (r *Records) put(of []json.RawMessage, at int32, value json.RawMessage, sizes []int, most int) {
	if at < r.from || at >= r.to {
		return
	}
	more := len(value) - len(of[at])
	of[at] = value
	sizes[at], r.bytes = sizes[at]+more, r.bytes+more
	for r.bytes > most && r.to > r.from+1 {
		r.to--
		for _, of := range r.results {
			of[r.to] = nil
		}
		r.bytes -= sizes[r.to]
	}
}

// ResultsUsed returns the results of earlier tasks that a task's expressions refer to; none for a task that can no
// longer run.
func ResultsUsed(t *definition.Task) []expr.TaskRef {
	if t.Gone != "" {
		return nil
	}
	out := slices.Clip(t.Params.Refs().Tasks)
	if t.When != nil {
		out = append(out, t.When.Refs().Tasks...)
	}
	if t.ForEach != nil {
		out = append(out, t.ForEach.Refs().Tasks...)
	}
	if t.Match != nil {
		out = append(out, t.Match.Refs().Tasks...)
	}
	return out
}

package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
)

// LoggedExecution is an execution with its log, as of one moment.
type LoggedExecution struct {
	Record *Record
	Steps  []ExecutionStep
	Log    Log
	// SliceNo is the slice that holds the record.
	SliceNo int32
}

// ExecutionLog reads a run of a record of a batch, with what happened in it. Fault: NotFound.
func (s *Service) ExecutionLog(ctx context.Context, orgID, batchID uuid.UUID, position int64, run int32) (*LoggedExecution, error) {
	var out LoggedExecution
	err := s.one(ctx, orgID, batchID, position, "Execution", func(v *sliceView, offset int32, rows [][]byte) (err error) {
		out.SliceNo = v.No
		if out.Record, out.Steps, err = v.execution(offset, run, rows, Want{Input: true, Output: true, History: true}); err != nil {
			return err
		}
		logs, err := v.logs([]watchedRun{{offset, run}})
		out.Log = logs[0]
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// Watched is a slice of a batch of which somebody follows records.
type Watched struct {
	OrgID, BatchID uuid.UUID
	SliceNo        int32
	// Mark is that of the state that was read last; 0 for none.
	Mark int64
	// Positions are those of the records that are followed, and Runs which run of each; none for the first of all.
	Positions []int64
	Runs      []int32
}

// watchedRun is a run of the record at an offset of a slice.
type watchedRun struct{ offset, run int32 }

func (w *Watched) runsFrom(first int64) []watchedRun {
	out := make([]watchedRun, len(w.Positions))
	for i, p := range w.Positions {
		out[i] = watchedRun{int32(p - first), 1}
		if w.Runs != nil {
			out[i].run = w.Runs[i]
		}
	}
	return out
}

// Follow reads the watched slices that are no longer as they were at their mark, and calls do for each with its number in
// watched, its new mark, and the logs of its positions. It may be called again for what has not changed; it leaves out
// no change.
func (s *Service) Follow(ctx context.Context, watched []Watched, do func(i int, mark int64, logs []Log)) error {
	in := db.SlicesChangedParams{}
	for i := range watched {
		w := &watched[i]
		in.BatchIds, in.Nos, in.Marks = append(in.BatchIds, w.BatchID), append(in.Nos, w.SliceNo), append(in.Marks, w.Mark)
	}
	// The marks come first: what changes between the two readings has another mark the next time.
	changed, err := s.q.SlicesChanged(ctx, s.pool, in)
	if err != nil || len(changed) == 0 {
		return wrap(err, "look for changes of slices")
	}
	return s.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		for some := range slices.Chunk(changed, walkSlices) {
			if err := s.followSome(ctx, tx, watched, some, do); err != nil {
				return err
			}
		}
		return nil
	})
}

// followSome reads these changed slices, of however many batches, together: what is followed may have thousands.
func (s *Service) followSome(ctx context.Context, tx pgx.Tx, watched []Watched, changed []db.SlicesChangedRow, do func(i int, mark int64, logs []Log)) error {
	views, err := s.changedViews(ctx, tx, watched, changed)
	if err != nil {
		return err
	}
	byKey := make(map[sliceKey]db.SlicesChangedRow, len(changed))
	for _, c := range changed {
		byKey[sliceKey{watched[c.I].BatchID, watched[c.I].SliceNo}] = c
	}
	for len(views) > 0 {
		opened, err := s.openFitting(ctx, tx, views, false)
		if err != nil {
			return err
		}
		for _, v := range opened {
			c := byKey[v.key()]
			logs, err := v.logs(watched[c.I].runsFrom(v.First))
			if err != nil {
				return err
			}
			do(int(c.I), c.Mark, logs)
		}
		views = views[len(opened):]
	}
	return nil
}

// changedViews returns the changed slices, those of one batch side by side and in their order.
func (s *Service) changedViews(ctx context.Context, tx pgx.Tx, watched []Watched, changed []db.SlicesChangedRow) ([]*sliceView, error) {
	which, in := db.BatchesReadParams{}, db.SlicesReadParams{}
	for _, c := range changed {
		w := &watched[c.I]
		in.BatchIds, in.Nos = append(in.BatchIds, w.BatchID), append(in.Nos, w.SliceNo)
		if !slices.Contains(which.Ids, w.BatchID) {
			which.OrgIds, which.Ids = append(which.OrgIds, w.OrgID), append(which.Ids, w.BatchID)
		}
	}
	batches, err := s.viewsOf(ctx, tx, which)
	if err != nil {
		return nil, err
	}
	rows, err := s.q.SlicesRead(ctx, tx, in)
	if err != nil {
		return nil, fmt.Errorf("read followed slices: %w", err)
	}
	var out []*sliceView
	for _, r := range rows {
		if b := batches[r.BatchID]; b != nil {
			out = append(out, &sliceView{batch: b, SliceRowsRow: db.SliceRowsRow(r), needs: needs{runs: true}})
		}
	}
	slices.SortFunc(out, func(a, b *sliceView) int { return a.key().compare(b.key()) })
	return out, nil
}

// logs are those of these runs of records.
func (v *sliceView) logs(runs []watchedRun) ([]Log, error) {
	all, wanted := v.logInputs(runs)
	each := func(from, to int32, do func(in *logInputs)) {
		i, _ := slices.BinarySearchFunc(all, from, func(in *logInputs, from int32) int { return cmp.Compare(in.offset, from) })
		for ; i < len(all) && all[i].offset < to; i++ {
			do(all[i])
		}
	}
	err := v.traces(light, wanted, func(step, task int16, t *Trace) {
		facts := factsOf(step, task, t)
		each(t.From, t.To, func(in *logInputs) {
			switch {
			case !t.covers(in.offset):
			case t.inherited:
				if t.decides() {
					in.before = append(in.before, facts[len(facts)-1])
				}
			case v.tells(in.offset, in.run, step, t) && (in.run == 1 || !v.tells(in.offset, in.run-1, step, t)):
				in.facts = append(in.facts, facts...)
			}
		})
	})
	if err != nil {
		return nil, err
	}
	for i := range v.parts {
		p := &v.parts[i]
		each(p.From, p.To, func(in *logInputs) {
			if v.concerns(p, in.offset) && !v.ended(in.offset, in.run) {
				in.facts = append(in.facts, factsOfPart(p)...)
			}
		})
	}
	records, err := v.list(wanted, Want{History: true}, nil)
	if err != nil {
		return nil, err
	}
	for i := range records {
		offset := int32(records[i].Position - v.First)
		each(offset, offset+1, func(in *logInputs) {
			r := v.ofRun(records[i], offset, in.run)
			in.status, in.failure, in.over, in.ended = r.Status, r.Error, deref(r.CompletedAt), v.ended(offset, in.run)
		})
	}
	logs, out := map[watchedRun]Log{}, make([]Log, len(runs))
	for _, in := range all {
		logs[in.watchedRun] = in.log()
	}
	for i, w := range runs { // several readers may follow one
		out[i] = logs[w]
	}
	return out, nil
}

// logInputs begins what the logs of these runs are built from, in order and each once; wanted tells which offsets they are of.
func (v *sliceView) logInputs(runs []watchedRun) (all []*logInputs, wanted []bool) {
	runs, wanted = slices.Clone(runs), make([]bool, v.Records)
	slices.SortFunc(runs, func(a, b watchedRun) int { return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.run, b.run)) })
	b := &v.batch.FlowBatch
	queued := later(b.CreatedAt, deref(b.ScheduledAt))
	for _, w := range slices.Compact(runs) {
		wanted[w.offset] = true
		in := &logInputs{watchedRun: w, plan: v.batch.plan, began: b.CreatedAt, queued: queued, staged: v.State == sliceStaged}
		if w.run > 1 {
			in.began = v.runs[w.offset][w.run-2].EndedAt
			in.queued = in.began
		}
		all = append(all, in)
	}
	return all, wanted
}

// wrap says of an error, if there is one, what failed.
func wrap(err error, what string, args ...any) error {
	if err != nil {
		return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), err)
	}
	return nil
}

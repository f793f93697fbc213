package query

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/fault"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
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
func (s *Reader) ExecutionLog(ctx context.Context, orgID, batchID uuid.UUID, position int64,
	run int32) (*LoggedExecution, error) {
	var out LoggedExecution
	r, err := s.one(ctx, orgID, batchID, position, run, Want{Input: true, History: true, Key: true},
		func(v *Slice, r *Record) (err error) {
			out.SliceNo = v.No
			if out.Steps, err = v.path(r); err != nil {
				return err
			}
			logs, err := v.logs([]WatchedRun{{position, run}})
			if err == nil {
				out.Log = logs[0]
			}
			return err
		})
	if err != nil {
		return nil, err
	}
	out.Record = r
	return &out, nil
}

// Watched is a slice of a batch of which somebody follows records.
type Watched struct {
	OrgID, BatchID uuid.UUID
	SliceNo        int32
	// Mark is that of the state that was read last; 0 for none.
	Mark int64
	Runs []WatchedRun
}

// WatchedRun is a run of a record that is followed.
type WatchedRun struct {
	Position int64
	Run      int32
}

// Follow reads the watched slices that are no longer as they were at their mark, and calls do for each with its number
// in watched, its new mark, and the logs of its positions. It may be called again for what has not changed; it leaves
// out no change.
func (s *Reader) Follow(ctx context.Context, watched []Watched, do func(i int, mark int64, logs []Log)) error {
	in := db.SlicesChangedParams{}
	for i := range watched {
		w := &watched[i]
		in.BatchIds, in.Nos, in.Marks = append(in.BatchIds, w.BatchID), append(in.Nos, w.SliceNo),
			append(in.Marks, w.Mark)
	}
	// The marks come first: what changes between the two readings has another mark the next time.
	changed, err := s.q.SlicesChanged(ctx, s.pool, in)
	if err != nil || len(changed) == 0 {
		return fault.Wrap(err, "look for changes of slices")
	}
	return s.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		for some := range slices.Chunk(changed, ScanSlices) {
			if err := s.followSome(ctx, tx, watched, some, do); err != nil {
				return err
			}
		}
		return nil
	})
}

// followSome reads these changed slices, of however many batches, together: what is followed may have thousands.
func (s *Reader) followSome(ctx context.Context, tx pgx.Tx, watched []Watched, changed []db.SlicesChangedRow,
	do func(i int, mark int64, logs []Log)) error {
	which, in, byKey := db.BatchesReadParams{}, db.SlicesReadParams{}, make(map[batch.SliceKey]db.SlicesChangedRow,
		len(changed))
	for _, c := range changed {
		w := &watched[c.I]
		byKey[batch.SliceKey{Batch: w.BatchID, No: w.SliceNo}] = c
		in.BatchIds, in.Nos = append(in.BatchIds, w.BatchID), append(in.Nos, w.SliceNo)
		if !slices.Contains(which.Ids, w.BatchID) {
			which.OrgIds, which.Ids = append(which.OrgIds, w.OrgID), append(which.Ids, w.BatchID)
		}
	}
	batches, err := s.ViewsOf(ctx, tx, which)
	if err != nil {
		return err
	}
	rows, err := s.q.SlicesRead(ctx, tx, in)
	if err != nil {
		return fmt.Errorf("read followed slices: %w", err)
	}
	var views []*Slice
	for _, r := range rows {
		if b := batches[r.BatchID]; b != nil {
			views = append(views, &Slice{Batch: b, SliceRowsRow: db.SliceRowsRow(r), needs: Needs{runs: true}})
		}
	}
	return s.openEach(ctx, tx, views, func(v *Slice) error {
		c := byKey[v.key()]
		logs, err := v.logs(watched[c.I].Runs)
		if err == nil {
			do(int(c.I), c.Mark, logs)
		}
		return err
	})
}

// logs are those of these runs of records.
func (v *Slice) logs(runs []WatchedRun) ([]Log, error) {
	all, at, wanted := map[WatchedRun]*logInputs{}, make([][]*logInputs, v.Records), make([]bool, v.Records)
	for _, w := range runs {
		if all[w] == nil { // several readers may follow one
			o := int32(w.Position - v.First)
			all[w] = v.logInputs(o, w.Run)
			at[o], wanted[o] = append(at[o], all[w]), true
		}
	}
	err := v.entries(batch.DecodeLight, wanted, func(step, task int16, t *batch.Entry) {
		facts := eventFactsOf(step, task, t)
		t.Each(func(o int32) {
			for _, in := range at[o] {
				switch {
				case t.Inherited:
					if t.Decides() {
						in.before = append(in.before, facts[len(facts)-1])
					}
				case v.isOfRun(o, in.run, step, t) && (in.run == 1 || !v.isOfRun(o, in.run-1, step, t)):
					in.facts = append(in.facts, facts...)
				}
			}
		})
	})
	if err != nil {
		return nil, err
	}
	for i := range v.Parts {
		p := &v.Parts[i]
		p.Each(func(o int32) {
			for _, in := range at[o] {
				if p.State != batch.Queued && v.Concerns(p, o) && v.endOf(o, in.run) == nil {
					in.facts = append(in.facts, factOfPart(p))
				}
			}
		})
	}
	records, err := v.list(wanted, Want{History: true})
	if err != nil {
		return nil, err
	}
	for i := range records {
		o := int32(records[i].Position - v.First)
		for _, in := range at[o] {
			r := v.ofRun(records[i], o, in.run)
			in.status, in.failure, in.over, in.ended = r.Status, r.Error, pg.Value(r.CompletedAt),
				v.endOf(o, in.run) != nil
		}
	}
	out := make([]Log, len(runs))
	for i, w := range runs {
		out[i] = all[w].log()
	}
	return out, nil
}

// logInputs begins what the log of a run of the record at this offset is built from.
func (v *Slice) logInputs(offset, run int32) *logInputs {
	b := &v.Batch.FlowBatch
	in := &logInputs{run: run, plan: v.Batch.Plan, began: b.CreatedAt, queued: moment.Later(b.CreatedAt,
		pg.Value(b.ScheduledAt)),
		staged: v.State == batch.SliceStaged}
	if before := v.endOf(offset, run-1); before != nil {
		in.began, in.queued = before.EndedAt, before.EndedAt
	}
	return in
}

package run

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
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
		out.SliceNo = v.no
		if !v.hasRun(offset, run) {
			return fault.Missing("Execution")
		}
		if out.Record, err = v.single(offset, rows); err != nil {
			return err
		}
		*out.Record = v.ofRun(*out.Record, offset, run)
		if out.Steps, err = v.path(offset, out.Record); err != nil {
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
	byBatch := map[uuid.UUID][]db.SlicesChangedRow{}
	var order []uuid.UUID
	for _, c := range changed {
		id := watched[c.I].BatchID
		if byBatch[id] == nil {
			order = append(order, id)
		}
		byBatch[id] = append(byBatch[id], c)
	}
	return s.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		for _, id := range order {
			if err := s.followBatch(ctx, tx, id, watched, byBatch[id], do); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Service) followBatch(ctx context.Context, tx pgx.Tx, id uuid.UUID, watched []Watched, changed []db.SlicesChangedRow, do func(i int, mark int64, logs []Log)) error {
	b, err := s.view(ctx, tx, watched[changed[0].I].OrgID, id)
	if err != nil {
		return err
	}
	byNo := map[int32]db.SlicesChangedRow{}
	nos := make([]int32, 0, len(changed))
	for _, c := range changed {
		no := watched[c.I].SliceNo
		byNo[no], nos = c, append(nos, no)
	}
	found, err := s.q.SliceRows(ctx, tx, db.SliceRowsParams{BatchID: id, Nos: nos})
	if err != nil {
		return fmt.Errorf("read slices of batch %s: %w", id, err)
	}
	rows := make([]sliceRow, len(found))
	for i, r := range found {
		rows[i] = sliceRow{no: r.No, records: r.Records, apart: r.Apart, first: r.First, state: r.State, step: r.StepNo,
			pageOff: r.PageOff, firstStep: r.FirstStep, tasksDone: r.TasksDone}
	}
	for len(rows) > 0 {
		n, err := s.fit(ctx, tx, b, rows[:min(len(rows), walkSlices)], 0, false)
		if err != nil {
			return err
		}
		views, err := b.open(ctx, s.q, tx, rows[:n], 0)
		if err != nil {
			return err
		}
		if err := b.readRuns(ctx, s.q, tx, views); err != nil {
			return err
		}
		for _, v := range views {
			c := byNo[v.no]
			logs, err := v.logs(watched[c.I].runsFrom(v.first))
			if err != nil {
				return err
			}
			do(int(c.I), c.Mark, logs)
		}
		rows = rows[n:]
	}
	return nil
}

// logs are those of these runs of records.
func (v *sliceView) logs(runs []watchedRun) ([]Log, error) {
	wanted := make([]bool, v.records)
	stories := map[watchedRun]*story{}
	b := &v.batch.FlowBatch
	queued := later(b.CreatedAt, deref(b.ScheduledAt))
	for _, w := range runs {
		wanted[w.offset] = true
		s := &story{plan: v.batch.plan, began: b.CreatedAt, queued: queued, staged: v.state == sliceStaged}
		if w.run > 1 {
			s.began = v.runs[w.offset][w.run-2].EndedAt
			s.queued = s.began
		}
		stories[w] = s
	}
	err := v.traces(wanted, func(step, task int16, t *Trace) {
		if t.inherited {
			return
		}
		facts := factsOf(step, task, t)
		for w, s := range stories {
			if t.covers(w.offset) && v.tells(w.offset, w.run, step, t) && (w.run == 1 || !v.tells(w.offset, w.run-1, step, t)) {
				s.facts = append(s.facts, facts...)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range v.parts {
		p := &v.parts[i]
		for w, s := range stories {
			if v.concerns(p, w.offset) && !v.ended(w.offset, w.run) {
				s.facts = append(s.facts, factsOfPart(p)...)
			}
		}
	}
	records, err := v.list(wanted, Want{History: true}, nil)
	if err != nil {
		return nil, err
	}
	for i := range records {
		for w, s := range stories {
			if int64(w.offset) != records[i].Position-v.first {
				continue
			}
			r := v.ofRun(records[i], w.offset, w.run)
			s.status, s.failure, s.over, s.ended = r.Status, r.Error, deref(r.CompletedAt), v.ended(w.offset, w.run)
		}
	}
	out := make([]Log, len(runs))
	for i, w := range runs {
		out[i] = stories[w].log()
	}
	return out, nil
}

func wrap(err error, what string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

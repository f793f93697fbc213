package run

import (
	"context"
	"fmt"

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

// ExecutionLog reads run 1 of a record of a batch, with what happened to it. Fault: NotFound.
func (s *Service) ExecutionLog(ctx context.Context, orgID, batchID uuid.UUID, position int64) (*LoggedExecution, error) {
	var out LoggedExecution
	err := s.one(ctx, orgID, batchID, position, "Execution", func(v *sliceView, offset int32, rows [][]byte) (err error) {
		out.SliceNo = v.no
		if out.Record, err = v.single(offset, rows); err != nil {
			return err
		}
		if out.Steps, err = v.path(offset, out.Record); err != nil {
			return err
		}
		logs, err := v.logs([]int32{offset})
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
	// Positions are those of the records that are followed.
	Positions []int64
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
		rows[i] = sliceRow{no: r.No, records: r.Records, apart: r.Apart, first: r.First, state: r.State, step: r.StepNo}
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
		for _, v := range views {
			c := byNo[v.no]
			offsets := make([]int32, len(watched[c.I].Positions))
			for i, p := range watched[c.I].Positions {
				offsets[i] = int32(p - v.first)
			}
			logs, err := v.logs(offsets)
			if err != nil {
				return err
			}
			do(int(c.I), c.Mark, logs)
		}
		rows = rows[n:]
	}
	return nil
}

// logs are those of the records at these offsets.
func (v *sliceView) logs(offsets []int32) ([]Log, error) {
	wanted := make([]bool, v.records)
	stories := map[int32]*story{}
	b := &v.batch.FlowBatch
	queued := later(b.CreatedAt, deref(b.ScheduledAt))
	for _, o := range offsets {
		wanted[o] = true
		stories[o] = &story{plan: v.batch.plan, began: b.CreatedAt, queued: queued, staged: v.state == sliceStaged}
	}
	err := v.traces(wanted, func(step, task int16, t *Trace) {
		facts := factsOf(step, task, t)
		for o, s := range stories {
			if t.covers(o) {
				s.facts = append(s.facts, facts...)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range v.parts {
		p := &v.parts[i]
		for o, s := range stories {
			if v.concerns(p, o) {
				s.facts = append(s.facts, factsOfPart(p)...)
			}
		}
	}
	records, err := v.list(wanted, Want{History: true}, nil)
	if err != nil {
		return nil, err
	}
	for i := range records {
		r := &records[i]
		s := stories[int32(r.Position-v.first)]
		s.status, s.failure, s.over = r.Status, r.Error, deref(r.CompletedAt)
	}
	out := make([]Log, len(offsets))
	for i, o := range offsets {
		out[i] = stories[o].log()
	}
	return out, nil
}

func wrap(err error, what string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

package query

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
)

// Batch is a batch as readers see it.
type Batch struct {
	*BatchRow
	Plan *definition.Plan
}

// Over reports whether what waits will never be sent.
func (b *Batch) Over() bool {
	return batch.BatchTerminal(b.FlowBatchCount.Status) || b.FlowBatchCount.StoppedAt != nil
}

// retry reports whether the batch works on records of another one: its positions have gaps, and outputs come from
// there.
func (b *Batch) retry() bool { return b.FlowBatch.RetryOf != nil }

func (b *Batch) lastStep() int16 { return int16(len(b.Plan.Steps) - 1) }

// Slice is a slice opened for reading. PageOff is how far behind the beginning of its page it begins; it entered at
// FirstStep, without the tasks of that step (bits by number) that were done before (TasksDone): all zero but in a
// retry.
type Slice struct {
	db.SliceRowsRow
	Batch *Batch
	needs Needs
	// matching is how many of its records a filter can match, by its counters, where slices were looked for.
	matching int64
	// from and to are the offsets between which a list shows records of it.
	from, to int32
	Statuses []batch.Status
	// kept are the tasks of FirstStep, as bits by number, that keep the keys of an earlier batch, where that was read.
	kept int64
	// wanted: all its records have statuses that are asked for, so that nobody read which.
	Wanted bool
	// jobs are the detached records, by offset.
	jobs  map[int32]*db.JobsReadRow
	Parts []batch.CoveringPart
	// runs are the ended runs by offset, where they were read.
	runs map[int32][]db.EndedRunsReadRow
	// bodies are the fragments as stored, by step and task in the order in which they came.
	bodies []batch.Fragment
	// rows are the raw records, where they were read.
	rows [][]byte
	// keyed tells by offset which records have the key that is looked for; nil where none is.
	keyed []bool
}

// Needs are what a reader needs of slices beside where their records stand; those that are opened together differ in
// their first steps alone.
type Needs struct {
	// own and inherited are the first steps whose fragments it needs: of the batch itself, and of those that it
	// inherited from. Each record of a retry can inherit from a whole slice, so who does not need that had better say
	// so.
	Own, Inherited int16
	// lazy: large fragments are read one by one, whenever they are looked at.
	lazy bool
	// bare jobs, without their errors, are enough.
	bare bool
	// runs are the ended runs.
	runs bool
}

// NoFragments as first step says that no fragments are wanted.
const NoFragments = 1 << 14

// views are slices of the batch, not opened yet.
func (b *Batch) views(rows []db.SliceRowsRow, n Needs) []*Slice {
	out := make([]*Slice, len(rows))
	for i, r := range rows {
		out[i] = &Slice{SliceRowsRow: r, Batch: b, needs: n}
	}
	return out
}

// found is a slice that was looked for, not opened yet.
func (b *Batch) found(r *db.SlicesFromRow) *Slice {
	return &Slice{Batch: b, matching: r.Matching, SliceRowsRow: db.SliceRowsRow{No: r.No, Records: r.Records,
		Detached: r.Detached, First: r.First,
		State: r.State, StepNo: r.StepNo, PageOff: r.PageOff, FirstStep: r.FirstStep, TasksDone: r.TasksDone}}
}

// NextSlices finds the next slices of the batch, from a number on, that have jobs in these statuses, or in those if it
// is over: ScanSlices unless there are no more.
func (b *Batch) NextSlices(ctx context.Context, s *Reader, tx pgx.Tx, no int32,
	statuses, over []string) ([]*Slice, error) {
	rows, err := s.q.SlicesFrom(ctx, tx, db.SlicesFromParams{Statuses: statuses, OverStatuses: over,
		BatchIds: []uuid.UUID{b.FlowBatch.ID},
		FromNos:  []int32{no}, Over: []bool{b.Over()}, MaxRows: ScanSlices})
	views := make([]*Slice, len(rows))
	for i := range rows {
		views[i] = b.found(&rows[i])
	}
	return views, fault.Wrap(err, "list slices of batch %s", b.FlowBatch.ID)
}

func (v *Slice) key() batch.SliceKey {
	return batch.SliceKey{Batch: v.Batch.FlowBatch.ID, No: v.No}
}

// keysOf returns the keys of those slices that are meant, as queries take them.
func keysOf(views []*Slice, meant func(*Slice) bool) (batchIDs []uuid.UUID, nos []int32) {
	for _, v := range views {
		if meant(v) {
			batchIDs, nos = append(batchIDs, v.Batch.FlowBatch.ID), append(nos, v.No)
		}
	}
	return batchIDs, nos
}

// openFitting opens as many of the first slices as fit into memory together, at least one if there are any; pages tells
// that their pages will be read as well.
func (s *Reader) openFitting(ctx context.Context, tx pgx.Tx, views []*Slice, pages bool) ([]*Slice, error) {
	views, err := s.fitting(ctx, tx, views, pages)
	if err != nil {
		return nil, err
	}
	return views, s.open(ctx, tx, views)
}

// fitting returns the slices that openFitting opens.
func (s *Reader) fitting(ctx context.Context, tx pgx.Tx, views []*Slice, pages bool) ([]*Slice, error) {
	in, entries := db.SliceSizesParams{Pages: pages}, false
	for _, v := range views {
		in.BatchIds, in.SliceNos = append(in.BatchIds, v.Batch.FlowBatch.ID), append(in.SliceNos, v.No)
		in.FromSteps, in.InheritedFrom = append(in.FromSteps, v.needs.Own), append(in.InheritedFrom, v.needs.Inherited)
		entries = entries || v.needs.Own < NoFragments || v.needs.Inherited < NoFragments
	}
	if len(views) < 2 || !entries && !pages {
		return views, nil
	}
	sizes, err := s.q.SliceSizes(ctx, tx, in)
	if err != nil {
		return nil, fmt.Errorf("read sizes of slices of batch %s: %w", in.BatchIds[0], err)
	}
	total := int64(0)
	for i, bytes := range sizes {
		if total += bytes; total > scanBytes {
			return views[:max(i, 1)], nil
		}
	}
	return views, nil
}

// openEach opens slices, as many at once as fit into memory, and calls do with each.
func (s *Reader) openEach(ctx context.Context, tx pgx.Tx, views []*Slice, do func(v *Slice) error) error {
	for len(views) > 0 {
		opened, err := s.openFitting(ctx, tx, views, false)
		if err != nil {
			return err
		}
		for _, v := range opened {
			if err := do(v); err != nil {
				return err
			}
		}
		views = views[len(opened):]
	}
	return nil
}

// open reads slices, which can be of several batches, with what their reader needs. All queries must see one state of
// the database.
func (s *Reader) open(ctx context.Context, tx pgx.Tx, views []*Slice) error {
	byKey := make(map[batch.SliceKey]*Slice, len(views))
	for _, v := range views {
		byKey[v.key()] = v
	}
	for _, read := range []func(context.Context, pgx.Tx, []*Slice, map[batch.SliceKey]*Slice) error{
		s.readParts, s.readJobs, s.readRuns, s.readFragments,
	} {
		if err := read(ctx, tx, views, byKey); err != nil {
			return err
		}
	}
	for _, v := range views {
		v.Statuses = v.derive()
	}
	return nil
}

func (s *Reader) readParts(ctx context.Context, tx pgx.Tx, views []*Slice, byKey map[batch.SliceKey]*Slice) error {
	batchIDs, nos := keysOf(views, func(v *Slice) bool { return v.Detached > 0 || v.State == batch.SliceCalling })
	if len(nos) == 0 {
		return nil
	}
	rows, err := s.q.PartsOfSlices(ctx, tx, db.PartsOfSlicesParams{BatchIds: batchIDs, SliceNos: nos})
	for _, r := range rows {
		v := byKey[batch.SliceKey{Batch: r.BatchID, No: r.SliceNo}]
		p := batch.CoveringPart{Part: batch.PartOfRow(&r), State: batch.StatusOfCall(r.CallState),
			ClaimedAt: r.ClaimedAt, Unknown: batch.UnknownOutcome{Failure: r.Failure, Asked: r.Asked}}
		v.Parts = append(v.Parts, p)
	}
	return fault.Wrap(err, "read parts of slices")
}

func (s *Reader) readJobs(ctx context.Context, tx pgx.Tx, views []*Slice, byKey map[batch.SliceKey]*Slice) error {
	batchIDs, nos := keysOf(views, func(v *Slice) bool { return v.Detached > 0 })
	if len(nos) == 0 {
		return nil
	}
	rows, err := s.q.JobsRead(ctx, tx, db.JobsReadParams{Bare: views[0].needs.bare, BatchIds: batchIDs, SliceNos: nos})
	for i := range rows {
		v := byKey[batch.SliceKey{Batch: rows[i].BatchID, No: rows[i].SliceNo}]
		if v.jobs == nil {
			v.jobs = make(map[int32]*db.JobsReadRow, v.Detached)
		}
		v.jobs[int32(rows[i].Position-v.First)] = &rows[i]
	}
	return fault.Wrap(err, "read jobs of slices")
}

func (s *Reader) readRuns(ctx context.Context, tx pgx.Tx, views []*Slice, byKey map[batch.SliceKey]*Slice) error {
	batchIDs, nos := keysOf(views, func(v *Slice) bool { return v.needs.runs })
	if len(nos) == 0 {
		return nil
	}
	rows, err := s.q.EndedRunsRead(ctx, tx, db.EndedRunsReadParams{BatchIds: batchIDs, SliceNos: nos})
	for _, r := range rows {
		v := byKey[batch.SliceKey{Batch: r.BatchID, No: r.SliceNo}]
		if v.runs == nil {
			v.runs = map[int32][]db.EndedRunsReadRow{}
		}
		o := int32(r.Position - v.First)
		v.runs[o] = append(v.runs[o], r)
	}
	return fault.Wrap(err, "read runs of slices")
}

func (s *Reader) readFragments(ctx context.Context, tx pgx.Tx, views []*Slice, _ map[batch.SliceKey]*Slice) error {
	var inherited db.InheritedReadParams
	own := db.FragmentsReadParams{Small: math.MaxInt32}
	for _, v := range views {
		id := v.Batch.FlowBatch.ID
		if v.Batch.retry() && v.needs.Inherited < NoFragments {
			inherited.BatchIds, inherited.SliceNos = append(inherited.BatchIds, id), append(inherited.SliceNos, v.No)
			inherited.FromSteps = append(inherited.FromSteps, v.needs.Inherited)
		}
		if v.needs.Own < NoFragments {
			own.BatchIds, own.SliceNos, own.FromSteps = append(own.BatchIds, id), append(own.SliceNos, v.No),
				append(own.FromSteps, v.needs.Own)
		}
		if v.needs.lazy {
			own.Small = batch.SmallFragment
		}
	}
	bodies, err := batch.ReadFragments(ctx, tx, inherited, own)
	for _, v := range views {
		v.bodies = bodies[v.key()]
	}
	return err
}

// derive returns the status of every record of the slice, by offset. It is the one place that says what a record is
// that has no row of its own; the counters of the slice agree with it.
func (v *Slice) derive() []batch.Status {
	out := make([]batch.Status, v.Records)
	base := baseStatus(v.Batch.Plan, v.State, v.StepNo)
	for i := range out {
		out[i] = base
	}
	painted := make([]bool, v.Records)
	for i := range v.Parts {
		p := &v.Parts[i]
		if p.Detached || p.StepNo != v.StepNo {
			continue
		}
		p.Each(func(o int32) {
			if !painted[o] || batch.Rank(p.State) > batch.Rank(out[o]) {
				out[o], painted[o] = p.State, true
			}
		})
	}
	for o, j := range v.jobs {
		out[o] = j.Status
	}
	if v.Batch.Over() {
		for i, s := range out {
			if batch.Unsent(s) {
				out[i] = batch.Unprocessed
			}
		}
	}
	return out
}

// baseStatus is where a record stands that is with its slice, and that no part covers.
func baseStatus(plan *definition.Plan, state string, step int16) batch.Status {
	switch {
	case state == batch.SliceStaged:
		return batch.Staged
	case state == batch.SliceDone, state == batch.SliceCalling && int(step) == len(plan.Steps)-1:
		return batch.FinalStatus(plan)
	}
	return batch.Queued
}

// Concerns reports whether the part speaks of the record at this offset of the slice.
func (v *Slice) Concerns(p *batch.CoveringPart, o int32) bool {
	if j := v.jobs[o]; j != nil {
		return p.Concerns(o, j.DetachedStep)
	}
	return p.Concerns(o, batch.WithSlice)
}

// StepOf is the step at which the record at this offset stands.
func (v *Slice) StepOf(o int32) int16 {
	if j := v.jobs[o]; j != nil {
		return j.StepNo
	}
	return v.StepNo
}

// entries decodes those entries of the slice that cover a wanted offset, and gives each to do in the order in which
// they came, by step and task.
func (v *Slice) entries(decode batch.Decoder, wanted []bool, do func(step, task int16, t *batch.Entry)) error {
	// before[o] is how many offsets below o are wanted.
	before := make([]int32, len(wanted)+1)
	for o, w := range wanted {
		before[o+1] = before[o]
		if w {
			before[o+1]++
		}
	}
	skip := func(from, to int32) bool { return before[to] == before[from] }
	err := batch.DecodeFragments(v.bodies, int32(len(wanted)), skip, decode, do)
	return fault.Wrap(err, "slice %d of batch %s", v.No, v.Batch.FlowBatch.ID)
}

// fewRecords are read at once where their outputs are large.
const fewRecords = 32

// atOnce is how many of the slice's records are read at once.
func (v *Slice) atOnce() int32 {
	for i := range v.bodies {
		if v.bodies[i].Large() {
			return min(fewRecords, v.Records)
		}
	}
	return v.Records
}

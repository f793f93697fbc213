package run

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/definition"
)

// batchView is a batch as readers see it.
type batchView struct {
	*BatchRow
	plan *definition.Plan
}

// over reports whether what waits will never be sent.
func (b *batchView) over() bool {
	return BatchTerminal(b.FlowBatchCount.Status) || b.FlowBatchCount.StoppedAt != nil
}

// retry reports whether the batch works on records of another one: its positions have gaps, and outputs come from there.
func (b *batchView) retry() bool { return b.FlowBatch.RetryOf != nil }

func (b *batchView) lastStep() int16 { return int16(len(b.plan.Steps) - 1) }

// sliceRow is a slice as stored; matching is how many of its records a filter can match, by its counters. PageOff is how far behind
// the beginning of its page it begins; it entered at FirstStep, without the tasks of that step (bits by number) that were done
// before (TasksDone): all zero but in a retry.
type sliceRow struct {
	db.SliceRowsRow
	matching int64
}

// readPart is a part with what readers show of the call that covers it.
type readPart struct {
	coverPart
	claimedAt *time.Time
}

// sliceView is a slice opened for reading.
type sliceView struct {
	sliceRow
	batch *batchView
	// fragments are those that its reader needs.
	fragments fragmentsFrom
	// from and to are the offsets between which a list shows records of it.
	from, to int32
	statuses []Status
	// wanted: all its records have statuses that are asked for, so that nobody read which.
	wanted bool
	// jobs are the records set apart, by offset.
	jobs  map[int32]*db.JobsReadRow
	parts []readPart
	// runs are the ended runs by offset, where they were read.
	runs map[int32][]db.EndedRunsReadRow
	// bodies are the fragments as stored, by step and task in the order in which they came.
	bodies []taskBody
}

type taskBody struct {
	step, task int16
	body       []byte
	// inherited ones are of an earlier batch, whose slice began off records before.
	inherited bool
	off       int32
	// load reads the body where that is large; seq is the number of a fragment that can be read again.
	load func() ([]byte, error)
	seq  int64
}

// fragmentsFrom are the first steps whose fragments a reader needs: of the batch itself, and of those that it inherited from.
// Each record of a retry can inherit from a whole slice, so who does not need that had better say so.
type fragmentsFrom struct {
	own, inherited int16
	// bare jobs, without their errors, are enough, for all slices that are opened together.
	bare bool
}

func (f fragmentsFrom) any() bool { return f.own < noTraces || f.inherited < noTraces }

// noTraces as first step says that no fragments are wanted.
const noTraces = 1 << 14

// views are slices of the batch, not opened yet.
func (b *batchView) views(rows []sliceRow, fragments fragmentsFrom) []*sliceView {
	out := make([]*sliceView, len(rows))
	for i, r := range rows {
		out[i] = &sliceView{sliceRow: r, batch: b, fragments: fragments}
	}
	return out
}

// slicesFrom asks for the next slices of the batch, from a number on, that have jobs in these statuses.
func (b *batchView) slicesFrom(no int32, statuses []string) db.SlicesFromParams {
	return db.SlicesFromParams{Statuses: statuses, OverStatuses: statuses, BatchIds: []uuid.UUID{b.FlowBatch.ID}, FromNos: []int32{no}, Over: []bool{false}, MaxRows: walkSlices}
}

func rowOf(r *db.SlicesFromRow) sliceRow {
	return sliceRow{db.SliceRowsRow{No: r.No, Records: r.Records, Apart: r.Apart, First: r.First, State: r.State, StepNo: r.StepNo,
		PageOff: r.PageOff, FirstStep: r.FirstStep, TasksDone: r.TasksDone}, r.Matching}
}

func (v *sliceView) key() sliceKey { return sliceKey{v.batch.FlowBatch.ID, v.No} }

// keysOf returns the keys of slices as queries take them.
func keysOf(views []*sliceView) (batchIDs []uuid.UUID, nos []int32) {
	for _, v := range views {
		batchIDs, nos = append(batchIDs, v.batch.FlowBatch.ID), append(nos, v.No)
	}
	return batchIDs, nos
}

// openFitting opens as many of the first slices as fit into memory together, at least one if there are any; pages tells
// that their pages will be read as well.
func (s *Service) openFitting(ctx context.Context, tx pgx.Tx, views []*sliceView, pages bool) ([]*sliceView, error) {
	n, err := s.fit(ctx, tx, views, pages)
	if err != nil {
		return nil, err
	}
	return views[:n], s.open(ctx, tx, views[:n])
}

// fit returns how many of the first slices fit into memory together, at least one.
func (s *Service) fit(ctx context.Context, tx pgx.Tx, views []*sliceView, pages bool) (int, error) {
	in, traces := db.SliceSizesParams{Pages: pages}, false
	in.BatchIds, in.SliceNos = keysOf(views)
	for _, v := range views {
		in.FromSteps, in.InheritedFrom = append(in.FromSteps, v.fragments.own), append(in.InheritedFrom, v.fragments.inherited)
		traces = traces || v.fragments.any()
	}
	if len(views) < 2 || !traces && !pages {
		return len(views), nil
	}
	sizes, err := s.q.SliceSizes(ctx, tx, in)
	if err != nil {
		return 0, fmt.Errorf("read sizes of slices of batch %s: %w", in.BatchIds[0], err)
	}
	total := int64(0)
	for i, bytes := range sizes {
		if total += bytes; total > walkBytes {
			return max(i, 1), nil
		}
	}
	return len(views), nil
}

// open reads slices, which can be of several batches, with the fragments that their reader needs. All queries must see one state
// of the database.
func (s *Service) open(ctx context.Context, tx pgx.Tx, views []*sliceView) error {
	if len(views) == 0 {
		return nil
	}
	byKey := make(map[sliceKey]*sliceView, len(views))
	var apart, covered []*sliceView
	for _, v := range views {
		byKey[v.key()] = v
		if v.Apart > 0 {
			apart = append(apart, v)
		}
		if v.Apart > 0 || v.State == sliceCalling {
			covered = append(covered, v)
		}
	}
	if err := s.readParts(ctx, tx, covered, byKey); err != nil {
		return err
	}
	if err := s.readJobs(ctx, tx, apart, byKey); err != nil {
		return err
	}
	if err := s.readFragments(ctx, tx, views, byKey); err != nil {
		return err
	}
	for _, v := range views {
		v.statuses = v.derive()
	}
	return nil
}

// readFragments reads what slices inherited, and then their own: what came last counts.
func (s *Service) readFragments(ctx context.Context, tx pgx.Tx, views []*sliceView, byKey map[sliceKey]*sliceView) error {
	var inherited db.InheritedReadParams
	var own db.FragmentsReadParams
	for _, v := range views {
		if v.batch.retry() && v.fragments.inherited < noTraces {
			inherited.BatchIds, inherited.SliceNos = append(inherited.BatchIds, v.batch.FlowBatch.ID), append(inherited.SliceNos, v.No)
			inherited.FromSteps = append(inherited.FromSteps, v.fragments.inherited)
		}
		if v.fragments.own < noTraces {
			own.BatchIds, own.SliceNos = append(own.BatchIds, v.batch.FlowBatch.ID), append(own.SliceNos, v.No)
			own.FromSteps = append(own.FromSteps, v.fragments.own)
		}
	}
	if len(inherited.BatchIds) > 0 {
		found, err := s.q.InheritedRead(ctx, tx, inherited)
		if err != nil {
			return fmt.Errorf("read what batch %s inherited: %w", inherited.BatchIds[0], err)
		}
		for _, f := range found {
			v := byKey[sliceKey{f.BatchID, f.SliceNo}]
			v.bodies = append(v.bodies, taskBody{step: f.StepNo, task: f.TaskNo, body: f.Body, inherited: true, off: f.Off})
		}
	}
	if len(own.BatchIds) == 0 {
		return nil
	}
	found, err := s.q.FragmentsRead(ctx, tx, own)
	for _, f := range found {
		v := byKey[sliceKey{f.BatchID, f.SliceNo}]
		v.bodies = append(v.bodies, taskBody{step: f.StepNo, task: f.TaskNo, body: f.Body})
	}
	return wrap(err, "read outputs of batch %s", own.BatchIds[0])
}

func (s *Service) readParts(ctx context.Context, tx pgx.Tx, views []*sliceView, byKey map[sliceKey]*sliceView) error {
	if len(views) == 0 {
		return nil
	}
	batchIDs, nos := keysOf(views)
	rows, err := s.q.PartsOfSlices(ctx, tx, db.PartsOfSlicesParams{BatchIds: batchIDs, SliceNos: nos})
	if err != nil {
		return fmt.Errorf("read parts of batch %s: %w", batchIDs[0], err)
	}
	for _, r := range rows {
		v := byKey[sliceKey{r.BatchID, r.SliceNo}]
		v.parts = append(v.parts, readPart{coverPart{partOf(&r), partStatus(r.CallState)}, r.ClaimedAt})
	}
	return nil
}

func (s *Service) readJobs(ctx context.Context, tx pgx.Tx, views []*sliceView, byKey map[sliceKey]*sliceView) error {
	if len(views) == 0 {
		return nil
	}
	batchIDs, nos := keysOf(views)
	rows, err := s.q.JobsRead(ctx, tx, db.JobsReadParams{Bare: views[0].fragments.bare, BatchIds: batchIDs, SliceNos: nos})
	if err != nil {
		return fmt.Errorf("read jobs of batch %s: %w", batchIDs[0], err)
	}
	for i := range rows {
		v := byKey[sliceKey{rows[i].BatchID, rows[i].SliceNo}]
		if v.jobs == nil {
			v.jobs = make(map[int32]*db.JobsReadRow, v.Apart)
		}
		v.jobs[int32(rows[i].Position-v.First)] = &rows[i]
	}
	return nil
}

// derive returns the status of every record of the slice, by offset. It is the one place that says what a record is that
// has no row of its own; the counters of the slice agree with it.
func (v *sliceView) derive() []Status {
	out := make([]Status, v.Records)
	base := baseStatus(v.batch.plan, v.State, v.StepNo)
	for i := range out {
		out[i] = base
	}
	painted := make([]bool, v.Records)
	for i := range v.parts {
		p := &v.parts[i]
		if p.Apart || p.StepNo != v.StepNo {
			continue
		}
		p.each(func(o int32) {
			if !painted[o] || rank(p.state) > rank(out[o]) {
				out[o], painted[o] = p.state, true
			}
		})
	}
	for o, j := range v.jobs {
		out[o] = j.Status
	}
	if v.batch.over() {
		for i, s := range out {
			if unsent(s) {
				out[i] = Unprocessed
			}
		}
	}
	return out
}

// baseStatus is where a record stands that is with its slice, and that no part covers.
func baseStatus(plan *definition.Plan, state string, step int16) Status {
	switch {
	case state == sliceStaged:
		return Staged
	case state == sliceDone, state == sliceCalling && int(step) == len(plan.Steps)-1:
		return finalStatus(plan)
	}
	return Queued
}

// each calls do with every offset of the part.
func (p *Part) each(do func(o int32)) { eachOffset(p.From, p.To, p.LeftOut, do) }

// eachOffset calls do with the offsets from one to another but for those left out, which ascend.
func eachOffset(from, to int32, left []int32, do func(o int32)) {
	for o := from; o < to; o++ {
		if len(left) > 0 && left[0] == o {
			left = left[1:]
			continue
		}
		do(o)
	}
}

// concerns reports whether the part speaks of the record at this offset of the slice.
func (v *sliceView) concerns(p *readPart, o int32) bool {
	if o < p.From || o >= p.To || slices.Contains(p.LeftOut, o) {
		return false
	}
	j := v.jobs[o]
	if j == nil {
		return !p.Apart
	}
	return p.Apart || p.StepNo == j.ApartStep
}

// stepOf is the step at which the record at this offset stands.
func (v *sliceView) stepOf(o int32) int16 {
	if j := v.jobs[o]; j != nil {
		return j.StepNo
	}
	return v.StepNo
}

// traces decodes those traces of the slice that cover a wanted offset, and gives each to do in the order in which they
// came, by step and task; each knows the number of its change.
func (v *sliceView) traces(wanted []bool, do func(step, task int16, t *Trace)) error {
	return v.tracesBy(func(_ int16, line []byte) (Trace, error) { return decodeTrace(line) }, wanted, do)
}

// tracesBy is traces for readers that need less of each than all.
func (v *sliceView) tracesBy(decode func(step int16, line []byte) (Trace, error), wanted []bool, do func(step, task int16, t *Trace)) error {
	// before[o] is how many offsets below o are wanted.
	before := make([]int32, len(wanted)+1)
	for o, w := range wanted {
		before[o+1] = before[o]
		if w {
			before[o+1]++
		}
	}
	most := int32(len(wanted))
	for _, f := range v.bodies {
		number, body := int64(0), f.body
		if f.load != nil {
			var err error
			if body, err = f.load(); err != nil {
				return err
			}
		}
		err := eachTrace(body, func(line []byte) error {
			from, to, no, ok := spanOf(line)
			if ok && no > 0 {
				number = no
			}
			if ok && before[clip(to-f.off, most)] == before[clip(from-f.off, most)] {
				return nil
			}
			t, err := decode(f.step, line)
			if err != nil {
				return err
			}
			t.inherited, t.ChangeNo, t.seq = f.inherited, number, f.seq
			t.shift(f.off, most)
			do(f.step, f.task, &t)
			return nil
		})
		if err != nil {
			return fmt.Errorf("slice %d of batch %s: %w", v.No, v.batch.FlowBatch.ID, err)
		}
	}
	return nil
}

func clip(o, most int32) int32 { return max(0, min(o, most)) }

// shift lets the trace speak of a slice of so many records that begins off records behind the one that it speaks of.
func (t *Trace) shift(off, records int32) {
	t.From, t.To = clip(t.From-off, records), clip(t.To-off, records)
	left := t.LeftOut[:0]
	for _, o := range t.LeftOut {
		if o -= off; o >= t.From && o < t.To {
			left = append(left, o)
		}
	}
	t.LeftOut = left
}

// fewRecords are read at once where their outputs are large.
const fewRecords = 32

// atOnce is how many of the slice's records are read at once.
func (v *sliceView) atOnce() int32 {
	for _, f := range v.bodies {
		if len(f.body) > blockMax || (len(f.body) > 0 && f.body[0] == encodingStream) {
			return min(fewRecords, v.Records)
		}
	}
	return v.Records
}

// spanOf reads the range at the beginning of an encoded trace, and the number of its change if that stands there, so that
// most traces need not be decoded to be passed over.
func spanOf(line []byte) (from, to int32, changeNo int64, ok bool) {
	rest, found := bytes.CutPrefix(line, []byte(`{"f":`))
	if !found {
		return 0, 0, 0, false
	}
	a, rest, found := bytes.Cut(rest, []byte(`,"t":`))
	if !found {
		return 0, 0, 0, false
	}
	b, rest, found := bytes.Cut(rest, []byte(`,`))
	if !found {
		return 0, 0, 0, false
	}
	f, err1 := strconv.ParseInt(string(a), 10, 32)
	t, err2 := strconv.ParseInt(string(b), 10, 32)
	if q, numbered := bytes.CutPrefix(rest, []byte(`"q":`)); numbered {
		digits, _, _ := bytes.Cut(q, []byte(`,`))
		changeNo, _ = strconv.ParseInt(string(digits), 10, 64)
	}
	return int32(f), int32(t), changeNo, err1 == nil && err2 == nil && f >= 0 && t >= f
}

package run

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strconv"

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

// retry reports whether the batch works on records of another one: its positions have gaps, and outputs come from
// there.
func (b *batchView) retry() bool { return b.FlowBatch.RetryOf != nil }

func (b *batchView) lastStep() int16 { return int16(len(b.plan.Steps) - 1) }

// sliceView is a slice opened for reading. PageOff is how far behind the beginning of its page it begins; it entered at
// FirstStep, without the tasks of that step (bits by number) that were done before (TasksDone): all zero but in a
// retry.
type sliceView struct {
	db.SliceRowsRow
	batch *batchView
	needs needs
	// matching is how many of its records a filter can match, by its counters, where slices were looked for.
	matching int64
	// from and to are the offsets between which a list shows records of it.
	from, to int32
	statuses []Status
	// kept are the tasks of FirstStep, as bits by number, that keep the keys of an earlier batch, where that was read.
	kept int64
	// wanted: all its records have statuses that are asked for, so that nobody read which.
	wanted bool
	// jobs are the detached records, by offset.
	jobs  map[int32]*db.JobsReadRow
	parts []coverPart
	// runs are the ended runs by offset, where they were read.
	runs map[int32][]db.EndedRunsReadRow
	// bodies are the fragments as stored, by step and task in the order in which they came.
	bodies []taskBody
	// rows are the raw records, where they were read.
	rows [][]byte
	// keyed tells by offset which records have the key that is looked for; nil where none is.
	keyed []bool
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

// needs are what a reader needs of slices beside where their records stand; those that are opened together differ in
// their first steps alone.
type needs struct {
	// own and inherited are the first steps whose fragments it needs: of the batch itself, and of those that it
	// inherited from. Each record of a retry can inherit from a whole slice, so who does not need that had better say
	// so.
	own, inherited int16
	// lazy: large fragments are read one by one, whenever they are looked at.
	lazy bool
	// bare jobs, without their errors, are enough.
	bare bool
	// runs are the ended runs.
	runs bool
}

// noTraces as first step says that no fragments are wanted.
const noTraces = 1 << 14

// views are slices of the batch, not opened yet.
func (b *batchView) views(rows []db.SliceRowsRow, n needs) []*sliceView {
	out := make([]*sliceView, len(rows))
	for i, r := range rows {
		out[i] = &sliceView{SliceRowsRow: r, batch: b, needs: n}
	}
	return out
}

// found is a slice that was looked for, not opened yet.
func (b *batchView) found(r *db.SlicesFromRow) *sliceView {
	return &sliceView{batch: b, matching: r.Matching, SliceRowsRow: db.SliceRowsRow{No: r.No, Records: r.Records,
		Detached: r.Detached, First: r.First,
		State: r.State, StepNo: r.StepNo, PageOff: r.PageOff, FirstStep: r.FirstStep, TasksDone: r.TasksDone}}
}

// next finds the next slices of the batch, from a number on, that have jobs in these statuses, or in those if it is
// over: walkSlices unless there are no more.
func (b *batchView) next(ctx context.Context, s *Service, tx pgx.Tx, no int32,
	statuses, over []string) ([]*sliceView, error) {
	rows, err := s.q.SlicesFrom(ctx, tx, db.SlicesFromParams{Statuses: statuses, OverStatuses: over,
		BatchIds: []uuid.UUID{b.FlowBatch.ID},
		FromNos:  []int32{no}, Over: []bool{b.over()}, MaxRows: walkSlices})
	views := make([]*sliceView, len(rows))
	for i := range rows {
		views[i] = b.found(&rows[i])
	}
	return views, wrap(err, "list slices of batch %s", b.FlowBatch.ID)
}

func (v *sliceView) key() sliceKey { return sliceKey{v.batch.FlowBatch.ID, v.No} }

// keysOf returns the keys of those slices that are meant, as queries take them.
func keysOf(views []*sliceView, meant func(*sliceView) bool) (batchIDs []uuid.UUID, nos []int32) {
	for _, v := range views {
		if meant(v) {
			batchIDs, nos = append(batchIDs, v.batch.FlowBatch.ID), append(nos, v.No)
		}
	}
	return batchIDs, nos
}

// openFitting opens as many of the first slices as fit into memory together, at least one if there are any; pages tells
// that their pages will be read as well.
func (s *Service) openFitting(ctx context.Context, tx pgx.Tx, views []*sliceView, pages bool) ([]*sliceView, error) {
	views, err := s.fitting(ctx, tx, views, pages)
	if err != nil {
		return nil, err
	}
	return views, s.open(ctx, tx, views)
}

// fitting returns the slices that openFitting opens.
func (s *Service) fitting(ctx context.Context, tx pgx.Tx, views []*sliceView, pages bool) ([]*sliceView, error) {
	in, traces := db.SliceSizesParams{Pages: pages}, false
	for _, v := range views {
		in.BatchIds, in.SliceNos = append(in.BatchIds, v.batch.FlowBatch.ID), append(in.SliceNos, v.No)
		in.FromSteps, in.InheritedFrom = append(in.FromSteps, v.needs.own), append(in.InheritedFrom, v.needs.inherited)
		traces = traces || v.needs.own < noTraces || v.needs.inherited < noTraces
	}
	if len(views) < 2 || !traces && !pages {
		return views, nil
	}
	sizes, err := s.q.SliceSizes(ctx, tx, in)
	if err != nil {
		return nil, fmt.Errorf("read sizes of slices of batch %s: %w", in.BatchIds[0], err)
	}
	total := int64(0)
	for i, bytes := range sizes {
		if total += bytes; total > walkBytes {
			return views[:max(i, 1)], nil
		}
	}
	return views, nil
}

// openEach opens slices, as many at once as fit into memory, and calls do with each.
func (s *Service) openEach(ctx context.Context, tx pgx.Tx, views []*sliceView, do func(v *sliceView) error) error {
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
func (s *Service) open(ctx context.Context, tx pgx.Tx, views []*sliceView) error {
	byKey := make(map[sliceKey]*sliceView, len(views))
	for _, v := range views {
		byKey[v.key()] = v
	}
	for _, read := range []func(context.Context, pgx.Tx, []*sliceView, map[sliceKey]*sliceView) error{
		s.readParts, s.readJobs, s.readRuns, s.readFragments,
	} {
		if err := read(ctx, tx, views, byKey); err != nil {
			return err
		}
	}
	for _, v := range views {
		v.statuses = v.derive()
	}
	return nil
}

func (s *Service) readParts(ctx context.Context, tx pgx.Tx, views []*sliceView, byKey map[sliceKey]*sliceView) error {
	batchIDs, nos := keysOf(views, func(v *sliceView) bool { return v.Detached > 0 || v.State == sliceCalling })
	if len(nos) == 0 {
		return nil
	}
	rows, err := s.q.PartsOfSlices(ctx, tx, db.PartsOfSlicesParams{BatchIds: batchIDs, SliceNos: nos})
	for _, r := range rows {
		v := byKey[sliceKey{r.BatchID, r.SliceNo}]
		p := coverPart{Part: partOf(&r), state: partStatus(r.CallState), claimedAt: r.ClaimedAt, doubt: Doubt{r.Failure,
			r.Asked}}
		v.parts = append(v.parts, p)
	}
	return wrap(err, "read parts of slices")
}

func (s *Service) readJobs(ctx context.Context, tx pgx.Tx, views []*sliceView, byKey map[sliceKey]*sliceView) error {
	batchIDs, nos := keysOf(views, func(v *sliceView) bool { return v.Detached > 0 })
	if len(nos) == 0 {
		return nil
	}
	rows, err := s.q.JobsRead(ctx, tx, db.JobsReadParams{Bare: views[0].needs.bare, BatchIds: batchIDs, SliceNos: nos})
	for i := range rows {
		v := byKey[sliceKey{rows[i].BatchID, rows[i].SliceNo}]
		if v.jobs == nil {
			v.jobs = make(map[int32]*db.JobsReadRow, v.Detached)
		}
		v.jobs[int32(rows[i].Position-v.First)] = &rows[i]
	}
	return wrap(err, "read jobs of slices")
}

func (s *Service) readRuns(ctx context.Context, tx pgx.Tx, views []*sliceView, byKey map[sliceKey]*sliceView) error {
	batchIDs, nos := keysOf(views, func(v *sliceView) bool { return v.needs.runs })
	if len(nos) == 0 {
		return nil
	}
	rows, err := s.q.EndedRunsRead(ctx, tx, db.EndedRunsReadParams{BatchIds: batchIDs, SliceNos: nos})
	for _, r := range rows {
		v := byKey[sliceKey{r.BatchID, r.SliceNo}]
		if v.runs == nil {
			v.runs = map[int32][]db.EndedRunsReadRow{}
		}
		o := int32(r.Position - v.First)
		v.runs[o] = append(v.runs[o], r)
	}
	return wrap(err, "read runs of slices")
}

func (s *Service) readFragments(ctx context.Context, tx pgx.Tx, views []*sliceView, _ map[sliceKey]*sliceView) error {
	var inherited db.InheritedReadParams
	own := db.FragmentsReadParams{Small: math.MaxInt32}
	for _, v := range views {
		id := v.batch.FlowBatch.ID
		if v.batch.retry() && v.needs.inherited < noTraces {
			inherited.BatchIds, inherited.SliceNos = append(inherited.BatchIds, id), append(inherited.SliceNos, v.No)
			inherited.FromSteps = append(inherited.FromSteps, v.needs.inherited)
		}
		if v.needs.own < noTraces {
			own.BatchIds, own.SliceNos, own.FromSteps = append(own.BatchIds, id), append(own.SliceNos, v.No),
				append(own.FromSteps, v.needs.own)
		}
		if v.needs.lazy {
			own.Small = smallFragment
		}
	}
	bodies, err := s.readBodies(ctx, tx, inherited, own)
	for _, v := range views {
		v.bodies = bodies[v.key()]
	}
	return err
}

// readBodies reads the fragments of slices: those inherited come first, because what came last counts.
func (s *Service) readBodies(ctx context.Context, conn db.DBTX, inherited db.InheritedReadParams,
	own db.FragmentsReadParams) (map[sliceKey][]taskBody, error) {
	out := map[sliceKey][]taskBody{}
	if len(inherited.SliceNos) > 0 {
		rows, err := s.q.InheritedRead(ctx, conn, inherited)
		if err != nil {
			return nil, fmt.Errorf("read what slices inherited: %w", err)
		}
		for _, r := range rows {
			k := sliceKey{r.BatchID, r.SliceNo}
			out[k] = append(out[k], taskBody{step: r.StepNo, task: r.TaskNo, body: r.Body, inherited: true, off: r.Off})
		}
	}
	if len(own.SliceNos) == 0 {
		return out, nil
	}
	rows, err := s.q.FragmentsRead(ctx, conn, own)
	for _, r := range rows {
		k, f := sliceKey{r.BatchID, r.SliceNo}, taskBody{step: r.StepNo, task: r.TaskNo, body: r.Body, seq: r.Seq}
		if r.Large {
			f.load = func() ([]byte, error) {
				at := db.FragmentBodyParams{BatchID: r.BatchID, SliceNo: r.SliceNo, StepNo: r.StepNo, TaskNo: r.TaskNo,
					Seq: r.Seq}
				body, err := s.q.FragmentBody(ctx, conn, at)
				return body, wrap(err, "read outputs of batch %s", r.BatchID)
			}
		}
		out[k] = append(out[k], f)
	}
	return out, wrap(err, "read outputs of slices")
}

// derive returns the status of every record of the slice, by offset. It is the one place that says what a record is
// that has no row of its own; the counters of the slice agree with it.
func (v *sliceView) derive() []Status {
	out := make([]Status, v.Records)
	base := baseStatus(v.batch.plan, v.State, v.StepNo)
	for i := range out {
		out[i] = base
	}
	painted := make([]bool, v.Records)
	for i := range v.parts {
		p := &v.parts[i]
		if p.Detached || p.StepNo != v.StepNo {
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
func (v *sliceView) concerns(p *coverPart, o int32) bool {
	if j := v.jobs[o]; j != nil {
		return p.concerns(o, j.DetachedStep)
	}
	return p.concerns(o, withSlice)
}

// stepOf is the step at which the record at this offset stands.
func (v *sliceView) stepOf(o int32) int16 {
	if j := v.jobs[o]; j != nil {
		return j.StepNo
	}
	return v.StepNo
}

// traces decodes those traces of the slice that cover a wanted offset, and gives each to do in the order in which they
// came, by step and task.
func (v *sliceView) traces(decode decoder, wanted []bool, do func(step, task int16, t *Trace)) error {
	// before[o] is how many offsets below o are wanted.
	before := make([]int32, len(wanted)+1)
	for o, w := range wanted {
		before[o+1] = before[o]
		if w {
			before[o+1]++
		}
	}
	skip := func(from, to int32) bool { return before[to] == before[from] }
	err := decodeBodies(v.bodies, int32(len(wanted)), skip, decode, do)
	return wrap(err, "slice %d of batch %s", v.No, v.batch.FlowBatch.ID)
}

// decoder reads a trace of a step, or less of it than all.
type decoder func(step int16, line []byte) (Trace, error)

func decodeWhole(_ int16, line []byte) (Trace, error) { return decodeTrace(line) }

// decodeBodies decodes the traces of fragments of a slice of so many records, but for those whose offsets lie where
// skip says, and gives each to do; it knows the number of its change.
func decodeBodies(bodies []taskBody, records int32, skip func(from, to int32) bool, decode decoder,
	do func(step, task int16, t *Trace)) error {
	for _, f := range bodies {
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
			if ok && skip(clip(from-f.off, records), clip(to-f.off, records)) {
				return nil
			}
			t, err := decode(f.step, line)
			if err != nil {
				return err
			}
			t.inherited, t.ChangeNo, t.seq = f.inherited, number, f.seq
			t.rebase(f.off, records)
			do(f.step, f.task, &t)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func clip(o, most int32) int32 { return max(0, min(o, most)) }

// rebase lets the trace speak of a slice of so many records that begins off records behind the one that it speaks of.
func (t *Trace) rebase(off, records int32) {
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

// spanOf reads the range at the beginning of an encoded trace, and the number of its change if that stands there, so
// that most traces need not be decoded to be passed over.
func spanOf(line []byte) (from, to int32, changeNo int64, ok bool) {
	number := func(key string) (n int64, ok bool) {
		rest, found := bytes.CutPrefix(line, []byte(key))
		digits, rest, more := bytes.Cut(rest, []byte(`,`))
		if !found || !more {
			return 0, false
		}
		line = rest
		n, err := strconv.ParseInt(string(digits), 10, 64)
		return n, err == nil
	}
	f, ok1 := number(`{"f":`)
	t, ok2 := number(`"t":`)
	changeNo, _ = number(`"q":`)
	return int32(f), int32(t), changeNo, ok1 && ok2 && f >= 0 && t >= f && t <= math.MaxInt32
}

package run

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/pg"
)

const (
	// slicesAtOnce bounds the slices that one transaction of in-process work moves.
	slicesAtOnce = 16
	jobsAtOnce   = 64
)

// Work does a bounded turn of a batch's in-process work, and reports whether there is more; there is none while the
// batch is paused. Only one worker should work on a batch at a time; a second one wastes its effort and harms
// nothing.
func (s *Service) Work(ctx context.Context, batchID uuid.UUID) (more bool, err error) {
	b, err := s.Batch(ctx, s.pool, batchID)
	if err != nil {
		return false, err
	}
	ready, err := s.q.SlicesReady(ctx, s.pool, db.SlicesReadyParams{BatchID: batchID, MaxSlices: slicesAtOnce})
	if err != nil {
		return false, fmt.Errorf("read ready slices: %w", err)
	}
	jobs, err := s.q.JobsReady(ctx, s.pool, db.JobsReadyParams{BatchID: batchID, MaxJobs: jobsAtOnce})
	if err != nil {
		return false, fmt.Errorf("read ready jobs: %w", err)
	}
	if len(ready) == 0 && len(jobs) == 0 {
		return false, nil
	}
	p, err := s.turn(ctx, b.OrgID)
	if err != nil {
		return false, err
	}
	defer p.room.Release()
	works, err := s.work(ctx, b, p, ready, jobs)
	if err != nil {
		return false, err
	}
	p.room.Keep(p.need()) // nothing more is made
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		return s.settleWork(ctx, tx, batchID,
			works)
	})
	if errors.Is(err, errBarred) {
		return false, nil // the slices of a cancelled batch stay as they were, and a resumed one is woken
	}
	if errors.Is(err, ErrMoved) {
		return true, nil
	}
	return true, err
}

// work evaluates slices and jobs, as many as may be settled together; the others come next time.
func (s *Service) work(ctx context.Context, b *Batch, p *turn, ready []db.SlicesReadyRow,
	jobs []db.FlowJob) ([]*sliceWork, error) {
	var works []*sliceWork
	starts := 0
	add := func(w *sliceWork, err error) error {
		if err == nil {
			works = append(works, w)
			for _, r := range w.records {
				if r.start != nil {
					starts++
				}
			}
		}
		return err
	}
	full := func() bool {
		return len(works) > 0 && (p.made+p.read > turnBytes || starts >= startsAtOnce || p.limits.over(p.began, 1, 1))
	}
	for i := range ready {
		if full() {
			return works, nil
		}
		if err := add(s.workSlice(ctx, b, p, new(db.SliceRowsRow(ready[i])))); err != nil {
			return nil, err
		}
	}
	var last openSlice
	defer last.release()
	for _, j := range jobs {
		if full() {
			return works, nil
		}
		if err := add(s.workJob(ctx, b, p, j, &last)); err != nil {
			return nil, err
		}
	}
	return works, nil
}

// openSlice is the slice that was opened last: jobs come in the order of their positions, and those of one slice
// share what they read.
type openSlice struct {
	row  db.SliceRowsRow
	step int16
	rec  *Records
}

// has reports whether the slice is open for the step of a job, and its record with it.
func (o *openSlice) has(j *db.FlowJob) bool {
	if o.rec == nil || o.row.No != j.SliceNo || o.step != j.StepNo {
		return false
	}
	offset := int32(j.Position - o.row.First)
	return offset >= o.rec.from && offset < o.rec.to
}

func (o *openSlice) release() {
	if o.rec != nil {
		o.rec.Release()
		o.rec = nil
	}
}

// sliceWork is the evaluated in-process tasks of a step for a slice, or for one job of it.
type sliceWork struct {
	db.SliceRowsRow
	step int16
	job  *db.FlowJob
	// done are the tasks of the step, bits by number, that an earlier batch did for all of the slice.
	done int64
	// calls are the tasks of the step that make calls, but for those.
	calls []int16
	// from and to are the offsets of the slice between which the work was done, members the records of it there, all
	// those of the slice.
	from, to     int32
	members, all []int32
	// records are what came of the tasks for each member, failed why members failed by it.
	records []*recordWork
	failed  map[int32]*batch.JobError
	// waiting is what members wait for from then on that the work is settled.
	waiting map[int32][]wait
}

// unsettled yields what tasks still have to do for records when works are settled.
func unsettled(works []*sliceWork) iter.Seq2[*sliceWork, *recordWork] {
	return func(yield func(*sliceWork, *recordWork) bool) {
		for _, w := range works {
			for _, r := range w.records {
				if !r.settled && !yield(w, r) {
					return
				}
			}
		}
	}
}

func (s *Service) workSlice(ctx context.Context, b *Batch, p *turn, r *db.SliceRowsRow) (*sliceWork, error) {
	rec, err := s.openTurn(ctx, b, SliceRef{No: r.No, First: r.First}, r.StepNo, r.Remaining)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	w := &sliceWork{SliceRowsRow: *r, step: r.StepNo, from: rec.from, to: rec.to, done: doneBefore(r)}
	w.calls = batch.Undone(batch.CallTasks(&b.Plan.Steps[w.step]), w.done)
	batch.EachOffset(0, r.Records, rec.detached, func(o int32) {
		w.all = append(w.all, o)
		if o >= w.from && o < w.to {
			w.members = append(w.members, o)
		}
	})
	return w, s.evaluate(ctx, w, b, p, rec)
}

func (s *Service) workJob(ctx context.Context, b *Batch, p *turn, j db.FlowJob, last *openSlice) (*sliceWork, error) {
	if !last.has(&j) {
		last.release()
		r, err := s.sliceRow(ctx, s.pool, b.ID, j.SliceNo)
		if err != nil {
			return nil, err
		}
		rec, err := s.openTurn(ctx, b, SliceRef{No: r.No, First: r.First}, j.StepNo, int32(j.Position-r.First))
		if err != nil {
			return nil, err
		}
		*last = openSlice{row: *r, step: j.StepNo, rec: rec}
	}
	r := &last.row
	offset := int32(j.Position - r.First)
	w := &sliceWork{SliceRowsRow: *r, step: j.StepNo, job: &j, from: offset, to: offset + 1,
		calls: batch.CallTasks(&b.Plan.Steps[j.StepNo]), members: []int32{offset}}
	return w, s.evaluate(ctx, w, b, p, last.rec)
}

// evaluate runs the step's in-process tasks for the members, as many as one turn of work may have; at least one.
// Rows point into rec, so everything kept is copied. Each task may use its share of time and memory, and those before
// it, so that records which all tasks together are too much for are seldom evaluated in vain.
func (s *Service) evaluate(ctx context.Context, w *sliceWork, b *Batch, p *turn, rec *Records) error {
	w.failed = map[int32]*batch.JobError{}
	p.read += rec.bytes
	rec.bytes = 0 // jobs that share it count it once
	step := &b.Plan.Steps[w.step]
	if step.Input != nil {
		for _, o := range w.members {
			if e := CheckInput(step, rec.Rows[o]); e != nil {
				w.failed[o] = e
			}
		}
	}
	sizes, had, began := make([]int, len(w.members)), p.made, p.limits.now()
	tasks, env := batch.Undone(batch.LocalTasks(step), w.done), rec.Envs()
	for i, no := range tasks {
		t, part, of := taskWork{no: no, step: step, task: &step.Tasks[no]}, i+1, len(tasks)
		for n, o := range w.members {
			if n > 0 && (p.made-had > turnBytes/of*part || p.limits.over(began, part, of)) {
				w.cut(n, &p.made, sizes)
				break
			}
			if w.failed[o] == nil {
				t.render(o, env(o))
				made := t.records[len(t.records)-1].size()
				sizes[n], p.made = sizes[n]+made, p.made+made
			}
		}
		if err := p.grow(ctx); err != nil {
			return err
		}
		if err := t.carryOut(ctx, s.pool, b.OrgID); err != nil {
			return err
		}
		w.take(&t)
	}
	return nil
}

// cut leaves the members from the n-th on for another turn.
func (w *sliceWork) cut(n int, made *int, sizes []int) {
	for _, size := range sizes[n:] {
		*made -= size
	}
	clear(sizes[n:])
	w.to = w.members[n]
	w.members = w.members[:n]
	later := func(o int32) bool { return o >= w.to }
	w.records = slices.DeleteFunc(w.records, func(r *recordWork) bool { return later(r.offset) })
	maps.DeleteFunc(w.failed, func(o int32, _ *batch.JobError) bool { return later(o) })
}

// take keeps what came of a task.
func (w *sliceWork) take(t *taskWork) {
	for i := range t.records {
		r := &t.records[i]
		w.records = append(w.records, r)
		if r.write == nil && r.emit == nil && r.wait == nil && r.start == nil {
			w.settle(r)
		}
	}
}

// settle notes that it is known how a task came out for a record.
func (w *sliceWork) settle(r *recordWork) {
	r.settled = true
	if r.kind == batch.EntryFailed && !r.of.task.ContinueOnError && w.failed[r.offset] == nil {
		w.failed[r.offset] = r.err
	}
}

func (s *Service) settleWork(ctx context.Context, tx pgx.Tx, batchID uuid.UUID, works []*sliceWork) error {
	c, err := s.Begin(ctx, tx, batchID)
	if err != nil {
		return err
	}
	h := c.heads[batchID]
	if h.barred() {
		return errBarred
	}
	// Waits come before events, whose cause must not then wait for the gate.
	for _, do := range []func(context.Context, *lockedBatch, []*sliceWork) error{c.stillReady, c.writeStores,
		c.startFlows,
		c.admitWaits, c.emitEvents} {
		if err := do(ctx, h, works); err != nil {
			return err
		}
	}
	for _, w := range works {
		p := batch.Part{BatchID: batchID, SliceNo: w.No, StepNo: w.step, First: w.First}
		for _, r := range w.records {
			if r.settled {
				t := r.entry()
				t.EndedAt, p.TaskNo = batch.Millis(c.Now), r.of.no
				c.add(&p, t)
			}
		}
		if w.job != nil {
			c.settleJobWork(h, w, &p)
		} else {
			c.settleSliceWork(h, w, &p)
		}
	}
	return c.Apply(ctx)
}

// errBarred means that nothing of the batch is to be done, for now or for ever.
var errBarred = errors.New("the batch is over or paused")

// stillReady makes sure that nobody else did the work in the meantime.
func (c *Change) stillReady(ctx context.Context, h *lockedBatch, works []*sliceWork) error {
	var nos []int32
	var keys []batch.JobKey
	for _, w := range works {
		nos = append(nos, w.No)
		if w.job != nil {
			keys = append(keys, batch.JobKey{Batch: h.ID, Position: w.job.Position})
		}
	}
	rows, err := c.s.q.SliceRows(ctx, c.tx, db.SliceRowsParams{BatchID: h.ID, Nos: nos})
	if err != nil {
		return fmt.Errorf("read slices: %w", err)
	}
	state := map[int32]db.SliceRowsRow{}
	for _, r := range rows {
		state[r.No] = r
	}
	if err := c.loadJobs(ctx, keys); err != nil {
		return err
	}
	for _, w := range works {
		if w.job != nil {
			if j := c.jobs[batch.JobKey{Batch: h.ID, Position: w.job.Position}]; j == nil || !j.Ready ||
				j.StepNo != w.step {
				return ErrMoved
			}
		} else if r := state[w.No]; r.State != batch.SliceReady || r.StepNo != w.step || r.Remaining != w.from {
			return ErrMoved
		}
	}
	return nil
}

func (c *Change) settleSliceWork(h *lockedBatch, w *sliceWork, p *batch.Part) {
	c.slice(batch.SliceKey{Batch: h.ID, No: w.No})
	gone := w.gone()
	for _, o := range w.members {
		if e := w.failed[o]; e != nil {
			c.failJob(c.leaveBefore(p, o), e)
			gone = append(gone, o)
		}
	}
	slices.Sort(gone)
	members := int32(len(w.all) - len(w.failed))
	if open := w.together(); len(open) > 0 {
		p.To, p.LeftOut = w.Records, gone
		c.addWaits(h, w, p, wholeSlice, open)
		c.advanceTo(h, w.No, w.step, batch.SliceWaiting, int32(len(open)))
		return
	}
	for _, o := range w.members {
		if open := w.waiting[o]; len(open) > 0 {
			c.waitJob(h, w, c.leaveBefore(p, o), p, open)
			members--
		}
	}
	if w.to < w.Records {
		c.advanceTo(h, w.No, w.step, batch.SliceReady, w.to)
		return
	}
	c.leaveStep(h, &w.SliceRowsRow, members, w.done)
}

// gone returns the offsets of the records that left the slice before its step.
func (w *sliceWork) gone() (out []int32) {
	batch.EachOffset(0, w.Records, w.all, func(o int32) { out = append(out, o) })
	return out
}

// leaveBefore detaches a record that leaves its slice before the calls of the step, which must not send it.
func (c *Change) leaveBefore(p *batch.Part, offset int32) *job {
	j := c.detach(p, offset, batch.Queued, 0)
	j.DetachedStep = p.StepNo - 1
	return j
}

func (c *Change) settleJobWork(h *lockedBatch, w *sliceWork, p *batch.Part) {
	j := c.jobs[batch.JobKey{Batch: h.ID, Position: w.job.Position}]
	j.Ready = false
	c.slice(batch.SliceKey{Batch: h.ID, No: w.No}) // the batch's counters move with the job
	o := w.members[0]
	if e := w.failed[o]; e != nil {
		c.failJob(j, e)
		return
	}
	if open := w.waiting[o]; len(open) > 0 {
		c.waitJob(h, w, j, p, open)
		return
	}
	if len(w.calls) > 0 {
		c.queueJob(j, w.First, w.calls)
		return
	}
	c.advanceJob(j, w.First, h.final())
}

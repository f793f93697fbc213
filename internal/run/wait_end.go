package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

const (
	// waitsAtOnce bounds the waits that one transaction ends, clearAtOnce those that it clears.
	waitsAtOnce = 500
	clearAtOnce = 10_000
	// lookAgain is how long waits stay that are over while an event waits to be looked at.
	lookAgain = time.Second
)

// EndWaits ends a bounded number of the waits of a batch that are over, and lets their records go on. It reports
// whether there are more, and else when the next wait is over; zero for none. Those of a paused batch end once it is
// resumed, those of a batch that is over are cleared.
func (s *Service) EndWaits(ctx context.Context, batchID uuid.UUID) (more bool, next time.Time, err error) {
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		more, next, err = s.endWaits(ctx, tx, batchID)
		return err
	})
	return more, next, err
}

func (s *Service) endWaits(ctx context.Context, tx pgx.Tx, batchID uuid.UUID) (more bool, next time.Time, err error) {
	c, err := s.Begin(ctx, tx, batchID)
	if err != nil {
		return false, next, err
	}
	h := c.heads[batchID]
	switch {
	case h == nil || h.stopped():
		n, err := s.q.WaitClear(ctx, tx, db.WaitClearParams{BatchID: batchID, MaxRows: clearAtOnce})
		return n == clearAtOnce, next, fault.Wrap(err, "clear the waits of a batch")
	case h.barred():
		return false, next, nil
	}
	rows, err := s.q.WaitsOver(ctx, tx, db.WaitsOverParams{BatchID: batchID, Now: c.Now, MaxRows: waitsAtOnce})
	if err != nil {
		return false, next, fmt.Errorf("read the waits of batch %s: %w", batchID, err)
	}
	more = len(rows) == waitsAtOnce
	if len(rows) > 0 {
		e := ending{c: c, h: h, slices: map[int32]*db.SliceRowsRow{}}
		fit, err := e.fitting(ctx, rows)
		if err != nil {
			return false, next, err
		}
		if fit, err = e.readChildren(ctx, rows[:fit]); err != nil {
			return false, next, err
		}
		more = more || fit < len(rows)
		if err := e.end(ctx, rows[:fit]); err != nil {
			return false, next, err
		}
		if err := c.Apply(ctx); err != nil {
			return false, next, err
		}
	}
	if more {
		return true, next, nil
	}
	next, err = s.q.WaitNext(ctx, tx, batchID)
	if pg.IsNoRows(err) {
		return false, time.Time{}, nil
	}
	if !next.After(c.Now) { // it waits for an event that is not looked at yet
		next = c.Now.Add(lookAgain)
	}
	return false, next, fault.Wrap(err, "read when the next wait is over")
}

// ending ends waits of a batch.
type ending struct {
	c      *Change
	h      *lockedBatch
	slices map[int32]*db.SliceRowsRow
	// arrivals are the events that ended waits.
	arrivals map[int64]*db.FlowEventArrival
	// children are the batches that waits are for.
	children map[uuid.UUID]*child
	// dropped are the records, and the slices, that failed while they waited for more.
	dropped db.WaitDropParams
	// gone are the offsets of records that left a slice before its step.
	gone map[int32][]int32
}

func (e *ending) end(ctx context.Context, rows []db.WaitsOverRow) error {
	if err := e.read(ctx, rows); err != nil {
		return err
	}
	if err := e.dropBeside(ctx, rows); err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		s := e.slices[r.SliceNo]
		if s == nil {
			return fmt.Errorf("slice %d of batch %s waits, and is not there", r.SliceNo, e.h.ID)
		}
		p := batch.Part{BatchID: e.h.ID, SliceNo: r.SliceNo, StepNo: r.StepNo, TaskNo: r.TaskNo, First: s.First}
		entry := e.outcome(r)
		if r.Position == wholeSlice {
			if s.Remaining > 0 { // else it failed by another wait
				e.endSlice(s, &p, entry)
			}
			continue
		}
		j := e.c.jobs[batch.JobKey{Batch: e.h.ID, Position: r.Position}]
		if j != nil && batch.Terminal(j.Status) {
			continue // it failed by another wait
		}
		if j == nil || j.StepNo != r.StepNo || j.Remaining == 0 {
			return fmt.Errorf("job %s waits at step %d, and does not stand there", batch.JobID(e.h.ID, r.Position), r.StepNo)
		}
		e.endJob(j, &p, entry, r.Beside)
	}
	return e.clean(ctx)
}

// clean deletes what nobody waits for any more.
func (e *ending) clean(ctx context.Context) error {
	if d := &e.dropped; len(d.Positions) > 0 || len(d.SliceNos) > 0 {
		d.BatchID = e.h.ID
		if err := e.c.s.q.WaitDrop(ctx, e.c.tx, *d); err != nil {
			return fmt.Errorf("end waits of batch %s: %w", e.h.ID, err)
		}
	}
	if len(e.arrivals) == 0 {
		return nil
	}
	nos := slices.Sorted(maps.Keys(e.arrivals))
	if err := e.c.s.q.ArrivalLock(ctx, e.c.tx, nos); err != nil {
		return fmt.Errorf("lock events: %w", err)
	}
	return fault.Wrap(e.c.s.q.ArrivalDelete(ctx, e.c.tx, nos), "delete events that all have gone on with")
}

// outcome says how a wait came out.
func (e *ending) outcome(r *db.WaitsOverRow) batch.Entry {
	t := batch.Entry{Kind: batch.EntryOK, Attempt: 1, StartedAt: batch.Millis(r.BeganAt),
		EndedAt: batch.Millis(e.c.Now)}
	code, message := "", ""
	switch {
	case r.Child != nil:
		t.Output, code, message = e.children[*r.Child].outcome(r.EndsAt)
	case r.EventKind == nil:
		t.Output = waited(r.EndsAt)
	case r.EventNo != nil:
		t.Output = eventOutput(e.arrivals[*r.EventNo])
	default:
		code, message = CodeTimeout, fmt.Sprintf("No event %s that matches came in time", *r.EventKind)
	}
	if code != "" {
		step := &e.h.plan.Steps[r.StepNo]
		t.Kind, t.Error = batch.EntryFailed, &batch.JobError{Code: code, Message: message, StepID: step.ID,
			TaskID: step.Tasks[r.TaskNo].ID}
	}
	return t
}

// fails reports whether the records that an entry speaks of fail with it.
func (e *ending) fails(p *batch.Part, t *batch.Entry) bool {
	return t.Kind == batch.EntryFailed && !e.h.plan.Steps[p.StepNo].Tasks[p.TaskNo].ContinueOnError
}

// read deletes the waits, and reads what waited.
func (e *ending) read(ctx context.Context, rows []db.WaitsOverRow) error {
	q, tx := e.c.s.q, e.c.tx
	var numbers []int64
	var nos []int32
	whole := map[int32]bool{}
	var keys []batch.JobKey
	for _, r := range rows {
		numbers, nos = append(numbers, r.No), append(nos, r.SliceNo)
		if r.Position == wholeSlice {
			whole[r.SliceNo] = true
		} else {
			keys = append(keys, batch.JobKey{Batch: e.h.ID, Position: r.Position})
		}
	}
	n, err := q.WaitDelete(ctx, tx, numbers)
	if err != nil {
		return fmt.Errorf("end waits of batch %s: %w", e.h.ID, err)
	}
	if int(n) != len(rows) {
		return fmt.Errorf("end waits of batch %s: %d of %d are there", e.h.ID, n, len(rows))
	}
	found, err := q.SliceRows(ctx, tx, db.SliceRowsParams{BatchID: e.h.ID, Nos: nos})
	if err != nil {
		return fmt.Errorf("read slices of batch %s: %w", e.h.ID, err)
	}
	var refs []SliceRef
	for i := range found {
		s := &found[i]
		e.slices[s.No] = s
		if whole[s.No] {
			refs = append(refs, SliceRef{No: s.No, First: s.First})
		}
	}
	if err := e.c.loadJobs(ctx, keys); err != nil || len(whole) == 0 {
		return err
	}
	// While a slice waits nobody leaves it, so whoever is detached left before.
	e.gone, err = e.c.s.detached(ctx, tx, e.h.ID, refs, lastOfAll)
	return err
}

// lastOfAll is behind the last step of every plan.
const lastOfAll = 1 << 14

// endSlice ends a wait of all members of a slice.
func (e *ending) endSlice(s *db.SliceRowsRow, p *batch.Part, entry batch.Entry) {
	entry.From, entry.To, entry.LeftOut = 0, s.Records, e.gone[s.No]
	e.c.add(p, entry)
	d := e.c.slice(batch.SliceKey{Batch: e.h.ID, No: s.No})
	if e.fails(p, &entry) {
		e.failSlice(s, p, &entry)
		return
	}
	d.remaining--
	if s.Remaining--; s.Remaining == 0 {
		e.c.leaveStep(e.h, s, s.Records-s.Detached, doneBefore(s))
	}
}

// failSlice fails all members of a slice.
func (e *ending) failSlice(s *db.SliceRowsRow, p *batch.Part, t *batch.Entry) {
	for o := range s.Records {
		if t.Covers(o) {
			e.c.failJob(e.c.leaveBefore(p, o), t.Error)
		}
	}
	if s.Remaining > 1 {
		e.dropped.SliceNos = append(e.dropped.SliceNos, s.No)
	}
	s.Remaining = 0
	e.c.advanceTo(e.h, s.No, s.StepNo, batch.SliceDone, 0)
}

// endJob ends a wait of a record that is detached. One that makes calls beside and failed meanwhile waited for nothing
// more.
func (e *ending) endJob(j *job, p *batch.Part, entry batch.Entry, beside bool) {
	e.c.slice(batch.SliceKey{Batch: e.h.ID, No: p.SliceNo}) // the batch's counters move with the job
	j.Remaining--
	if j.EndStatus == nil {
		entry.From = int32(j.Position - p.First)
		entry.To = entry.From + 1
		e.c.add(p, entry)
		switch {
		case !e.fails(p, &entry):
		case beside:
			e.c.noteFailure(j, batch.Failed, entry.Error)
		default:
			if j.Remaining > 0 {
				e.dropped.Positions = append(e.dropped.Positions, j.Position)
			}
			j.Remaining = 0
			e.c.failJob(j, entry.Error)
			return
		}
	}
	if j.Remaining == 0 {
		e.c.advanceJob(j, p.First, e.h.final())
	}
}

// doneBefore returns the tasks of the slice's step, bits by number, that an earlier batch did for all of its records.
func doneBefore(s *db.SliceRowsRow) int64 {
	if s.StepNo != s.FirstStep {
		return 0
	}
	return s.TasksDone
}

// Calls of a step are made while other tasks of it wait. The record is detached then, and its remaining tasks are the
// calls and the waits: whichever is settled last has it go on. Once one has failed it waits for nothing more; what is
// under way, or queued, is still settled.

// failing returns the records of results that fail while others of their tasks may wait.
func (c *Change) failing(results []Result) (keys []batch.JobKey) {
	for i := range results {
		r := &results[i]
		h := c.heads[r.Part.BatchID]
		if !r.Part.Detached || h.stopped() || !stepWaits(&h.plan.Steps[r.Part.StepNo]) {
			continue
		}
		for j := range r.Exceptions {
			if e := &r.Exceptions[j]; !e.again() && !c.passes(&r.Part, e) {
				keys = append(keys, r.Part.Key(e.Offset))
			}
		}
	}
	return keys
}

// dropWaits ends what else records wait for that are about to fail. A wait that somebody has locked counts until they
// have ended it.
func (c *Change) dropWaits(ctx context.Context, keys []batch.JobKey) error {
	if len(keys) == 0 {
		return nil
	}
	var in db.WaitDropBesideParams
	for _, k := range keys {
		in.BatchIds, in.Positions = append(in.BatchIds, k.Batch), append(in.Positions, k.Position)
	}
	rows, err := c.s.q.WaitDropBeside(ctx, c.tx, in)
	if err != nil {
		return fmt.Errorf("end waits of records that fail: %w", err)
	}
	for _, r := range rows {
		c.dropped[batch.JobKey{Batch: r.BatchID, Position: r.Position}]++
	}
	return nil
}

// noteFailure notes how a record will end once its tasks are settled. Of several that failed, the first failure counts;
// one of ours counts more than a rejection by a provider.
func (c *Change) noteFailure(j *job, as batch.Status, e *batch.JobError) {
	if j.EndStatus == nil || *j.EndStatus == batch.Rejected && as == batch.Failed {
		j.EndStatus, j.Error = new(as), new(errorText(e))
	}
	k := batch.JobKey{Batch: j.BatchID, Position: j.Position}
	j.Remaining -= c.dropped[k]
	delete(c.dropped, k)
}

// dropBeside is dropWaits for the records of waits that end with a failure.
func (e *ending) dropBeside(ctx context.Context, rows []db.WaitsOverRow) error {
	var keys []batch.JobKey
	for i := range rows {
		r := &rows[i]
		p := batch.Part{StepNo: r.StepNo, TaskNo: r.TaskNo}
		if t := e.outcome(r); r.Beside && e.fails(&p, &t) {
			keys = append(keys, batch.JobKey{Batch: e.h.ID, Position: r.Position})
		}
	}
	return e.c.dropWaits(ctx, keys)
}

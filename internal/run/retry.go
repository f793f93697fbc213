package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/cell"
	"flowlane/internal/fault"
	"flowlane/internal/pacing"
	"flowlane/internal/pg"
	"flowlane/internal/telemetry"
)

// RetryInput says which jobs of a batch that is over are tried again.
type RetryInput struct {
	OrgID, BatchID uuid.UUID
	// Statuses of the jobs; each can be retried (Retryable). With Groups only those whose error is in one of them.
	Statuses  []batch.Status
	Groups    []string
	CreatedBy *uuid.UUID
}

// Retryable reports whether a job of this status can be tried again: it is known that it did not succeed.
func Retryable(s batch.Status) bool {
	return s == batch.Failed || s == batch.Rejected || s == batch.Unprocessed || s == batch.Cancelled
}

// Retry starts a batch over those records of another one whose jobs have certain statuses, in the caller's transaction.
// Each goes on where it failed, with the outputs that it had, under the priority and pacing of that batch; the rows
// stay where they are. A record that was retried before goes on where that retry left it, unless that is under way,
// succeeded or may have. Faults: NotFound; Conflict where the batch is not over, its definition is gone, or no job is
// left.
func (s *Service) Retry(ctx context.Context, tx pgx.Tx, in RetryInput) (*StartedBatch, error) {
	row, err := s.ReadBatchIn(ctx, tx, in.OrgID, in.BatchID)
	if err != nil {
		return nil, err
	}
	root := in.BatchID
	if row.FlowBatch.RetryRoot != nil {
		root = *row.FlowBatch.RetryRoot
	}
	if _, err := s.Begin(ctx, tx, root); err != nil { // one retry at a time of these records
		return nil, err
	}
	r := retrying{s: s, tx: tx, in: in, root: root,
		out: &StartedBatch{BatchID: cell.NewID(), Status: batch.BatchQueued}}
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	if err := r.collect(ctx); err != nil {
		return nil, err
	}
	if r.out.RecordCount == 0 {
		return nil, fault.New(fault.Conflict,
			"No job of the batch can be retried: none has the statuses asked for, "+
				"or their retries are under way, succeeded or may have")
	}
	places, err := s.lockOpenBatches(ctx, tx, map[uuid.UUID]int64{in.OrgID: 1})
	if err != nil {
		return nil, err
	}
	if err := places.use(in.OrgID, 1); err != nil {
		return nil, err
	}
	return r.out, r.start(ctx)
}

// retrying is a retry under way.
type retrying struct {
	s    *Service
	tx   pgx.Tx
	c    *Change
	in   RetryInput
	root uuid.UUID
	// of is the batch whose jobs are chosen; later ones may have retried them since.
	of      *query.Batch
	newer   []*query.Batch
	retryNo int32

	out    *StartedBatch
	slices int32
}

// open reads the batch, and those that retried its records since. The root is locked.
func (r *retrying) open(ctx context.Context) (err error) {
	rows, err := r.s.q.RetryLineage(ctx, r.tx, db.RetryLineageParams{OrgID: r.in.OrgID, Root: r.root})
	if err != nil {
		return fmt.Errorf("read the retries of batch %s: %w", r.root, err)
	}
	var all db.BatchesReadParams
	for _, row := range rows {
		all.OrgIds, all.Ids = append(all.OrgIds, r.in.OrgID), append(all.Ids, row.ID)
	}
	// Calls of a batch that was cancelled still settle: not while its records are read. The root has the least id of
	// them.
	if r.c, err = r.s.Begin(ctx, r.tx, all.Ids...); err != nil {
		return err
	}
	views, err := r.s.ViewsOf(ctx, r.tx, all)
	if err != nil {
		return err
	}
	if r.of = views[r.in.BatchID]; r.of == nil {
		return fault.Missing("Batch")
	}
	b := &r.of.FlowBatch
	if status := r.of.FlowBatchCount.Status; !batch.BatchTerminal(status) {
		return fault.New(fault.Conflict, "Batch is %s; only a batch that is over can be retried", status)
	}
	if err := r.of.Plan.Runnable(); err != nil {
		return fault.New(fault.Conflict, "The batch cannot be tried again: %v", err)
	}
	_, err = r.s.q.DefinitionForStart(ctx, r.tx, db.DefinitionForStartParams{OrgID: r.in.OrgID, ID: b.DefinitionID})
	if pg.IsNoRows(err) {
		return fault.New(fault.Conflict, "The definition of the batch was deleted; start its records with another one")
	}
	if err != nil {
		return fmt.Errorf("read the definition of batch %s: %w", b.ID, err)
	}
	for _, row := range rows {
		if r.retryNo = row.RetryNo + 1; row.RetryNo > b.RetryNo {
			r.newer = append(r.newer, views[row.ID])
		}
	}
	return nil
}

// candidate is a record to be tried again, and where it was tried last.
type candidate struct {
	position int64
	view     *query.Slice
	at       query.ResumePoint
}

// collect makes the slices of the retry, page by page.
func (r *retrying) collect(ctx context.Context) error {
	var statuses []string
	for _, s := range r.in.Statuses {
		statuses = append(statuses, string(s))
		if s == batch.Unprocessed { // slices of a batch that is over still count those as waiting
			statuses = append(statuses, string(batch.Staged), string(batch.Queued), string(batch.Pending))
		}
	}
	return r.eachOpened(ctx, r.of, statuses, 0, math.MaxInt64, func(views []*query.Slice) error {
		return r.take(ctx,
			views)
	})
}

// eachOpened calls do with the slices of a batch from a number on that have jobs in these statuses and begin before a
// position, opened as many at once as fit into memory.
func (r *retrying) eachOpened(ctx context.Context, b *query.Batch, statuses []string, no int32, end int64,
	do func([]*query.Slice) error) error {
	for {
		all, err := b.NextSlices(ctx, r.s.Reader, r.tx, no, statuses, statuses)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(v *query.Slice) bool { return v.First >= end })
		for left := all; len(left) > 0; {
			views, err := b.OpenToResume(ctx, r.s.Reader, r.tx, left, b == r.of, b == r.of && len(r.in.Groups) > 0)
			if err != nil {
				return err
			}
			left = left[len(views):]
			if err := do(views); err != nil {
				return err
			}
		}
		if len(all) < query.ScanSlices {
			return nil
		}
		no = all[len(all)-1].No + 1
	}
}

// take adds the records of opened slices that are to be tried again.
func (r *retrying) take(ctx context.Context, views []*query.Slice) error {
	chosen := map[int64]candidate{}
	for _, v := range views {
		fits := func(o int32) (bool, error) {
			if !slices.Contains(r.in.Statuses, v.Statuses[o]) {
				return false, nil
			}
			return v.InGroups(o, r.in.Groups)
		}
		if err := choose(v, chosen, fits, false); err != nil {
			return err
		}
	}
	last := views[len(views)-1]
	for _, b := range r.newer {
		if err := r.supersede(ctx, b, chosen, views[0].First, last.First+int64(last.Records)); err != nil {
			return err
		}
	}
	return r.insert(ctx, slices.SortedFunc(maps.Values(chosen),
		func(a, b candidate) int { return int(a.position - b.position) }))
}

// choose puts the slice's records that fit, by their offsets, and where they go on, among the chosen ones; again, only
// those that are there already, and the others are taken out.
func choose(v *query.Slice, chosen map[int64]candidate, fits func(o int32) (bool, error), again bool) error {
	wanted, some := make([]bool, v.Records), false
	for o := range v.Records {
		position := v.First + int64(o)
		_, there := chosen[position]
		if wanted[o] = v.Wanted; !v.Wanted {
			fit, err := fits(o)
			if err != nil {
				return err
			}
			wanted[o] = fit
		}
		wanted[o] = wanted[o] && (there || !again)
		some = some || wanted[o]
		if again && !wanted[o] {
			delete(chosen, position)
		}
	}
	if !some {
		return nil
	}
	points, err := v.ResumePoints(wanted)
	if err != nil {
		return err
	}
	for o, w := range wanted {
		if position := v.First + int64(o); w {
			chosen[position] = candidate{position, v, points[o]}
		}
	}
	return nil
}

// supersede replaces what is known of chosen records between two positions by what a later retry made of them.
func (r *retrying) supersede(ctx context.Context, b *query.Batch, chosen map[int64]candidate, from, to int64) error {
	no, err := r.s.q.SliceAt(ctx, r.tx, db.SliceAtParams{BatchID: b.FlowBatch.ID, Place: from})
	if err != nil {
		return fmt.Errorf("find position %d of batch %s: %w", from, b.FlowBatch.ID, err)
	}
	over := b.Over() && batch.BatchTerminal(b.FlowBatchCount.Status)
	return r.eachOpened(ctx, b, anyStatus(), no, to, func(views []*query.Slice) error {
		for _, v := range views {
			fits := func(o int32) (bool, error) { return over && Retryable(v.Statuses[o]), nil }
			if err := choose(v, chosen, fits, true); err != nil {
				return err
			}
		}
		return nil
	})
}

// insert makes slices of records: each is a run of neighbours that were last in one slice and go on alike.
func (r *retrying) insert(ctx context.Context, list []candidate) error {
	var rows []db.RetrySliceInsertParams
	var inherited []db.InheritedInsertParams
	kept := db.KeptKeysInsertParams{BatchID: r.out.BatchID}
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].position == list[0].position+int64(n) && list[n].view == list[0].view &&
			list[n].at == list[0].at {
			n++
		}
		row, from := r.slice(&list[0], int32(n))
		rows = append(rows, row)
		if from != nil {
			inherited = append(inherited, *from)
		}
		keepKeys(&kept, &list[0], row.No)
		list = list[n:]
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := r.s.q.RetrySliceInsert(ctx, r.tx, rows); err != nil {
		return fmt.Errorf("insert slices: %w", err)
	}
	if _, err := r.s.q.InheritedInsert(ctx, r.tx, inherited); err != nil {
		return fmt.Errorf("insert what slices inherit: %w", err)
	}
	if len(kept.SliceNos) == 0 {
		return nil
	}
	return fault.Wrap(r.s.q.KeptKeysInsert(ctx, r.tx, kept), "insert the keys that slices keep")
}

// keepKeys has a slice, of which c is the first record, keep the keys of calls that may have arrived.
func keepKeys(in *db.KeptKeysInsertParams, c *candidate, sliceNo int32) {
	for task := int16(0); c.at.Kept>>task != 0; task++ {
		if c.at.Kept>>task&1 == 1 {
			in.SliceNos, in.StepNos, in.TaskNos = append(in.SliceNos, sliceNo), append(in.StepNos, c.at.Step),
				append(in.TaskNos, task)
			in.FromBatches, in.FromSlices = append(in.FromBatches, c.view.Batch.FlowBatch.ID),
				append(in.FromSlices, c.view.No)
		}
	}
}

// slice makes the slice of n records from one on.
func (r *retrying) slice(c *candidate, n int32) (row db.RetrySliceInsertParams, from *db.InheritedInsertParams) {
	off := int32(c.position - c.view.First)
	step := &r.of.Plan.Steps[c.at.Step]
	row = db.RetrySliceInsertParams{BatchID: r.out.BatchID, No: r.slices, First: c.position, Records: n,
		State: batch.ResumeState(step, c.at.Done), StepNo: c.at.Step,
		Queued: int16(n), PageOff: c.view.PageOff + off, FirstStep: c.at.Step, TasksDone: c.at.Done} //nolint:gosec // at most a page
	if r.slices == 0 {
		r.out.First = c.position
	}
	r.out.RecordCount += int64(n)
	r.slices++
	if row.State == batch.SliceReady {
		r.c.wakeBatch(DueSlices, r.out.BatchID)
	} else {
		row.Remaining = n * int32(len(batch.Undone(batch.CallTasks(step), c.at.Done)))
	}
	if c.at.Step > 0 || c.at.Done != 0 {
		from = &db.InheritedInsertParams{BatchID: r.out.BatchID, SliceNo: row.No, FromBatch: c.view.Batch.FlowBatch.ID,
			FromSlice: c.view.No, Off: off,
			StepNo: c.at.Step, TasksDone: c.at.Done}
	}
	return row, from
}

// start inserts the batch with its queues, and wakes whoever has work.
func (r *retrying) start(ctx context.Context) (err error) {
	q, out, was := r.s.q, r.out, &r.of.FlowBatchCount
	state := db.RetryCountInsertParams{BatchID: out.BatchID, RetryOf: r.in.BatchID, RecordCount: out.RecordCount,
		Now: r.c.Now}
	if out.Pacing, err = pacing.Parse(was.Pacing); err != nil {
		return err
	}
	if out.Pacing != nil {
		out.FirstTick = firstTick(out.Pacing, was.PacedAt, r.c.Now, nil)
		state.PaceNextAt = &out.FirstTick
		r.c.Wake(DuePacing, out.BatchID.String(), out.FirstTick)
	}
	out.Plan = r.of.Plan
	if out.Routes, err = r.s.queuesOf(ctx, r.tx, r.in.OrgID, r.of.Plan, r.of.FlowBatch.Lane); err != nil {
		return err
	}
	queues := db.LaneBatchInsertParams{BatchID: out.BatchID}
	for i := range out.Routes {
		to := &out.Routes[i]
		queues.StepNos, queues.TaskNos = append(queues.StepNos, to.StepNo), append(queues.TaskNos, to.TaskNo)
		queues.Domains, queues.Buckets = append(queues.Domains, to.Route.Domain), append(queues.Buckets,
			to.Route.Bucket)
		queues.Lanes = append(queues.Lanes, string(to.Route.Lane))
	}
	later := r.c.later
	if err := errors.Join(
		q.RetryBatchInsert(ctx, later, db.RetryBatchInsertParams{ID: out.BatchID, RecordCount: out.RecordCount,
			CreatedBy: r.in.CreatedBy,
			Trace:     telemetry.Parent(ctx),
			Now:       r.c.Now, Root: r.root, RetryNo: r.retryNo, RetryOf: r.in.BatchID, OrgID: r.in.OrgID}),
		q.RetryCountInsert(ctx, later, state),
		q.RetryVarsCopy(ctx, later, db.RetryVarsCopyParams{BatchID: out.BatchID, RetryOf: r.in.BatchID}),
		q.InheritedDeepen(ctx, later, out.BatchID),
		q.LaneBatchInsert(ctx, later, queues),
		q.SlicesQueue(ctx, later, out.BatchID),
		account.Audit(ctx, later, auditType, out.BatchID.String()),
		later.Send(ctx, r.tx),
	); err != nil {
		return fmt.Errorf("insert the batch: %w", err)
	}
	r.c.opened = append(r.c.opened, out.BatchID)
	return r.c.send(ctx)
}

// anyStatus are all statuses of jobs.
func anyStatus() []string {
	out := make([]string, len(batch.Statuses))
	for i, s := range batch.Statuses {
		out[i] = string(s)
	}
	return out
}

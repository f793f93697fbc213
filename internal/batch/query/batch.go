package query

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/fault"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
)

// BatchRow is a batch with its counters, and the record set whose rows it works on.
type BatchRow = db.BatchListRow

// ReadBatch reads one batch. Fault: NotFound.
func (s *Reader) ReadBatch(ctx context.Context, orgID, id uuid.UUID) (*BatchRow, error) {
	return s.ReadBatchIn(ctx, s.pool, orgID, id)
}

// ReadBatchIn is ReadBatch within a transaction.
func (s *Reader) ReadBatchIn(ctx context.Context, conn db.DBTX, orgID, id uuid.UUID) (*BatchRow, error) {
	found, err := s.q.BatchRead(ctx, conn, db.BatchReadParams{OrgID: orgID, ID: id})
	if pg.IsNoRows(err) {
		return nil, fault.Missing("Batch")
	}
	return new(BatchRow(found)), fault.Wrap(err, "read batch %s", id)
}

// Metadata is what the trigger of a batch gave, a JSON object: flow.batch_metadata, which as a part of these queries
// would take Postgres as long to plan as all else of them.
func Metadata(r *BatchRow) []byte {
	b := &r.FlowBatch
	if b.Metadata != nil {
		return []byte(*b.Metadata)
	}
	return fmt.Appendf(nil, `{"webhook_id":%q,"delivery_id":%q}`, pg.Value(b.TriggerSource), b.ID)
}

// SkippedTask is a task of a batch that left out records by its condition.
type SkippedTask struct {
	StepID, TaskID string
	// Records is how many.
	Records int64
}

// SkippedTasks reads the tasks of batches of an organization that left out records, in the order of their plans.
func (s *Reader) SkippedTasks(ctx context.Context, orgID uuid.UUID,
	batches []BatchRow) (map[uuid.UUID][]SkippedTask, error) {
	in := db.SkippedReadParams{OrgID: orgID}
	byID := map[uuid.UUID]*db.FlowBatch{}
	for i := range batches {
		b := &batches[i].FlowBatch
		in.BatchIds, byID[b.ID] = append(in.BatchIds, b.ID), b
	}
	rows, err := s.q.SkippedRead(ctx, pg.CustomPlan{Pool: s.pool}, in)
	if err != nil {
		return nil, fmt.Errorf("count skipped records: %w", err)
	}
	out := map[uuid.UUID][]SkippedTask{}
	for _, r := range rows {
		b := byID[r.BatchID]
		plan, err := s.plans.Plan(ctx, s.pool, b.OrgID, b.DefinitionID, b.Version)
		if err != nil {
			return nil, fmt.Errorf("plan of batch %s: %w", b.ID, err)
		}
		step := &plan.Steps[r.StepNo]
		out[b.ID] = append(out[b.ID], SkippedTask{step.ID, step.Tasks[r.TaskNo].ID, r.Records})
	}
	return out, nil
}

// view reads a batch with its plan. Fault: NotFound.
func (s *Reader) view(ctx context.Context, conn db.DBTX, orgID, id uuid.UUID) (*Batch, error) {
	views, err := s.ViewsOf(ctx, conn, db.BatchesReadParams{OrgIds: []uuid.UUID{orgID}, Ids: []uuid.UUID{id}})
	if err == nil && views[id] == nil {
		err = fault.Missing("Batch")
	}
	return views[id], err
}

// ViewsOf are the views of batches, by id.
func (s *Reader) ViewsOf(ctx context.Context, conn db.DBTX,
	which db.BatchesReadParams) (map[uuid.UUID]*Batch, error) {
	found, err := s.q.BatchesRead(ctx, conn, which)
	if err != nil {
		return nil, fmt.Errorf("read batches: %w", err)
	}
	out := make(map[uuid.UUID]*Batch, len(found))
	for _, r := range found {
		b := &r.FlowBatch
		plan, err := s.plans.Plan(ctx, conn, b.OrgID, b.DefinitionID, b.Version)
		if err != nil {
			return nil, fmt.Errorf("plan of batch %s: %w", b.ID, err)
		}
		b.Metadata = nil // no record shows it, and a list of records keeps the batches of all of them
		out[b.ID] = &Batch{BatchRow: new(BatchRow(r)), Plan: plan}
	}
	return out, nil
}

// JobCounts returns how many of the batch's jobs stand where.
func JobCounts(row *BatchRow) batch.Counts {
	r := &row.FlowBatchCount
	var out batch.Counts
	for i, n := range [len(batch.Statuses)]int32{r.Staged, r.Queued, r.Pending, r.Started, r.NeedsReconcile,
		r.Completed,
		r.Failed, r.Cancelled,
		r.Accepted, r.Rejected, r.Unprocessed, r.Unresolved} {
		out[i] = int64(n)
	}
	return out
}

// Progress returns the share of jobs that are over, in percent; 100 for a batch without records.
func Progress(r *BatchRow) float64 {
	if r.FlowBatch.RecordCount == 0 {
		return 100
	}
	counts := JobCounts(r)
	return 100 * float64(counts.Terminal()) / float64(r.FlowBatch.RecordCount)
}

// A job has one run, its execution, unless a person had it run again: then each run but the last has a row that says
// when it ended, and what happened until then is its history. The last one is what the job is.

// endOf is how a run of the record at this offset was ended so that the job could run again; nil for the last one.
func (v *Slice) endOf(offset, run int32) *db.EndedRunsReadRow {
	if ended := v.runs[offset]; run > 0 && int(run) <= len(ended) {
		return &ended[run-1]
	}
	return nil
}

// ofRun turns a record at this offset, as it is read, into one of its runs.
func (v *Slice) ofRun(r Record, offset, run int32) Record {
	r.Run = run
	if before := v.endOf(offset, run-1); before != nil {
		r.Created = before.EndedAt
		r.StartedAt = &r.Created
		r.UpdatedAt = moment.Later(r.UpdatedAt, r.Created)
	}
	end := v.endOf(offset, run)
	if end == nil {
		return r
	}
	r.Execution, r.Output, r.SkippedTasks = batch.ExecutionCancelled, nil, nil
	r.CompletedAt, r.UpdatedAt = &end.EndedAt, end.EndedAt
	r.Error = &batch.JobError{Code: batch.CodeRequeued,
		Message: "The outcome of a call stayed unknown; a person had the job run again",
		StepID:  v.Batch.Plan.Steps[end.StepNo].ID}
	if end.Note != nil {
		r.Error.Message += ": " + *end.Note
	}
	return r
}

// isOfRun reports whether an entry of the record at this offset is of the run, or of one before.
func (v *Slice) isOfRun(offset, run int32, step int16, t *batch.Entry) bool {
	end := v.endOf(offset, run)
	return end == nil || step <= end.StepNo && t.EndedAt <= batch.Millis(end.EndedAt)
}

// showsRuns reports whether the list shows ended runs: an execution that was ended so is cancelled.
func (w *recordScan) showsRuns() bool {
	return w.f.Want.Runs && w.match.execution(batch.ExecutionCancelled)
}

// endedRuns counts the ended runs of the batches between two.
func (w *recordScan) endedRuns(ctx context.Context, from, to uuid.UUID) (int64, error) {
	if !w.showsRuns() {
		return 0, nil
	}
	n, err := w.s.q.EndedRunTotal(ctx, w.tx, db.EndedRunTotalParams{OrgID: w.orgID, FromID: from, ToID: to,
		CreatedAfter: w.f.CreatedAfter, CreatedBefore: w.f.CreatedBefore})
	return n, fault.Wrap(err, "count ended runs")
}

// takeRecord appends a record to the page, run by run where the list shows runs.
func (w *recordScan) takeRecord(v *Slice, r Record) {
	offset := int32(r.Position - v.First)
	runs := int32(len(v.runs[offset])) + 1
	first, last := w.runsOf(v, r.Position, runs)
	for i := first; i <= last && !w.more; i++ {
		run := i
		if w.f.Newest {
			run = first + last - i
		}
		one := v.ofRun(r, offset, run)
		if run < runs && !w.showsRuns() || run == runs && (!w.match.job(r.Status) ||
			!w.match.execution(one.Execution)) {
			continue
		}
		switch {
		case w.skip > 0:
			w.skip--
		case len(w.out) >= w.f.Limit, w.bytes > pageBytes:
			w.more = true
		default:
			w.bytes += len(r.Input) + len(r.Output)
			w.out = append(w.out, one)
		}
	}
}

// everything is the limit of a list that is only counted.
const everything = math.MaxInt32

// BatchState is where a batch and its jobs stand.
type BatchState struct {
	Status   batch.BatchStatus
	Records  int64
	Counts   batch.Counts
	Progress float64 // as of the function of that name
}

// StateOf returns where a batch stands, as those who read it see it.
func StateOf(r *BatchRow) BatchState {
	return BatchState{Status: StatusOf(r), Records: r.FlowBatch.RecordCount, Counts: JobCounts(r),
		Progress: Progress(r)}
}

// BatchStates reads where batches stand, each of the organization at the same place; it leaves out those that are not
// there.
func (s *Reader) BatchStates(ctx context.Context, orgIDs, ids []uuid.UUID) (map[uuid.UUID]BatchState, error) {
	rows, err := s.q.BatchCountsRead(ctx, s.pool, db.BatchCountsReadParams{OrgIds: orgIDs, Ids: ids})
	if err != nil {
		return nil, fmt.Errorf("read where batches stand: %w", err)
	}
	out := make(map[uuid.UUID]BatchState, len(rows))
	for i := range rows {
		c := &rows[i].FlowBatchCount
		out[c.BatchID] = StateOf(&BatchRow{FlowBatch: db.FlowBatch{RecordCount: int64(c.RecordCount)},
			FlowBatchCount: *c})
	}
	return out, nil
}

// StatusOf is where a batch stands for those who read it: one whose calls are under way is running, also before it is
// marked so.
func StatusOf(r *BatchRow) batch.BatchStatus {
	counts := JobCounts(r)
	if r.FlowBatchCount.Status == batch.BatchQueued &&
		counts.Of(batch.Staged)+counts.Of(batch.Queued) < r.FlowBatch.RecordCount {
		return batch.BatchRunning
	}
	return r.FlowBatchCount.Status
}

package run

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/recordset"
)

// Source of a batch's records: a sealed record set, or the records themselves.
type Source struct {
	RecordSetID uuid.UUID
	// Records are raw JSON objects; used where RecordSetID is zero.
	Records [][]byte
}

// StartInput is what starts a batch.
type StartInput struct {
	OrgID         uuid.UUID
	DefinitionID  uuid.UUID
	Version       int32
	Source        Source
	Metadata      json.RawMessage
	Lane          *db.FlowLane
	ScheduledAt   *time.Time
	TriggerType   db.FlowTriggerType
	TriggerSource *string
	CreatedBy     *uuid.UUID
}

// StartedBatch is a batch that was just started.
type StartedBatch struct {
	BatchID, TriggerID uuid.UUID
	Status             BatchStatus
	RecordCount        int64
	// Routes are the queues of the plan's calls, for the estimate.
	Routes []TaskRoute
}

// TaskRoute is the queue of one task.
type TaskRoute struct {
	Task  *definition.Task
	Route Route
}

// Start starts a batch in the caller's transaction: nothing of it remains if that rolls back. Faults: 404 and 409 of the
// record set and the credentials.
func (s *Service) Start(ctx context.Context, tx pgx.Tx, in StartInput) (*StartedBatch, error) {
	plan, err := s.plans.Plan(ctx, tx, in.OrgID, in.DefinitionID, in.Version)
	if err != nil {
		return nil, fmt.Errorf("plan of definition %s: %w", in.DefinitionID, err)
	}
	batchID, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an id: %w", err)
	}
	triggerID, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an id: %w", err)
	}
	pageSet, count, err := in.Source.take(ctx, tx, in.OrgID, batchID)
	if err != nil {
		return nil, err
	}
	now, err := s.q.Clock(ctx, tx)
	if err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	st := starting{s: s, tx: tx, in: &in, plan: plan, batchID: batchID, now: now,
		staged: in.ScheduledAt != nil && in.ScheduledAt.After(now)}
	out := &StartedBatch{BatchID: batchID, TriggerID: triggerID, Status: BatchQueued, RecordCount: count}
	if count == 0 {
		out.Status = BatchCompleted
	}
	if err := st.insertBatch(ctx, out, pageSet); err != nil {
		return nil, err
	}
	if out.Routes, err = st.queues(ctx); err != nil {
		return nil, err
	}
	if count == 0 {
		return out, nil
	}
	return out, st.work(ctx, pageSet, count)
}

func (src *Source) take(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID) (pageSet uuid.UUID, count int64, err error) {
	if src.RecordSetID != uuid.Nil {
		count, err = recordset.Consume(ctx, tx, orgID, src.RecordSetID, batchID)
		return src.RecordSetID, count, err
	}
	return recordset.AddInline(ctx, tx, src.Records)
}

// starting is a start under way.
type starting struct {
	s       *Service
	tx      pgx.Tx
	in      *StartInput
	plan    *definition.Plan
	batchID uuid.UUID
	now     time.Time
	staged  bool
}

func (st *starting) insertBatch(ctx context.Context, out *StartedBatch, pageSet uuid.UUID) error {
	metadata := st.in.Metadata
	if metadata == nil {
		metadata = json.RawMessage("{}")
	}
	row := db.BatchInsertParams{
		ID: st.batchID, OrgID: st.in.OrgID, DefinitionID: st.in.DefinitionID, Version: st.in.Version, TriggerID: out.TriggerID,
		TriggerType: st.in.TriggerType, TriggerSource: st.in.TriggerSource, Metadata: string(metadata), Status: out.Status,
		RecordCount: out.RecordCount, PageSet: pageSet, Lane: st.in.Lane, ScheduledAt: st.in.ScheduledAt, CreatedBy: st.in.CreatedBy,
		CreatedAt: st.now,
	}
	if out.RecordCount == 0 {
		row.StartedAt, row.CompletedAt = &st.now, &st.now
	}
	if err := st.s.q.BatchInsert(ctx, st.tx, row); err != nil {
		return fmt.Errorf("insert the batch: %w", err)
	}
	err := st.s.q.BatchCountInsert(ctx, st.tx, db.BatchCountInsertParams{BatchID: st.batchID, RecordCount: out.RecordCount, Staged: st.staged})
	if err != nil {
		return fmt.Errorf("insert the batch's counters: %w", err)
	}
	return nil
}

// queues finds, and inserts, the queue of every task that makes calls.
func (st *starting) queues(ctx context.Context) ([]TaskRoute, error) {
	var out []TaskRoute
	for i := range st.plan.Steps {
		step := &st.plan.Steps[i]
		for _, t := range callTasks(step) {
			task := &step.Tasks[t]
			route, err := st.s.router.Route(ctx, st.tx, st.in.OrgID, st.plan, task, st.in.Lane)
			if err != nil {
				return nil, err
			}
			err = st.s.q.LaneBatchInsert(ctx, st.tx, db.LaneBatchInsertParams{BatchID: st.batchID, StepNo: int16(i), TaskNo: t,
				OrgID: st.in.OrgID, Domain: route.Domain, Bucket: route.Bucket, Lane: route.Lane})
			if err != nil {
				return nil, fmt.Errorf("insert the queue of task %s: %w", task.ID, err)
			}
			out = append(out, TaskRoute{Task: task, Route: route})
		}
	}
	return out, nil
}

// work inserts the slices and queues the first step, or leaves that to the scheduled time.
func (st *starting) work(ctx context.Context, pageSet uuid.UUID, count int64) error {
	state, tasks := entryState(&st.plan.Steps[0]), callTasks(&st.plan.Steps[0])
	args := db.SliceInsertParams{BatchID: st.batchID, State: state, CallTasks: int32(len(tasks)), Staged: st.staged, PageSet: pageSet}
	if st.staged {
		args.State = sliceStaged
	}
	if state == sliceReady {
		args.CallTasks = 0
	}
	slices, err := st.s.q.SliceInsert(ctx, st.tx, args)
	if err != nil {
		return fmt.Errorf("insert slices: %w", err)
	}
	if st.staged {
		return st.s.due.Wake(ctx, st.tx, DueRelease, st.batchID.String(), *st.in.ScheduledAt)
	}
	return st.s.queueFirst(ctx, st.tx, st.batchID, st.plan, slices, count, st.now)
}

// queueFirst queues the first step of all slices of a batch.
func (s *Service) queueFirst(ctx context.Context, tx pgx.Tx, batchID uuid.UUID, plan *definition.Plan, slices, count int64, now time.Time) error {
	if entryState(&plan.Steps[0]) == sliceReady {
		return s.due.Wake(ctx, tx, DueSlices, batchID.String(), now)
	}
	for _, t := range callTasks(&plan.Steps[0]) {
		if err := s.q.PartInsertWhole(ctx, tx, db.PartInsertWholeParams{BatchID: batchID, TaskNo: t, LastNo: int32(slices) - 1}); err != nil {
			return fmt.Errorf("queue the first step: %w", err)
		}
		err := s.q.LaneBatchReady(ctx, tx, db.LaneBatchReadyParams{BatchID: batchID, TaskNo: t, Parts: 1, Records: count})
		if err != nil {
			return fmt.Errorf("count the first step: %w", err)
		}
	}
	lanes, err := s.q.LaneBatchOfBatches(ctx, tx, []uuid.UUID{batchID})
	if err != nil {
		return fmt.Errorf("read queues: %w", err)
	}
	keys := map[string]bool{}
	for _, l := range lanes {
		if l.StepNo == 0 {
			keys[DispatchKey(l.Domain, l.Bucket)] = true
		}
	}
	for _, k := range sortedKeys(keys) {
		if err := s.due.Wake(ctx, tx, DueDispatch, k, now); err != nil {
			return err
		}
	}
	return nil
}

// Release queues a batch whose scheduled time has come.
func (s *Service) Release(ctx context.Context, tx pgx.Tx, batchID uuid.UUID) error {
	c, err := s.Begin(ctx, tx, batchID)
	if err != nil {
		return err
	}
	h := c.heads[batchID]
	if h == nil || h.cancelled() {
		return nil
	}
	slices, err := s.q.SliceRelease(ctx, tx, db.SliceReleaseParams{BatchID: batchID, State: entryState(&h.plan.Steps[0])})
	if err != nil || slices == 0 {
		return err
	}
	if err := s.q.BatchCountRelease(ctx, tx, batchID); err != nil {
		return fmt.Errorf("release batch %s: %w", batchID, err)
	}
	return s.queueFirst(ctx, tx, batchID, h.plan, slices, h.RecordCount, c.Now)
}

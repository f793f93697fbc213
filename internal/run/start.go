package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/definition"
	"flowlane/internal/pacing"
	"flowlane/internal/pg"
	"flowlane/internal/recordset"
)

// auditType is what the audit log calls a batch.
const auditType = "batch"

// Source of a batch's records: a sealed record set, or the records themselves.
type Source struct {
	RecordSetID uuid.UUID
	// Records are raw JSON objects; used where RecordSetID is zero.
	Records [][]byte
}

// StartInput is what starts a batch.
type StartInput struct {
	OrgID        uuid.UUID
	DefinitionID uuid.UUID
	Version      int32
	Source       Source
	Metadata     json.RawMessage
	Lane         *db.FlowLane
	ScheduledAt  *time.Time
	// Priority is normal or high; nil where nobody chose it.
	Priority *string
	// Pacing is nil where the batch is not paced.
	Pacing        *pacing.Policy
	TriggerType   db.FlowTriggerType
	TriggerSource *string
	// ScheduleID is the schedule that starts it; nil for none.
	ScheduleID *uuid.UUID
	CreatedBy  *uuid.UUID
	// EventDepth is how many starts by events and by flows lie before it, this one included; 0 where somebody else starts it.
	EventDepth int16
	// Now is the database's time, where the caller has just asked for it.
	Now time.Time
}

// StartedBatch is a batch that was just started.
type StartedBatch struct {
	// BatchID is also the id of the trigger.
	BatchID     uuid.UUID
	Status      BatchStatus
	RecordCount int64
	// First is the position of the first record.
	First int64
	// Routes are the queues of the plan's calls, for the estimate; the rest is, too.
	Routes []TaskRoute
	// NotBefore is the time that the batch is scheduled for; zero for none.
	NotBefore time.Time
	// Pacing releases it from FirstTick on; nil where nothing does.
	Pacing    *pacing.Policy
	FirstTick time.Time
}

// TaskRoute is the queue of one task.
type TaskRoute struct {
	StepNo int
	Task   *definition.Task
	Route  Route
}

// Start starts a batch in the caller's transaction: nothing of it remains if that rolls back. Faults: 404 and 409 of the
// record set and the credentials.
func (s *Service) Start(ctx context.Context, tx pgx.Tx, in StartInput) (*StartedBatch, error) {
	switch small, err := in.Small(); {
	case err != nil:
		return nil, err
	case small != nil:
		small.By = account.ActorFrom(ctx)
		alone := Alike{In: in, Each: []Small{*small}}
		if err = s.StartAlike(ctx, tx, in.Now, &alone); err == nil {
			err = alone.Refused
		}
		if err != nil {
			return nil, err
		}
		return alone.Out[0], nil
	}
	l, err := s.launch(ctx, tx, in.OrgID, in.DefinitionID, in.Version, in.Lane)
	if err != nil {
		return nil, err
	}
	now, err := s.now(ctx, tx, in.Now)
	if err != nil {
		return nil, err
	}
	st := starting{s: s, tx: tx, launch: l, in: &in, now: now, staged: in.ScheduledAt != nil && in.ScheduledAt.After(now), later: pg.NewPipeline(tx)}
	if in.Pacing != nil {
		st.firstTick = new(firstTick(in.Pacing, nil, now, in.ScheduledAt))
	}
	out, err := st.start(ctx)
	if err != nil {
		return nil, err
	}
	wakes := st.waking(ctx)
	if err := st.later.Send(ctx, tx, wakes.asks...); err != nil {
		return nil, fmt.Errorf("insert the batch: %w", err)
	}
	if err := s.remember(ctx, l, &in, out, st.pageSet, in.metadata(), nil, now); err != nil {
		return nil, err
	}
	if st.count == 0 {
		return out, st.s.publishEnded(ctx, tx, now, st.batchID)
	}
	return out, wakes.start(ctx, tx)
}

// remembered bounds the metadata of a batch that is kept before anybody asks for it, and its only page.
const remembered = 16 << 10

// remember keeps a batch for those of this process who work on it, once it is there: that is at once, mostly. page is nil unless it is all
// of its records.
func (s *Service) remember(ctx context.Context, l *launch, in *StartInput, out *StartedBatch, pageSet uuid.UUID, metadata json.RawMessage,
	page *recordset.Page, now time.Time,
) error {
	if len(metadata) > remembered {
		return nil
	}
	facts, err := Facts(out.BatchID, in.DefinitionID, in.Version, out.RecordCount, now)
	if err != nil {
		return err
	}
	b := &Batch{ID: out.BatchID, OrgID: in.OrgID, PageSet: pageSet, Plan: l.plan, Metadata: bytes.Clone(metadata), Vars: l.vars, facts: facts, records: out.RecordCount}
	if page != nil && page.Size() <= remembered {
		b.page = page
	}
	pg.AfterCommit(ctx, func() { s.batches.put(b) })
	return nil
}

func (in *StartInput) metadata() json.RawMessage {
	if in.Metadata == nil {
		return json.RawMessage("{}")
	}
	return in.Metadata
}

// take takes the records.
func (st *starting) take(ctx context.Context) (err error) {
	src := &st.in.Source
	if src.RecordSetID != uuid.Nil {
		st.pageSet = src.RecordSetID
		st.count, err = recordset.Consume(ctx, st.tx, st.in.OrgID, src.RecordSetID, st.batchID)
		return err
	}
	st.count = int64(len(src.Records))
	st.pageSet, err = recordset.AddInline(ctx, st.tx, src.Records)
	return err
}

// starting is a start under way. What it inserts goes out together.
type starting struct {
	*launch
	s      *Service
	tx     pgx.Tx
	in     *StartInput
	now    time.Time
	staged bool
	// firstTick is nil where the batch is not paced.
	firstTick *time.Time
	later     *pg.Pipeline

	batchID uuid.UUID
	pageSet uuid.UUID
	count   int64
	// wakes are what has work at once.
	wakes []dueKey
}

// start takes the records, and leaves the rest of the batch with later.
func (st *starting) start(ctx context.Context) (*StartedBatch, error) {
	var err error
	if st.batchID, err = uuid.NewV7(); err != nil {
		return nil, fmt.Errorf("make an id: %w", err)
	}
	if err = st.take(ctx); err != nil {
		return nil, err
	}
	out := &StartedBatch{BatchID: st.batchID, Status: BatchQueued, RecordCount: st.count}
	if st.count == 0 {
		out.Status = BatchCompleted
	}
	if err := st.batch(ctx, out); err != nil {
		return nil, err
	}
	if err := st.insertQueues(ctx); err != nil {
		return nil, err
	}
	for i := range st.queues {
		out.Routes = append(out.Routes, st.queues[i].TaskRoute)
	}
	if st.staged {
		out.NotBefore = *st.in.ScheduledAt
	}
	if st.firstTick != nil {
		out.Pacing, out.FirstTick = st.in.Pacing, *st.firstTick
	}
	if st.count > 0 {
		if err := st.slices(ctx); err != nil {
			return nil, err
		}
	}
	return out, account.Audit(ctx, st.later, auditType, st.batchID.String())
}

func (st *starting) batch(ctx context.Context, out *StartedBatch) error {
	row := db.BatchInsertParams{
		ID: st.batchID, OrgID: st.in.OrgID, DefinitionID: st.in.DefinitionID, Version: st.in.Version,
		TriggerType: st.in.TriggerType, TriggerSource: st.in.TriggerSource, Metadata: string(st.in.metadata()),
		RecordCount: out.RecordCount, PageSet: st.pageSet, Lane: st.in.Lane, ScheduledAt: st.in.ScheduledAt, CreatedBy: st.in.CreatedBy,
		CreatedAt: st.now, EventDepth: st.in.EventDepth,
	}
	if err := st.s.q.BatchInsert(ctx, st.later, row); err != nil {
		return fmt.Errorf("insert the batch: %w", err)
	}
	state := db.BatchCountInsertParams{BatchID: st.batchID, OrgID: st.in.OrgID, ScheduleID: st.in.ScheduleID, RecordCount: out.RecordCount,
		Staged: st.staged, Priority: st.in.Priority, PaceNextAt: st.firstTick, Now: st.now}
	if st.in.Pacing != nil {
		state.Pacing = st.in.Pacing.Encode()
	}
	if err := st.s.q.BatchCountInsert(ctx, st.later, state); err != nil {
		return fmt.Errorf("insert the batch's counters: %w", err)
	}
	if st.vars == nil {
		return nil
	}
	if err := st.s.q.BatchVarsAdd(ctx, st.later, db.BatchVarsAddParams{BatchID: st.batchID, Vars: string(st.vars)}); err != nil {
		return fmt.Errorf("insert the batch's variables: %w", err)
	}
	return nil
}

// insertQueues inserts the queue of every task that makes calls. Those of the first step have the records, unless the batch waits for
// its time or for work of our own.
func (st *starting) insertQueues(ctx context.Context) error {
	for i := range st.queues {
		q := &st.queues[i]
		row := db.LaneBatchInsertParams{BatchID: st.batchID, StepNo: q.step, TaskNo: q.task, OrgID: st.in.OrgID, Domain: q.Route.Domain,
			Bucket: q.Route.Bucket, Lane: q.Route.Lane, High: isHigh(st.in.Priority), DefinitionID: st.in.DefinitionID, Version: st.in.Version}
		if st.firstTick != nil {
			row.LapsesAt = &st.now
		}
		if q.step == 0 && st.count > 0 && !st.staged && entryState(&st.plan.Steps[0]) == sliceCalling {
			row.ReadyParts, row.ReadyRecords = 1, st.count
			st.wakes = append(st.wakes, dueKey{DueDispatch, DispatchKey(q.Route.Domain, q.Route.Bucket)})
		}
		if err := st.s.q.LaneBatchInsert(ctx, st.later, row); err != nil {
			return fmt.Errorf("insert the queue of task %s: %w", q.Task.ID, err)
		}
	}
	return nil
}

// slices inserts the slices and queues the first step, or leaves that to the scheduled time.
func (st *starting) slices(ctx context.Context) error {
	state, tasks := entryState(&st.plan.Steps[0]), callTasks(&st.plan.Steps[0])
	args := db.SliceInsertParams{BatchID: st.batchID, State: state, CallTasks: int32(len(tasks)), Staged: st.staged, PageSet: st.pageSet}
	if st.staged {
		args.State = sliceStaged
	}
	if state == sliceReady {
		args.CallTasks = 0
	}
	if err := st.s.q.SliceInsert(ctx, st.later, args); err != nil {
		return fmt.Errorf("insert slices: %w", err)
	}
	switch {
	case st.staged:
	case state == sliceReady:
		st.wakes = append(st.wakes, dueKey{DueSlices, st.batchID.String()})
	default:
		for _, t := range tasks {
			if err := st.s.q.PartInsertWhole(ctx, st.later, db.PartInsertWholeParams{BatchID: st.batchID, TaskNo: t}); err != nil {
				return fmt.Errorf("queue the first step: %w", err)
			}
		}
	}
	return nil
}

// waking makes due what has work, and what comes at a time.
func (st *starting) waking(ctx context.Context) wakings {
	var w wakings
	if st.count == 0 {
		return w
	}
	st.s.wake(ctx, &w, st.wakes, st.now)
	if st.firstTick != nil {
		w.add(ctx, st.s.due, dueKey{DuePacing, st.batchID.String()}, *st.firstTick)
	}
	if st.staged {
		w.add(ctx, st.s.due, dueKey{DueRelease, st.batchID.String()}, *st.in.ScheduledAt)
	}
	return w
}

// Release queues a batch whose scheduled time has come.
func (s *Service) Release(ctx context.Context, tx pgx.Tx, batchID uuid.UUID) error {
	c, err := s.Begin(ctx, tx, batchID)
	if err != nil {
		return err
	}
	h := c.heads[batchID]
	if h == nil || h.stopped() {
		return nil
	}
	moved, err := s.q.SliceRelease(ctx, tx, db.SliceReleaseParams{BatchID: batchID, State: entryState(&h.plan.Steps[0])})
	if err != nil || moved == 0 {
		return err
	}
	if err := s.q.BatchCountRelease(ctx, tx, batchID); err != nil {
		return fmt.Errorf("release batch %s: %w", batchID, err)
	}
	if entryState(&h.plan.Steps[0]) == sliceReady {
		return s.due.Wake(ctx, tx, DueSlices, batchID.String(), c.Now)
	}
	return c.queueFirst(ctx, h)
}

// queueFirst queues the first step of all slices of a batch.
func (c *Change) queueFirst(ctx context.Context, h *head) error {
	var wakes []dueKey
	for _, t := range callTasks(&h.plan.Steps[0]) {
		if err := c.s.q.PartInsertWhole(ctx, c.tx, db.PartInsertWholeParams{BatchID: h.ID, TaskNo: t}); err != nil {
			return fmt.Errorf("queue the first step: %w", err)
		}
		err := c.s.q.LaneBatchReady(ctx, c.tx, db.LaneBatchReadyParams{BatchID: h.ID, TaskNo: t, Parts: 1, Records: h.RecordCount})
		if err != nil {
			return fmt.Errorf("count the first step: %w", err)
		}
		route, err := c.route(ctx, laneKey{h.ID, 0, t})
		if err != nil {
			return err
		}
		wakes = append(wakes, dueKey{DueDispatch, DispatchKey(route.Domain, route.Bucket)})
	}
	return c.s.wakeAll(ctx, c.tx, wakes, c.Now)
}

package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/definition"
	"flowlane/internal/event"
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

// TaskRoute is the queue of one task that makes calls.
type TaskRoute struct {
	StepNo, TaskNo int16
	Task           *definition.Task
	Route          Route
}

// Start starts a batch in the caller's transaction: nothing of it remains if that rolls back. Faults: 404 and 409 of the
// record set and the credentials.
func (s *Service) Start(ctx context.Context, tx pgx.Tx, in StartInput) (*StartedBatch, error) {
	small, err := in.Small()
	if err != nil {
		return nil, err
	}
	if small == nil {
		return s.startLarge(ctx, tx, &in)
	}
	small.By = account.ActorFrom(ctx)
	alone := Alike{In: in, Each: []Small{*small}}
	if err := s.StartAlike(ctx, tx, in.Now, &alone); err != nil {
		return nil, err
	}
	if alone.Refused != nil {
		return nil, alone.Refused
	}
	return alone.Out[0], nil
}

// startLarge starts a batch of any number of records, which may be paced, or wait for its time.
func (s *Service) startLarge(ctx context.Context, tx pgx.Tx, in *StartInput) (*StartedBatch, error) {
	p, err := s.prepare(ctx, tx, in.OrgID, in.DefinitionID, in.Version, in.Lane)
	if err != nil {
		return nil, err
	}
	now, err := s.now(ctx, tx, in.Now)
	if err != nil {
		return nil, err
	}
	st := starting{preparedStart: p, s: s, in: in, now: now, later: pg.NewPipeline(tx), wakes: wakeUps{},
		out: &StartedBatch{BatchID: newID(), Status: BatchQueued, Routes: p.queues}}
	if in.ScheduledAt != nil && in.ScheduledAt.After(now) {
		st.out.NotBefore = *in.ScheduledAt
	}
	if in.Pacing != nil {
		st.out.Pacing, st.out.FirstTick = in.Pacing, firstTick(in.Pacing, nil, now, in.ScheduledAt)
	}
	if err := st.take(ctx, tx); err != nil {
		return nil, err
	}
	if err := st.insert(ctx); err != nil {
		return nil, err
	}
	if err := s.remember(ctx, p, in, st.out, st.pageSet, in.metadata(), nil, now); err != nil {
		return nil, err
	}
	if st.out.RecordCount > 0 {
		st.wake()
		if err := st.slices(ctx); err != nil {
			return nil, err
		}
		return st.out, wrap(s.send(ctx, tx, st.later, st.wakes, now), "insert the batch")
	}
	if err := st.later.Send(ctx, tx); err != nil {
		return nil, fmt.Errorf("insert the batch: %w", err)
	}
	rows, err := event.BatchesEnded(ctx, tx, []uuid.UUID{st.out.BatchID})
	if err != nil {
		return nil, err
	}
	st.wakes.listeners(rows, now)
	return st.out, s.send(ctx, tx, st.later, st.wakes, now)
}

// remembered bounds the metadata of a batch that is kept before anybody asks for it, and its only page.
const remembered = 16 << 10

// remember keeps a batch for those of this process who work on it, once it is there: that is at once, mostly. page is nil unless it is all
// of its records.
func (s *Service) remember(ctx context.Context, p *preparedStart, in *StartInput, out *StartedBatch, pageSet uuid.UUID, metadata json.RawMessage,
	page *recordset.Page, now time.Time,
) error {
	if len(metadata) > remembered {
		return nil
	}
	facts, err := Facts(out.BatchID, in.DefinitionID, in.Version, out.RecordCount, now)
	if err != nil {
		return err
	}
	b := &Batch{ID: out.BatchID, OrgID: in.OrgID, PageSet: pageSet, Plan: p.plan, Metadata: bytes.Clone(metadata), Vars: p.vars, facts: facts, records: out.RecordCount}
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

// starting is a start under way. What it inserts goes out together.
type starting struct {
	*preparedStart
	s       *Service
	in      *StartInput
	now     time.Time
	later   *pg.Pipeline
	wakes   wakeUps
	out     *StartedBatch
	pageSet uuid.UUID
}

// staged reports whether the batch waits for its time.
func (st *starting) staged() bool { return !st.out.NotBefore.IsZero() }

// take takes the records.
func (st *starting) take(ctx context.Context, tx pgx.Tx) (err error) {
	src, out := &st.in.Source, st.out
	if src.RecordSetID != uuid.Nil {
		st.pageSet = src.RecordSetID
		out.RecordCount, err = recordset.Consume(ctx, tx, st.in.OrgID, src.RecordSetID, out.BatchID)
	} else {
		out.RecordCount = int64(len(src.Records))
		st.pageSet, err = recordset.AddInline(ctx, tx, src.Records)
	}
	if out.RecordCount == 0 {
		out.Status = BatchCompleted
	}
	return err
}

// insert leaves the batch with later, but for its slices.
func (st *starting) insert(ctx context.Context) error {
	out := st.out
	row := db.BatchInsertParams{
		ID: out.BatchID, OrgID: st.in.OrgID, DefinitionID: st.in.DefinitionID, Version: st.in.Version,
		TriggerType: st.in.TriggerType, TriggerSource: st.in.TriggerSource, Metadata: string(st.in.metadata()),
		RecordCount: out.RecordCount, PageSet: st.pageSet, Lane: st.in.Lane, ScheduledAt: st.in.ScheduledAt, CreatedBy: st.in.CreatedBy,
		CreatedAt: st.now, EventDepth: st.in.EventDepth,
	}
	state := db.BatchCountInsertParams{BatchID: out.BatchID, OrgID: st.in.OrgID, ScheduleID: st.in.ScheduleID, RecordCount: out.RecordCount,
		Staged: st.staged(), Priority: st.in.Priority, Now: st.now}
	if out.Pacing != nil {
		state.Pacing, state.PaceNextAt = out.Pacing.Encode(), &out.FirstTick
	}
	return errors.Join(
		st.s.q.BatchInsert(ctx, st.later, row),
		st.s.q.BatchCountInsert(ctx, st.later, state),
		st.s.insertVars(ctx, st.later, out.BatchID, st.vars),
		st.s.insertQueues(ctx, st.later, out),
		account.Audit(ctx, st.later, auditType, out.BatchID.String()),
	)
}

// insertVars keeps the variables of a batch; nil for none.
func (s *Service) insertVars(ctx context.Context, conn db.DBTX, batchID uuid.UUID, vars json.RawMessage) error {
	if vars == nil {
		return nil
	}
	return wrap(s.q.BatchVarsAdd(ctx, conn, db.BatchVarsAddParams{BatchID: batchID, Vars: string(vars)}), "insert the batch's variables")
}

// insertQueues inserts the queue of every task of a batch that makes calls. Nothing waits in them.
func (s *Service) insertQueues(ctx context.Context, conn db.DBTX, out *StartedBatch) error {
	in := db.LaneBatchInsertParams{BatchID: out.BatchID}
	for i := range out.Routes {
		q := &out.Routes[i]
		in.StepNos, in.TaskNos = append(in.StepNos, q.StepNo), append(in.TaskNos, q.TaskNo)
		in.Domains, in.Buckets, in.Lanes = append(in.Domains, q.Route.Domain), append(in.Buckets, q.Route.Bucket), append(in.Lanes, string(q.Route.Lane))
	}
	return wrap(s.q.LaneBatchInsert(ctx, conn, in), "insert the queues of the batch")
}

// slices inserts the slices and queues the first step, or leaves that to the scheduled time.
func (st *starting) slices(ctx context.Context) error {
	first := &st.plan.Steps[0]
	args := db.SliceInsertParams{BatchID: st.out.BatchID, State: entryState(first), Staged: st.staged(), PageSet: st.pageSet}
	if args.State == sliceCalling {
		args.CallTasks = int32(len(callTasks(first))) //nolint:gosec // at most 50 tasks
	}
	if st.staged() {
		args.State = sliceStaged
	}
	return errors.Join(st.s.q.SliceInsert(ctx, st.later, args), st.s.q.SlicesQueue(ctx, st.later, st.out.BatchID))
}

// wake makes due what has work, and what comes at a time.
func (st *starting) wake() {
	id := st.out.BatchID.String()
	switch {
	case st.staged():
		st.wakes.add(DueRelease, id, st.out.NotBefore)
	case entryState(&st.plan.Steps[0]) == sliceReady:
		st.wakes.add(DueSlices, id, st.now)
	default:
		st.firstCalls(st.wakes, st.now)
	}
	if st.out.Pacing != nil {
		st.wakes.add(DuePacing, id, st.out.FirstTick)
	}
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
	state := entryState(&h.plan.Steps[0])
	moved, err := s.q.SliceRelease(ctx, tx, db.SliceReleaseParams{BatchID: batchID, State: state})
	if err != nil || moved == 0 {
		return err
	}
	if err := s.q.BatchCountRelease(ctx, tx, batchID); err != nil {
		return fmt.Errorf("release batch %s: %w", batchID, err)
	}
	if err := s.q.SlicesQueue(ctx, tx, batchID); err != nil {
		return fmt.Errorf("queue the first step: %w", err)
	}
	if c.opened = append(c.opened, batchID); state == sliceReady {
		c.wakeBatch(DueSlices, batchID)
	}
	return c.send(ctx)
}

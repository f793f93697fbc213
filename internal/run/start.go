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
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/moment"
	"flowlane/internal/pacing"
	"flowlane/internal/pg"
	"flowlane/internal/recordset"
	"flowlane/internal/telemetry"
	"flowlane/internal/trigger/event"
)

// auditType is what the audit log calls a batch.
const auditType = "batch"

// Source of a batch's records: a sealed record set, or the records themselves.
type Source struct {
	RecordSetID uuid.UUID
	// Records are raw JSON objects; used where RecordSetID is zero.
	Records [][]byte
}

// What starts a batch that is no retry, as flow.batch.trigger_type has it.
const (
	TriggerAPICall  = "api_call"
	TriggerSchedule = "schedule"
	TriggerWebhook  = "webhook"
	TriggerEvent    = "event"
	TriggerFlow     = "flow"
)

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
	TriggerType   string
	TriggerSource *string
	// ScheduleID is the schedule that starts it; nil for none.
	ScheduleID *uuid.UUID
	CreatedBy  *uuid.UUID
	// Chain is where it stands in what came of one root cause; zero where neither an event nor a flow starts it.
	Chain event.Chain
	// Now is the database's time, where the caller has just asked for it.
	Now time.Time
}

// StartedBatch is a batch that was just started.
type StartedBatch struct {
	// BatchID is also the id of the trigger.
	BatchID     uuid.UUID
	Status      batch.BatchStatus
	RecordCount int64
	// RecordBytes is how large its records are on average, in bytes; 0 where that is not at hand.
	RecordBytes float64
	// First is the position of the first record.
	First int64
	// Routes are the queues of the plan's calls, for the estimate; the rest is, too.
	Routes []TaskRoute
	Plan   *definition.Plan
	// NotBefore is the time that the batch is scheduled for; zero for none.
	NotBefore time.Time
	// Pacing releases it from FirstTick on; nil where nothing does.
	Pacing    *pacing.Policy
	FirstTick time.Time
	// batch is what is known of it; nil where that is too much to be kept.
	batch *Batch
}

// TaskRoute is the queue of one task that makes calls.
type TaskRoute struct {
	StepNo, TaskNo int16
	Task           *definition.Task
	Route          Route
}

// Start starts a batch in the caller's transaction: nothing of it remains if that rolls back. Faults: 404 and 409 of
// the record set and the credentials.
func (s *Service) Start(ctx context.Context, tx pgx.Tx, in StartInput) (*StartedBatch, error) {
	one := in.Small()
	if one == nil {
		one = &Small{Metadata: in.metadata()}
	}
	one.By, one.Trace = account.ActorFrom(ctx), telemetry.Parent(ctx)
	alone := StartGroup{In: in, Each: []Small{*one}}
	if err := s.StartGroups(ctx, tx, in.Now, &alone); err != nil {
		return nil, err
	}
	if alone.Refused != nil {
		return nil, alone.Refused
	}
	return alone.Out[0], nil
}

// remembered bounds the metadata of a batch that is kept before anybody asks for it, and its only page.
const remembered = 16 << 10

// cache keeps a batch for those of this process who work on it, once it is there: that is at once, mostly. page is nil
// unless it is all of its records.
func (s *Service) cache(ctx context.Context, p *preparedStart, in *StartInput, out *StartedBatch, pageSet uuid.UUID,
	one *Small, page *recordset.Page, now time.Time,
) error {
	if len(one.Metadata) > remembered {
		return nil
	}
	facts, err := BatchScope(out.BatchID, in.DefinitionID, in.Version, out.RecordCount, now)
	if err != nil {
		return err
	}
	b := &Batch{ID: out.BatchID, OrgID: in.OrgID, PageSet: pageSet, Plan: p.plan, Metadata: bytes.Clone(one.Metadata),
		Vars: p.vars, scope: facts,
		beginsAt: moment.Later(now, pg.Value(in.ScheduledAt)), root: in.Chain.Root, records: out.RecordCount,
		Trace: telemetry.ParentOf(one.Trace)}
	if page != nil && page.Size() <= remembered {
		b.page = page
	}
	out.batch = b
	pg.AfterCommit(ctx, func() { s.batches.put(b) })
	return nil
}

func (in *StartInput) metadata() json.RawMessage {
	if in.Metadata == nil {
		return json.RawMessage("{}")
	}
	return in.Metadata
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
	state := batch.EntryState(&h.plan.Steps[0])
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
	if c.opened = append(c.opened, batchID); state == batch.SliceReady {
		c.wakeBatch(DueSlices, batchID)
	}
	return c.send(ctx)
}

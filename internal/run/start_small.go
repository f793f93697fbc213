package run

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/pg"
	"flowlane/internal/recordset"
)

// Alike is one of several starts that differ in nothing but their record and metadata.
type Alike struct {
	Record   []byte
	Metadata json.RawMessage
}

// StartAlike starts a batch of one record for each in the caller's transaction: all of them or none. in says everything
// else; it has no source, no metadata, no time and no pacing. Faults as those of Start.
func (s *Service) StartAlike(ctx context.Context, tx pgx.Tx, in StartInput, each []Alike) ([]*StartedBatch, error) {
	if len(each) == 0 {
		return nil, nil
	}
	l, err := s.launch(ctx, tx, in.OrgID, in.DefinitionID, in.Version, in.Lane)
	if err != nil {
		return nil, err
	}
	now := in.Now
	if now.IsZero() {
		if now, err = s.q.Clock(ctx, tx); err != nil {
			return nil, fmt.Errorf("read the clock: %w", err)
		}
	}
	small := make([]smallStart, 0, len(each))
	var out []*StartedBatch
	for i := range each {
		sheet, err := recordset.OneSheet([][]byte{each[i].Record})
		if err != nil {
			return nil, err //nolint:wrapcheck // says everything
		}
		if sheet == nil {
			return nil, fmt.Errorf("a record of %d bytes fits no page", len(each[i].Record))
		}
		small = append(small, smallStart{sheet, each[i].Metadata})
	}
	out, err = s.startSmall(ctx, tx, l, &in, small, now)
	return out, err
}

// smallStart is what starts of few records do not have in common.
type smallStart struct {
	sheet    *recordset.Sheet
	metadata json.RawMessage
}

// startSmall starts batches whose records fit one page each, now and not paced: one statement writes all of them.
func (s *Service) startSmall(ctx context.Context, tx pgx.Tx, l *launch, in *StartInput, each []smallStart, now time.Time) ([]*StartedBatch, error) {
	p := db.BatchesStartParams{OrgID: in.OrgID, DefinitionID: in.DefinitionID, Version: in.Version, TriggerType: in.TriggerType,
		TriggerSource: in.TriggerSource, Lane: in.Lane, CreatedBy: in.CreatedBy, Now: now, Priority: in.Priority, High: isHigh(in.Priority),
		ScheduleID: in.ScheduleID, EventDepth: in.EventDepth, State: entryState(&l.plan.Steps[0])}
	p.Calls = p.State == sliceCalling
	if p.Calls {
		p.CallTasks = int32(len(callTasks(&l.plan.Steps[0]))) //nolint:gosec // at most 50 tasks
	}
	var wakes []dueKey
	for i := range l.queues {
		q := &l.queues[i]
		p.Steps, p.Tasks = append(p.Steps, q.step), append(p.Tasks, q.task)
		p.Domains, p.Buckets, p.Lanes = append(p.Domains, q.Route.Domain), append(p.Buckets, q.Route.Bucket), append(p.Lanes, string(q.Route.Lane))
		if p.Calls && q.step == 0 {
			wakes = append(wakes, dueKey{DueDispatch, DispatchKey(q.Route.Domain, q.Route.Bucket)})
		}
	}
	later := pg.NewPipeline(tx)
	out := make([]*StartedBatch, len(each))
	for i := range each {
		started, err := s.addSmall(ctx, l, in, &p, &each[i], now)
		if err != nil {
			return nil, err
		}
		out[i] = started
		if !p.Calls {
			wakes = append(wakes, dueKey{DueSlices, started.BatchID.String()})
		}
	}
	if err := s.q.BatchesStart(ctx, later, p); err != nil {
		return nil, fmt.Errorf("insert batches: %w", err)
	}
	for i := range out {
		if l.vars != nil {
			if err := s.q.BatchVarsAdd(ctx, later, db.BatchVarsAddParams{BatchID: out[i].BatchID, Vars: string(l.vars)}); err != nil {
				return nil, fmt.Errorf("insert the batch's variables: %w", err)
			}
		}
		if err := account.Audit(ctx, later, auditType, out[i].BatchID.String()); err != nil {
			return nil, err //nolint:wrapcheck // says everything
		}
	}
	var w wakings
	s.wake(ctx, &w, wakes, now)
	if err := later.Send(ctx, tx, w.asks...); err != nil {
		return nil, fmt.Errorf("insert batches: %w", err)
	}
	return out, w.start(ctx, tx)
}

// addSmall adds a batch to those that are started.
func (s *Service) addSmall(ctx context.Context, l *launch, in *StartInput, p *db.BatchesStartParams, one *smallStart, now time.Time) (*StartedBatch, error) {
	batch, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an id: %w", err)
	}
	p.Ids, p.Metadata = append(p.Ids, batch), append(p.Metadata, string(one.metadata))
	p.PageSets, p.Rows = append(p.PageSets, one.sheet.SetID), append(p.Rows, one.sheet.Rows)
	p.RawBytes, p.Bodies = append(p.RawBytes, one.sheet.RawBytes), append(p.Bodies, one.sheet.Body)
	out := &StartedBatch{BatchID: batch, Status: BatchQueued, RecordCount: int64(one.sheet.Rows)}
	for i := range l.queues {
		out.Routes = append(out.Routes, l.queues[i].TaskRoute)
	}
	return out, s.remember(ctx, l, in, out, one.sheet.SetID, one.metadata, one.sheet.Page(), now)
}

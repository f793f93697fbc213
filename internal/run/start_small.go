package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/recordset"
)

// Alike are starts that differ in nothing but their records, metadata and caller; In says everything else, and has no source, metadata,
// time or pacing.
type Alike struct {
	In   StartInput
	Each []Small
	// Out is what was started, one for each; nil where Refused says why nothing was.
	Out     []*StartedBatch
	Refused error
}

// Small is a start of few records.
type Small struct {
	// ID is that of the batch; zero for a new one.
	ID       uuid.UUID
	Sheet    *recordset.Sheet
	Metadata json.RawMessage
	// By is who started it; nil where nobody did.
	By *account.Actor
}

// Small returns what starts by StartAlike: a start at once and not paced of records that fit one page; nil for another.
func (in *StartInput) Small() (*Small, error) {
	if in.ScheduledAt != nil || in.Pacing != nil || in.Source.RecordSetID != uuid.Nil {
		return nil, nil
	}
	sheet, err := recordset.OneSheet(in.Source.Records)
	if err != nil || sheet == nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	return &Small{Sheet: sheet, Metadata: in.metadata()}, nil
}

// now is the database's time, unless it is known.
func (s *Service) now(ctx context.Context, tx pgx.Tx, known time.Time) (time.Time, error) {
	if !known.IsZero() {
		return known, nil
	}
	now, err := s.q.Clock(ctx, tx)
	if err != nil {
		return now, fmt.Errorf("read the clock: %w", err)
	}
	return now, nil
}

// StartAlike starts batches whose records fit one page each in the caller's transaction: of each group all or none. One statement writes
// a group, and all goes out together. The faults by which a group is refused are those of Start; an error ends the transaction.
func (s *Service) StartAlike(ctx context.Context, tx pgx.Tx, now time.Time, groups ...*Alike) error {
	later, wakes := pg.NewPipeline(tx), wakeUps{}
	var ids []string
	var actors []*account.Actor
	now, err := s.now(ctx, tx, now)
	if err != nil {
		return err
	}
	for _, g := range groups {
		p, err := s.prepare(ctx, tx, g.In.OrgID, g.In.DefinitionID, g.In.Version, g.In.Lane)
		if err != nil {
			var refusal *fault.Error
			if g.Refused = err; !errors.As(err, &refusal) {
				return err
			}
			continue
		}
		if err := s.addAlike(ctx, later, wakes, p, g, now); err != nil {
			return err
		}
		for i := range g.Out {
			ids, actors = append(ids, g.Out[i].BatchID.String()), append(actors, g.Each[i].By)
		}
	}
	if err := account.AuditAll(ctx, later, auditType, ids, actors...); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	return wrap(s.send(ctx, tx, later, wakes, now), "insert batches")
}

// addAlike leaves a group with later, and has what has work woken.
func (s *Service) addAlike(ctx context.Context, later *pg.Pipeline, wakes wakeUps, l *preparedStart, g *Alike, now time.Time) error {
	in := &g.In
	p := db.BatchesStartParams{OrgID: in.OrgID, DefinitionID: in.DefinitionID, Version: in.Version, TriggerType: in.TriggerType,
		TriggerSource: in.TriggerSource, Lane: in.Lane, CreatedBy: in.CreatedBy, Now: now, Priority: in.Priority, High: isHigh(in.Priority),
		ScheduleID: in.ScheduleID, EventDepth: in.EventDepth, State: entryState(&l.plan.Steps[0])}
	if p.Calls = p.State == sliceCalling; p.Calls {
		p.CallTasks = int32(len(callTasks(&l.plan.Steps[0]))) //nolint:gosec // at most 50 tasks
		l.firstCalls(wakes, now)
	}
	for i := range l.queues {
		q := &l.queues[i]
		p.Steps, p.Tasks = append(p.Steps, q.StepNo), append(p.Tasks, q.TaskNo)
		p.Domains, p.Buckets, p.Lanes = append(p.Domains, q.Route.Domain), append(p.Buckets, q.Route.Bucket), append(p.Lanes, string(q.Route.Lane))
	}
	for i := range g.Each {
		started, err := s.addSmall(ctx, l, in, &p, &g.Each[i], now)
		if err != nil {
			return err
		}
		if g.Out = append(g.Out, started); !p.Calls {
			wakes.add(DueSlices, started.BatchID.String(), now)
		}
	}
	if err := s.q.BatchesStart(ctx, later, p); err != nil {
		return fmt.Errorf("insert batches: %w", err)
	}
	for i := range g.Out {
		if err := s.insertVars(ctx, later, g.Out[i].BatchID, l.vars); err != nil {
			return err
		}
	}
	return nil
}

// addSmall adds a batch to those that are started.
func (s *Service) addSmall(ctx context.Context, l *preparedStart, in *StartInput, p *db.BatchesStartParams, one *Small, now time.Time) (*StartedBatch, error) {
	out := &StartedBatch{BatchID: one.ID, Status: BatchQueued, RecordCount: int64(one.Sheet.Rows), Routes: l.queues}
	if out.BatchID == uuid.Nil {
		out.BatchID = newID()
	}
	p.Ids, p.Metadata = append(p.Ids, out.BatchID), append(p.Metadata, string(one.Metadata))
	p.PageSets, p.Rows = append(p.PageSets, one.Sheet.SetID), append(p.Rows, one.Sheet.Rows)
	p.RawBytes, p.Bodies = append(p.RawBytes, one.Sheet.RawBytes), append(p.Bodies, one.Sheet.Body)
	return out, s.remember(ctx, l, in, out, one.Sheet.SetID, one.Metadata, one.Sheet.Page(), now)
}

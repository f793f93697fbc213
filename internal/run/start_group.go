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
	"flowlane/internal/batch"
	"flowlane/internal/cell"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/recordset"
	"flowlane/internal/trigger/event"
)

// StartGroup is starts that differ in nothing but their records, metadata and caller; In says everything else.
type StartGroup struct {
	In   StartInput
	Each []Small
	// Out is what was started, one for each; nil where Refused says why nothing was.
	Out     []*StartedBatch
	Refused error
}

// Small is one of them.
type Small struct {
	// ID is that of the batch; zero for a new one.
	ID uuid.UUID
	// Sheet has its records; nil where it is alone, and they are the source of the group, however many.
	Sheet    *recordset.Sheet
	Metadata json.RawMessage
	// MetadataByID: Metadata is what flow.batch_metadata makes of the ids of source and batch.
	MetadataByID bool
	// By is who started it; nil where nobody did.
	By *account.Actor
	// Trace is that in which it is started, as of telemetry.Parent; nil for none.
	Trace []byte
}

// Small returns what starts with others: a start at once and not paced of records that fit one page; nil for another.
func (in *StartInput) Small() *Small {
	if in.ScheduledAt != nil || in.Pacing != nil || in.Source.RecordSetID != uuid.Nil {
		return nil
	}
	sheet := recordset.OneSheet(in.Source.Records)
	if sheet == nil {
		return nil
	}
	return &Small{Sheet: sheet, Metadata: in.metadata()}
}

// now is the database's time, unless it is known.
func (s *Service) now(ctx context.Context, conn db.DBTX, known time.Time) (time.Time, error) {
	if !known.IsZero() {
		return known, nil
	}
	now, err := s.q.Clock(ctx, conn)
	return now, fault.Wrap(err, "read the clock")
}

// StartGroups starts batches in the caller's transaction: of each group all or none. One statement writes those of a
// group whose records fit one page each, and all goes out together. The faults by which a group is refused are those of
// Start but for its record set's; an error ends the transaction.
func (s *Service) StartGroups(ctx context.Context, tx pgx.Tx, now time.Time, groups ...*StartGroup) error {
	return s.startGroups(ctx, tx, now, nil, nil, groups)
}

// startGroups is StartGroups, where claimer, unless it is nil, claims what it can of the calls; also is that of
// StartAndClaim.
func (s *Service) startGroups(ctx context.Context, tx pgx.Tx, now time.Time, claimer Claimer,
	also func() (pg.Query, error), groups []*StartGroup) error {
	start := &StartClaim{later: pg.NewPipeline(tx), wakes: wakeUps{}, calls: map[uuid.UUID]uuid.UUID{}}
	now, prepared, err := s.prepareGroups(ctx, tx, now, groups)
	if err != nil {
		return err
	}
	for _, g := range prepared {
		start.add(g)
	}
	var last pg.Query
	if also != nil {
		if last, err = also(); err != nil {
			return err
		}
	}
	if claimer != nil && len(start.Batches) > 0 {
		if err := claimer.ClaimStarted(ctx, tx, start); err != nil {
			return err //nolint:wrapcheck // says everything
		}
	}
	var ids []string
	var actors []*account.Actor
	var over []uuid.UUID
	for _, g := range prepared {
		if err := s.writeGroup(ctx, start, g); err != nil {
			return err
		}
		for i, out := range g.Out {
			ids, actors = append(ids, out.BatchID.String()), append(actors, g.Each[i].By)
			if out.RecordCount == 0 {
				over = append(over, out.BatchID)
			}
		}
	}
	if err := account.AuditAll(ctx, start.later, auditType, ids, actors...); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	if len(over) > 0 {
		if err := start.later.Send(ctx, tx); err != nil {
			return fmt.Errorf("insert batches: %w", err)
		}
		rows, err := event.BatchesEnded(ctx, tx, nil, over)
		if err != nil {
			return err
		}
		start.wakes.listeners(rows, now)
	}
	return fault.Wrap(s.send(ctx, tx, start.later, start.wakes, now, start.asks, last), "insert batches")
}

// preparedGroup is a group whose batches can be written.
type preparedGroup struct {
	*StartGroup
	*preparedStart

	rows db.BatchesStartParams
}

// prepareGroups prepares the groups that are not refused, and finds out the time.
func (s *Service) prepareGroups(ctx context.Context, tx pgx.Tx, now time.Time,
	groups []*StartGroup) (_ time.Time, out []*preparedGroup, err error) {
	now, err = s.now(ctx, tx, now)
	if err != nil {
		return now, nil, err
	}
	wanted := map[uuid.UUID]int64{}
	for _, g := range groups {
		wanted[g.In.OrgID] += int64(len(g.Each))
	}
	places, err := s.lockOpenBatches(ctx, tx, wanted)
	if err != nil {
		return now, nil, err
	}
	for _, g := range groups {
		p, err := s.prepare(ctx, tx, g.In.OrgID, g.In.DefinitionID, g.In.Version, g.In.Lane)
		if err != nil {
			var refusal *fault.Error
			if g.Refused = err; !errors.As(err, &refusal) {
				return now, nil, err
			}
			continue
		}
		if g.Refused = places.use(g.In.OrgID, len(g.Each)); g.Refused != nil {
			continue
		}
		ready, err := s.rowsOf(ctx, tx, p, g, now)
		if err != nil {
			return now, nil, err
		}
		out = append(out, ready)
	}
	s.giveBackPlaces(ctx, tx, places) // of those that were refused
	return now, out, nil
}

// rowsOf finds what is to be written of a group, and stores records that have no sheet.
func (s *Service) rowsOf(ctx context.Context, tx pgx.Tx, l *preparedStart, g *StartGroup,
	now time.Time) (*preparedGroup, error) {
	in, first := &g.In, &l.plan.Steps[0]
	p := db.BatchesStartParams{OrgID: in.OrgID, DefinitionID: in.DefinitionID, Version: in.Version,
		TriggerType:   in.TriggerType,
		TriggerSource: in.TriggerSource, Lane: in.Lane, ScheduledAt: in.ScheduledAt, CreatedBy: in.CreatedBy, Now: now,
		Priority: in.Priority,
		High:     isHigh(in.Priority), ScheduleID: in.ScheduleID, EventDepth: in.Chain.Depth, RootID: in.Chain.RootID(),
		State: batch.EntryState(first)}
	if p.State == batch.SliceCalling {
		p.CallTasks = int32(len(batch.CallTasks(first))) //nolint:gosec // at most 50 tasks
	}
	if p.Staged = in.ScheduledAt != nil && in.ScheduledAt.After(now); p.Staged {
		p.State = batch.SliceStaged
	}
	if in.Pacing != nil {
		p.Paced, p.Pacing, p.PaceNextAt = true, in.Pacing.Encode(), new(firstTick(in.Pacing, nil, now, in.ScheduledAt))
	}
	for i := range l.queues {
		q := &l.queues[i]
		p.Steps, p.Tasks = append(p.Steps, q.StepNo), append(p.Tasks, q.TaskNo)
		p.Domains, p.Buckets, p.Lanes = append(p.Domains, q.Route.Domain), append(p.Buckets, q.Route.Bucket),
			append(p.Lanes, string(q.Route.Lane))
	}
	for i := range g.Each {
		started, err := s.addOne(ctx, tx, l, in, &p, &g.Each[i])
		if err != nil {
			return nil, err
		}
		g.Out = append(g.Out, started)
	}
	p.Calls = p.State == batch.SliceCalling && !p.Paged
	p.InQueue = p.CallTasks == 1 && !stepWaits(first)
	return &preparedGroup{g, l, p}, nil
}

// writeGroup leaves a group with the start's last statements, and has what has work woken.
func (s *Service) writeGroup(ctx context.Context, start *StartClaim, g *preparedGroup) error {
	p, later := &g.rows, start.later
	for _, out := range g.Out {
		call := start.calls[out.BatchID]
		if p.CallIds = append(p.CallIds, call); call == uuid.Nil && out.RecordCount > 0 {
			g.wake(start.wakes, out, p.State, p.Now)
		}
	}
	if err := s.q.BatchesStart(ctx, later, *p); err != nil {
		return fmt.Errorf("insert batches: %w", err)
	}
	if p.Paged {
		if err := s.addSlices(ctx, later, p); err != nil {
			return err
		}
	}
	if g.vars == nil {
		return nil
	}
	for _, id := range p.Ids {
		if err := s.q.BatchVarsAdd(ctx, later, db.BatchVarsAddParams{BatchID: id, Vars: string(g.vars)}); err != nil {
			return fmt.Errorf("insert the variables of a batch: %w", err)
		}
	}
	return nil
}

// addSlices inserts the slices of a batch whose records have pages already, and queues the first step unless that waits
// for its time.
func (s *Service) addSlices(ctx context.Context, later *pg.Pipeline, p *db.BatchesStartParams) error {
	return fault.Wrap(s.q.SliceInsert(ctx, later, db.SliceInsertParams{BatchID: p.Ids[0], PageSet: p.PageSets[0],
		State: p.State, CallTasks: p.CallTasks, Staged: p.Staged}), "insert slices")
}

// pageInRow is how large the only page of a batch may be, compressed, to stand in the batch's row, which lists read
// whole.
const pageInRow = 1 << 10

// addOne adds a batch to those that are started.
func (s *Service) addOne(ctx context.Context, tx pgx.Tx, l *preparedStart, in *StartInput, p *db.BatchesStartParams,
	one *Small) (out *StartedBatch, err error) {
	out = &StartedBatch{BatchID: one.ID, Status: batch.BatchQueued, Routes: l.queues, Plan: l.plan, Pacing: in.Pacing,
		FirstTick: pg.Value(p.PaceNextAt)}
	if out.BatchID == uuid.Nil {
		out.BatchID = cell.NewID()
	}
	if p.Staged {
		out.NotBefore = *in.ScheduledAt
	}
	var set uuid.UUID
	var page *recordset.Page
	if sheet := one.Sheet; sheet != nil {
		if set = out.BatchID; len(sheet.Body) > pageInRow {
			set = cell.NewID()
		}
		page, out.RecordCount = sheet.Page(), int64(sheet.Rows)
		out.RecordBytes = float64(sheet.RawBytes) / float64(max(sheet.Rows, 1))
		p.RawBytes, p.Bodies = append(p.RawBytes, sheet.RawBytes), append(p.Bodies, sheet.Body)
	} else if set, out.RecordCount, err = in.takePages(ctx, tx, out.BatchID); err != nil {
		return nil, err
	}
	p.Paged = one.Sheet == nil
	if out.RecordCount == 0 {
		out.Status = batch.BatchCompleted
	}
	metadata := string(one.Metadata)
	if one.MetadataByID {
		metadata = ""
	}
	p.Ids, p.Metadata = append(p.Ids, out.BatchID), append(p.Metadata, metadata)
	p.PageSets, p.Rows = append(p.PageSets, set), append(p.Rows, out.RecordCount)
	p.Traces = append(p.Traces, one.Trace)
	return out, s.cache(ctx, l, in, out, set, one, page, p.Now)
}

// takePages takes the records of the source, or stores them.
func (in *StartInput) takePages(ctx context.Context, tx pgx.Tx,
	batchID uuid.UUID) (set uuid.UUID, count int64, err error) {
	if set = in.Source.RecordSetID; set != uuid.Nil {
		count, err = recordset.Consume(ctx, tx, in.OrgID, set, batchID)
		return set, count, err
	}
	set, err = recordset.AddInline(ctx, tx, in.Source.Records)
	return set, int64(len(in.Source.Records)), err
}

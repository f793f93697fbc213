// Package schedule owns schedules: flows that start at the slots that a cron expression names. It promises that each
// slot is decided once, whatever crashes: it starts one batch, or is listed as skipped or failed with the reason. It
// knows no HTTP, and of batches only how they start.
package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/cell"
	"flowlane/internal/definition"
	"flowlane/internal/due"
	"flowlane/internal/fault"
	"flowlane/internal/listing"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

// Due is the kind of due rows for the next slot of a schedule (key: its id).
const Due = "schedule"

// auditType is what the audit log calls a schedule.
const auditType = "schedule"

// Skip is the overlap policy by which a slot starts nothing while a batch of the schedule is not over.
const Skip = "skip"

// Input is what authors set.
type Input struct {
	DefinitionID uuid.UUID
	Description  string
	Cron         string
	// Timezone is the name of an IANA zone, UTC for none.
	Timezone string
	Enabled  bool
	// InputData is a JSON object, nil for an empty one; Metadata is a JSON object.
	InputData, Metadata json.RawMessage
	CatchUpSeconds      int32
	OverlapPolicy       string
}

// Schedule is a stored schedule as seen at a time.
type Schedule struct {
	db.FlowSchedule
	// Next is the next slot; zero where there is none. Cron gives others, Now is when both were read.
	Next time.Time
	Cron *Cron
	Now  time.Time
	// LastStatus is the status of the batch that it started last; nil where it did not.
	LastStatus *batch.BatchStatus
}

// Service is what callers, and the clock, do with schedules. What belongs to another organization is not found.
type Service struct {
	pool        pg.Pool
	q           *db.Queries
	definitions *definition.Service
	runs        *run.Service
	due         due.Waker
	losses      *pg.Losses
	log         *slog.Logger
}

// New returns a Service. losses knows what restores have lost; nil for nothing.
func New(pool pg.Pool, definitions *definition.Service, runs *run.Service, waker due.Waker, losses *pg.Losses,
	log *slog.Logger) *Service {
	return &Service{pool: pool, q: db.New(), definitions: definitions, runs: runs, due: waker, losses: losses, log: log}
}

// Create stores a schedule. Faults: Unprocessable for the expression; NotFound for the definition; Invalid where that
// is not active.
func (s *Service) Create(ctx context.Context, orgID, by uuid.UUID, in Input,
	hooks ...pg.TxHook[*Schedule]) (*Schedule, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	id := cell.NewID()
	var out *Schedule
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := orgquota.Schedules.ForOneMore(ctx, tx, orgID); err != nil {
			return err
		}
		if _, err := s.definitions.Active(ctx, tx, orgID, in.DefinitionID); err != nil {
			return err
		}
		now, err := s.q.Clock(ctx, tx)
		if err != nil {
			return fmt.Errorf("read the clock: %w", err)
		}
		err = s.q.ScheduleAdd(ctx, tx, db.ScheduleAddParams{
			ID: id, OrgID: orgID, DefinitionID: in.DefinitionID, Description: in.Description, CronExpression: in.Cron,
			Timezone: in.Timezone, Enabled: in.Enabled,
			InputData: in.InputData, Metadata: in.Metadata, CatchUpSeconds: in.CatchUpSeconds,
			OverlapPolicy: in.OverlapPolicy, CreatedBy: by, Now: now,
		})
		if err != nil {
			return fmt.Errorf("add schedule: %w", err)
		}
		if out, err = s.plan(ctx, tx, orgID, id); err != nil {
			return err
		}
		return pg.RunHooks(ctx, tx, out, hooks)
	})
	return out, err
}

// plan makes the next slot of a schedule due, and returns the schedule.
func (s *Service) plan(ctx context.Context, tx pgx.Tx, orgID, id uuid.UUID) (*Schedule, error) {
	out, err := s.read(ctx, tx, orgID, id)
	if err != nil {
		return nil, err
	}
	if out.Enabled && !out.Next.IsZero() {
		if err := s.due.Wake(ctx, tx, Due, id.String(), out.Next); err != nil {
			return nil, err
		}
	}
	return out, account.Audit(ctx, tx, auditType, id.String())
}

// check refuses what names no slots. Fault: Unprocessable.
func (in Input) check() error {
	if err := CheckCron(in.Cron); err != nil {
		return err
	}
	return CheckZone(in.Timezone)
}

// CheckCron refuses an expression that is none. Fault: Unprocessable.
func CheckCron(expression string) error {
	if _, err := Parse(expression); err != nil {
		return fault.Value([]string{"body", "cron_expression"}, "Not a cron expression: %v", err)
	}
	return nil
}

// Get returns one schedule. Fault: NotFound.
func (s *Service) Get(ctx context.Context, orgID, id uuid.UUID) (*Schedule, error) {
	return s.read(ctx, s.pool, orgID, id)
}

func (s *Service) read(ctx context.Context, q db.DBTX, orgID, id uuid.UUID) (*Schedule, error) {
	row, err := s.q.ScheduleGet(ctx, q, db.ScheduleGetParams{OrgID: orgID, ID: id})
	if err != nil {
		return nil, stored(err, "read schedule")
	}
	return seen(row.FlowSchedule, row.LastStatus, row.Now)
}

func seen(row db.FlowSchedule, status *batch.BatchStatus, now time.Time) (*Schedule, error) {
	c, err := ParseIn(row.CronExpression, row.Timezone)
	if err != nil {
		return nil, fmt.Errorf("the expression of schedule %s: %w", row.ID, err)
	}
	return &Schedule{FlowSchedule: row, Next: c.Next(now), Cron: c, Now: now, LastStatus: status}, nil
}

func stored(err error, what string) error {
	if pg.IsNoRows(err) {
		return fault.Missing("Schedule")
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Filter says what a list shows.
type Filter struct {
	// DefinitionID is nil for schedules of all definitions.
	DefinitionID *uuid.UUID
	Created      listing.Range
}

// List returns a page of the schedules.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, f Filter, at listing.Page) ([]*Schedule, error) {
	rows, err := s.rows(ctx, db.ScheduleListParams{OrgID: orgID, Least: at.Least, Most: at.Most,
		DefinitionID: f.DefinitionID,
		CreatedAfter: at.CreatedAfter, CreatedBefore: at.CreatedBefore, Skip: at.Skip, MaxRows: at.MaxRows}, at.Newest)
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	out := make([]*Schedule, len(rows))
	for i := range rows {
		if out[i], err = seen(rows[i].FlowSchedule, rows[i].LastStatus, rows[i].Now); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Count is how many schedules a list has in all.
func (s *Service) Count(ctx context.Context, orgID uuid.UUID, f Filter) (int64, error) {
	total, err := s.q.ScheduleCount(ctx, pg.CustomPlan{Pool: s.pool}, db.ScheduleCountParams{OrgID: orgID,
		Least: f.Created.Least, Most: f.Created.Most, DefinitionID: f.DefinitionID,
		CreatedAfter: f.Created.CreatedAfter, CreatedBefore: f.Created.CreatedBefore})
	return total, fault.Wrap(err, "count schedules")
}

func (s *Service) rows(ctx context.Context, in db.ScheduleListParams, newest bool) ([]db.ScheduleListRow, error) {
	conn := pg.CustomPlan{Pool: s.pool}
	if !newest {
		return s.q.ScheduleList(ctx, conn, in)
	}
	rows, err := s.q.ScheduleListNewest(ctx, conn, db.ScheduleListNewestParams(in))
	out := make([]db.ScheduleListRow, len(rows))
	for i, row := range rows {
		out[i] = db.ScheduleListRow(row)
	}
	return out, err
}

// Update replaces what authors set of a schedule by what change makes of it. A definition that it newly names must be
// active. Slots that are past are not made up for when the expression changes or the schedule is switched on or off;
// those that were its own are listed as missed. Faults: as Create, and NotFound.
func (s *Service) Update(ctx context.Context, orgID, id uuid.UUID, change func(Input) Input) (*Schedule, error) {
	var out *Schedule
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		row, err := s.q.ScheduleLock(ctx, tx, db.ScheduleLockParams{OrgID: orgID, ID: id})
		if err != nil {
			return stored(err, "lock schedule")
		}
		in := change(inputOf(&row))
		if err := in.check(); err != nil {
			return err
		}
		if in.DefinitionID != row.DefinitionID {
			if _, err := s.definitions.Active(ctx, tx, orgID, in.DefinitionID); err != nil {
				return err
			}
		}
		now, err := s.q.Clock(ctx, tx)
		if err != nil {
			return fmt.Errorf("read the clock: %w", err)
		}
		if in.equal(inputOf(&row)) {
			out, err = s.plan(ctx, tx, orgID, id)
			return err
		}
		decided := row.DecidedUpto
		if in.Cron != row.CronExpression || in.Timezone != row.Timezone || in.Enabled != row.Enabled {
			if decided.Before(now) { // else the clock was set back: what was decided stays
				decided = now
			}
			if row.Enabled {
				if err := s.skipUndecided(ctx, tx, &row, now); err != nil {
					return err
				}
			}
		}
		err = s.q.ScheduleUpdate(ctx, tx, db.ScheduleUpdateParams{
			OrgID: orgID, ID: id, DefinitionID: in.DefinitionID, Description: in.Description, CronExpression: in.Cron,
			Timezone: in.Timezone, Enabled: in.Enabled,
			InputData: in.InputData, Metadata: in.Metadata, CatchUpSeconds: in.CatchUpSeconds,
			OverlapPolicy: in.OverlapPolicy, DecidedUpto: decided, Now: now,
		})
		if err != nil {
			return fmt.Errorf("change schedule: %w", err)
		}
		out, err = s.plan(ctx, tx, orgID, id)
		return err
	})
	return out, err
}

func inputOf(row *db.FlowSchedule) Input {
	return Input{DefinitionID: row.DefinitionID, Description: row.Description, Cron: row.CronExpression,
		Timezone: row.Timezone, Enabled: row.Enabled, InputData: row.InputData,
		Metadata: row.Metadata, CatchUpSeconds: row.CatchUpSeconds, OverlapPolicy: row.OverlapPolicy}
}

func (in Input) equal(other Input) bool { return reflect.DeepEqual(in, other) }

// Delete removes a schedule and its fires; its batches stay. Fault: NotFound.
func (s *Service) Delete(ctx context.Context, orgID, id uuid.UUID) error {
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := s.q.ScheduleLock(ctx, tx, db.ScheduleLockParams{OrgID: orgID, ID: id}); err != nil {
			return stored(err, "lock schedule")
		}
		if err := s.q.ScheduleDelete(ctx, tx, db.ScheduleDeleteParams{OrgID: orgID, ID: id}); err != nil {
			return fmt.Errorf("delete schedule: %w", err)
		}
		return account.Audit(ctx, tx, auditType, id.String())
	})
}

// FireFilter says which fires of a schedule a list shows: those in one status or, where that is nil, in any.
type FireFilter struct {
	Status  *string
	Created listing.Range
}

// Fires returns a page of what became of the slots of a schedule, and how many there are on all pages. Fault: NotFound.
func (s *Service) Fires(ctx context.Context, orgID, id uuid.UUID, f FireFilter,
	at listing.Page) ([]db.FlowScheduleFire, int64, error) {
	if _, err := s.Get(ctx, orgID, id); err != nil {
		return nil, 0, err
	}
	rows, err := s.fires(ctx, db.FireListParams{ScheduleID: id, OrgID: orgID, Least: at.Least, Most: at.Most,
		Status:       f.Status,
		CreatedAfter: at.CreatedAfter, CreatedBefore: at.CreatedBefore, Skip: at.Skip, MaxRows: at.MaxRows}, at.Newest)
	if err != nil {
		return nil, 0, fmt.Errorf("list fires: %w", err)
	}
	total, err := s.q.FireCount(ctx, pg.CustomPlan{Pool: s.pool}, db.FireCountParams{ScheduleID: id, OrgID: orgID,
		Least: f.Created.Least,
		Most:  f.Created.Most, Status: f.Status, CreatedAfter: f.Created.CreatedAfter,
		CreatedBefore: f.Created.CreatedBefore})
	if err != nil {
		return nil, 0, fmt.Errorf("count fires: %w", err)
	}
	return rows, total, nil
}

func (s *Service) fires(ctx context.Context, in db.FireListParams, newest bool) ([]db.FlowScheduleFire, error) {
	conn := pg.CustomPlan{Pool: s.pool}
	if newest {
		return s.q.FireListNewest(ctx, conn, db.FireListNewestParams(in))
	}
	return s.q.FireList(ctx, conn, in)
}

// Preview returns the next slots of an expression that no schedule has, at most so many. Fault: Unprocessable.
func (s *Service) Preview(ctx context.Context, expression, zone string, most int) ([]Slot, error) {
	if err := CheckCron(expression); err != nil {
		return nil, err
	}
	if err := CheckZone(zone); err != nil {
		return nil, err
	}
	cron, err := ParseIn(expression, zone)
	if err != nil {
		return nil, err
	}
	now, err := s.q.Clock(ctx, s.pool)
	if err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	return cron.Upcoming(now, most), nil
}

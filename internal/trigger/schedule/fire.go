package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/cell"
	"flowlane/internal/due"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

const (
	// slotsAtOnce bounds the slots that are decided in one transaction.
	slotsAtOnce = 1000
	// grace is how late a slot may be that was not missed.
	grace = time.Minute
)

// The statuses of a fire, and why a slot is skipped.
const (
	fired   = "fired"
	skipped = "skipped"
	failed  = "failed"

	reasonMissed  = "Missed: the service was away, and a later slot has come"
	reasonChanged = "Missed: the schedule was changed before the service came to it"
	reasonLost    = "Missed: a restore of the service's database has lost whether it fired before; " +
		"where it did not, run the schedule now"
	reasonOverlap = "An earlier batch of the schedule is not over"
)

// fire is what becomes of one slot.
type fire struct {
	slot   time.Time
	status string
	reason string
	batch  uuid.UUID
}

// Fire is the handler of due rows of kind Due: it decides the slots that have come.
func (s *Service) Fire(ctx context.Context, l *due.Lease) (time.Time, error) {
	err := s.fire(ctx, l, "")
	if err == nil || ctx.Err() != nil || pg.IsTransient(err) || errors.Is(err, due.ErrLost) {
		return time.Time{}, err
	}
	// The start was refused, and rolled back: the slot has failed, and the next one must not wait for it.
	reason, inside := run.Refusal(err)
	if inside {
		s.log.ErrorContext(ctx, "start of a schedule", "schedule", l.Key, "error", err)
	}
	return time.Time{}, s.fire(ctx, l, reason)
}

// fire decides the slots of a schedule that have come, in one transaction with the end of the lease. With a reason, the
// one that would start a batch has failed for it.
func (s *Service) fire(ctx context.Context, l *due.Lease, reason string) error {
	return l.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx, id uuid.UUID) (again time.Time, err error) {
		row, err := s.q.ScheduleLockDue(ctx, tx, id)
		if pg.IsNoRows(err) || err == nil && !row.Enabled {
			return again, nil
		}
		if err != nil {
			return again, fmt.Errorf("lock schedule %s: %w", id, err)
		}
		now, err := s.q.Clock(ctx, tx)
		if err != nil {
			return again, fmt.Errorf("read the clock: %w", err)
		}
		cron, err := ParseIn(row.CronExpression, row.Timezone)
		if err != nil {
			return again, fmt.Errorf("the expression of schedule %s: %w", id, err)
		}
		slots, more := cron.Between(row.DecidedUpto, now, slotsAtOnce)
		if len(slots) == 0 {
			return cron.Next(now), nil
		}
		decided, err := s.decideSlots(ctx, tx, &row, slots, more, now, reason)
		if err != nil {
			return again, err
		}
		if err := s.write(ctx, tx, &row, decided, false, now); err != nil {
			return again, err
		}
		if err := s.q.ScheduleDecided(ctx, tx, db.ScheduleDecidedParams{ID: id,
			DecidedUpto: slots[len(slots)-1]}); err != nil {
			return again, fmt.Errorf("move schedule %s: %w", id, err)
		}
		if more {
			return due.Now(), nil
		}
		return cron.Next(now), nil
	})
}

// decideSlots says what becomes of slots that have come; it starts the batch of the newest where that may fire. more
// tells that there are newer ones.
func (s *Service) decideSlots(ctx context.Context, tx pgx.Tx, row *db.FlowSchedule, slots []time.Time, more bool,
	now time.Time, reason string) ([]fire, error) {
	out := missed(slots, reasonMissed)
	loss := s.losses.Last()
	for i := range out {
		if loss.MayHaveGone(out[i].slot) {
			out[i].reason = reasonLost
		}
	}
	last := &out[len(out)-1]
	if more || last.reason == reasonLost {
		return out, nil
	}
	late := now.Sub(last.slot)
	if late > max(grace, time.Duration(row.CatchUpSeconds)*time.Second) {
		last.reason = fmt.Sprintf("Missed: the service came to it %d seconds late, which is more than catch_up_seconds",
			int(late.Seconds()))
		return out, nil
	}
	if row.OverlapPolicy == Skip {
		overlaps, err := s.q.ScheduleOverlaps(ctx, tx, &row.ID)
		if err != nil {
			return nil, fmt.Errorf("look for batches of schedule %s: %w", row.ID, err)
		}
		if overlaps {
			last.reason = reasonOverlap
			return out, nil
		}
	}
	if reason != "" {
		last.status, last.reason = failed, reason
		return out, nil
	}
	started, err := s.start(ctx, tx, row, row.CreatedBy)
	if err != nil {
		return nil, err
	}
	*last = fire{slot: last.slot, status: fired, batch: started.BatchID}
	return out, nil
}

// missed returns slots that are skipped for a reason.
func missed(slots []time.Time, reason string) []fire {
	out := make([]fire, len(slots))
	for i, slot := range slots {
		out[i] = fire{slot: slot, status: skipped, reason: reason}
	}
	return out
}

// skipUndecided lists the slots that have come and nobody has decided as missed: from now on the schedule names others,
// or none.
func (s *Service) skipUndecided(ctx context.Context, tx pgx.Tx, row *db.FlowSchedule, now time.Time) error {
	cron, err := ParseIn(row.CronExpression, row.Timezone)
	if err != nil {
		return fmt.Errorf("the expression of schedule %s: %w", row.ID, err)
	}
	for after, more := row.DecidedUpto, true; more; {
		var slots []time.Time
		slots, more = cron.Between(after, now, slotsAtOnce)
		if len(slots) == 0 {
			return nil
		}
		if err := s.write(ctx, tx, row, missed(slots, reasonChanged), false, now); err != nil {
			return err
		}
		after = slots[len(slots)-1]
	}
	return nil
}

// start starts a batch of the schedule.
func (s *Service) start(ctx context.Context, tx pgx.Tx, row *db.FlowSchedule, by uuid.UUID) (*run.StartedBatch, error) {
	active, err := s.definitions.Active(ctx, tx, row.OrgID, row.DefinitionID)
	if err != nil {
		return nil, err
	}
	record := row.InputData
	if record == nil {
		record = json.RawMessage("{}")
	}
	source := row.ID.String()
	return s.runs.Start(ctx, tx, run.StartInput{
		OrgID: row.OrgID, DefinitionID: row.DefinitionID, Version: active.Version,
		Source: run.Source{Records: [][]byte{record}}, Metadata: row.Metadata,
		TriggerType: run.TriggerSchedule, TriggerSource: &source, ScheduleID: &row.ID, CreatedBy: &by,
	})
}

// write lists fires, and notes the last of them that was not skipped.
func (s *Service) write(ctx context.Context, tx pgx.Tx, row *db.FlowSchedule, fires []fire, manual bool,
	now time.Time) error {
	in := db.FireAddParams{OrgID: row.OrgID, ScheduleID: row.ID, Manual: manual, Now: now}
	for i := range fires {
		f := &fires[i]
		id := cell.NewID()
		in.Ids, in.Slots, in.Statuses = append(in.Ids, id), append(in.Slots, f.slot), append(in.Statuses, f.status)
		in.Reasons, in.BatchIds = append(in.Reasons, f.reason), append(in.BatchIds, f.batch)
	}
	if err := s.q.FireAdd(ctx, tx, in); err != nil {
		return fmt.Errorf("list fires of schedule %s: %w", row.ID, err)
	}
	last := &fires[len(fires)-1]
	if last.status == skipped {
		return nil
	}
	note := db.ScheduleFiredParams{ID: row.ID, FiredAt: &now}
	if last.batch != uuid.Nil {
		note.BatchID = &last.batch
	}
	if err := s.q.ScheduleFired(ctx, tx, note); err != nil {
		return fmt.Errorf("note the fire of schedule %s: %w", row.ID, err)
	}
	return nil
}

// Run starts a batch of a schedule now, because somebody asks for it, in the caller's transaction. Faults: NotFound;
// Invalid where the definition is not active; those of run.Start.
func (s *Service) Run(ctx context.Context, tx pgx.Tx, orgID, id, by uuid.UUID) (*run.StartedBatch, error) {
	row, err := s.q.ScheduleLock(ctx, tx, db.ScheduleLockParams{OrgID: orgID, ID: id})
	if err != nil {
		return nil, stored(err, "lock schedule")
	}
	started, err := s.start(ctx, tx, &row, by)
	if err != nil {
		return nil, err
	}
	now, err := s.q.Clock(ctx, tx)
	if err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	return started, s.write(ctx, tx, &row, []fire{{slot: now, status: fired, batch: started.BatchID}}, true, now)
}

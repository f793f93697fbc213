package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/jsonraw"
	"flowlane/internal/pg"
	"flowlane/internal/run"
	"flowlane/internal/trigger/schedule"
)

// scheduleHandler serves /flows/schedules.
type scheduleHandler struct {
	pool      pg.Pool
	schedules *schedule.Service
}

func (h scheduleHandler) ListSchedules(ctx context.Context, params oas.ListSchedulesParams) (*oas.ScheduleList, error) {
	caller := account.FromContext(ctx)
	when := created{params.Order, params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("schedules", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.DefinitionID, "\x00",
		when)
	if err != nil {
		return nil, err
	}
	whole, at, err := p.of(when)
	if err != nil {
		return nil, err
	}
	of, known := filterID(params.DefinitionID)
	if !known {
		list := oas.ScheduleList(nothing[oas.Schedule](p))
		return &list, nil
	}
	f := schedule.Filter{DefinitionID: of, Created: whole}
	total, err := h.schedules.Count(ctx, caller.OrgID, f)
	if err != nil {
		return nil, err
	}
	size := func(s *schedule.Schedule) int { return len(s.InputData) + len(s.Metadata) }
	rows, err := gather(&p, size, func(last **schedule.Schedule, skip, n int32) ([]*schedule.Schedule, error) {
		if last != nil {
			at = at.Behind((*last).ID)
		}
		at.Skip, at.MaxRows = skip, n
		return h.schedules.List(ctx, caller.OrgID, f, at)
	})
	if err != nil {
		return nil, err
	}
	key := func(s *schedule.Schedule) string { return s.ID.String() }
	list := oas.ScheduleList(listOf(p, rows, total, key, scheduleOf))
	return &list, nil
}

func (h scheduleHandler) CreateSchedule(ctx context.Context, req *oas.ScheduleInput,
	_ oas.CreateScheduleParams) (*oas.Schedule, error) {
	caller := account.FromContext(ctx)
	in := scheduleInput{bodyID(req.DefinitionID), req.Description, req.CronExpression, req.Timezone, req.Enabled,
		req.InputData, req.Metadata, req.CatchUpSeconds, req.OverlapPolicy}
	out, err := answerSchedule(h.schedules.Create(ctx, caller.OrgID, caller.AccountID, in.all(),
		keepCreated(answerSchedule)))
	if err != nil {
		return nil, notMade(ctx, err, "Schedule create failed, record cleaned up")
	}
	return out, nil
}

func (h scheduleHandler) GetSchedule(ctx context.Context, params oas.GetScheduleParams) (*oas.Schedule, error) {
	id, err := pathID("Schedule", params.ScheduleID)
	if err != nil {
		return nil, err
	}
	return answerSchedule(h.schedules.Get(ctx, account.FromContext(ctx).OrgID, id))
}

func (h scheduleHandler) ReplaceSchedule(ctx context.Context, req *oas.ScheduleReplace,
	params oas.ReplaceScheduleParams) (*oas.Schedule, error) {
	id, err := pathID("Schedule", params.ScheduleID)
	if err != nil {
		return nil, err
	}
	in := scheduleInput{bodyID(req.DefinitionID), req.Description, req.CronExpression, req.Timezone, req.Enabled,
		req.InputData, req.Metadata, req.CatchUpSeconds, req.OverlapPolicy}
	return answerSchedule(h.schedules.Update(ctx, account.FromContext(ctx).OrgID, id,
		func(schedule.Input) schedule.Input { return in.all() }))
}

func (h scheduleHandler) UpdateSchedule(ctx context.Context, req *oas.ScheduleUpdate,
	params oas.UpdateScheduleParams) (*oas.Schedule, error) {
	id, err := pathID("Schedule", params.ScheduleID)
	if err != nil {
		return nil, err
	}
	return answerSchedule(h.schedules.Update(ctx, account.FromContext(ctx).OrgID, id,
		func(in schedule.Input) schedule.Input {
			if req.DefinitionID.Set {
				in.DefinitionID = bodyID(req.DefinitionID.Value)
			}
			in.Description, in.Cron, in.Enabled = req.Description.Or(in.Description), req.CronExpression.Or(in.Cron),
				req.Enabled.Or(in.Enabled)
			in.Timezone = req.Timezone.Or(in.Timezone)
			if req.InputData.Set {
				in.InputData = dataOf(req.InputData)
			}
			if req.Metadata.Set {
				in.Metadata = jsonraw.Object(req.Metadata.Value).Bytes()
			}
			in.CatchUpSeconds = int32(req.CatchUpSeconds.Or(int(in.CatchUpSeconds)))
			in.OverlapPolicy = string(req.OverlapPolicy.Or(oas.ScheduleUpdateOverlapPolicy(in.OverlapPolicy)))
			return in
		}))
}

func (h scheduleHandler) DeleteSchedule(ctx context.Context, params oas.DeleteScheduleParams) error {
	id, err := pathID("Schedule", params.ScheduleID)
	if err != nil {
		return err
	}
	return h.schedules.Delete(ctx, account.FromContext(ctx).OrgID, id)
}

func (h scheduleHandler) ListScheduleFires(ctx context.Context,
	params oas.ListScheduleFiresParams) (*oas.FireList, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Schedule", params.ScheduleID)
	if err != nil {
		return nil, err
	}
	when := created{params.Order, params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("schedule-fires", caller.OrgID, params.Limit, params.Skip, params.Cursor, id, params.Status.Value,
		"\x00", when)
	if err != nil {
		return nil, err
	}
	whole, at, err := p.of(when)
	if err != nil {
		return nil, err
	}
	f := schedule.FireFilter{Status: optional(params.Status.Value, params.Status.Set), Created: whole}
	rows, total, err := h.schedules.Fires(ctx, caller.OrgID, id, f, at)
	if err != nil {
		return nil, err
	}
	key := func(f db.FlowScheduleFire) string { return f.ID.String() }
	list := oas.FireList(listOf(p, rows, total, key, fireOf))
	return &list, nil
}

func (h scheduleHandler) RunSchedule(ctx context.Context, params oas.RunScheduleParams) (*oas.TriggerResult, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Schedule", params.ScheduleID)
	if err != nil {
		return nil, err
	}
	if err := refuseBody(ctx); err != nil {
		return nil, err
	}
	var started *run.StartedBatch
	err = pg.InTx(ctx, h.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		if started, err = h.schedules.Run(ctx, tx, caller.OrgID, id, caller.AccountID); err != nil {
			return err
		}
		return keep(ctx, tx, http.StatusOK, triggerResultOf(started, nil))
	})
	if err != nil {
		return nil, startFailed(ctx, err)
	}
	return triggerResultOf(started, nil), nil
}

// scheduleInput is what a body says of a whole schedule.
type scheduleInput struct {
	definition  uuid.UUID
	description string
	cron        string
	timezone    oas.OptString
	enabled     oas.OptBool
	data        oas.OptNilFreeObject
	metadata    oas.OptFreeObject
	catchUp     oas.OptInt
	overlap     oas.OptOverlapPolicy
}

func (in *scheduleInput) all() schedule.Input {
	return schedule.Input{
		DefinitionID: in.definition, Description: in.description, Cron: in.cron, Timezone: in.timezone.Or(schedule.UTC),
		Enabled: in.enabled.Or(true), InputData: dataOf(in.data),
		Metadata: jsonraw.Object(in.metadata.Value).Bytes(), CatchUpSeconds: int32(in.catchUp.Or(3600)),
		OverlapPolicy: string(in.overlap.Or(oas.OverlapPolicyAllow)),
	}
}

// dataOf is the one record of a start; nil for none.
func dataOf(data oas.OptNilFreeObject) json.RawMessage {
	if value, ok := data.Get(); ok {
		return jsonraw.Object(value).Bytes()
	}
	return nil
}

// upcoming is how many slots a single schedule shows.
const upcoming = 5

func answerSchedule(s *schedule.Schedule, err error) (*oas.Schedule, error) {
	if err != nil {
		return nil, err
	}
	out := scheduleOf(s)
	out.NextFires = nextFiresOf(s.Cron.Upcoming(s.Now, upcoming))
	return &out, nil
}

func nextFiresOf(slots []schedule.Slot) []oas.NextFire {
	var out []oas.NextFire
	for _, slot := range slots {
		next := oas.NextFire{At: slot.At.UTC(), Local: slot.At.Format(time.RFC3339)}
		if slot.Note != "" {
			next.Note = oas.NewOptString(slot.Note)
		}
		out = append(out, next)
	}
	return out
}

// neverFires is said of an expression that names no time to come.
const neverFires = "cron_expression: it never fires, because no day to come has this date"

func (h scheduleHandler) PreviewSchedule(ctx context.Context,
	req *oas.SchedulePreviewRequest) (*oas.SchedulePreview, error) {
	slots, err := h.schedules.Preview(ctx, req.CronExpression, req.Timezone.Or(schedule.UTC), req.Count.Or(0))
	if err != nil {
		return nil, err
	}
	out := &oas.SchedulePreview{NextFires: append([]oas.NextFire{}, nextFiresOf(slots)...), Warnings: []string{}}
	if len(slots) == 0 {
		out.Warnings = append(out.Warnings, neverFires)
	}
	return out, nil
}

func scheduleOf(s *schedule.Schedule) oas.Schedule {
	out := oas.Schedule{
		ID: s.ID.String(), OrgID: s.OrgID.String(), DefinitionID: s.DefinitionID.String(), Description: s.Description,
		CronExpression: s.CronExpression,
		Timezone:       s.Timezone, Warnings: []string{},
		Enabled: s.Enabled, InputData: oas.NilFreeObject{Null: true}, Metadata: oas.FreeObject(s.Metadata),
		CatchUpSeconds: int(s.CatchUpSeconds),
		OverlapPolicy:  oas.OverlapPolicy(s.OverlapPolicy), NextFireAt: oas.NilDateTime{Null: true},
		LastFiredAt:    nilTime(s.LastFiredAt),
		LastFireStatus: lastFireOf(s), CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
	}
	if s.InputData != nil {
		out.InputData = oas.NewNilFreeObject(oas.FreeObject(s.InputData))
	}
	if !s.Next.IsZero() {
		out.NextFireAt = oas.NewNilDateTime(s.Next)
	} else {
		out.Warnings = append(out.Warnings, neverFires)
	}
	return out
}

func lastFireOf(s *schedule.Schedule) oas.NilScheduleLastFireStatus {
	switch {
	case s.LastFiredAt == nil, s.LastStatus == nil && s.LastBatchID != nil: // it is deleted by now
		return oas.NilScheduleLastFireStatus{Null: true}
	case s.LastStatus == nil:
		return oas.NewNilScheduleLastFireStatus(oas.ScheduleLastFireStatusFailure)
	}
	switch *s.LastStatus {
	case batch.BatchQueued, batch.BatchRunning, batch.BatchPaused:
		return oas.NewNilScheduleLastFireStatus(oas.ScheduleLastFireStatusRunning)
	case batch.BatchCompleted:
		return oas.NewNilScheduleLastFireStatus(oas.ScheduleLastFireStatusSuccess)
	}
	return oas.NewNilScheduleLastFireStatus(oas.ScheduleLastFireStatusFailure)
}

func fireOf(f db.FlowScheduleFire) oas.Fire {
	return oas.Fire{ID: f.ID.String(), ScheduleID: f.ScheduleID.String(), SlotAt: f.SlotAt.UTC(), Manual: f.Manual,
		Status: oas.FireStatus(f.Status),
		Reason: nilString(f.Reason), BatchID: nilID(f.BatchID), CreatedAt: f.CreatedAt.UTC()}
}

var _ oas.ScheduleHandler = scheduleHandler{}

package api

import (
	"context"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// triggersHandler serves /flows/triggers. A start and its batch are one row; a refused start has one of its own.
type triggersHandler struct {
	pool  pg.Pool
	reads pg.DB
}

func (h triggersHandler) ListTriggers(ctx context.Context, params oas.ListTriggersParams) (*oas.TriggerList, error) {
	caller := account.FromContext(ctx)
	when := created{params.Order, params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("triggers", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.DefinitionID, "\x00",
		params.TriggerType.Value, "\x00", when)
	if err != nil {
		return nil, err
	}
	whole, at, err := p.of(when)
	if err != nil {
		return nil, err
	}
	definition, known := filterID(params.DefinitionID)
	if !known {
		list := oas.TriggerList(nothing[oas.Trigger](p))
		return &list, nil
	}
	in := db.TriggerListParams{OrgID: caller.OrgID, Least: at.Least, Most: at.Most, DefinitionID: definition,
		CreatedAfter: at.CreatedAfter, CreatedBefore: at.CreatedBefore, SkipRows: at.Skip, MaxRows: at.MaxRows}
	if kind, ok := params.TriggerType.Get(); ok {
		value := string(kind)
		in.TriggerType = &value
	}
	rows, err := h.rows(ctx, in, at.Newest)
	if err != nil {
		return nil, err
	}
	in.Least, in.Most = whole.Least, whole.Most
	total, err := h.total(ctx, in)
	if err != nil {
		return nil, err
	}
	key := func(r db.TriggerListRow) string { return r.ID.String() }
	list := oas.TriggerList(listOf(p, rows, total, key, func(r db.TriggerListRow) oas.Trigger { return triggerOf(&r) }))
	return &list, nil
}

func (h triggersHandler) rows(ctx context.Context, in db.TriggerListParams, newest bool) ([]db.TriggerListRow, error) {
	q, conn := db.New(), pg.CustomPlan{Pool: h.reads}
	if !newest {
		return q.TriggerList(ctx, conn, in)
	}
	rows, err := q.TriggerListNewest(ctx, conn, db.TriggerListNewestParams(in))
	out := make([]db.TriggerListRow, len(rows))
	for i, row := range rows {
		out[i] = db.TriggerListRow(row)
	}
	return out, err
}

// total is how many starts of the range match, those that were refused included.
func (h triggersHandler) total(ctx context.Context, in db.TriggerListParams) (int64, error) {
	q, conn := db.New(), pg.CustomPlan{Pool: h.reads}
	started, err := q.BatchTotal(ctx, conn, db.BatchTotalParams{OrgID: in.OrgID, Least: in.Least, Most: in.Most,
		CreatedAfter: in.CreatedAfter, CreatedBefore: in.CreatedBefore, DefinitionID: in.DefinitionID,
		TriggerType: in.TriggerType})
	if err != nil {
		return 0, err
	}
	refused, err := q.RefusedStartTotal(ctx, conn, db.RefusedStartTotalParams{OrgID: in.OrgID, Least: in.Least,
		Most:         in.Most,
		CreatedAfter: in.CreatedAfter, CreatedBefore: in.CreatedBefore, DefinitionID: in.DefinitionID,
		TriggerType: in.TriggerType})
	return started + refused, err
}

func (h triggersHandler) GetTrigger(ctx context.Context, params oas.GetTriggerParams) (*oas.Trigger, error) {
	id, err := pathID("Trigger", params.TriggerID)
	if err != nil {
		return nil, err
	}
	row, err := db.New().TriggerRead(ctx, h.pool, db.TriggerReadParams{ID: id, OrgID: account.FromContext(ctx).OrgID})
	if pg.IsNoRows(err) {
		return nil, fault.Missing("Trigger")
	}
	if err != nil {
		return nil, err
	}
	return new(triggerOf(new(db.TriggerListRow(row)))), nil
}

// triggerOf is a start: one with a batch, whose id it has, or, where Status is empty, one that was refused for Reason.
func triggerOf(r *db.TriggerListRow) oas.Trigger {
	out := oas.Trigger{
		ID: r.ID.String(), DefinitionID: r.DefinitionID.String(), DefinitionVersion: int(r.Version),
		TriggerType:   oas.TriggerType(r.TriggerType),
		TriggerSource: nilString(r.TriggerSource), RecordCount: int(r.RecordCount), CreatedBy: nilID(r.CreatedBy),
		CreatedAt: r.CreatedAt.UTC(),
	}
	if r.Status == "" {
		out.BatchID.SetToNull()
		out.BatchStatus.SetToNull()
		out.Error.SetTo(r.Reason)
		return out
	}
	out.BatchID.SetTo(r.ID.String())
	out.BatchStatus.SetTo(oas.BatchStatus(r.Status))
	out.Error.SetToNull()
	return out
}

var _ oas.TriggerHandler = triggersHandler{}

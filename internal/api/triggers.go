package api

import (
	"context"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/run"
)

// triggersHandler serves /flows/triggers. A start and its batch are one row; a refused start has one of its own.
type triggersHandler struct{ runs *run.Service }

func (h triggersHandler) ListTriggers(ctx context.Context, params oas.ListTriggersParams) (*oas.TriggerList, error) {
	caller := account.FromContext(ctx)
	p, err := pageOf("triggers", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.DefinitionID, "\x00", params.TriggerType.Value)
	if err != nil {
		return nil, err
	}
	after, err := p.afterID()
	if err != nil {
		return nil, err
	}
	definition, known := filterID(params.DefinitionID)
	if !known {
		list := oas.TriggerList(nothing[oas.Trigger](p))
		return &list, nil
	}
	f := run.BatchFilter{DefinitionID: definition, After: after, Skip: p.Skip(), MaxRows: p.Fetch()}
	if kind, ok := params.TriggerType.Get(); ok {
		value := db.FlowTriggerType(kind)
		f.TriggerType = &value
	}
	total, err := h.runs.CountTriggers(ctx, caller.OrgID, f)
	if err != nil {
		return nil, err
	}
	rows, err := h.runs.Triggers(ctx, caller.OrgID, f)
	if err != nil {
		return nil, err
	}
	key := func(r run.TriggerRow) string { return r.ID.String() }
	list := oas.TriggerList(listOf(p, rows, total, key, func(r run.TriggerRow) oas.Trigger { return triggerOf(&r) }))
	return &list, nil
}

func (h triggersHandler) GetTrigger(ctx context.Context, params oas.GetTriggerParams) (*oas.Trigger, error) {
	id, err := pathID("Trigger", params.TriggerID)
	if err != nil {
		return nil, err
	}
	row, err := h.runs.ReadTrigger(ctx, account.FromContext(ctx).OrgID, id)
	if err != nil {
		return nil, err
	}
	out := triggerOf(row)
	return &out, nil
}

func triggerOf(r *run.TriggerRow) oas.Trigger {
	out := oas.Trigger{
		ID: r.ID.String(), DefinitionID: r.DefinitionID.String(), DefinitionVersion: int(r.Version), TriggerType: oas.TriggerType(r.TriggerType),
		TriggerSource: nilString(r.TriggerSource), RecordCount: int(r.RecordCount), CreatedBy: nilID(r.CreatedBy), CreatedAt: r.CreatedAt.UTC(),
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

package api

import (
	"context"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/run"
)

// triggersHandler serves /flows/triggers. A start and its batch are one row.
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
	f := run.BatchFilter{DefinitionID: definition, After: after}
	if kind, ok := params.TriggerType.Get(); ok {
		value := db.FlowTriggerType(kind)
		f.TriggerType = &value
	}
	list, err := batches(ctx, h.runs, caller.OrgID, p, f, triggerOf)
	out := oas.TriggerList(list)
	return &out, err
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

func triggerOf(r *run.BatchRow) oas.Trigger {
	b := &r.FlowBatch
	return oas.Trigger{
		ID: b.TriggerID.String(), DefinitionID: b.DefinitionID.String(), DefinitionVersion: int(b.Version), TriggerType: oas.TriggerType(b.TriggerType),
		TriggerSource: nilString(b.TriggerSource), BatchID: b.ID.String(), BatchStatus: oas.BatchStatus(b.Status), RecordCount: int(b.RecordCount),
		CreatedBy: nilID(b.CreatedBy), CreatedAt: b.CreatedAt.UTC(),
	}
}

var _ oas.TriggerHandler = triggersHandler{}

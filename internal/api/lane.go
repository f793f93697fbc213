package api

import (
	"context"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
)

func (h dispatchHandler) GetLanes(ctx context.Context, params oas.GetLanesParams) (*oas.DomainLanes, error) {
	rows, err := h.tuner.Lanes(ctx, account.FromContext(ctx).OrgID, params.TenancyID)
	if err != nil {
		return nil, err
	}
	out := oas.DomainLanes{TenancyID: params.TenancyID, Lanes: oas.DomainLanesLanes{}}
	for i := range rows {
		out.Lanes[string(rows[i].Lane)] = domainLaneOf(&rows[i])
	}
	return &out, nil
}

func (h dispatchHandler) SetLane(ctx context.Context, req *oas.DomainLaneInput,
	params oas.SetLaneParams) (*oas.DomainLane, error) {
	most, _ := req.MaxConcurrentCalls.Get()
	l, err := h.tuner.SetLane(ctx, account.FromContext(ctx).OrgID, params.TenancyID, params.Lane, req.Weight, most)
	if err != nil {
		return nil, err
	}
	out := domainLaneOf(l)
	return &out, nil
}

func domainLaneOf(l *db.FlowDomainLane) oas.DomainLane {
	out := oas.DomainLane{Lane: oas.Lane(l.Lane), Weight: int(l.Weight),
		MaxConcurrentCalls: oas.NilInt{Null: l.MaxConcurrentCalls == nil},
		UpdatedAt:          oas.NilDateTime{Value: l.UpdatedAt.UTC(), Null: l.UpdatedAt.IsZero()}}
	if most := l.MaxConcurrentCalls; most != nil {
		out.MaxConcurrentCalls.Value = int(*most)
	}
	return out
}

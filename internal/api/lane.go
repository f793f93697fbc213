package api

import (
	"context"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/dispatch"
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

func (h dispatchHandler) SetLane(ctx context.Context, req *oas.DomainLaneInput, params oas.SetLaneParams) (*oas.DomainLane, error) {
	most, _ := req.MaxConcurrentCalls.Get()
	l, err := h.tuner.SetLane(ctx, account.FromContext(ctx).OrgID, params.TenancyID, params.Lane, req.Weight, most)
	if err != nil {
		return nil, err
	}
	out := domainLaneOf(l)
	return &out, nil
}

func domainLaneOf(l *dispatch.Lane) oas.DomainLane {
	return oas.DomainLane{
		Lane: oas.Lane(l.Lane), Weight: l.Weight, MaxConcurrentCalls: oas.NilInt{Value: l.MaxCalls, Null: l.MaxCalls == 0}, UpdatedAt: nilTime(l.UpdatedAt),
	}
}

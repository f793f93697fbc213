package api

import (
	"context"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/dispatch"
)

// Tuner sets how accounts are used.
type Tuner interface {
	Margins(ctx context.Context, orgID uuid.UUID, tenancyID string) ([]dispatch.Margin, error)
	SetMargin(ctx context.Context, orgID uuid.UUID, tenancyID, bucket string, percent int) (*dispatch.Margin, error)
	Lanes(ctx context.Context, orgID uuid.UUID, tenancyID string) ([]db.FlowDomainLane, error)
	SetLane(ctx context.Context, orgID uuid.UUID, tenancyID, name string, weight,
		maxCalls int) (*db.FlowDomainLane, error)
}

func (h dispatchHandler) GetMargins(ctx context.Context, params oas.GetMarginsParams) (*oas.Margins, error) {
	rows, err := h.tuner.Margins(ctx, account.FromContext(ctx).OrgID, params.TenancyID)
	if err != nil {
		return nil, err
	}
	out := oas.Margins{TenancyID: params.TenancyID, Buckets: oas.MarginsBuckets{}}
	for i := range rows {
		out.Buckets[rows[i].Bucket] = marginOf(&rows[i])
	}
	return &out, nil
}

func (h dispatchHandler) SetMargin(ctx context.Context, req *oas.MarginInput,
	params oas.SetMarginParams) (*oas.Margin, error) {
	m, err := h.tuner.SetMargin(ctx, account.FromContext(ctx).OrgID, params.TenancyID, params.Bucket, req.MarginPercent)
	if err != nil {
		return nil, err
	}
	out := marginOf(m)
	return &out, nil
}

func marginOf(m *dispatch.Margin) oas.Margin {
	return oas.Margin{Bucket: m.Bucket, MarginPercent: m.Percent, BindingPercent: m.Binding,
		UpdatedAt: nilTime(m.UpdatedAt)}
}

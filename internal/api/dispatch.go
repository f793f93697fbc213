package api

import (
	"context"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/forecast"
)

// Refresher asks a provider for the limits and counters of an account again.
type Refresher interface {
	Refresh(ctx context.Context, orgID uuid.UUID, tenancyID string) (int, error)
}

// dispatchHandler serves /platforms/{platform}/domains. That a Domain is one of the platform is seen to by onPlatform.
type dispatchHandler struct {
	forecasts *forecast.Service
	refresher Refresher
	tuner     Tuner
}

func (h dispatchHandler) ListDomains(ctx context.Context, params oas.ListDomainsParams) (*oas.DomainList, error) {
	caller := account.FromContext(ctx)
	p, err := pageOf("domains", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Platform)
	if err != nil {
		return nil, err
	}
	var after forecast.Place
	if p.Key != "" {
		if after.CreatedAt, after.ID, err = timeAndID(p.Key); err != nil {
			return nil, err
		}
	}
	rows, total, err := h.forecasts.Domains(ctx, caller.OrgID, params.Platform, after, p.Skip(), p.Fetch())
	if err != nil {
		return nil, err
	}
	key := func(d forecast.Domain) string { return timedKey(d.CreatedAt, d.TenancyID) }
	list := oas.DomainList(listOf(p, rows, total, key, domainOf))
	return &list, nil
}

func (h dispatchHandler) GetDomain(ctx context.Context, params oas.GetDomainParams) (*oas.Domain, error) {
	d, err := h.forecasts.Domain(ctx, account.FromContext(ctx).OrgID, params.TenancyID)
	if err != nil {
		return nil, err
	}
	out := domainOf(d)
	return &out, nil
}

func (h dispatchHandler) GetHeadroom(ctx context.Context, params oas.GetHeadroomParams) (*oas.Headroom, error) {
	return answerHeadroom(h.forecasts.Headroom(ctx, account.FromContext(ctx).OrgID, params.TenancyID))
}

func (h dispatchHandler) GetQueue(ctx context.Context, params oas.GetQueueParams) (*oas.Queue, error) {
	q, err := h.forecasts.Queue(ctx, account.FromContext(ctx).OrgID, params.TenancyID)
	if err != nil {
		return nil, err
	}
	out := queueOf(q)
	return &out, nil
}

func (h dispatchHandler) GetAttribution(ctx context.Context,
	params oas.GetAttributionParams) (*oas.Attribution, error) {
	a, err := h.forecasts.Attribution(ctx, account.FromContext(ctx).OrgID, params.TenancyID)
	if err != nil {
		return nil, err
	}
	out := attributionOf(a)
	return &out, nil
}

func (h dispatchHandler) ListUsageHistory(ctx context.Context,
	params oas.ListUsageHistoryParams) (*oas.UsageHistoryList, error) {
	caller := account.FromContext(ctx)
	f := forecast.HistoryFilter{Bucket: optional(params.Bucket.Value, params.Bucket.Set)}
	if seconds, ok := params.Window.Get(); ok {
		length := int(seconds)
		f.Window = &length
	}
	p, err := pageOf("usage history", caller.OrgID, params.Limit, oas.OptInt{}, params.Cursor, params.TenancyID,
		params.Bucket, params.Window)
	if err != nil {
		return nil, err
	}
	var before forecast.HistoryPlace
	if p.Key != "" {
		if before, err = historyPlace(p.Key); err != nil {
			return nil, err
		}
	}
	rows, err := h.forecasts.History(ctx, caller.OrgID, params.TenancyID, f, before, p.Fetch())
	if err != nil {
		return nil, err
	}
	list := listOf(p, rows, 0, historyKey, spentOf)
	return &oas.UsageHistoryList{Items: list.Items, Limit: list.Limit, Skip: list.Skip, NextCursor: list.NextCursor},
		nil
}

// historyKey is the key of a row of the history in a cursor.
func historyKey(s forecast.Spent) string {
	return timedKey(s.WindowStart, strconv.Itoa(s.Seconds)+" "+s.Bucket)
}

func historyPlace(key string) (p forecast.HistoryPlace, err error) {
	rest := ""
	if p.WindowStart, rest, err = timeAndID(key); err != nil {
		return p, err
	}
	seconds, bucket, _ := strings.Cut(rest, " ")
	if p.Seconds, err = strconv.Atoi(seconds); err != nil {
		return p, errCursor
	}
	p.Bucket = bucket
	return p, nil
}

func (h dispatchHandler) RefreshLimits(ctx context.Context, params oas.RefreshLimitsParams) (*oas.Headroom, error) {
	org := account.FromContext(ctx).OrgID
	if _, err := h.refresher.Refresh(ctx, org, params.TenancyID); err != nil {
		return nil, err
	}
	return answerHeadroom(h.forecasts.Headroom(ctx, org, params.TenancyID))
}

func (h dispatchHandler) EstimateUpload(ctx context.Context, req *oas.EstimateRequest,
	params oas.EstimateUploadParams) (*oas.Estimate, error) {
	q := forecast.Question{
		Bucket: optional(req.Bucket.Value, req.Bucket.Set), ActionID: optional(req.ActionID.Value, req.ActionID.Set),
		RecordSetID: optional(req.RecordSetID.Value, req.RecordSetID.Set),
	}
	if n, ok := req.RecordCount.Get(); ok {
		count := int64(n)
		q.RecordCount = &count
	}
	e, err := h.forecasts.Estimate(ctx, account.FromContext(ctx).OrgID, params.TenancyID, q)
	if err != nil {
		return nil, err
	}
	out := estimateOf(e)
	return &out, nil
}

func answerHeadroom(h *forecast.Headroom, err error) (*oas.Headroom, error) {
	if err != nil {
		return nil, err
	}
	out := headroomOf(h)
	return &out, nil
}

var _ oas.DispatchHandler = dispatchHandler{}

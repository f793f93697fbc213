package api

import (
	"context"
	"time"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/usage"
)

// usageHandler serves /flows/usage and /flows/dashboard.
type usageHandler struct{ usage *usage.Service }

func (h usageHandler) GetUsage(ctx context.Context, params oas.GetUsageParams) (*oas.Usage, error) {
	groupBy := params.GroupBy.Or(oas.GetUsageGroupByDay)
	r := usage.Request{GroupBy: string(groupBy)}
	if from, ok := params.From.Get(); ok {
		r.From = &from
	}
	if to, ok := params.To.Get(); ok {
		r.To = &to
	}
	u, err := h.usage.Usage(ctx, account.FromContext(ctx).OrgID, r)
	if err != nil {
		return nil, err
	}
	t := u.Totals
	out := &oas.Usage{
		From: u.From, To: u.To, GroupBy: oas.UsageGroupBy(groupBy), Omitted: u.Omitted, Items: make([]oas.UsageItem,
			len(u.Items)),
		Totals: oas.UsageFigures{Batches: int(t.Batches), Jobs: int(t.Jobs), Calls: int(t.Calls),
			Records: int(t.Records)},
	}
	for i := range u.Items {
		item := &u.Items[i]
		out.Items[i] = oas.UsageItem{
			Key: nilText(item.Key), Name: nilText(item.Name),
			Batches: int(item.Batches), Jobs: int(item.Jobs), Calls: int(item.Calls), Records: int(item.Records),
		}
	}
	return out, nil
}

func (h usageHandler) GetDashboard(ctx context.Context, params oas.GetDashboardParams) (*oas.Dashboard, error) {
	period := params.Period.Or(oas.GetDashboardPeriod24h)
	d, err := h.usage.Dashboard(ctx, account.FromContext(ctx).OrgID, usage.Periods[string(period)])
	if err != nil {
		return nil, err
	}
	out := &oas.Dashboard{
		Period: oas.DashboardPeriod(period), From: d.From, To: d.To, IntervalSeconds: int(d.Interval / time.Second),
		BatchCounts: batchCountsOf(d), JobCounts: jobCountsOf(d.Jobs), SuccessRate: rateOf(usage.Succeeded(&d.Jobs),
			usage.Failed(&d.Jobs)),
		Series:             make([]oas.DashboardPoint, len(d.Points)),
		SlowestDefinitions: dashboardDefinitionsOf(d.Slowest), FailingDefinitions: dashboardDefinitionsOf(d.Failing),
		ActiveHolds: make([]oas.ActiveHold, len(d.Holds)), ActiveHoldCount: int(d.HoldCount),
	}
	for i, p := range d.Points {
		out.Series[i] = oas.DashboardPoint{
			StartsAt: p.StartsAt, Batches: int(p.Batches), Jobs: int(p.Jobs), Succeeded: int(p.Succeeded),
			Failed: int(p.Failed),
		}
	}
	for i := range d.Holds {
		hold := &d.Holds[i]
		out.ActiveHolds[i] = oas.ActiveHold{
			ID: hold.ID.String(), Scope: oas.HoldScope(hold.Scope), TenancyID: nilString(hold.Domain),
			Bucket: nilString(hold.Bucket),
			Lane:   nilLane(hold.Lane), BatchID: nilID(hold.BatchID), Cause: hold.Cause, Reason: nilString(hold.Reason),
			CreatedAt: hold.CreatedAt.UTC(), ExpiresAt: nilTime(hold.ExpiresAt),
		}
	}
	return out, nil
}

func batchCountsOf(d *usage.Dashboard) oas.BatchCounts {
	n := func(s oas.BatchStatus) int { return int(d.Batches[usage.BatchStatus(s)]) }
	return oas.BatchCounts{
		Queued: n(oas.BatchStatusQueued), Running: n(oas.BatchStatusRunning), Paused: n(oas.BatchStatusPaused),
		Completed:       n(oas.BatchStatusCompleted),
		PartiallyFailed: n(oas.BatchStatusPartiallyFailed), Failed: n(oas.BatchStatusFailed),
		Cancelled: n(oas.BatchStatusCancelled),
	}
}

func rateOf(succeeded, failed int64) oas.NilFloat64 {
	rate := usage.SuccessRate(succeeded, failed)
	if rate == nil {
		return oas.NilFloat64{Null: true}
	}
	return oas.NewNilFloat64(*rate)
}

func dashboardDefinitionsOf(list []usage.Definition) []oas.DashboardDefinition {
	out := make([]oas.DashboardDefinition, len(list))
	for i := range list {
		d := &list[i]
		out[i] = oas.DashboardDefinition{
			DefinitionID: d.ID.String(), Name: nilText(d.Name), Batches: int(d.Batches), Jobs: int(d.Jobs),
			Failed:      int(d.Failed),
			SuccessRate: rateOf(d.Succeeded, d.Failed), AverageSeconds: d.AverageTime.Seconds(),
			MaxSeconds: d.LongestRun.Seconds(),
		}
	}
	return out
}

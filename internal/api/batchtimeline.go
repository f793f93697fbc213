package api

import (
	"context"

	"flowlane/gen/oas"
	"flowlane/internal/account"
)

// GetBatchTimeline says what the calls of a batch carried over time, and when it was paused.
func (h batchHandler) GetBatchTimeline(ctx context.Context,
	params oas.GetBatchTimelineParams) (*oas.BatchTimeline, error) {
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	orgID := account.FromContext(ctx).OrgID
	batch, err := h.runs.ReadBatch(ctx, orgID, id)
	if err != nil {
		return nil, err
	}
	found, err := h.calls.Timeline(ctx, orgID, id)
	if err != nil {
		return nil, err
	}
	holds, err := h.pauses.OfBatch(ctx, orgID, id, batch.FlowBatch.CreatedAt)
	if err != nil {
		return nil, err
	}
	out := &oas.BatchTimeline{IntervalSeconds: int64(found.Interval.Seconds()), Complete: found.Complete,
		Points: make([]oas.BatchTimelinePointsItem, len(found.Points)), Pauses: make([]oas.Pause, len(holds))}
	for i, p := range found.Points {
		out.Points[i] = oas.BatchTimelinePointsItem{StartsAt: p.At.UTC(), Calls: p.Calls, Records: p.Records,
			Failed: p.Failed}
	}
	for i, held := range holds {
		out.Pauses[i] = pauseOf(held)
	}
	return out, nil
}

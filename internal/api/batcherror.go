package api

import (
	"context"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/dispatch"
)

// ListBatchErrors groups what went wrong in a batch.
func (h batchHandler) ListBatchErrors(ctx context.Context, params oas.ListBatchErrorsParams) (*oas.BatchErrors, error) {
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	var statuses []batch.Status
	if status, ok := params.Status.Get(); ok {
		statuses = append(statuses, batch.Status(status))
	}
	found, err := h.runs.Errors(ctx, account.FromContext(ctx).OrgID, id, statuses...)
	if err != nil {
		return nil, err
	}
	out := &oas.BatchErrors{Items: make([]oas.ErrorGroup, len(found.Groups)), Records: found.Records,
		Others: found.Others}
	for i := range found.Groups {
		g := &found.Groups[i]
		out.Items[i] = oas.ErrorGroup{ID: g.ID, Status: oas.JobStatus(g.Status), Error: jobErrorOf(&g.Error).Value,
			Count:    g.Count,
			Examples: make([]oas.ErrorExample, len(g.Examples))}
		for j := range g.Examples {
			e := &g.Examples[j]
			out.Items[i].Examples[j] = oas.ErrorExample{JobID: batch.JobID(id, e.Position), Position: e.Position,
				Error: jobErrorOf(&e.Error).Value}
		}
	}
	return out, nil
}

// ResolveBatch settles many jobs of a batch alike.
func (h batchHandler) ResolveBatch(ctx context.Context, req *oas.BatchResolution, params oas.ResolveBatchParams,
) (*oas.BatchResolved, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	in := dispatch.BatchResolution{Groups: req.Groups, Statuses: []batch.Status{batch.NeedsReconcile, batch.Unresolved},
		Resolution: dispatch.Resolution{OrgID: caller.OrgID, BatchID: id, Outcome: dispatch.Outcome(req.Outcome),
			By: &caller.AccountID}}
	if note := req.Note.Value; note != "" {
		in.Note = &note
	}
	if status, ok := req.Status.Get(); ok {
		in.Statuses = []batch.Status{batch.Status(status)}
	}
	if n, ok := req.ExpectedCount.Get(); ok {
		in.Expected = &n
	}
	done, err := h.resolver.ResolveBatch(ctx, in)
	if err != nil {
		return nil, err
	}
	return &oas.BatchResolved{Resolved: done.Resolved, Remaining: done.Remaining}, nil
}

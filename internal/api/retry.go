package api

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/forecast"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

// RetryBatch starts a batch over records of another one; as a worker, as every start.
func (h batchHandler) RetryBatch(ctx context.Context, req oas.OptBatchRetry,
	params oas.RetryBatchParams) (*oas.TriggerResult, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	in := run.RetryInput{OrgID: caller.OrgID, BatchID: id, CreatedBy: &caller.AccountID,
		Statuses: []batch.Status{batch.Failed, batch.Rejected, batch.Unprocessed}}
	if asked := req.Value.JobStatuses; len(asked) > 0 {
		in.Statuses = nil
		for _, status := range asked {
			in.Statuses = append(in.Statuses, batch.Status(status))
		}
	}
	in.Groups = req.Value.Groups
	var started *run.StartedBatch
	var estimate *forecast.Estimate
	err = pg.InTx(pg.AsWorker(ctx), h.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		if started, err = h.runs.Retry(ctx, tx, in); err != nil {
			return err
		}
		if estimate, err = h.forecasts.OfBatch(ctx, tx, caller.OrgID, started); err != nil {
			return err
		}
		if err = h.forecasts.Keep(ctx, tx, caller.OrgID, started.BatchID, estimate); err != nil {
			return err
		}
		return keep(ctx, tx, http.StatusOK, triggerResultOf(started, estimate))
	})
	if err != nil {
		return nil, startFailed(ctx, err)
	}
	return triggerResultOf(started, estimate), nil
}

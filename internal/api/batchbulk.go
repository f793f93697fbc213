package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/fault"
	"flowlane/internal/listing"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

// bulkAction is what can be done to many batches.
type bulkAction struct {
	// to are the statuses of the batches to which it can be done, none of them completed.
	to []batch.BatchStatus
	// most is how many one request does it to: a retry reads the records of its batch.
	most int
	do   func(h batchHandler, ctx context.Context, req *oas.BatchBulk,
		id uuid.UUID) (started *run.StartedBatch, err error)
}

var bulkActions = map[oas.BatchBulkAction]bulkAction{
	oas.BatchBulkActionPause: {[]batch.BatchStatus{batch.BatchQueued, batch.BatchRunning}, 100,
		batchHandler.bulkPause},
	oas.BatchBulkActionResume:        {[]batch.BatchStatus{batch.BatchPaused}, 100, batchHandler.bulkResume},
	oas.BatchBulkActionCancel:        {openBatches, 100, batchHandler.bulkCancel},
	oas.BatchBulkActionRaisePriority: {openBatches, 100, bulkPriority("high")},
	oas.BatchBulkActionLowerPriority: {openBatches, 100, bulkPriority("normal")},
	oas.BatchBulkActionRetry: {[]batch.BatchStatus{batch.BatchPartiallyFailed, batch.BatchFailed, batch.BatchCancelled},
		10, batchHandler.bulkRetry},
}

var openBatches = []batch.BatchStatus{batch.BatchQueued, batch.BatchRunning, batch.BatchPaused}

// ChangeBatches does one thing to many batches, the newest first.
func (h batchHandler) ChangeBatches(ctx context.Context, req *oas.BatchBulk) (*oas.BatchBulkResult, error) {
	action := bulkActions[req.Action]
	p, rows, err := h.meant(ctx, req, action)
	if err != nil {
		return nil, err
	}
	out := &oas.BatchBulkResult{Batches: []oas.BatchBulkItem{}}
	out.NextCursor.SetToNull()
	if len(rows) > 0 {
		out.Matched = rows[0].Matched
	}
	out.Left = out.Matched
	expected, given := req.ExpectedCount.Get()
	switch {
	case !given && p.Key == "":
		return out, nil
	case p.Key == "" && expected != out.Matched:
		return nil, fault.New(fault.Conflict, "%d batches are meant, not %d; look at them again", out.Matched, expected)
	}
	for _, row := range rows[:min(len(rows), action.most)] {
		item, err := h.bulkOne(ctx, req, action, row.ID)
		if err != nil {
			return nil, err
		}
		if item.Outcome == oas.BatchBulkItemOutcomeDone {
			out.Done++
		} else {
			out.Refused++
		}
		out.Batches = append(out.Batches, item)
	}
	if out.Left -= int64(len(out.Batches)); out.Left > 0 {
		out.NextCursor.SetTo(p.cursor(rows[len(out.Batches)-1].ID.String()))
	}
	return out, nil
}

// meant reads the next batches that an action on many means. Faults: those of pageOf.
func (h batchHandler) meant(ctx context.Context, req *oas.BatchBulk,
	action bulkAction) (page, []db.BatchesMeantRow, error) {
	f, orgID := &req.Filter, account.FromContext(ctx).OrgID
	p, err := pageOf("bulk", orgID, oas.OptInt{}, oas.OptInt{}, req.Cursor, req.Action, "\x00",
		fmt.Sprintf("%q", f.Ids), "\x00", f.Status.Value, "\x00",
		f.DefinitionID, "\x00", f.ScheduleID, "\x00", f.TriggerType.Value, "\x00",
		created{after: f.CreatedAfter, before: f.CreatedBefore})
	if err != nil {
		return p, nil, err
	}
	at := listing.Page{Range: listing.Created(setTime(f.CreatedAfter), setTime(f.CreatedBefore)), Newest: true}
	if p.Key != "" {
		last, err := p.afterID()
		if err != nil {
			return p, nil, err
		}
		at = at.Behind(last)
	}
	in := db.BatchesMeantParams{OrgID: orgID, Least: at.Least, Most: at.Most, CreatedAfter: at.CreatedAfter,
		CreatedBefore: at.CreatedBefore,
		MaxRows:       int32(action.most)}
	for _, status := range action.to {
		if !f.Status.Set || string(f.Status.Value) == string(status) {
			in.Statuses = append(in.Statuses, string(status))
		}
	}
	if kind, ok := f.TriggerType.Get(); ok {
		value := string(kind)
		in.TriggerType = &value
	}
	definition, known := filterID(f.DefinitionID)
	schedule, also := filterID(f.ScheduleID)
	if !known || !also || len(in.Statuses) == 0 {
		return p, nil, nil
	}
	in.DefinitionID, in.ScheduleID = definition, schedule
	for i, text := range f.Ids {
		if i == 0 {
			in.Ids = []uuid.UUID{} // nil is any batch
		}
		if id, ok := parseID(text); ok {
			in.Ids = append(in.Ids, id)
		}
	}
	rows, err := db.New().BatchesMeant(ctx, pg.CustomPlan{Pool: h.pool}, in)
	return p, rows, err
}

// refusals are what may become of one batch without a fault of the others.
var refusals = []fault.Code{fault.Conflict, fault.NotFound, fault.RateLimited}

// bulkOne changes one batch. What refuses that is told with the batch; any other failure ends the request.
func (h batchHandler) bulkOne(ctx context.Context, req *oas.BatchBulk, action bulkAction,
	id uuid.UUID) (oas.BatchBulkItem, error) {
	item := oas.BatchBulkItem{BatchID: id.String(), Outcome: oas.BatchBulkItemOutcomeDone}
	item.Detail.SetToNull()
	item.StartedBatchID.SetToNull()
	started, err := action.do(h, ctx, req, id)
	if refusal := (*fault.Error)(nil); errors.As(err, &refusal) && slices.Contains(refusals, refusal.Code) {
		item.Outcome = oas.BatchBulkItemOutcomeRefused
		item.Detail.SetTo(refusal.Detail)
		return item, nil
	}
	if started != nil {
		item.StartedBatchID.SetTo(started.BatchID.String())
	}
	return item, err
}

func (h batchHandler) bulkPause(ctx context.Context, req *oas.BatchBulk, id uuid.UUID) (*run.StartedBatch, error) {
	caller := account.FromContext(ctx)
	o := pause.Opening{By: caller.AccountID, Reason: optional(req.Reason.Value, req.Reason.Value != "")}
	if seconds, ok := req.DurationSeconds.Get(); ok {
		o.Seconds = &seconds
	}
	_, err := h.pauses.PauseBatch(ctx, caller.OrgID, id, o)
	return nil, err
}

func (h batchHandler) bulkResume(ctx context.Context, _ *oas.BatchBulk, id uuid.UUID) (*run.StartedBatch, error) {
	caller := account.FromContext(ctx)
	_, err := h.pauses.ResumeBatch(ctx, caller.OrgID, id, caller.AccountID)
	return nil, err
}

func (h batchHandler) bulkCancel(ctx context.Context, req *oas.BatchBulk, id uuid.UUID) (*run.StartedBatch, error) {
	caller := account.FromContext(ctx)
	why := run.Cancellation{By: &caller.AccountID, Reason: optional(req.Reason.Value, req.Reason.Value != "")}
	return nil, pg.InTx(ctx, h.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := h.runs.Cancel(ctx, tx, caller.OrgID, id, why)
		return err
	})
}

func bulkPriority(priority string) func(batchHandler, context.Context, *oas.BatchBulk,
	uuid.UUID) (*run.StartedBatch, error) {
	return func(h batchHandler, ctx context.Context, _ *oas.BatchBulk, id uuid.UUID) (*run.StartedBatch, error) {
		return nil, pg.InTx(ctx, h.pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := h.runs.Update(ctx, tx, account.FromContext(ctx).OrgID, id, run.Updating{Priority: &priority})
			return err
		})
	}
}

func (h batchHandler) bulkRetry(ctx context.Context, _ *oas.BatchBulk,
	id uuid.UUID) (started *run.StartedBatch, err error) {
	caller := account.FromContext(ctx)
	in := run.RetryInput{OrgID: caller.OrgID, BatchID: id, CreatedBy: &caller.AccountID,
		Statuses: []batch.Status{batch.Failed, batch.Rejected, batch.Unprocessed}}
	err = pg.InTx(ctx, h.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		started, err = h.runs.Retry(ctx, tx, in)
		return err
	})
	return started, err
}

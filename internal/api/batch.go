package api

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/fault"
	"flowlane/internal/forecast"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/internal/retention"
	"flowlane/internal/run"
	"flowlane/internal/stream"
)

// batchHandler serves /flows/batches.
type batchHandler struct {
	pool      pg.Pool
	reads     pg.DB
	runs      *run.Service
	forecasts *forecast.Service
	resolver  Resolver
	pauses    *pause.Service
	calls     Calls
	// exports bounds the exports that are written at once.
	exports *places
	streams *stream.Hub
	// heartbeat is the pause between two comments of a stream.
	heartbeat time.Duration
}

func newBatchHandler(d Deps) batchHandler {
	return batchHandler{pool: d.Pool, reads: d.Reads, runs: d.Runs, forecasts: d.Forecasts, resolver: d.Resolver,
		pauses: d.Pauses, calls: d.Calls,
		exports: newPlaces(exportsAtOnce), streams: d.Streams, heartbeat: heartbeat}
}

func (h batchHandler) ListBatches(ctx context.Context, params oas.ListBatchesParams) (*oas.BatchList, error) {
	caller := account.FromContext(ctx)
	when := created{params.Order, params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("batches", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Status.Value, "\x00",
		params.DefinitionID, "\x00", params.ScheduleID, "\x00", params.TriggerType.Value, "\x00", when)
	if err != nil {
		return nil, err
	}
	whole, at, err := p.of(when)
	if err != nil {
		return nil, err
	}
	in := db.BatchListParams{OrgID: caller.OrgID, Least: whole.Least, Most: whole.Most,
		CreatedAfter: whole.CreatedAfter, CreatedBefore: whole.CreatedBefore}
	if !filterBatches(&in, params) {
		list := oas.BatchList(nothing[oas.Batch](p))
		return &list, nil
	}
	q, conn := db.New(), pg.CustomPlan{Pool: h.reads}
	total, err := batchTotal(ctx, q, conn, in)
	if err != nil {
		return nil, err
	}
	size := func(r query.BatchRow) int { return len(query.Metadata(&r)) }
	rows, err := gather(&p, size, func(last *query.BatchRow, skip, n int32) ([]query.BatchRow, error) {
		if last != nil {
			at = at.Behind(last.FlowBatch.ID)
		}
		in.Least, in.Most, in.SkipRows, in.MaxRows = at.Least, at.Most, skip, n
		if at.Newest {
			return newestBatches(ctx, q, conn, in)
		}
		return q.BatchList(ctx, conn, in)
	})
	if err != nil {
		return nil, err
	}
	key := func(r query.BatchRow) string { return r.FlowBatch.ID.String() }
	skipped, err := h.runs.SkippedTasks(ctx, in.OrgID, rows)
	if err != nil {
		return nil, err
	}
	list := oas.BatchList(listOf(p, rows, total, key, func(r query.BatchRow) oas.Batch {
		return batchOf(&r, skipped[r.FlowBatch.ID])
	}))
	return &list, nil
}

// filterBatches adds what a list is filtered by. It returns false where an id is none, so that no batch has it.
func filterBatches(in *db.BatchListParams, params oas.ListBatchesParams) bool {
	if status, ok := params.Status.Get(); ok {
		value := db.FlowBatchStatus(status)
		in.Status = &value
	}
	if kind, ok := params.TriggerType.Get(); ok {
		value := string(kind)
		in.TriggerType = &value
	}
	definition, known := filterID(params.DefinitionID)
	schedule, also := filterID(params.ScheduleID)
	in.DefinitionID, in.ScheduleID = definition, schedule
	return known && also
}

// batchTotal counts the batches of a list.
func batchTotal(ctx context.Context, q *db.Queries, conn db.DBTX, in db.BatchListParams) (int64, error) {
	timed := in.CreatedAfter != nil || in.CreatedBefore != nil
	if (in.Status != nil || in.ScheduleID != nil) && in.DefinitionID == nil && in.TriggerType == nil && !timed {
		if in.ScheduleID == nil && *in.Status == db.FlowBatchStatusCompleted {
			return q.BatchTotalCompleted(ctx, conn, in.OrgID)
		}
		return q.BatchTotalOfState(ctx, conn, db.BatchTotalOfStateParams{OrgID: in.OrgID, Status: in.Status,
			ScheduleID: in.ScheduleID})
	}
	return q.BatchTotal(ctx, conn, db.BatchTotalParams{OrgID: in.OrgID, Least: in.Least, Most: in.Most,
		CreatedAfter:  in.CreatedAfter,
		CreatedBefore: in.CreatedBefore, Status: in.Status, DefinitionID: in.DefinitionID, ScheduleID: in.ScheduleID,
		TriggerType: in.TriggerType})
}

// newestBatches lists backwards.
func newestBatches(ctx context.Context, q *db.Queries, conn db.DBTX, in db.BatchListParams) ([]query.BatchRow, error) {
	rows, err := q.BatchListNewest(ctx, conn, db.BatchListNewestParams(in))
	out := make([]query.BatchRow, len(rows))
	for i, row := range rows {
		out[i] = query.BatchRow(row)
	}
	return out, err
}

// filterID reads an id of a filter; ok is false for one that names nothing.
func filterID(text oas.OptString) (id *uuid.UUID, ok bool) {
	value, set := text.Get()
	if !set {
		return nil, true
	}
	parsed, ok := parseID(value)
	return &parsed, ok
}

func (h batchHandler) GetBatch(ctx context.Context, params oas.GetBatchParams) (*oas.Batch, error) {
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	org := account.FromContext(ctx).OrgID
	row, err := h.runs.ReadBatch(ctx, org, id)
	out, err := h.answer(ctx, row, err)
	if err != nil {
		return nil, err
	}
	kept, err := h.forecasts.AtStart(ctx, org, id, row.FlowBatch.RecordCount)
	if err != nil {
		return nil, err
	}
	if kept != nil {
		out.EstimateAtStart = oas.NewOptEstimateAtStart(atStartOf(kept))
	}
	return out, nil
}

func (h batchHandler) UpdateBatch(ctx context.Context, req *oas.BatchUpdate, params oas.UpdateBatchParams) (*oas.Batch,
	error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	in := run.Updating{RemovePacing: req.RemovePacing.Value}
	if priority, ok := req.Priority.Get(); ok {
		in.Priority = new(string(priority))
	}
	var bad []fault.Field
	if p, ok := req.Pacing.Get(); ok {
		if in.Pacing, bad = policyOf(&p); in.RemovePacing {
			for _, name := range []string{"pacing", "remove_pacing"} {
				bad = append(bad, fault.Field{Loc: []string{"body", name},
					Msg:  "Give pacing or remove_pacing, not both",
					Type: "value_error"})
			}
		}
	}
	if len(bad) > 0 {
		return nil, fault.Invalidated(bad...)
	}
	var row *query.BatchRow
	if in.Pacing != nil { // is held against the margins of all who use an account
		ctx = pg.AsWorker(ctx)
	}
	err = pg.InTx(ctx, h.pool, func(ctx context.Context, tx pgx.Tx) error {
		if row, err = h.runs.Update(ctx, tx, caller.OrgID, id, in); err != nil || in.Pacing == nil {
			return err
		}
		return h.forecasts.Slower(ctx, tx, caller.OrgID, id, in.Pacing)
	})
	return h.answer(ctx, row, err)
}

func (h batchHandler) CancelBatch(ctx context.Context, req oas.OptBatchCancel,
	params oas.CancelBatchParams) (*oas.Batch, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	why := run.Cancellation{By: &caller.AccountID}
	if reason, ok := req.Value.Reason.Get(); ok && reason != "" {
		why.Reason = &reason
	}
	var row *query.BatchRow
	err = pg.InTx(ctx, h.pool, func(ctx context.Context, tx pgx.Tx) error {
		row, err = h.runs.Cancel(ctx, tx, caller.OrgID, id, why)
		return err
	})
	return h.answer(ctx, row, err)
}

func (h batchHandler) DeleteBatch(ctx context.Context, params oas.DeleteBatchParams) error {
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return err
	}
	return retention.DeleteBatch(ctx, h.pool, account.FromContext(ctx).OrgID, id)
}

func (h batchHandler) answer(ctx context.Context, r *query.BatchRow, err error) (*oas.Batch, error) {
	if err != nil {
		return nil, err
	}
	skipped, err := h.runs.SkippedTasks(ctx, r.FlowBatch.OrgID, []query.BatchRow{*r})
	if err != nil {
		return nil, err
	}
	out := batchOf(r, skipped[r.FlowBatch.ID])
	return &out, nil
}

const (
	// exportBuffer is how much of an export is handed to the connection at once.
	exportBuffer = 256 << 10
	// exportsAtOnce is how many exports are written at once: each holds the slices that it has read, whose outputs may
	// be large. The others wait.
	exportsAtOnce = 16
)

func (h batchHandler) ListBatchResults(ctx context.Context, params oas.ListBatchResultsParams) (oas.ListBatchResultsRes,
	error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	p, err := pageOf("results", caller.OrgID, params.Limit, params.Skip, params.Cursor, id, params.Status.Value, "\x00",
		params.Key)
	if err != nil {
		return nil, err
	}
	f := query.RecordFilter{BatchID: &id, Want: query.Want{Output: true, Key: true}}
	if err := p.seek(&f, params.Key); err != nil {
		return nil, err
	}
	if params.Status.Set {
		status := batch.Status(params.Status.Value)
		f.Status = &status
	}
	if err := p.beginAt(&f); err != nil {
		return nil, err
	}
	if params.Format.Value != oas.ListBatchResultsFormatJSON {
		held, err := h.exports.take(ctx, caller.OrgID)
		if err != nil {
			return nil, err
		}
		exchangeOf(ctx).release = held.release
		asCSV, write := params.Format.Value == oas.ListBatchResultsFormatCsv, new(lineWriter).append
		if asCSV {
			write = appendCSV
		}
		export, err := h.runs.Export(ctx, caller.OrgID, f, write)
		if err != nil {
			return nil, err
		}
		if asCSV {
			return &oas.ListBatchResultsOKTextCsv{Data: bufio.NewReaderSize(
				io.MultiReader(bytes.NewReader(appendRow(nil,
					csvColumns...)), export), exportBuffer)}, nil
		}
		return &oas.ListBatchResultsOKApplicationXNdjson{Data: bufio.NewReaderSize(export, exportBuffer)}, nil
	}
	if _, err := h.runs.ReadBatch(ctx, caller.OrgID, id); err != nil {
		return nil, err
	}
	found, err := readRecords(ctx, h.runs, caller.OrgID, p, f)
	if err != nil {
		return nil, err
	}
	list := oas.ResultList(listOfRecords(ctx, p, found, jobIDOf, resultOf))
	return &list, nil
}

var _ oas.BatchHandler = batchHandler{}

package api

import (
	"context"
	"time"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/fault"
	"flowlane/internal/run"
	"flowlane/internal/stream"
)

// executionHandler serves /flows/executions.
type executionHandler struct {
	runs    *run.Service
	streams *stream.Hub
	// heartbeat is the pause between two comments of a stream.
	heartbeat time.Duration
}

func (h executionHandler) ListExecutions(ctx context.Context,
	params oas.ListExecutionsParams) (*oas.ExecutionList, error) {
	caller := account.FromContext(ctx)
	when := created{params.Order, params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("executions", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Status.Value, "\x00",
		params.BatchID, "\x00",
		params.JobID, "\x00", when)
	if err != nil {
		return nil, err
	}
	f := when.records(query.Want{History: true, Runs: true, Key: true})
	if params.Status.Set {
		status := batch.ExecutionStatus(params.Status.Value)
		f.Execution = &status
	}
	if err := p.beginAtRun(&f); err != nil {
		return nil, err
	}
	if !ofJob(&f, params) {
		list := oas.ExecutionList(nothing[oas.Execution](p))
		return &list, nil
	}
	found, err := readRecords(ctx, h.runs, caller.OrgID, p, f)
	if err != nil {
		return nil, err
	}
	list := oas.ExecutionList(listOfRecords(ctx, p, found, executionIDOf, new(batchIDs).execution))
	return &list, nil
}

// ofJob narrows the list to a batch and a job; false where they name nothing, or not the same batch.
func ofJob(f *query.RecordFilter, params oas.ListExecutionsParams) bool {
	var known bool
	if f.BatchID, known = filterID(params.BatchID); !known {
		return false
	}
	text, set := params.JobID.Get()
	if !set {
		return true
	}
	batch, position, ok := parseJobID(text)
	if !ok || (f.BatchID != nil && *f.BatchID != batch) {
		return false
	}
	f.BatchID, f.Position = &batch, &position
	return true
}

func (h executionHandler) GetExecution(ctx context.Context,
	params oas.GetExecutionParams) (*oas.ExecutionDetail, error) {
	batch, position, number, ok := parseExecutionID(params.ExecutionID)
	if !ok {
		return nil, fault.Missing("Execution")
	}
	r, steps, err := h.runs.Execution(ctx, account.FromContext(ctx).OrgID, batch, position, number)
	if err != nil {
		return nil, err
	}
	if err := h.leaveOutputs(ctx, steps); err != nil {
		return nil, err
	}
	out := executionDetailOf(r, steps)
	return &out, nil
}

var _ oas.ExecutionHandler = executionHandler{}

package api

import (
	"context"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/run"
)

// jobHandler serves /flows/jobs.
type jobHandler struct{ runs *run.Service }

func (h jobHandler) ListJobs(ctx context.Context, params oas.ListJobsParams) (*oas.JobList, error) {
	caller := account.FromContext(ctx)
	p, err := pageOf("jobs", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Status.Value, "\x00", params.BatchID)
	if err != nil {
		return nil, err
	}
	f := run.RecordFilter{Want: run.Want{Input: true, Output: true, History: true}}
	if params.Status.Set {
		status := run.Status(params.Status.Value)
		f.Status = &status
	}
	if err := p.beginAt(&f); err != nil {
		return nil, err
	}
	var known bool
	if f.BatchID, known = filterID(params.BatchID); !known {
		list := oas.JobList(nothing[oas.Job](p))
		return &list, nil
	}
	found, err := readRecords(ctx, h.runs, caller.OrgID, p, f)
	if err != nil {
		return nil, err
	}
	list := oas.JobList(listOfRecords(ctx, p, found, new(batchIDs).job))
	return &list, nil
}

func (h jobHandler) GetJob(ctx context.Context, params oas.GetJobParams) (*oas.Job, error) {
	batch, position, ok := parseJobID(params.JobID)
	if !ok {
		return nil, fault.Missing("Job")
	}
	r, err := h.runs.Record(ctx, account.FromContext(ctx).OrgID, batch, position, "Job")
	if err != nil {
		return nil, err
	}
	out := jobOf(r)
	return &out, nil
}

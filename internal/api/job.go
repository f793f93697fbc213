package api

import (
	"context"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/dispatch"
	"flowlane/internal/fault"
	"flowlane/internal/run"
)

// Resolver is the dispatcher, to which people say what became of records in doubt. Faults: NotFound, Conflict.
type Resolver interface {
	Resolve(ctx context.Context, in dispatch.Resolution) error
	ResolveBatch(ctx context.Context, in dispatch.BatchResolution) (*dispatch.BatchResolved, error)
}

// jobHandler serves /flows/jobs.
type jobHandler struct {
	runs     *run.Service
	resolver Resolver
}

func (h jobHandler) ListJobs(ctx context.Context, params oas.ListJobsParams) (*oas.JobList, error) {
	caller := account.FromContext(ctx)
	when := created{params.Order, params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("jobs", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Status.Value, "\x00",
		params.BatchID,
		"\x00", params.Key, "\x00", when)
	if err != nil {
		return nil, err
	}
	if params.Key.Set && !params.BatchID.Set {
		return nil, errKeyAlone
	}
	f := when.records(query.Want{Input: true, Output: true, History: true, Key: true})
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
	var known bool
	if f.BatchID, known = filterID(params.BatchID); !known {
		list := oas.JobList(nothing[oas.Job](p))
		return &list, nil
	}
	found, err := readRecords(ctx, h.runs, caller.OrgID, p, f)
	if err != nil {
		return nil, err
	}
	list := oas.JobList(listOfRecords(ctx, p, found, jobIDOf, new(batchIDs).job))
	return &list, nil
}

func (h jobHandler) GetJob(ctx context.Context, params oas.GetJobParams) (*oas.Job, error) {
	batch, position, ok := parseJobID(params.JobID)
	if !ok {
		return nil, fault.Missing("Job")
	}
	r, err := h.runs.Record(ctx, account.FromContext(ctx).OrgID, batch, position)
	if err != nil {
		return nil, err
	}
	out := jobOf(r)
	return &out, nil
}

func (h jobHandler) ResolveJob(ctx context.Context, req *oas.JobResolution,
	params oas.ResolveJobParams) (*oas.Job, error) {
	caller := account.FromContext(ctx)
	batch, position, ok := parseJobID(params.JobID)
	if !ok {
		return nil, fault.Missing("Job")
	}
	in := dispatch.Resolution{OrgID: caller.OrgID, BatchID: batch, Position: position,
		Outcome: dispatch.Outcome(req.Outcome), By: &caller.AccountID}
	if note := req.Note.Value; note != "" {
		in.Note = &note
	}
	if err := h.resolver.Resolve(ctx, in); err != nil {
		return nil, err
	}
	return h.GetJob(ctx, oas.GetJobParams(params))
}

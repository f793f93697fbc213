package api

import (
	"flowlane/gen/oas"
	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
	"flowlane/internal/pacing"
)

func batchOf(r *query.BatchRow, skipped []query.SkippedTask) oas.Batch {
	b, state := &r.FlowBatch, &r.FlowBatchCount
	out := oas.Batch{
		ID: b.ID.String(), DefinitionID: b.DefinitionID.String(), DefinitionVersion: int(b.Version),
		OrgID:     b.OrgID.String(),
		TriggerID: b.ID.String(), TriggerType: oas.TriggerType(b.TriggerType),
		TriggerSource: nilString(b.TriggerSource),
		ScheduleID:    nilID(state.ScheduleID), RecordSetID: nilID(r.RecordSetID), RetryOf: nilID(b.RetryOf),
		Metadata: query.Metadata(r),
		Status:   oas.BatchStatus(query.StatusOf(r)), StatusReason: nilString(state.CancelReason),
		RecordCount: int(b.RecordCount),
		JobCounts:   jobCountsOf(query.JobCounts(r)), ProgressPercent: query.Progress(r),
		ScheduledAt: nilTime(b.ScheduledAt), StartedAt: nilTime(state.StartedAt),
		CompletedAt: nilTime(state.CompletedAt),
		CreatedAt:   b.CreatedAt.UTC(), UpdatedAt: state.UpdatedAt.UTC(),
		Lane: oas.NilLane{Null: true}, Priority: oas.NilPriority{Null: true},
		SkippedTasks: make([]oas.SkippedTask, len(skipped)),
	}
	for i, t := range skipped {
		out.SkippedTasks[i] = oas.SkippedTask{StepID: t.StepID, TaskID: t.TaskID, RecordCount: int(t.Records)}
	}
	if b.Lane != nil {
		out.Lane = oas.NewNilLane(oas.Lane(*b.Lane))
	}
	if state.Priority != nil {
		out.Priority = oas.NewNilPriority(oas.Priority(*state.Priority))
	}
	policy, _ := pacing.Decode(state.Pacing) // what Encode wrote: cannot fail
	out.Pacing = pacingOf(policy)
	return out
}

func jobCountsOf(c batch.Counts) oas.JobCounts {
	n := func(s batch.Status) int { return int(c.Of(s)) }
	return oas.JobCounts{
		Staged: n(batch.Staged), Queued: n(batch.Queued), Pending: n(batch.Pending), Started: n(batch.Started),
		NeedsReconcile: n(batch.NeedsReconcile), Completed: n(batch.Completed), Failed: n(batch.Failed),
		Cancelled: n(batch.Cancelled), Accepted: n(batch.Accepted), Rejected: n(batch.Rejected),
		Unprocessed: n(batch.Unprocessed), Unresolved: n(batch.Unresolved),
	}
}

func jobErrorOf(e *batch.JobError) oas.NilJobError {
	if e == nil {
		return oas.NilJobError{Null: true}
	}
	some := func(s string) oas.NilString { return oas.NilString{Value: s, Null: s == ""} }
	return oas.NewNilJobError(oas.JobError{
		Code: e.Code, Message: e.Message, StepID: some(e.StepID), TaskID: some(e.TaskID),
		ProviderStatus: oas.NilInt{Value: e.ProviderStatus, Null: e.ProviderStatus == 0},
		ProviderCode:   some(e.ProviderCode), ProviderMessage: some(e.ProviderMessage),
	})
}

func resultOf(r *query.Record) oas.Result {
	return oas.Result{
		Position: int(r.Position), JobID: jobIDOf(r), Key: nilText(r.Key), Status: oas.JobStatus(r.Status),
		Output: oas.AnyValue(r.Output), Error: jobErrorOf(r.Error),
		SkippedTasks: append([]string{}, r.SkippedTasks...),
	}
}

// batchIDs are the ids of a batch as text, which all records of a page share.
type batchIDs struct {
	of                     *query.BatchRow
	batch, definition, org string
}

func (ids *batchIDs) read(r *query.Record) {
	if ids.of == r.Batch {
		return
	}
	b := &r.Batch.FlowBatch
	*ids = batchIDs{of: r.Batch, batch: b.ID.String(), definition: b.DefinitionID.String(), org: b.OrgID.String()}
}

func jobOf(r *query.Record) oas.Job { return new(batchIDs).job(r) }

func (ids *batchIDs) job(r *query.Record) oas.Job {
	ids.read(r)
	b := &r.Batch.FlowBatch
	return oas.Job{
		ID: jobIDOf(r), BatchID: ids.batch, DefinitionID: ids.definition, OrgID: ids.org,
		TriggerID: ids.batch, TriggerType: oas.TriggerType(b.TriggerType), Position: int(r.Position),
		Key:       nilText(r.Key),
		InputData: oas.FreeObject(r.Input), Status: oas.JobStatus(r.Status), Attempts: int(r.Attempts),
		Output: oas.AnyValue(r.Output), SkippedTasks: append([]string{}, r.SkippedTasks...), Error: jobErrorOf(r.Error),
		CreatedAt: b.CreatedAt.UTC(), StartedAt: nilTime(r.StartedAt), UpdatedAt: r.UpdatedAt.UTC(),
	}
}

func executionOf(r *query.Record) oas.Execution { return new(batchIDs).execution(r) }

func (ids *batchIDs) execution(r *query.Record) oas.Execution {
	ids.read(r)
	b := &r.Batch.FlowBatch
	job := jobIDOf(r)
	return oas.Execution{
		ID: executionID(job, r.Run), JobID: job, BatchID: ids.batch, DefinitionID: ids.definition,
		DefinitionVersion: int(b.Version), OrgID: ids.org, Run: int(r.Run), Key: nilText(r.Key),
		Status: oas.ExecutionStatus(r.Execution), Error: jobErrorOf(r.Error),
		CreatedAt: r.Created.UTC(), StartedAt: nilTime(r.StartedAt), CompletedAt: nilTime(r.CompletedAt),
		UpdatedAt: r.UpdatedAt.UTC(),
	}
}

func executionDetailOf(r *query.Record, steps []query.ExecutionStep) oas.ExecutionDetail {
	e := executionOf(r)
	out := oas.ExecutionDetail{
		ID: e.ID, JobID: e.JobID, BatchID: e.BatchID, DefinitionID: e.DefinitionID,
		DefinitionVersion: e.DefinitionVersion, OrgID: e.OrgID,
		Run: e.Run, Key: e.Key, Status: e.Status, Error: e.Error, CreatedAt: e.CreatedAt, StartedAt: e.StartedAt,
		CompletedAt: e.CompletedAt,
		UpdatedAt:   e.UpdatedAt, InputData: oas.FreeObject(r.Input), Steps: make([]oas.ExecutionStep, len(steps)),
	}
	for i := range steps {
		out.Steps[i] = executionStepOf(&steps[i])
	}
	return out
}

func executionStepOf(s *query.ExecutionStep) oas.ExecutionStep {
	out := oas.ExecutionStep{
		ID: s.Step.ID, Name: s.Step.Name, Status: oas.TaskStatus(s.Status), StartedAt: nilTime(s.StartedAt),
		CompletedAt: nilTime(s.CompletedAt),
		Tasks:       make([]oas.ExecutionTask, len(s.Tasks)),
	}
	if out.Name == "" {
		out.Name = out.ID
	}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		out.Tasks[i] = oas.ExecutionTask{
			ID: t.Task.ID, ActionID: t.Task.Action.ID, Status: oas.TaskStatus(t.Status), Attempts: int(t.Attempts),
			StartedAt: nilTime(t.StartedAt), CompletedAt: nilTime(t.CompletedAt), Output: oas.AnyValue(t.Output),
			Error:    jobErrorOf(t.Error),
			Elements: elementsOf(t.Elements),
		}
	}
	return out
}

// elementsOf returns nil, which is shown as null, for none.
func elementsOf(list []query.ExecutionElement) (out []oas.ExecutionElement) {
	for i := range list {
		e := &list[i]
		out = append(out, oas.ExecutionElement{Index: int(e.Index), Status: oas.TaskStatus(e.Status),
			Attempts:  int(e.Attempts),
			StartedAt: nilTime(e.StartedAt), CompletedAt: nilTime(e.CompletedAt), Error: jobErrorOf(e.Error)})
	}
	return out
}

package query

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// TaskStatus is where a task, or a step, of an execution stands.
type TaskStatus string

// The statuses of a task of an execution.
const (
	TaskPending     TaskStatus = "pending"
	TaskWaiting     TaskStatus = "waiting"
	TaskRunning     TaskStatus = "running"
	TaskReconciling TaskStatus = "reconciling"
	TaskCompleted   TaskStatus = "completed"
	TaskFailed      TaskStatus = "failed"
	TaskSkipped     TaskStatus = "skipped"
	TaskCancelled   TaskStatus = "cancelled"
)

// endedAs is where a task stands by how an entry says that it ended.
var endedAs = map[string]TaskStatus{batch.EntryOK: TaskCompleted, batch.EntrySkipped: TaskSkipped,
	batch.EntryFailed:   TaskFailed,
	batch.EntryRejected: TaskFailed}

// ExecutionStep is a step of an execution.
type ExecutionStep struct {
	Step   *definition.Step
	Status TaskStatus
	Times
	Tasks []ExecutionTask
}

// ExecutionTask is a task of an execution.
type ExecutionTask struct {
	Task *definition.Task
	Attempted
	// Output is raw JSON; nil where there is none.
	Output json.RawMessage
	// Stored is where an output is to be read (Output) that is too large to be here.
	Stored *StoredOutput
	// Elements are those that were called for, in order; nil where the task has no for_each.
	Elements []ExecutionElement
}

// ExecutionElement is one element of a task that makes a call for each.
type ExecutionElement struct {
	Index int32
	Attempted
}

// Attempted is how far a task, or one element of it, came.
type Attempted struct {
	Status   TaskStatus
	Attempts int32
	Times
	Error *batch.JobError
}

// Times are when something of an execution began and came to its end; nil for not yet.
type Times struct{ StartedAt, CompletedAt *time.Time }

// start notes a time at which it was under way.
func (t *Times) start(at time.Time) {
	if t.StartedAt == nil || at.Before(*t.StartedAt) {
		t.StartedAt = &at
	}
}

// end notes when it came to its end, in Unix milliseconds; 0 where that is not known.
func (t *Times) end(at int64) {
	if at > 0 {
		t.CompletedAt = new(time.UnixMilli(at).UTC())
		t.start(*t.CompletedAt)
	}
}

// Record reads one record of a batch, with its input, output and history. Fault: NotFound.
func (s *Reader) Record(ctx context.Context, orgID, batchID uuid.UUID, position int64) (*Record, error) {
	return s.one(ctx, orgID, batchID, position, 0, Want{Input: true, Output: true, History: true, Key: true},
		func(*Slice, *Record) error { return nil })
}

// Execution reads a run of a record of a batch: its path through every step and task. Fault: NotFound.
func (s *Reader) Execution(ctx context.Context, orgID, batchID uuid.UUID, position int64,
	run int32) (*Record, []ExecutionStep, error) {
	var steps []ExecutionStep
	out, err := s.one(ctx, orgID, batchID, position, run, Want{Input: true, History: true, Key: true},
		func(v *Slice, r *Record) (err error) {
			steps, err = v.path(r)
			return err
		})
	return out, steps, err
}

// one reads a run of a record, from 1, or its job for 0, and calls do with it while its slice is open.
func (s *Reader) one(ctx context.Context, orgID, batchID uuid.UUID, position int64, run int32, want Want,
	do func(v *Slice, r *Record) error) (*Record, error) {
	thing := "Execution"
	if run == 0 {
		thing = "Job"
	}
	var out *Record
	err := s.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		v, err := s.SliceAt(ctx, tx, orgID, batchID, position, thing, Needs{lazy: true, runs: true})
		if err != nil {
			return err
		}
		offset := int32(position - v.First)
		if int(run) > len(v.runs[offset])+1 {
			return fault.Missing(thing)
		}
		release, err := s.readInputs(ctx, tx, []*Slice{v})
		if err != nil {
			return err
		}
		defer release()
		wanted := make([]bool, v.Records)
		wanted[offset] = true
		found, err := v.list(wanted, want)
		if err != nil {
			return err
		}
		if out = &found[0]; run > 0 {
			*out = v.ofRun(*out, offset, run)
		}
		return do(v, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SliceAt opens the slice that holds the position of a thing. Fault: NotFound.
func (s *Reader) SliceAt(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID, position int64, thing string,
	n Needs) (*Slice, error) {
	b, err := s.view(ctx, tx, orgID, batchID)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.Missing(thing)
	}
	if err != nil {
		return nil, err
	}
	row, err := s.q.SliceOf(ctx, tx, db.SliceOfParams{BatchID: batchID, Position: position})
	if pg.IsNoRows(err) {
		return nil, fault.Missing(thing)
	}
	if err != nil {
		return nil, fmt.Errorf("read the slice of position %d of batch %s: %w", position, batchID, err)
	}
	views := b.views([]db.SliceRowsRow{db.SliceRowsRow(row)}, n)
	return views[0], s.open(ctx, tx, views)
}

// path tells how a run of a record came through every step.
func (v *Slice) path(r *Record) ([]ExecutionStep, error) {
	offset, wanted := int32(r.Position-v.First), make([]bool, v.Records)
	wanted[offset] = true
	steps := make([]ExecutionStep, len(v.Batch.Plan.Steps))
	for i := range steps {
		step := &v.Batch.Plan.Steps[i]
		steps[i] = ExecutionStep{Step: step, Tasks: make([]ExecutionTask, len(step.Tasks))}
		for j := range step.Tasks {
			steps[i].Tasks[j] = ExecutionTask{Task: &step.Tasks[j], Attempted: Attempted{Status: TaskPending}}
		}
	}
	err := v.entries(batch.DecodeLight, wanted, func(step, task int16, t *batch.Entry) {
		if !t.Covers(offset) || !v.isOfRun(offset, r.Run, step, t) {
			return
		}
		of := &steps[step].Tasks[task]
		of.add(t)
		if t.Decides() {
			of.Stored = nil
			if t.Large {
				fragment := db.FragmentBodyParams{BatchID: v.Batch.FlowBatch.ID, SliceNo: v.No, StepNo: step,
					TaskNo: task, Seq: t.Seq}
				of.Stored = &StoredOutput{fragment, offset}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	ended := v.endOf(offset, r.Run) != nil
	for i := range v.Parts {
		if p := &v.Parts[i]; v.Concerns(p, offset) && !ended {
			failure, err := v.uncertain(p)
			if err != nil {
				return nil, err
			}
			t := &steps[p.StepNo].Tasks[p.TaskNo]
			t.addPart(p, failure)
			if e := t.element(p.Element); e != nil {
				e.addPart(p, failure)
			}
		}
	}
	for i := range steps {
		steps[i].sum(ended || batch.Terminal(r.Status))
	}
	return steps, nil
}

// add takes over what an entry tells.
func (t *ExecutionTask) add(entry *batch.Entry) {
	counts := !entry.CallID.IsZero() || (t.Task.Action.Call == nil && entry.Kind != batch.EntrySkipped)
	t.saw(entry, counts)
	// else it speaks of the task as a whole
	if !entry.CallID.IsZero() || entry.Kind == batch.EntryElement || entry.Kind == batch.EntryRequeued ||
		entry.Kind == batch.EntryUnknown {
		t.addElement(entry)
	}
	if entry.Kind == batch.EntryElement {
		t.Status = TaskWaiting // for its next element
		return
	}
	t.Error = entry.Error
	if entry.Kind == batch.EntryUnknown { // the call that covers it says where it stands
		return
	}
	t.Status = cmp.Or(endedAs[entry.Kind], TaskWaiting) // for another attempt, or what the task waits for
	if entry.Decides() {
		t.Output = entry.Output
		t.end(entry.EndedAt)
	}
}

// addElement takes over what an entry tells of an element.
func (t *ExecutionTask) addElement(entry *batch.Entry) {
	e := t.element(entry.Element)
	if e == nil {
		return
	}
	e.saw(entry, !entry.CallID.IsZero())
	e.Error = entry.Error
	switch {
	case entry.Kind == batch.EntryOK, entry.Kind == batch.EntryElement && entry.Error == nil:
		e.Status = TaskCompleted
	case entry.Kind == batch.EntryElement, entry.Kind == batch.EntryFailed:
		e.Status = TaskFailed
	default:
		return
	}
	e.end(entry.EndedAt)
}

// saw takes over when an attempt began, and counts it where it counts.
func (a *Attempted) saw(entry *batch.Entry, counts bool) {
	if entry.StartedAt > 0 {
		a.start(time.UnixMilli(entry.StartedAt).UTC())
	}
	if counts {
		a.Attempts = max(a.Attempts, entry.Attempt)
	}
}

// addPart takes over where the call stands of the part that covers it.
func (a *Attempted) addPart(part *batch.CoveringPart, failure *batch.JobError) {
	made := part.Attempt
	switch part.State {
	case batch.Queued:
		a.Status = TaskWaiting
		made--
	case batch.Started:
		a.Status = TaskRunning
	default:
		a.Status, a.Error = TaskReconciling, failure
	}
	a.Attempts = max(a.Attempts, made)
	if part.ClaimedAt != nil {
		a.start(*part.ClaimedAt)
	}
}

// sum makes the step's status and times from those of its tasks. Of an execution that is over, nothing waits any more.
func (s *ExecutionStep) sum(over bool) {
	count := map[TaskStatus]int{}
	finished := 0
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if over && (t.Status == TaskPending || t.Status == TaskWaiting) {
			t.Status = TaskCancelled
		}
		t.sumElements(t.Status == TaskCancelled)
		status := t.Status
		if status == TaskFailed && t.Task.ContinueOnError {
			status = TaskCompleted
		}
		count[status]++
		if t.StartedAt != nil {
			s.start(*t.StartedAt)
		}
		if t.CompletedAt != nil && (s.CompletedAt == nil || t.CompletedAt.After(*s.CompletedAt)) {
			s.CompletedAt = t.CompletedAt
		}
		if status == TaskCompleted || status == TaskSkipped || status == TaskFailed {
			finished++
		}
	}
	s.Status = stepStatus(count, finished, len(s.Tasks))
	if finished < len(s.Tasks) {
		s.CompletedAt = nil
	}
}

func stepStatus(count map[TaskStatus]int, finished, tasks int) TaskStatus {
	switch {
	case finished == tasks && count[TaskFailed] > 0:
		return TaskFailed
	case count[TaskSkipped] == tasks:
		return TaskSkipped
	case finished == tasks:
		return TaskCompleted
	case count[TaskReconciling] > 0:
		return TaskReconciling
	case count[TaskRunning] > 0:
		return TaskRunning
	case count[TaskFailed] > 0 && count[TaskCancelled] > 0:
		return TaskFailed
	case count[TaskCancelled] > 0:
		return TaskCancelled
	case finished > 0:
		return TaskRunning
	case count[TaskWaiting] > 0:
		return TaskWaiting
	}
	return TaskPending
}

// element returns the element with this number, nil where the task makes no call for each. They come in order.
func (t *ExecutionTask) element(index int32) *ExecutionElement {
	if t.Task.ForEach == nil || t.Task.Action.Call == nil {
		return nil
	}
	for i := range t.Elements {
		if t.Elements[i].Index == index {
			return &t.Elements[i]
		}
	}
	t.Elements = append(t.Elements, ExecutionElement{index, Attempted{Status: TaskWaiting}})
	return &t.Elements[len(t.Elements)-1]
}

// sumElements counts the attempts of a task with elements, and ends those that wait where it is cancelled.
func (t *ExecutionTask) sumElements(cancelled bool) {
	if t.Task.ForEach == nil || t.Task.Action.Call == nil {
		return
	}
	t.Attempts = 0
	for i := range t.Elements {
		e := &t.Elements[i]
		t.Attempts += e.Attempts
		if cancelled && e.Status == TaskWaiting {
			e.Status = TaskCancelled
		}
	}
}

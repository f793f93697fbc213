package query

import (
	"cmp"
	"math"
	"slices"
	"time"

	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
)

// An execution's log is what happened to it, as a list that only grows: entry n says what it was, whoever reads it and
// whenever. It is not stored. It follows from what is: the entries of the record's tasks, the calls that cover it, and
// where it stands. A reader that has seen entry n goes on behind it.
//
// Entries are numbered from 1. The first two tell where the execution stood before its first work, and every log has
// room for both: 1 is its beginning, which readers show as a snapshot, and 2 that its record was queued, which is left
// out while the record is staged.

// EventKind says what an event is about.
type EventKind string

// The kinds of events.
const (
	EventExecutionStatus EventKind = "execution.status"
	EventStepStarted     EventKind = "step.started"
	EventStepCompleted   EventKind = "step.completed"
	EventStepFailed      EventKind = "step.failed"
	EventTaskAttempt     EventKind = "task.attempt"
	EventJobStatus       EventKind = "job.status"
	EventClosed          EventKind = "execution.closed"
)

// Event is an entry of the log of an execution.
type Event struct {
	No   int64
	Kind EventKind
	At   time.Time
	// Status is that of what the event is about: an ExecutionStatus, a TaskStatus or a Status.
	Status string
	// StepID and TaskID name the step and the task; empty where the event is about neither. Attempt is 0 where none was
	// made.
	StepID, TaskID string
	Attempt        int32
	Error          *batch.JobError
}

// Log is the log of an execution as far as it has come.
type Log struct {
	Events []Event
	// Last is the number of the last entry, which may have no event.
	Last int64
}

// Closed reports whether the execution is over, and nothing will be added.
func (l *Log) Closed() bool {
	return len(l.Events) > 0 && l.Events[len(l.Events)-1].Kind == EventClosed
}

// After returns the events behind the entry of this number.
func (l *Log) After(no int64) []Event {
	i, _ := slices.BinarySearchFunc(l.Events, no+1, func(e Event, no int64) int { return cmp.Compare(e.No, no) })
	return l.Events[i:]
}

const (
	entryBegun  = 1
	entryQueued = 2
)

// fact is a stored thing that the log of a record follows from.
type fact struct {
	step, task int16
	// no is the number of the change that left it.
	no int64
	// claim: a call took the record. Otherwise kind is that of an entry, and called tells that it was left by a call.
	claim   bool
	called  bool
	kind    string
	attempt int32
	at      time.Time
	err     *batch.JobError
}

// stillOpen orders calls under way whose claim has no number: they are the last to have come.
const stillOpen = math.MaxInt64

// eventFactsOf returns what an entry tells. That a call took the record is told by what became of it.
func eventFactsOf(step, task int16, t *batch.Entry) []fact {
	end := fact{step: step, task: task, no: t.ChangeNo, kind: t.Kind, attempt: t.Attempt, err: t.Error}
	if at := max(t.StartedAt, t.EndedAt); at > 0 {
		end.at = time.UnixMilli(cmp.Or(t.EndedAt, at)).UTC()
	}
	if end.called = !t.CallID.IsZero() || !t.Decides() && t.Kind != batch.EntryWaiting; !end.called {
		return []fact{end}
	}
	begin := fact{step: step, task: task, no: cmp.Or(t.ClaimNo, t.ChangeNo), claim: true, attempt: t.Attempt,
		at: end.at}
	if t.StartedAt > 0 {
		begin.at = time.UnixMilli(t.StartedAt).UTC()
	}
	return []fact{begin, end}
}

// factOfPart returns what a part in a call tells. Its time is as exact as that of the entry to come.
func factOfPart(p *batch.CoveringPart) fact {
	return fact{step: p.StepNo, task: p.TaskNo, no: cmp.Or(p.ClaimNo, stillOpen), claim: true, attempt: p.Attempt,
		at: pg.Value(p.ClaimedAt).Truncate(time.Millisecond)}
}

// logInputs are what the log of one run is built from.
type logInputs struct {
	run  int32
	plan *definition.Plan
	// scope are in order by step and task, as they came.
	facts []fact
	// before is what an earlier batch made of tasks, whose log told of it: they are done, and their step ends with the
	// others.
	before []fact
	// began is when the batch was made, queued when its records were.
	began, queued time.Time
	status        batch.Status
	// staged: the record was never queued.
	staged bool
	// over and failure say when and why the record ended; unused until then.
	over    time.Time
	failure *batch.JobError
	// ended: the record goes on in its next run, and this one is over.
	ended bool
}

// log builds the log. It is a fold over the facts: what is added to them at the end adds events at the end.
func (in *logInputs) log() Log {
	slices.SortStableFunc(in.facts, func(a, b fact) int {
		return cmp.Or(cmp.Compare(a.step, b.step),
			cmp.Compare(a.no, b.no))
	})
	t := logBuilder{logInputs: in, last: in.began, step: -1, job: batch.Queued, out: Log{Last: entryBegun}}
	if !in.staged {
		t.last = in.queued
		t.emit(Event{Kind: EventJobStatus, At: t.last, Status: string(batch.Queued)})
	}
	for i := range in.facts {
		t.add(&in.facts[i])
	}
	if in.ended {
		t.close(batch.ExecutionCancelled)
	} else if batch.Terminal(in.status) {
		t.out.Last = max(t.out.Last, entryQueued)
		t.end()
	}
	return t.out
}

// logBuilder adds facts in order.
type logBuilder struct {
	*logInputs
	out Log
	// last is when the last thing happened.
	last time.Time
	job  batch.Status
	// step is the one under way, -1 before the first; done tells that all of its tasks are.
	step  int16
	done  bool
	tasks []taskLogged
}

// taskLogged is where a task of the step under way stands.
type taskLogged struct {
	status TaskStatus
	// stands is where the record stands by the call of the task; empty where none is under way.
	stands batch.Status
	err    *batch.JobError
}

func (t *logBuilder) emit(e Event) {
	t.out.Last++
	e.No = t.out.Last
	t.out.Events = append(t.out.Events, e)
}

func (t *logBuilder) add(f *fact) {
	if !f.at.IsZero() {
		t.last = f.at
	}
	if t.step < 0 {
		t.emit(Event{Kind: EventExecutionStatus, At: t.last, Status: string(batch.ExecutionRunning)})
	}
	step := &t.plan.Steps[f.step]
	if t.step != f.step {
		t.step, t.done, t.tasks = f.step, false, make([]taskLogged, len(step.Tasks))
		t.emit(Event{Kind: EventStepStarted, At: t.last, Status: string(TaskRunning), StepID: step.ID})
		for i := range t.before {
			if b := &t.before[i]; b.step == f.step {
				t.move(&t.tasks[b.task], b)
			}
		}
	}
	task, of := &t.tasks[f.task], &step.Tasks[f.task]
	if f.claim && task.stands != "" {
		return // told of that call before
	}
	t.move(task, f)
	e := Event{Kind: EventTaskAttempt, At: t.last, Status: string(task.status), StepID: step.ID, TaskID: of.ID,
		Error: f.err}
	if f.claim || f.called || (of.Action.Call == nil && f.kind != batch.EntrySkipped) {
		e.Attempt = f.attempt
	}
	t.emit(e)
	t.conclude(step)
}

// move takes over what a fact says of its task.
func (t *logBuilder) move(task *taskLogged, f *fact) {
	task.err = f.err
	switch {
	case f.claim:
		task.status, task.stands = TaskRunning, batch.Started
	case f.kind == batch.EntryUnknown && task.stands == batch.NeedsReconcile:
		task.status, task.stands = TaskReconciling, batch.Unresolved
	case f.kind == batch.EntryUnknown:
		task.status, task.stands = TaskReconciling, batch.NeedsReconcile
	default:
		task.status, task.stands = cmp.Or(endedAs[f.kind], TaskWaiting), ""
	}
}

// conclude tells what has become of the step and of the job.
func (t *logBuilder) conclude(step *definition.Step) {
	now := batch.Queued
	for i := range t.tasks {
		if s := t.tasks[i].stands; s != "" && batch.Rank(s) > batch.Rank(now) {
			now = s
		}
	}
	status, finished := t.statusOf(step, false)
	over := finished && !t.done
	t.done = finished
	if over {
		t.endStep(step, status)
		if status == TaskFailed || int(t.step) == len(t.plan.Steps)-1 {
			return // the end of the record, which comes with it, says where it stands
		}
	}
	t.moveJob(now, nil)
}

func (t *logBuilder) moveJob(to batch.Status, why *batch.JobError) {
	if t.job != to {
		t.job = to
		t.emit(Event{Kind: EventJobStatus, At: t.last, Status: string(to), Error: why})
	}
}

// standing is the status of the step under way, and whether all of its tasks are settled; over says that nothing waits
// any more.
func (t *logBuilder) statusOf(step *definition.Step, over bool) (TaskStatus, bool) {
	sum := ExecutionStep{Step: step, Tasks: make([]ExecutionTask, len(step.Tasks))}
	finished := 0
	for i := range t.tasks {
		status := cmp.Or(t.tasks[i].status, TaskPending)
		sum.Tasks[i] = ExecutionTask{Task: &step.Tasks[i], Attempted: Attempted{Status: status}}
		if status == TaskCompleted || status == TaskSkipped || status == TaskFailed {
			finished++
		}
	}
	sum.sum(over)
	return sum.Status, finished == len(step.Tasks)
}

func (t *logBuilder) endStep(step *definition.Step, status TaskStatus) {
	e := Event{Kind: EventStepCompleted, At: t.last, Status: string(status), StepID: step.ID}
	if status == TaskFailed {
		e.Kind = EventStepFailed
		for i := range t.tasks {
			if t.tasks[i].status == TaskFailed && !step.Tasks[i].ContinueOnError {
				e.Error = t.tasks[i].err
				break
			}
		}
	}
	t.emit(e)
}

// end tells that the record is over.
func (t *logBuilder) end() {
	if t.step >= 0 && !t.done {
		step := &t.plan.Steps[t.step]
		if status, _ := t.statusOf(step, true); status == TaskFailed {
			t.endStep(step, status)
		}
	}
	t.last = moment.Later(t.last, t.over)
	t.moveJob(t.status, t.failure)
	t.close(batch.ExecutionOf(t.status, true))
}

// close tells that the execution is over.
func (t *logBuilder) close(status batch.ExecutionStatus) {
	t.last = moment.Later(t.last, t.over)
	t.emit(Event{Kind: EventExecutionStatus, At: t.last, Status: string(status), Error: t.failure})
	t.emit(Event{Kind: EventClosed, At: t.last, Status: string(status)})
}

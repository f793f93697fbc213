package definition

import (
	"math"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/expr"
	"flowlane/internal/moment"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/schema"
)

// Plan is one version of a definition, checked and ready to run: every default filled in, every expression compiled. It
// never changes and may be shared by any number of goroutines. The plan of a stored version can have tasks that can no
// longer run, because the catalog has changed: those have Gone set.
type Plan struct {
	DefinitionID, OrgID uuid.UUID
	Version             int32
	// Imported: it uses what an import of its organization may replace.
	Imported bool
	// Lane is empty where each action's own lane counts.
	Lane string
	// VariableSetID is not valid where the flow has no variables; else VariableVersion is the version of the set, empty
	// for its defaults, and VarKeys are the keys that expressions name.
	VariableSetID   uuid.NullUUID
	VariableVersion string
	VarKeys         []string
	// FailureThreshold is nil where a batch goes on however many of its jobs fail.
	FailureThreshold *Threshold
	// Key gives the key of a record; nil where records have none.
	Key   *expr.Key
	Steps []Step
}

// Step is one step of a plan.
type Step struct {
	ID, Name string
	// Input is what a record must fit to enter the step; nil where anything does. Only the first step has one.
	Input *schema.Schema
	Tasks []Task
}

// Task is one task of a plan.
type Task struct {
	ID string
	// Action is never nil. Where the task can no longer run, it has no more than its id, Bulk, and a Call that says
	// nothing where the task made calls.
	Action *catalog.Action
	// Gone says, in a sentence, why the task can no longer run with the catalog of this process; empty where it can.
	// Nothing may be evaluated or sent for it. Its records wait: another process may have the catalog for them.
	Gone string
	// CredentialID is not valid where the task needs no credential.
	CredentialID uuid.NullUUID
	// Params yields the parameters of one record: an object.
	Params *expr.Template
	// Row and Settings split the Params of a bulk task: what is evaluated for every record, and what all records of one
	// call share. Nil for other tasks.
	Row, Settings *expr.Template
	// Check is what rendered Params of a call are held against before it is made; nil for nothing. In-process actions
	// read their parameters themselves.
	Check *catalog.RenderCheck
	// Host is the host that params.url names literally, with its port; empty where there is none.
	Host string
	// When decides whether the task runs for a record, or for an element where it names one; nil means always.
	When *expr.Condition
	// Match decides which event ends the wait of a task that waits for one; nil means any of its kind. Params does not
	// have it.
	Match *expr.Match
	// ForEach gives the elements for which the task runs one after another; nil where it runs once. Bulk tasks have
	// none.
	ForEach *expr.List
	// Timeout bounds one call.
	Timeout time.Duration
	Retry   Retry
	// ContinueOnError lets a record go on to the next step although this task failed.
	ContinueOnError bool
	// ErrorBody: a later task may read the body of the answer that refused this one.
	ErrorBody bool
	// AtLeastOnce sends a call of unknown outcome again, by the author's choice.
	AtLeastOnce bool
}

// WhenElement reports whether When is asked for each element of ForEach, not for the record.
func (t *Task) WhenElement() bool { return t.ForEach != nil && t.When != nil && t.When.Refs().Item }

// Keyed reports whether calls of the task can carry an idempotency key.
func (t *Task) Keyed() bool {
	call := t.Action.Call
	return call != nil && !t.Action.Bulk && (call.IdempotencyHeader != "" || call.Idempotency.Body != "")
}

// Task returns a task by the ids of its step and of itself; nil where the plan has none.
func (p *Plan) Task(step, task string) *Task {
	for i := range p.Steps {
		if p.Steps[i].ID != step {
			continue
		}
		for j := range p.Steps[i].Tasks {
			if p.Steps[i].Tasks[j].ID == task {
				return &p.Steps[i].Tasks[j]
			}
		}
	}
	return nil
}

// Retry says how often a task may be tried and how long it waits in between. It speaks of failures that make another
// attempt harmless: answers that prove that nothing was done, and any failure of a call that is safe or keyed. Waiting
// for budget is no attempt.
type Retry struct {
	// MaxAttempts counts the first attempt: 1 never retries.
	MaxAttempts int
	// Initial and Max bound the wait between two attempts, which grows by Factor, 1 or more, each time.
	Initial, Max time.Duration
	Factor       float64
}

// Delay returns how long to wait after `attempt` attempts (1 after the first one failed). It grows from Initial by
// Factor up to Max; random, in [0, 1), places the result in the upper half of that, so that records that failed
// together do not come back together.
func (r Retry) Delay(attempt int, random float64) time.Duration {
	if r.Initial <= 0 {
		return 0
	}
	d := float64(r.Initial) * math.Pow(r.Factor, float64(max(attempt, 1)-1))
	return moment.Spread(time.Duration(min(d, float64(r.Max))), random)
}

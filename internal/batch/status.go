package batch

import (
	"slices"

	"flowlane/gen/db"
)

// The statuses of a job, in the order in which counters keep them.
//
//	staged → queued → pending → started → completed | failed | accepted | rejected
//	           ↑ └──────────────↗ │ └→ needs_reconcile → unresolved
//	           └──────────────────┘   (retry, next step, provably not sent)
//	staged | queued | pending → unprocessed (will never be sent)
const (
	Staged         = db.FlowJobStatusStaged
	Queued         = db.FlowJobStatusQueued
	Pending        = db.FlowJobStatusPending
	Started        = db.FlowJobStatusStarted
	NeedsReconcile = db.FlowJobStatusNeedsReconcile
	Completed      = db.FlowJobStatusCompleted
	Failed         = db.FlowJobStatusFailed
	Cancelled      = db.FlowJobStatusCancelled
	Accepted       = db.FlowJobStatusAccepted
	Rejected       = db.FlowJobStatusRejected
	Unprocessed    = db.FlowJobStatusUnprocessed
	Unresolved     = db.FlowJobStatusUnresolved
)

// Status is where a job stands.
type Status = db.FlowJobStatus

// Statuses lists every status in counter order.
var Statuses = [...]Status{
	Staged, Queued, Pending, Started, NeedsReconcile, Completed, Failed, Cancelled, Accepted, Rejected, Unprocessed,
	Unresolved,
}

// Counts says how many jobs stand at each of Statuses.
type Counts [len(Statuses)]int64

// Index returns the place of a status in Statuses, and so in Counts. It panics for an unknown one.
func Index(s Status) int {
	i := slices.Index(Statuses[:], s)
	if i < 0 {
		panic("batch: unknown job status " + string(s))
	}
	return i
}

// Of returns how many jobs stand at s.
func (c *Counts) Of(s Status) int64 { return c[Index(s)] }

// Add adds other counts, which may be negative.
func (c *Counts) Add(d *Counts) {
	for i, n := range d {
		c[i] += n
	}
}

// Move takes n jobs from one status to another.
func (c *Counts) Move(from, to Status, n int64) {
	c[Index(from)] -= n
	c[Index(to)] += n
}

// Failures is how many of the jobs failed, or were rejected.
func (c *Counts) Failures() int64 { return c.Of(Failed) + c.Of(Rejected) }

// Terminal reports whether a job of this status is over.
func Terminal(s Status) bool {
	switch s {
	case Completed, Failed, Cancelled, Accepted, Rejected, Unprocessed:
		return true
	}
	return false
}

// Unsent reports whether a job of this status waits for work on it. Once its batch sends nothing any more, it is
// unprocessed.
func Unsent(s Status) bool { return s == Staged || s == Queued || s == Pending }

// Terminal returns how many jobs are over.
func (c *Counts) Terminal() (n int64) {
	for i, s := range Statuses {
		if Terminal(s) {
			n += c[i]
		}
	}
	return n
}

// drawn holds the transitions of a job; the database refuses the same ones.
var drawn = map[Status][]Status{
	Staged:         {Queued, Unprocessed},
	Queued:         {Pending, Started, Completed, Failed, Unprocessed},
	Pending:        {Queued, Completed, Failed, Unprocessed},
	Started:        {Queued, NeedsReconcile, Completed, Failed, Cancelled, Accepted, Rejected, Unprocessed},
	NeedsReconcile: {Queued, Completed, Failed, Accepted, Rejected, Unprocessed, Unresolved},
	Unresolved:     {Queued, Completed, Failed, Accepted, Rejected, Unprocessed},
}

// MayMove reports whether a job may move from one status to another.
func MayMove(from, to Status) bool { return slices.Contains(drawn[from], to) }

// Between returns the statuses that lie on the shortest drawn way from one status to another. A record with two calls
// in a step needs that: it stands where the worst known one stands, so that the end of one call can show the other
// under way.
func Between(from, to Status) []Status {
	if from == to || MayMove(from, to) {
		return nil
	}
	came := map[Status]Status{from: from}
	for next := []Status{from}; len(next) > 0; next = next[1:] {
		for _, s := range drawn[next[0]] {
			if _, seen := came[s]; !seen {
				came[s] = next[0]
				next = append(next, s)
			}
		}
	}
	var way []Status
	if _, reached := came[to]; reached {
		for s := came[to]; s != from; s = came[s] {
			way = append([]Status{s}, way...)
		}
	}
	return way
}

// BatchStatus is where a batch stands. The database refuses other moves than these.
//
//	queued → running → completed | partially_failed | failed
//	queued → completed | partially_failed | failed     (over before anybody marked it as running)
//	queued, running ⇄ paused     (and back to exactly the one that it was)
//	queued, running, paused → cancelled
type BatchStatus = db.FlowBatchStatus

// The statuses of a batch.
const (
	BatchQueued          = db.FlowBatchStatusQueued
	BatchRunning         = db.FlowBatchStatusRunning
	BatchPaused          = db.FlowBatchStatusPaused
	BatchCompleted       = db.FlowBatchStatusCompleted
	BatchPartiallyFailed = db.FlowBatchStatusPartiallyFailed
	BatchFailed          = db.FlowBatchStatusFailed
	BatchCancelled       = db.FlowBatchStatusCancelled
)

// BatchTerminal reports whether a batch of this status is over.
func BatchTerminal(s BatchStatus) bool {
	switch s {
	case BatchCompleted, BatchPartiallyFailed, BatchFailed, BatchCancelled:
		return true
	}
	return false
}

// CanHold reports whether a batch of one status can have jobs of the other: one that is over has none that wait, and
// one that is completed nothing else than what came out well. Readers leave out batches that cannot.
func CanHold(b BatchStatus, s Status) bool {
	switch b {
	case BatchCompleted:
		return s == Completed || s == Accepted
	case BatchPartiallyFailed, BatchFailed:
		return Terminal(s)
	case BatchCancelled:
		return !Unsent(s)
	}
	return true
}

// Outcome returns how a batch ends whose jobs are all over.
func (c *Counts) Outcome() BatchStatus {
	good := c.Of(Completed) + c.Of(Accepted)
	switch {
	case good == c.Terminal():
		return BatchCompleted
	case good == 0:
		return BatchFailed
	default:
		return BatchPartiallyFailed
	}
}

// ExecutionStatus is where an execution stands.
type ExecutionStatus string

// The statuses of an execution: pending → running → completed | failed | cancelled.
const (
	ExecutionPending   ExecutionStatus = "pending"
	ExecutionRunning   ExecutionStatus = "running"
	ExecutionCompleted ExecutionStatus = "completed"
	ExecutionFailed    ExecutionStatus = "failed"
	ExecutionCancelled ExecutionStatus = "cancelled"
)

// ExecutionOf returns the status of an execution whose job stands at s; begun tells whether any work was done on it.
func ExecutionOf(s Status, begun bool) ExecutionStatus {
	switch s {
	case Completed, Accepted:
		return ExecutionCompleted
	case Failed, Rejected:
		return ExecutionFailed
	case Cancelled, Unprocessed:
		return ExecutionCancelled
	case Staged, Queued:
		if !begun {
			return ExecutionPending
		}
	}
	return ExecutionRunning
}

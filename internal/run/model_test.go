package run

import (
	"fmt"
	"slices"
	"strings"

	"flowlane/internal/batch"

	"flowlane/internal/batch/query"

	"github.com/google/uuid"
)

// The model of what should become of records: every record on its own, without parts, coverage or counters. It speaks
// of slices only where the rules do: records that nothing detached go on to the next step together.

// modelTask is a task as the model knows it.
type modelTask struct {
	kind   string // transform, skip, fail, bad, delay, delay_a, event, upload, modify
	passes bool   // on_error: continue
}

func (t modelTask) calls() bool { return t.kind == "upload" || t.kind == "modify" || t.kind == "each" }

// modelElements is how many elements a task of kind each has.
const modelElements = 3

// action is what a task that makes calls calls.
func (t modelTask) action() string {
	if t.kind == "each" {
		return "dialer__api__modify"
	}
	return "dialer__api__" + t.kind
}

type modelPlan [][]modelTask

func (p modelPlan) end() batch.Status {
	if last := p[len(p)-1]; len(last) == 1 && last[0].kind == "upload" {
		return batch.Accepted
	}
	return batch.Completed
}

// place is where one task of one record stands.
type place int

const (
	away    place = iota // not queued: its step's in-process work comes first, or it was dropped by a cancel
	waiting              // in a queue
	flying
	doubted
	lost
	over
)

var placeStatus = map[place]batch.Status{away: batch.Queued, waiting: batch.Queued, flying: batch.Started, doubted: batch.NeedsReconcile,
	lost: batch.Unresolved, over: batch.Queued}

type modelRecord struct {
	slice  *modelSlice
	offset int32
	// a and z are what the record's expressions look at.
	a, z     bool
	detached bool
	step     int
	local    bool // in-process work is to be done
	tasks    []place
	// held are the tasks of the step that wait, beside tells that its calls are made meanwhile.
	held   []int
	beside bool
	// alone tells which tasks wait, or fly, in a part of the record's own.
	alone []bool
	// element is what the task stands at, elements what those before it gave.
	element  []int
	elements [][]string
	doom     batch.Status
	end      batch.Status
	// passed are the tasks that came out well, here or before, as {step, task}.
	passed map[[2]int]bool
	// settled counts by {step, task} how often a task came to its end, outputs what it gave.
	settled map[[2]int]int
	outputs map[[2]int]string
	// log is that of the execution when it was read last.
	log query.Log
}

type modelSlice struct {
	batch *modelBatch
	no    int32
	first int64
	step  int
	// began is the step at which the batch took it up.
	began   int
	records []*modelRecord
	// mark is that of the state in which its logs were read last.
	mark int64
}

type modelBatch struct {
	id   uuid.UUID
	plan modelPlan
	// lineage are the batch that was retried first and its retries, in order; all of them share it.
	lineage *[]*modelBatch
	staged  bool
	touched bool
	// uncounted: its counters may say all of its records together, and of those that nothing marked as running.
	uncounted bool
	cancelled bool
	paused    bool
	// checked: records whose z is false break the input schema.
	checked bool
	// allowed is how many records may fail, -1 for all; stopped is set past that. inCalls is how many records were in
	// calls before the last move, most how many may fail since it was stopped.
	allowed int
	stopped bool
	inCalls int
	most    int
	slices  []*modelSlice
	// fresh are the tasks that were queued since it was last cleared, as {step, task}; freshWork tells of in-process
	// work, freshWait of waits.
	fresh     map[[2]int]bool
	freshWork bool
	freshWait bool
}

// closed reports whether nothing of the batch is sent any more.
func (b *modelBatch) closed() bool { return b.cancelled || b.stopped }

// failures counts the records that failed.
func (b *modelBatch) failures() (n int) {
	for _, r := range b.records() {
		if r.end == batch.Failed || r.end == batch.Rejected {
			n++
		}
	}
	return n
}

// flying counts the records that are in calls.
func (b *modelBatch) flying() (n int) {
	for _, r := range b.records() {
		if slices.ContainsFunc(r.tasks, func(p place) bool { return p == flying || p == doubted || p == lost }) {
			n++
		}
	}
	return n
}

func (b *modelBatch) past() bool { return b.allowed >= 0 && b.failures() > b.allowed }

// stopPast stops the batch once a move has taken it past its threshold.
func (b *modelBatch) stopPast() {
	if !b.closed() && b.past() {
		// A claim that finds a record that fails without a call may have taken others into one.
		b.stopped, b.most = true, b.allowed+max(b.inCalls, 1+b.flying())
	}
}

func (b *modelBatch) records() (out []*modelRecord) {
	for _, s := range b.slices {
		out = append(out, s.records...)
	}
	return out
}

// status is where the record stands.
func (r *modelRecord) status() batch.Status {
	if r.end != "" {
		return r.end
	}
	b := r.slice.batch
	s := batch.Queued
	if b.staged {
		s = batch.Staged
	}
	worst := away
	for _, p := range r.tasks {
		if p != over && p > worst {
			worst = p
		}
	}
	if worst > waiting {
		return b.shown(placeStatus[worst])
	}
	if b.closed() {
		return batch.Unprocessed
	}
	return s
}

// shown is what readers see of records that stand there: those of a call that has all of them are not counted at once.
func (b *modelBatch) shown(at batch.Status) batch.Status {
	if b.uncounted && at == batch.Started {
		return batch.Queued
	}
	return at
}

// enter lets a record enter a step, with its slice or alone.
func (r *modelRecord) enter(step int) {
	b := r.slice.batch
	r.beside = false
	r.step, r.tasks, r.alone = step, make([]place, len(b.plan[step])), make([]bool, len(b.plan[step]))
	r.element, r.elements = make([]int, len(b.plan[step])), make([][]string, len(b.plan[step]))
	r.local = step == 0 && b.checked && len(r.passed) == 0
	for i, t := range b.plan[step] {
		r.local = r.local || !t.calls() && !r.passed[[2]int{step, i}]
	}
	if r.local {
		b.freshWork = true
		return
	}
	r.queue()
}

// calls reports whether calls of the record's step are still to be made.
func (r *modelRecord) calls() bool {
	for i, t := range r.slice.batch.plan[r.step] {
		if t.calls() && !r.passed[[2]int{r.step, i}] {
			return true
		}
	}
	return false
}

func (r *modelRecord) queue() {
	b := r.slice.batch
	for i, t := range b.plan[r.step] {
		r.tasks[i] = over
		if t.calls() && !r.passed[[2]int{r.step, i}] {
			r.tasks[i], r.alone[i] = waiting, r.detached
			b.fresh[[2]int{r.step, i}] = true
		}
	}
}

// localOutcome says how an in-process task ends for the record.
func (r *modelRecord) localOutcome(t modelTask) string {
	switch {
	case t.kind == "skip" && !r.a, t.kind == "fail" && !r.a, t.kind == "delay_a" && !r.a:
		return batch.EntrySkipped
	case t.kind == "fail", t.kind == "bad" && !r.z:
		return batch.EntryFailed
	}
	return batch.EntryOK
}

// work does the in-process work of everything that has some now.
func (b *modelBatch) work() {
	// Records that left their slice come after those that did not.
	var due, alone []*modelRecord
	for _, r := range b.records() {
		switch {
		case !r.local || r.end != "":
		case r.detached:
			alone = append(alone, r)
		default:
			due = append(due, r)
		}
	}
	due = append(due, alone...)
	for _, r := range due {
		r.workOne()
	}
	for _, s := range b.slices {
		s.wait(due)
	}
	for _, s := range b.slices {
		s.advance()
	}
}

// fail ends a record that failed. Past the threshold, one that needs no call to fail is left unprocessed.
func (r *modelRecord) fail(end batch.Status, sent bool) {
	if !sent && r.slice.batch.past() {
		end = batch.Unprocessed
	}
	r.end = end
}

// leave ends a record that failed before the calls of its step.
func (r *modelRecord) leave() {
	r.fail(batch.Failed, false)
	r.detached = true
	r.held = nil
	for i := range r.tasks {
		r.tasks[i] = over
	}
}

func (r *modelRecord) workOne() {
	b := r.slice.batch
	r.local = false
	if r.step == 0 && b.checked && !r.z {
		r.leave()
		return
	}
	for i, t := range b.plan[r.step] {
		if t.calls() || r.passed[[2]int{r.step, i}] {
			continue
		}
		if t.waits(r) {
			r.held = append(r.held, i)
			continue
		}
		out := r.localOutcome(t)
		r.passed[[2]int{r.step, i}] = out != batch.EntryFailed || t.passes
		r.settled[[2]int{r.step, i}]++
		r.outputs[[2]int{r.step, i}] = ""
		if out == batch.EntryOK {
			r.outputs[[2]int{r.step, i}] = "1"
		}
		if out == batch.EntryFailed && !t.passes {
			r.leave()
			return
		}
	}
	if len(r.held) == 0 {
		r.workOver()
		return
	}
	b.freshWait = true
	if r.beside = r.calls(); r.beside {
		r.detached = true
		r.queue()
	}
}

// workOver lets a record go on from the in-process work of its step.
func (r *modelRecord) workOver() {
	r.queue()
	if !r.calls() && (r.detached || r.step == len(r.slice.batch.plan)-1) {
		r.stepOver(batch.EntryOK, false)
	}
}

// stepOver moves a record on whose tasks are all over; the last one came out like this.
func (r *modelRecord) stepOver(outcome string, sent bool) {
	b := r.slice.batch
	end := batch.Completed
	if outcome == batch.EntryOK {
		end = b.plan.end()
	}
	switch {
	case r.doom != "":
		r.fail(r.doom, sent)
	case r.step == len(b.plan)-1:
		r.end = end
		r.detached = r.detached || end != b.plan.end()
	case r.detached && !b.closed():
		r.enter(r.step + 1)
	}
}

// settle ends one attempt of a task that makes calls; sent is false where no call was made.
func (r *modelRecord) settle(task int, outcome, output string, sent bool) {
	b := r.slice.batch
	t := b.plan[r.step][task]
	if outcome == batch.EntryRetry {
		r.again(task)
		return
	}
	bad := outcome == batch.EntryFailed || outcome == batch.EntryRejected
	if t.kind == "each" && outcome != batch.EntrySkipped && (!bad || t.passes) {
		if output == "" {
			output = "null"
		}
		r.elements[task] = append(r.elements[task], output)
		output = "[" + strings.Join(r.elements[task], ",") + "]"
		if bad = false; len(r.elements[task]) < modelElements {
			r.element[task]++
			r.again(task)
			return
		}
		outcome = batch.EntryOK
	}
	r.tasks[task] = over
	k := [2]int{r.step, task}
	r.settled[k]++
	r.outputs[k] = output
	r.passed[k] = !bad || t.passes
	if bad && !t.passes {
		r.detached = true
		if !b.closed() {
			r.held = nil // it waits for nothing more
		}
		if outcome == batch.EntryFailed {
			r.doom = batch.Failed
		} else if r.doom == "" {
			r.doom = batch.Rejected
		}
	}
	if r.allOver() {
		r.stepOver(outcome, sent)
	}
	r.slice.advance()
}

// again queues a task once more, for the record alone.
func (r *modelRecord) again(task int) {
	b := r.slice.batch
	r.detached, r.tasks[task], r.alone[task] = true, waiting, true
	if b.closed() {
		r.tasks[task] = away
	} else {
		b.fresh[[2]int{r.step, task}] = true
	}
	r.slice.advance()
}

func (r *modelRecord) allOver() bool {
	if len(r.held) > 0 {
		return false
	}
	for _, p := range r.tasks {
		if p != over {
			return false
		}
	}
	return true
}

// advance takes the records that are with their slice to the next step once nothing of the slice is open in this one.
func (s *modelSlice) advance() {
	b := s.batch
	if b.closed() || b.staged {
		return
	}
	var members []*modelRecord
	for _, r := range s.records {
		if !r.detached {
			members = append(members, r)
		}
		if !r.detached && len(r.held) > 0 {
			return
		}
		if r.step != s.step {
			continue
		}
		if !r.detached && (r.local || r.end != "") {
			if r.local {
				return
			}
			continue
		}
		for i, p := range r.tasks {
			if p != over && !r.alone[i] && b.plan[r.step][i].calls() && (p != away || !r.detached) {
				return
			}
		}
	}
	if s.step == len(b.plan)-1 || len(members) == 0 {
		return
	}
	s.step++
	for _, r := range members {
		r.enter(s.step)
	}
}

// state is where the batch stands.
func (b *modelBatch) state() batch.BatchStatus {
	var c batch.Counts
	for _, r := range b.records() {
		c[batch.Index(r.status())]++
	}
	n := int64(len(b.records()))
	switch {
	case b.cancelled:
		return batch.BatchCancelled
	case b.paused:
		return batch.BatchPaused
	case c.Terminal() < n && !b.touched:
		return batch.BatchQueued
	case c.Terminal() < n:
		return batch.BatchRunning
	case b.stopped:
		return batch.BatchFailed
	case c.Of(batch.Completed)+c.Of(batch.Accepted) == n:
		return batch.BatchCompleted
	case c.Of(batch.Completed)+c.Of(batch.Accepted) == 0:
		return batch.BatchFailed
	}
	return batch.BatchPartiallyFailed
}

func (r *modelRecord) String() string {
	return fmt.Sprintf("record %d (slice %d, step %d, detached %t, places %v, end %q)", r.slice.first+int64(r.offset),
		r.slice.no, r.step, r.detached, r.tasks, r.end)
}

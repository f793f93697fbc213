package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
)

// MaxWait is how long a task may wait.
const MaxWait = 365 * 24 * time.Hour

// delayUtility is the action that waits for a time alone, as the catalog names it.
const delayUtility = "delay"

// waiters are the in-process actions that wait, by the name in the catalog.
var waiters = map[string]bool{delayUtility: true, definition.StartFlow: true, definition.WaitForEvent: true}

// wait is what a task waits for: a time that is so far from its beginning, or fixed; or until then for an event, or the
// end of a batch.
type wait struct {
	lasts time.Duration
	until *time.Time
	// kind is that of the event; empty for none. key is its digest (expr.Match), alone tells that it depends on the
	// record.
	kind, key string
	alone     bool
	// child is the batch; zero for none.
	child uuid.UUID
	// task and ends are the task's number, and when the wait is over at the latest, once it begins: then lasts and
	// until say nothing.
	task int16
	ends time.Time
}

func prepareDelay(r *recordWork, params []byte) error {
	var p struct {
		Seconds *float64 `json:"seconds"`
		Until   *string  `json:"until"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return errors.New("seconds must be a number, and until a text")
	}
	if (p.Seconds == nil) == (p.Until == nil) {
		return errors.New("one of seconds and until must have a value")
	}
	if p.Seconds != nil {
		lasts, err := secondsOf("seconds", *p.Seconds, 0)
		r.wait = &wait{lasts: lasts}
		return err
	}
	at, err := time.Parse(time.RFC3339, *p.Until)
	if err != nil {
		return errors.New("until must be a time such as 2030-01-31T08:00:00Z")
	}
	r.wait = &wait{until: &at}
	return nil
}

// secondsOf reads a parameter that says how long to wait.
func secondsOf(name string, seconds, least float64) (time.Duration, error) {
	if !(seconds >= least && seconds <= MaxWait.Seconds()) { // also NaN
		return 0, fmt.Errorf("%s must be from %v to %d", name, least, int64(MaxWait.Seconds()))
	}
	return time.Duration(math.Round(seconds * float64(time.Second))), nil
}

// end returns when a wait is over that begins now.
func (w *wait) end(now time.Time) (time.Time, error) {
	switch {
	case w.until == nil:
		return now.Add(w.lasts).Truncate(time.Microsecond), nil
	case w.until.Sub(now) > MaxWait:
		return time.Time{}, fmt.Errorf("until is more than %d days away", int(MaxWait.Hours()/24))
	}
	return w.until.UTC().Truncate(time.Microsecond), nil
}

// waited is the output of a task that waited until a time.
func waited(until time.Time) json.RawMessage {
	return json.RawMessage(`{"waited_until":"` + until.UTC().Format(time.RFC3339Nano) + `"}`)
}

// dryRunWait is what becomes of a wait that begins now where nothing waits.
func (r *recordWork) dryRunWait(now time.Time) {
	until, err := r.wait.end(now)
	if err != nil {
		r.fail(CodeFlowFailed, err.Error())
		return
	}
	if r.output = waited(until); r.wait.kind != "" {
		r.output = eventOutput(&db.FlowEventArrival{EventKind: r.wait.kind, OccurredAt: now, Payload: []byte("{}")})
	}
}

// planWaits reports whether a task of the plan may wait.
func planWaits(plan *definition.Plan) bool {
	return slices.ContainsFunc(plan.Steps, func(s definition.Step) bool { return stepWaits(&s) })
}

// LongestWait is for how long a record may wait at most in the steps of a plan before one, as a start at a time finds
// them. known is false where the data of records says so.
func LongestWait(plan *definition.Plan, before int, now time.Time) (longest time.Duration, known bool) {
	known = true
	for i := range plan.Steps[:before] {
		inStep := time.Duration(0) // its tasks wait beside each other
		for j := range plan.Steps[i].Tasks {
			t := &plan.Steps[i].Tasks[j]
			if !waiters[t.Action.Utility] || t.Gone != "" {
				continue
			}
			lasts, ok := writtenWait(t.Params.Source(), t.Action.Utility, now)
			inStep, known = max(inStep, lasts), known && ok && t.ForEach == nil
		}
		longest += inStep
	}
	return longest, known
}

// writtenWait is how long a task waits whose parameters are these; false where an expression says it.
func writtenWait(params json.RawMessage, utility string, now time.Time) (time.Duration, bool) {
	var p struct {
		Wait, Seconds, Until json.RawMessage
		Timeout              json.RawMessage `json:"timeout_seconds"`
	}
	if json.Unmarshal(params, &p) != nil {
		return 0, false
	}
	if waits := string(p.Wait); utility == definition.StartFlow && (waits == "" || waits == "false") {
		return 0, true
	}
	var seconds float64
	for _, text := range []json.RawMessage{p.Seconds, p.Timeout} {
		if json.Unmarshal(text, &seconds) == nil {
			lasts, err := secondsOf("seconds", seconds, 0)
			return lasts, err == nil
		}
	}
	var until time.Time
	if json.Unmarshal(p.Until, &until) != nil {
		return 0, false
	}
	return max(until.Sub(now), 0), true
}

// beginWaits decides which of the waits begin, once all else of the work is known: a record that failed waits for
// nothing, and what is over already is done.
func (w *sliceWork) beginWaits(now time.Time) {
	w.waiting = map[int32][]wait{}
	for _, r := range unsettled([]*sliceWork{w}) {
		if r.wait == nil || w.failed[r.offset] != nil {
			continue
		}
		ends, err := r.wait.end(now)
		switch {
		case err != nil:
			r.fail(CodeFlowFailed, err.Error())
		case !ends.After(now):
			r.output = waited(ends)
		default:
			begun := *r.wait
			begun.task, begun.ends, begun.lasts, begun.until = r.of.no, ends, 0, nil
			w.waiting[r.offset] = append(w.waiting[r.offset], begun)
			continue
		}
		w.settle(r)
	}
	for offset := range w.failed { // by a wait that could not begin
		delete(w.waiting, offset)
	}
}

// together returns what all members that did not fail wait for, if that is the same: then their slice waits. Where
// calls are made beside, a record's call may come to its end before the wait or after it, and each goes its own way.
func (w *sliceWork) together() []wait {
	if len(w.calls) > 0 || len(w.members) < len(w.all) {
		return nil
	}
	var all []wait
	for _, o := range w.members {
		if w.failed[o] != nil {
			continue
		}
		if all == nil {
			all = w.waiting[o]
		}
		if len(all) == 0 || !slices.Equal(all, w.waiting[o]) {
			return nil
		}
	}
	if slices.ContainsFunc(all, func(o wait) bool { return o.alone }) {
		return nil
	}
	return all
}

// waitJob has a record that is detached wait, and make the calls of its step.
func (c *Change) waitJob(h *lockedBatch, w *sliceWork, j *job, p *batch.Part, open []wait) {
	c.queueJob(j, w.First, w.calls)
	j.Remaining += int16(len(open)) //nolint:gosec // at most 20 tasks
	p.From = int32(j.Position - w.First)
	p.To = p.From + 1
	c.addWaits(h, w, p, j.Position, open)
}

// wholeSlice is the position of a wait of all members of a slice.
const wholeSlice = -1

// addWaits has the records of a part wait; calls of their step may be made meanwhile.
func (c *Change) addWaits(h *lockedBatch, w *sliceWork, p *batch.Part, position int64, open []wait) {
	a, now := &c.waits, batch.Millis(c.Now)
	for _, o := range open {
		p.TaskNo = o.task
		c.add(p, batch.Entry{From: p.From, To: p.To, LeftOut: p.LeftOut, Kind: batch.EntryWaiting, Attempt: 1,
			StartedAt: now,
			EndedAt:   now})
		a.OrgIds, a.BatchIds, a.SliceNos = append(a.OrgIds, h.OrgID), append(a.BatchIds, h.ID),
			append(a.SliceNos, p.SliceNo)
		a.Positions, a.StepNos, a.TaskNos = append(a.Positions, position), append(a.StepNos, p.StepNo),
			append(a.TaskNos, o.task)
		a.EndsAts, a.EventKinds, a.MatchKeys = append(a.EndsAts, o.ends), append(a.EventKinds, o.kind),
			append(a.MatchKeys, []byte(o.key))
		a.Children, a.Besides = append(a.Children, o.child), append(a.Besides, len(w.calls) > 0)
		c.Wake(DueWait, h.ID.String(), o.ends)
	}
}

// writeWaits inserts the waits that begin.
func (c *Change) writeWaits(ctx context.Context) error {
	if len(c.waits.Positions) == 0 {
		return nil
	}
	c.waits.Now = c.Now
	return fault.Wrap(c.s.q.WaitInsert(ctx, c.tx, c.waits), "begin to wait")
}

// clearWaits has the waits of a batch of which nothing goes on deleted: there can be very many.
func (c *Change) clearWaits(batchID uuid.UUID) {
	if planWaits(c.heads[batchID].plan) {
		c.wakeBatch(DueWait, batchID)
	}
}

// allTasks are all tasks of a step, bits by number.
const allTasks = -1

// leaveStep lets the members of a slice go on from a step of which these tasks are done: into its calls, into the next
// step, or to their end.
func (c *Change) leaveStep(h *lockedBatch, s *db.SliceRowsRow, members int32, done int64) {
	if members == 0 {
		c.advanceTo(h, s.No, s.StepNo, batch.SliceDone, 0)
		return
	}
	step, state := s.StepNo, batch.SliceCalling
	tasks := batch.Undone(batch.CallTasks(&h.plan.Steps[step]), done)
	switch {
	case len(tasks) > 0:
	case h.last(step):
		c.slice(batch.SliceKey{Batch: h.ID, No: s.No}).counts.Move(batch.Queued, h.final(), int64(members))
		state = batch.SliceDone
	default:
		step++
		if state = batch.EntryState(&h.plan.Steps[step]); state == batch.SliceCalling {
			tasks = batch.CallTasks(&h.plan.Steps[step])
		} else {
			c.wakeBatch(DueSlices, h.ID)
		}
	}
	for _, t := range tasks {
		c.enqueue(batch.Part{BatchID: h.ID, StepNo: step, TaskNo: t, SliceNo: s.No, First: s.First, To: s.Records,
			Attempt: 1}, members, immediately)
	}
	c.advanceTo(h, s.No, step, state, members*int32(len(tasks)))
}

func (c *Change) advanceTo(h *lockedBatch, no int32, step int16, state string, remaining int32) {
	a := &c.advances
	a.BatchIds, a.Nos = append(a.BatchIds, h.ID), append(a.Nos, no)
	a.StepNos, a.States, a.Remaining = append(a.StepNos, step), append(a.States, state), append(a.Remaining, remaining)
}

// stepWaits reports whether a task of the step may wait.
func stepWaits(step *definition.Step) bool {
	return slices.ContainsFunc(step.Tasks, func(t definition.Task) bool { return waiters[t.Action.Utility] })
}

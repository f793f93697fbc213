package run

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/batch"
	"flowlane/internal/definition"
)

// Result is how the records of a part came out of one attempt of its task.
type Result struct {
	// Part is covered by a call under its ID, or, without one, under CallID; with neither it was taken off its queue.
	Part batch.Part
	// From is where the records stand: Started, NeedsReconcile or Unresolved; Queued where no call was made.
	From batch.Status
	// CallID, StartedAt and EndedAt describe the attempt; zero where no call was made.
	CallID             uuid.UUID
	StartedAt, EndedAt time.Time
	// Output is the output of every record that is not an exception. Raw JSON; nil is null.
	Output json.RawMessage
	// Exceptions are the records that came out differently, ascending by offset.
	Exceptions []Exception
}

// Exception is a record that came out differently from the others of its part.
type Exception struct {
	// Offset is that of the record in its slice.
	Offset int32
	// Kind is EntryOK (with an output of its own), EntrySkipped, EntryFailed, EntryRejected, EntryRetry or, where the
	// task goes on with its next element, EntryElement.
	Kind  string
	Error *batch.JobError
	// Refused: the provider, or a person, says that it was not done.
	Refused bool
	// Output is that of a EntryOK.
	Output json.RawMessage
	// Body is that of the answer, as JSON, where the task has ErrorBody.
	Body json.RawMessage
	// RetryAt is when an EntryRetry is tried again.
	RetryAt time.Time
}

// again reports whether the task goes on for the record: with another attempt, or with its next element.
func (e *Exception) again() bool { return e.Kind == batch.EntryRetry || e.Kind == batch.EntryElement }

// Settle records how parts came out and moves their records on. Parts must not be settled twice; those of one ID stand
// together, all of them.
func (c *Change) Settle(ctx context.Context, results []Result) error {
	if err := c.preload(ctx, partsIn(results, func(r *Result) *batch.Part { return &r.Part })); err != nil {
		return err
	}
	results = slices.Clone(results) // those of elements are changed
	if err := c.settleElements(ctx, results); err != nil {
		return err
	}
	if err := c.dropWaits(ctx, c.failing(results)); err != nil {
		return err
	}
	for i := range results {
		r := &results[i]
		if r.Part.ID != 0 && (i == 0 || results[i-1].Part.ID != r.Part.ID) {
			c.deletePart(&r.Part)
		}
		if r.Part.ID == 0 && r.CallID != uuid.Nil && (i == 0 || results[i-1].CallID != r.CallID) {
			c.answered.CallIds = append(c.answered.CallIds, r.CallID)
			if int64(r.Part.Records()) == c.heads[r.Part.BatchID].RecordCount {
				c.answered.BatchIds = append(c.answered.BatchIds, r.Part.BatchID)
			}
		}
		if h := c.heads[r.Part.BatchID]; !r.StartedAt.IsZero() && (h.began.IsZero() || r.StartedAt.Before(h.began)) {
			h.began = r.StartedAt
		}
		c.addResult(r)
		if c.plain(&r.Part) {
			c.settlePlain(r)
		} else {
			c.settleEach(r)
		}
	}
	return nil
}

// partsIn returns the part of each.
func partsIn[T any](list []T, part func(*T) *batch.Part) []*batch.Part {
	out := make([]*batch.Part, len(list))
	for i := range list {
		out[i] = part(&list[i])
	}
	return out
}

// Plain reports whether the records of a part of this plan can be counted instead of looked at one by one.
func Plain(plan *definition.Plan, p *batch.Part) bool {
	return !p.Detached && len(batch.CallTasks(&plan.Steps[p.StepNo])) == 1
}

// plain reports whether the records of a part can be counted instead of looked at one by one: they are all with their
// slice, and no other task of the step covers them.
func (c *Change) plain(p *batch.Part) bool { return Plain(c.heads[p.BatchID].plan, p) }

// preload reads what records need that are looked at one by one.
func (c *Change) preload(ctx context.Context, ps []*batch.Part) error {
	var keys []batch.SliceKey
	var jobs []batch.JobKey
	for _, p := range ps {
		if c.plain(p) {
			continue
		}
		keys = append(keys, p.Slice())
		for o := p.From; o < p.To; o++ {
			jobs = append(jobs, p.Key(o))
		}
	}
	if err := c.loadCoverage(ctx, keys); err != nil {
		return err
	}
	return c.loadJobs(ctx, jobs)
}

func (c *Change) addResult(r *Result) {
	t := batch.Entry{From: r.Part.From, To: r.Part.To, LeftOut: r.Part.LeftOut, Kind: batch.EntryOK,
		Attempt: r.Part.Attempt, CallID: batch.CallID(r.CallID), StartedAt: batch.Millis(r.StartedAt),
		EndedAt: batch.Millis(r.EndedAt), Output: r.Output}
	if r.Part.Elements > 0 && r.Part.Element == r.Part.Elements {
		// The elements have told of their calls.
		t.CallID, t.StartedAt, t.EndedAt, t.Attempt = batch.CallID{}, 0, batch.Millis(c.Now), 0
	}
	if int32(len(r.Exceptions)) < r.Part.Records() {
		// The exceptions have entries of their own: this one must not tell of an attempt that never was.
		rest := t
		rest.LeftOut = slices.Clone(t.LeftOut)
		for _, e := range r.Exceptions {
			rest.LeftOut = append(rest.LeftOut, e.Offset)
		}
		slices.Sort(rest.LeftOut)
		c.add(&r.Part, rest)
	}
	for _, e := range r.Exceptions {
		t.From, t.To, t.LeftOut, t.Kind, t.Error, t.Output = e.Offset, e.Offset+1, nil, e.Kind, e.Error, e.Output
		t.Body, t.Refused = e.Body, e.Refused
		c.add(&r.Part, t)
	}
}

// passes reports whether the record goes on in spite of the exception.
func (c *Change) passes(p *batch.Part, e *Exception) bool {
	if e == nil || e.Kind == batch.EntrySkipped || e.Kind == batch.EntryOK {
		return true
	}
	return !e.again() && c.heads[p.BatchID].plan.Steps[p.StepNo].Tasks[p.TaskNo].ContinueOnError
}

// endsAs returns where a record ends whose last task came out like this.
func (c *Change) endsAs(p *batch.Part, e *Exception) batch.Status {
	if e != nil && e.Kind != batch.EntryOK {
		return batch.Completed
	}
	return c.heads[p.BatchID].final()
}

// failureStatus returns where a record ends that failed with e.
func failureStatus(e *Exception) batch.Status {
	if e.Kind == batch.EntryRejected {
		return batch.Rejected
	}
	return batch.Failed
}

// diverges reports whether a record that came out like this leaves its slice; open is how many of its calls are not
// settled.
func (c *Change) diverges(p *batch.Part, e *Exception, open int16) bool {
	h := c.heads[p.BatchID]
	return !c.passes(p, e) || open == 0 && h.last(p.StepNo) && c.endsAs(p, e) != h.final()
}

func (c *Change) settlePlain(r *Result) {
	p, h := &r.Part, c.heads[r.Part.BatchID]
	k := p.Slice()
	d := c.slice(k)
	c.widest[k] = max(c.widest[k], p.To-p.From)
	n := p.Records()
	for i := range r.Exceptions {
		if e := &r.Exceptions[i]; c.diverges(p, e, 0) {
			c.settleOne(p, e.Offset, e, r.From, &batch.Coverage{}) // no other call covers it
			n--
		}
	}
	d.remaining -= n
	target := batch.Queued
	if h.last(p.StepNo) {
		target = h.final()
	}
	if r.From != target {
		d.counts.Move(r.From, target, int64(n))
	}
}

// settleEach settles records that other tasks of the step, or rows of their own, must be asked about.
func (c *Change) settleEach(r *Result) {
	p := &r.Part
	offsets := p.Offsets()
	for _, o := range offsets {
		// What was taken off the queue without a call stood where it did then: the cover no longer shows it.
		if _, known := c.was[p.Key(o)]; !known || p.ID != 0 {
			c.was[p.Key(o)] = c.statusOf(p, o)
		}
	}
	cov := c.coverage[p.Slice()]
	if p.ID != 0 {
		cov.Remove(p.ID)
	}
	next := 0
	for _, o := range offsets {
		var e *Exception
		if next < len(r.Exceptions) && r.Exceptions[next].Offset == o {
			e = &r.Exceptions[next]
			next++
		}
		c.settleOne(p, o, e, c.was[p.Key(o)], cov)
	}
}

// settleOne settles a record that stood at before; cov has what else covers it.
func (c *Change) settleOne(p *batch.Part, offset int32, e *Exception, before batch.Status, cov *batch.Coverage) {
	k := p.Slice()
	j := c.jobs[p.Key(offset)]
	if !p.Detached {
		c.slice(k).remaining--
	}
	if j == nil {
		_, open := cov.StatusAt(p.StepNo, offset, batch.WithSlice)
		if !c.diverges(p, e, open) {
			c.slice(k).counts.Move(before, c.statusOf(p, offset), 1)
			return
		}
		j = c.detach(p, offset, before, open+1)
	}
	if e != nil && e.again() {
		c.againJob(j, p, e)
		c.moveJob(j, cov.Current(p.StepNo, offset, j.DetachedStep))
		return
	}
	j.Remaining--
	if !c.passes(p, e) {
		c.noteFailure(j, failureStatus(e), e.Error)
	}
	if j.Remaining == 0 {
		c.advanceJob(j, p.First, c.endsAs(p, e))
	} else {
		c.moveJob(j, cov.Current(p.StepNo, offset, j.DetachedStep))
	}
}

// statusOf returns where a record of a part stands now.
func (c *Change) statusOf(p *batch.Part, offset int32) batch.Status {
	if j := c.jobs[p.Key(offset)]; j != nil {
		return j.Status
	}
	if s, parts := c.coverage[p.Slice()].StatusAt(p.StepNo, offset,
		batch.WithSlice); parts > 0 {
		return s
	}
	if h := c.heads[p.BatchID]; h.last(p.StepNo) {
		return h.final()
	}
	return batch.Queued
}

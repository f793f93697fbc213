package query

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
)

// Record is one record of a batch as its readers see it: a job, an execution, a result.
type Record struct {
	Batch    *BatchRow
	Position int64
	Status   batch.Status
	// Run is the number of the run that is shown, and Execution its status; the last one unless runs were wanted.
	Run       int32
	Execution batch.ExecutionStatus
	// Created is when the run was: with its batch, or when the run before it ended.
	Created time.Time
	// Attempts is how many calls carried the record.
	Attempts int32
	// Input and Output are raw JSON; nil where they were not asked for. An output that is not there is nil too.
	Input, Output json.RawMessage
	// Key is empty where the record has none, or it was not asked for.
	Key string
	// SkippedTasks are those tasks of the last step whose condition left the record out, which gives them no output.
	SkippedTasks []string
	Error        *batch.JobError
	// StartedAt is when work on the record began, CompletedAt when its status became terminal.
	StartedAt, CompletedAt *time.Time
	UpdatedAt              time.Time
}

// Want says what a reader needs of records besides status, position and error.
type Want struct {
	Input, Output, Key bool
	// History is attempts, times and the status of the execution.
	History bool
	// Runs are the runs of a job, each as a record of its own.
	Runs bool
}

// of is what must be read of slices of a batch. What was inherited is no history of it.
func (w Want) of(b *Batch) Needs {
	n := Needs{Own: NoFragments, Inherited: NoFragments, runs: w.Runs}
	if w.Output {
		n.Own, n.Inherited = b.lastStep(), b.lastStep()
	}
	if w.History {
		n.Own = 0
	}
	return n
}

// history is what the entries and open calls of a record tell.
type history struct {
	// touched: something was done for the record.
	touched bool
	// started and ended are Unix milliseconds; 0 where no entry has a time.
	started, ended int64
	attempts       int32
}

func (h *history) saw(started, ended int64) {
	h.touched = true
	if started == 0 {
		started = ended
	}
	if started > 0 && (h.started == 0 || started < h.started) {
		h.started = started
	}
	h.ended = max(h.ended, started, ended)
}

// list makes the records at the wanted offsets, in order. Inputs are copied.
func (v *Slice) list(wanted []bool, want Want) (out []Record, err error) {
	err = v.each(wanted, want, func(r *Record) { out = append(out, *r) })
	return out, err
}

// each makes the records at the wanted offsets, in order, one after the other in the same place. Inputs are copied.
func (v *Slice) each(wanted []bool, want Want, do func(r *Record)) error {
	histories, outputs, err := v.readEntries(wanted, want)
	if err != nil {
		return err
	}
	var r Record
	for o := range v.Records {
		if !wanted[o] {
			continue
		}
		r = Record{Batch: v.Batch.BatchRow, Position: v.First + int64(o), Status: v.Statuses[o], Run: 1,
			Created: v.Batch.FlowBatch.CreatedAt}
		if want.Input {
			r.Input = append(json.RawMessage(nil), v.rows[o]...)
		}
		if want.Key && v.Batch.keys() {
			r.Key = v.Batch.Plan.Key.Of(v.rows[o])
		}
		if outputs != nil {
			r.Output, r.SkippedTasks = outputs.at(o)
		}
		if r.Error, err = v.failure(o); err != nil {
			return err
		}
		if want.History {
			v.date(&r, o, &histories[o])
		}
		do(&r)
	}
	return nil
}

// attemptKey names what has attempts of its own: a task, or one element of it, for the record at an offset.
type attemptKey struct {
	step, task      int16
	element, offset int32
}

// readEntries reads the entries of the wanted records once, for their history and their output.
func (v *Slice) readEntries(wanted []bool, want Want) ([]history, *outputs, error) {
	var histories []history
	if want.History {
		histories = make([]history, v.Records)
	}
	var outs *outputs
	if want.Output {
		outs = newOutputs(v.Batch.Plan, v.Records)
	}
	attempts := map[attemptKey]int32{}
	decode := func(step int16, line []byte) (batch.Entry, error) {
		if outs != nil && step == v.Batch.lastStep() {
			return batch.DecodeEntry(line)
		}
		return batch.DecodeLight(step, line)
	}
	err := v.entries(decode, wanted, func(step, task int16, t *batch.Entry) {
		if outs != nil && step == v.Batch.lastStep() {
			outs.add(task, t)
		}
		if !want.History || t.Inherited {
			return
		}
		t.Each(func(o int32) {
			histories[o].saw(t.StartedAt, t.EndedAt)
			if !t.CallID.IsZero() {
				k := attemptKey{step, task, t.Element, o}
				attempts[k] = max(attempts[k], t.Attempt)
			}
		})
	})
	if err != nil || !want.History {
		return histories, outs, err
	}
	for i := range v.Parts {
		p := &v.Parts[i]
		p.Each(func(o int32) {
			if !wanted[o] || !v.Concerns(p, o) {
				return
			}
			made := p.Attempt
			if p.State == batch.Queued {
				made--
			} else {
				histories[o].saw(batch.Millis(pg.Value(p.ClaimedAt)), 0)
			}
			k := attemptKey{p.StepNo, p.TaskNo, p.Element, o}
			attempts[k] = max(attempts[k], made)
		})
	}
	for k, n := range attempts {
		histories[k.offset].attempts += n
	}
	return histories, outs, nil
}

// begun reports whether anything was done for the record at this offset.
func (v *Slice) begun(o int32, h *history) bool {
	return v.StepNo > v.FirstStep || h.touched || v.jobs[o] != nil
}

// date fills in the record's times, attempts and execution status.
func (v *Slice) date(r *Record, o int32, h *history) {
	b := &v.Batch.FlowBatchCount
	begun := v.begun(o, h) || (batch.Terminal(r.Status) && r.Status != batch.Unprocessed)
	r.Execution, r.Attempts = batch.ExecutionOf(r.Status, begun), h.attempts
	switch {
	case h.started > 0:
		r.StartedAt = new(time.UnixMilli(h.started).UTC())
	case begun && b.StartedAt != nil:
		r.StartedAt = b.StartedAt
	}
	r.UpdatedAt = v.Batch.FlowBatch.CreatedAt
	if r.StartedAt != nil {
		r.UpdatedAt = moment.Later(r.UpdatedAt, *r.StartedAt)
	}
	if h.ended > 0 {
		r.UpdatedAt = moment.Later(r.UpdatedAt, time.UnixMilli(h.ended).UTC())
	}
	j := v.jobs[o]
	if j != nil {
		r.UpdatedAt = moment.Later(r.UpdatedAt, j.UpdatedAt)
	}
	if !batch.Terminal(r.Status) {
		return
	}
	if closed := cmp.Or(b.StoppedAt, b.CompletedAt); r.Status == batch.Unprocessed && (j == nil ||
		!batch.Terminal(j.Status)) &&
		closed != nil {
		r.UpdatedAt = moment.Later(r.UpdatedAt, *closed)
	}
	r.CompletedAt = new(r.UpdatedAt)
}

// failure is the error of the record at an offset; nil for none. Of one whose call is in doubt it is what went wrong
// with that.
func (v *Slice) failure(o int32) (*batch.JobError, error) {
	if p := v.uncertainPart(o); p != nil {
		return v.uncertain(p)
	}
	j := v.jobs[o]
	if j == nil || j.Error == "" {
		return nil, nil
	}
	var e batch.JobError
	err := json.Unmarshal([]byte(j.Error), &e)
	return &e, fault.Wrap(err, "the error of job %s", batch.JobID(v.Batch.FlowBatch.ID, j.Position))
}

// uncertainPart is the part whose call leaves it open what became of the record at an offset, and says why; nil for
// none.
func (v *Slice) uncertainPart(o int32) *batch.CoveringPart {
	s := v.Statuses[o]
	if s != batch.Started && s != batch.NeedsReconcile && s != batch.Unresolved {
		return nil
	}
	for i := range v.Parts {
		if p := &v.Parts[i]; p.State == s && p.Unknown != (batch.UnknownOutcome{}) && v.Concerns(p, o) {
			return p
		}
	}
	return nil
}

// uncertain is the error of the records of a part whose call is in doubt; nil where nothing is known of it.
func (v *Slice) uncertain(p *batch.CoveringPart) (*batch.JobError, error) {
	e, err := p.Unknown.Explain(v.Batch.Plan, &p.Part, p.State)
	return e, fault.Wrap(err, "the failure of a call of batch %s", v.Batch.FlowBatch.ID)
}

// outputs are what the records of a slice gave in the last step: the output of its task, or an object by task id where
// it has several.
type outputs struct {
	tasks []definition.Task
	// decided are the entries in force, by offset and task; nil for none.
	decided [][]*batch.Entry
	// last is the object composed of the entries of, skipped are the tasks that they say were skipped.
	of      []*batch.Entry
	last    json.RawMessage
	skipped []string
}

func newOutputs(plan *definition.Plan, records int32) *outputs {
	out := &outputs{tasks: plan.Steps[len(plan.Steps)-1].Tasks, decided: make([][]*batch.Entry, records)}
	n := len(out.tasks)
	all := make([]*batch.Entry, n*int(records))
	for o := range out.decided {
		out.decided[o] = all[o*n : (o+1)*n]
	}
	return out
}

func (s *outputs) add(task int16, t *batch.Entry) {
	if t.Decides() {
		t.Each(func(o int32) { s.decided[o][task] = t })
	}
}

// at returns the output of the record at this offset, nil where there is none, and the tasks that were skipped. Records
// that share their entries share it.
func (s *outputs) at(o int32) (json.RawMessage, []string) {
	entries := s.decided[o]
	switch {
	case !slices.ContainsFunc(entries, func(t *batch.Entry) bool { return t != nil }):
		return nil, nil
	case slices.Equal(entries, s.of):
		return s.last, s.skipped
	}
	s.of, s.last, s.skipped = entries, nil, nil
	for i, t := range entries {
		if t != nil && t.Kind == batch.EntrySkipped {
			s.skipped = append(s.skipped, s.tasks[i].ID)
		}
	}
	if len(entries) == 1 {
		s.last = entries[0].Output
		return s.last, s.skipped
	}
	sep := byte('{')
	for i, t := range entries {
		s.last = append(strconv.AppendQuote(append(s.last, sep), s.tasks[i].ID), ':')
		if t != nil && len(t.Output) > 0 {
			s.last = append(s.last, t.Output...)
		} else {
			s.last = append(s.last, "null"...)
		}
		sep = ','
	}
	s.last = append(s.last, '}')
	return s.last, s.skipped
}

// An execution can have outputs of hundreds of megabytes. Its reader looks at one large fragment after the other, and
// passes over the outputs in them, which are read one by one while the answer is written.

// StoredOutput says where the output of a task for a record is.
type StoredOutput struct {
	fragment db.FragmentBodyParams
	offset   int32
}

// Output reads one output.
func (s *Reader) Output(ctx context.Context, o *StoredOutput) (out json.RawMessage, err error) {
	body, err := s.q.FragmentBody(ctx, s.pool, o.fragment)
	if err != nil {
		return nil, fmt.Errorf("read an output of batch %s: %w", o.fragment.BatchID, err)
	}
	err = batch.EachEntry(body, func(line []byte) error {
		if from, to, _, ok := batch.RangeOf(line); ok && (o.offset < from || o.offset >= to) {
			return nil
		}
		t, err := batch.DecodeEntry(line)
		if err == nil && t.Covers(o.offset) && t.Decides() {
			out = t.Output
		}
		return err
	})
	return out, err
}

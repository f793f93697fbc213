package run

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/definition"
)

// Record is one record of a batch as its readers see it: a job, an execution, a result.
type Record struct {
	Batch    *BatchRow
	Position int64
	Status   Status
	// Run is the number of the run that is shown, and Execution its status; the last one unless runs were wanted.
	Run       int32
	Execution ExecutionStatus
	// Created is when the run was: with its batch, or when the run before it ended.
	Created time.Time
	// Attempts is how many calls carried the record.
	Attempts int32
	// Input and Output are raw JSON; nil where they were not asked for. An output that is not there is nil too.
	Input, Output json.RawMessage
	Error         *JobError
	// StartedAt is when work on the record began, CompletedAt when its status became terminal.
	StartedAt, CompletedAt *time.Time
	UpdatedAt              time.Time
}

// JobID names a record of a batch.
func JobID(batchID uuid.UUID, position int64) string {
	return fmt.Sprintf("%s.%d", batchID, position)
}

// Want says what a reader needs of records besides status, position and error.
type Want struct {
	Input, Output bool
	// History is attempts, times and the status of the execution.
	History bool
	// Runs are the runs of a job, each as a record of its own.
	Runs bool
}

// of is what must be read of slices of a batch. What was inherited is no history of it.
func (w Want) of(b *batchView) needs {
	n := needs{own: noTraces, inherited: noTraces, runs: w.Runs}
	if w.Output {
		n.own, n.inherited = b.lastStep(), b.lastStep()
	}
	if w.History {
		n.own = 0
	}
	return n
}

// history is what the traces and open calls of a record tell.
type history struct {
	// touched: something was done for the record.
	touched bool
	// started and ended are Unix milliseconds; 0 where no trace has a time.
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

// list makes the records at the wanted offsets, in order. rows are the raw records of the slice, nil where no input is
// wanted; they are copied.
func (v *sliceView) list(wanted []bool, want Want, rows [][]byte) ([]Record, error) {
	histories, outputs, err := v.tell(wanted, want)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, w := range wanted {
		if w {
			n++
		}
	}
	out := make([]Record, 0, n)
	for o := range v.Records {
		if !wanted[o] {
			continue
		}
		r := Record{Batch: v.batch.BatchRow, Position: v.First + int64(o), Status: v.statuses[o], Run: 1, Created: v.batch.FlowBatch.CreatedAt}
		if rows != nil {
			r.Input = append(json.RawMessage(nil), rows[o]...)
		}
		if outputs != nil {
			r.Output = outputs.of(o)
		}
		if r.Error, err = v.failure(o); err != nil {
			return nil, err
		}
		if want.History {
			v.date(&r, o, &histories[o])
		}
		out = append(out, r)
	}
	return out, nil
}

// attemptKey names what has attempts of its own: a task, or one element of it.
type attemptKey struct {
	step, task int16
	element    int32
}

// tell reads the traces of the wanted records once, for their history and their output.
func (v *sliceView) tell(wanted []bool, want Want) ([]history, *outputs, error) {
	var histories []history
	if want.History {
		histories = make([]history, v.Records)
	}
	var outs *outputs
	if want.Output {
		outs = newOutputs(v.batch.plan, v.Records)
	}
	attempts := map[attemptKey][]int32{}
	carried := func(step, task int16, element int32) []int32 {
		k := attemptKey{step, task, element}
		if attempts[k] == nil {
			attempts[k] = make([]int32, v.Records)
		}
		return attempts[k]
	}
	decode := func(step int16, line []byte) (Trace, error) {
		if outs != nil && step == v.batch.lastStep() {
			return decodeTrace(line)
		}
		return light(step, line)
	}
	err := v.traces(decode, wanted, func(step, task int16, t *Trace) {
		if outs != nil && step == v.batch.lastStep() {
			outs.add(task, t)
		}
		if !want.History || t.inherited {
			return
		}
		calls := carried(step, task, t.Element)
		t.each(func(o int32) {
			histories[o].saw(t.StartedAt, t.EndedAt)
			if t.CallID != "" {
				calls[o] = max(calls[o], t.Attempt)
			}
		})
	})
	if err != nil || !want.History {
		return histories, outs, err
	}
	for i := range v.parts {
		p := &v.parts[i]
		v.tellPart(p, wanted, carried(p.StepNo, p.TaskNo, p.Element), histories)
	}
	for _, calls := range attempts {
		for o, n := range calls {
			histories[o].attempts += n
		}
	}
	return histories, outs, nil
}

// tellPart adds what a part tells of the wanted records: their calls of its task, and when the one under way began.
func (v *sliceView) tellPart(p *coverPart, wanted []bool, calls []int32, histories []history) {
	for o := p.From; o < p.To; o++ {
		if !wanted[o] || !v.concerns(p, o) {
			continue
		}
		if p.state == Queued {
			calls[o] = max(calls[o], p.Attempt-1)
			continue
		}
		calls[o] = max(calls[o], p.Attempt)
		histories[o].saw(millis(deref(p.claimedAt)), 0)
	}
}

// each calls do with every offset that the trace covers.
func (t *Trace) each(do func(o int32)) { eachOffset(t.From, t.To, t.LeftOut, do) }

// begun reports whether anything was done for the record at this offset.
func (v *sliceView) begun(o int32, h *history) bool {
	return v.StepNo > v.FirstStep || h.touched || v.jobs[o] != nil
}

// date fills in the record's times, attempts and execution status.
func (v *sliceView) date(r *Record, o int32, h *history) {
	b := &v.batch.FlowBatchCount
	begun := v.begun(o, h) || (Terminal(r.Status) && r.Status != Unprocessed)
	r.Execution, r.Attempts = executionOf(r.Status, begun), h.attempts
	switch {
	case h.started > 0:
		r.StartedAt = ref(time.UnixMilli(h.started).UTC())
	case begun && b.StartedAt != nil:
		r.StartedAt = b.StartedAt
	}
	r.UpdatedAt = v.batch.FlowBatch.CreatedAt
	if r.StartedAt != nil {
		r.UpdatedAt = later(r.UpdatedAt, *r.StartedAt)
	}
	if h.ended > 0 {
		r.UpdatedAt = later(r.UpdatedAt, time.UnixMilli(h.ended).UTC())
	}
	j := v.jobs[o]
	if j != nil {
		r.UpdatedAt = later(r.UpdatedAt, j.UpdatedAt)
	}
	if !Terminal(r.Status) {
		return
	}
	if closed := cmp.Or(b.StoppedAt, b.CompletedAt); r.Status == Unprocessed && (j == nil || !Terminal(j.Status)) && closed != nil {
		r.UpdatedAt = later(r.UpdatedAt, *closed)
	}
	r.CompletedAt = ref(r.UpdatedAt)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (v *sliceView) failure(o int32) (*JobError, error) {
	j := v.jobs[o]
	if j == nil || j.Error == "" {
		return nil, nil
	}
	var e JobError
	if err := json.Unmarshal([]byte(j.Error), &e); err != nil {
		return nil, fmt.Errorf("the error of job %s: %w", JobID(v.batch.FlowBatch.ID, j.Position), err)
	}
	return &e, nil
}

// outputs are what the records of a slice gave in the last step: the output of its task, or an object by task id where it
// has several.
type outputs struct {
	ids []string
	// traces are in force where decided[task][offset] says so; -1 stands for none.
	traces  []Trace
	decided [][]int32
	// last is the composed object of the offset that had the traces in key.
	key  []int32
	last json.RawMessage
}

func newOutputs(plan *definition.Plan, records int32) *outputs {
	step := &plan.Steps[len(plan.Steps)-1]
	out := &outputs{decided: make([][]int32, len(step.Tasks))}
	for i := range step.Tasks {
		out.ids = append(out.ids, step.Tasks[i].ID)
		out.decided[i] = make([]int32, records)
		for o := range out.decided[i] {
			out.decided[i][o] = -1
		}
	}
	return out
}

func (s *outputs) add(task int16, t *Trace) {
	if !t.decides() {
		return
	}
	n := int32(len(s.traces))
	s.traces = append(s.traces, *t)
	t.each(func(o int32) { s.decided[task][o] = n })
}

// of returns the output of the record at this offset; nil where there is none. Records that share their traces share it.
func (s *outputs) of(o int32) json.RawMessage {
	if len(s.ids) == 1 {
		if n := s.decided[0][o]; n >= 0 {
			return s.traces[n].Output
		}
		return nil
	}
	some, same := false, len(s.key) == len(s.ids)
	for i := range s.ids {
		n := s.decided[i][o]
		some = some || n >= 0
		same = same && s.key[i] == n
	}
	if !some {
		return nil
	}
	if same {
		return s.last
	}
	s.key, s.last = s.key[:0], nil
	for i, id := range s.ids {
		n := s.decided[i][o]
		s.key = append(s.key, n)
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		s.last = append(strconv.AppendQuote(append(s.last, sep), id), ':')
		if n >= 0 && len(s.traces[n].Output) > 0 {
			s.last = append(s.last, s.traces[n].Output...)
		} else {
			s.last = append(s.last, "null"...)
		}
	}
	s.last = append(s.last, '}')
	return s.last
}

// An execution can have outputs of hundreds of megabytes. Its reader looks at one large fragment after the other, and
// passes over the outputs in them, which are read one by one while the answer is written.

// outputInline is up to which size an output is read with its execution.
const outputInline = 8 << 10

// StoredOutput says where the output of a task for a record is.
type StoredOutput struct {
	fragment db.FragmentBodyParams
	offset   int32
}

// Output reads one output.
func (s *Service) Output(ctx context.Context, o *StoredOutput) (out json.RawMessage, err error) {
	body, err := s.q.FragmentBody(ctx, s.pool, o.fragment)
	if err != nil {
		return nil, fmt.Errorf("read an output of batch %s: %w", o.fragment.BatchID, err)
	}
	err = eachTrace(body, func(line []byte) error {
		if from, to, _, ok := spanOf(line); ok && (o.offset < from || o.offset >= to) {
			return nil
		}
		t, err := decodeTrace(line)
		if err == nil && t.covers(o.offset) && t.decides() {
			out = t.Output
		}
		return err
	})
	return out, err
}

// light decodes a trace but for an output that is large. Only an error comes behind it, which a task that came out well has not.
func light(_ int16, line []byte) (Trace, error) {
	head, rest, found := bytes.Cut(line, []byte(`,"o":`)) // no text stands before it
	if !found || len(rest) <= outputInline || !bytes.Contains(head, []byte(`"k":"`+TraceOK+`"`)) {
		return decodeTrace(line)
	}
	t, err := decodeTrace(append(bytes.Clone(head), '}'))
	t.large = true
	return t, err
}

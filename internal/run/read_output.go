package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/definition"
)

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
	batch      uuid.UUID
	slice      int32
	step, task int16
	seq        int64
	offset     int32
}

// stored returns where the output of a trace is that was passed over; nil where it was not.
func (v *sliceView) stored(step, task int16, offset int32, t *Trace) *StoredOutput {
	if t.large == 0 {
		return nil
	}
	return &StoredOutput{batch: v.batch.FlowBatch.ID, slice: v.No, step: step, task: task, seq: t.seq, offset: offset}
}

// Output reads one output.
func (s *Service) Output(ctx context.Context, o *StoredOutput) (out json.RawMessage, err error) {
	at := db.FragmentBodyParams{BatchID: o.batch, SliceNo: o.slice, StepNo: o.step, TaskNo: o.task, Seq: o.seq}
	body, err := s.q.FragmentBody(ctx, s.pool, at)
	if err != nil {
		return nil, fmt.Errorf("read an output of batch %s: %w", o.batch, err)
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

// listFragments lists the fragments of a slice; the large ones are read each time that they are looked at.
func (s *Service) listFragments(ctx context.Context, tx pgx.Tx, v *sliceView) error {
	in := db.FragmentsOfSlicesParams{BatchID: v.batch.FlowBatch.ID, SliceNos: []int32{v.No}, Small: smallFragment}
	rows, err := s.q.FragmentsOfSlices(ctx, tx, in)
	if err != nil {
		return fmt.Errorf("read outputs of batch %s: %w", in.BatchID, err)
	}
	for _, r := range rows {
		f := taskBody{step: r.StepNo, task: r.TaskNo, body: r.Body, seq: r.Seq}
		if r.Large {
			f.load = func() ([]byte, error) { return s.largeFragment(ctx, tx, in.BatchID, &r) }
		}
		v.bodies = append(v.bodies, f)
	}
	return nil
}

// decodeTraceLight passes over an output that is large. Only an error comes behind it, which a task that came out
// well has not.
func decodeTraceLight(line []byte) (Trace, error) {
	head, rest, found := bytes.Cut(line, []byte(`,"o":`)) // no text stands before it
	if !found || len(rest) <= outputInline || !bytes.Contains(head, []byte(`"k":"`+TraceOK+`"`)) {
		return decodeTrace(line)
	}
	t, err := decodeTrace(append(bytes.Clone(head), '}'))
	t.large = len(rest)
	return t, err
}

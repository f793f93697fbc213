package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
)

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

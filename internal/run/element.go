package run

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/expr"
)

// atElement says of which element of a for_each a message speaks.
func atElement(index int32, message string) string {
	return fmt.Sprintf("Element at index %d: %s", index, message)
}

// tooMuchElements is what a record is told whose elements give more than a value may take.
var tooMuchElements = fmt.Sprintf("The outputs of the elements take more than %d MiB together", expr.MaxResult>>20)

// joined appends outputs of elements, in order, to the text of an array.
type joined struct {
	text  []byte
	count int
}

func (j *joined) add(output json.RawMessage) {
	if j.count++; j.count > 1 {
		j.text = append(j.text, ',')
	}
	if len(output) == 0 {
		output = json.RawMessage("null")
	}
	j.text = append(j.text, output...)
}

func (j *joined) array() json.RawMessage {
	return append(append([]byte{'['}, j.text...), ']')
}

// renderElements carries the task out for each element of a record. The output of one that is skipped, or that fails
// where the task goes on, is null.
func (t *taskWork) renderElements(r *recordWork, env *expr.Env) {
	list, err := t.task.ForEach.Eval(env)
	if err != nil {
		r.fail(CodeExpression, err.Error())
		return
	}
	var out joined
	for i := range list.Len() {
		at := list.At(i)
		one, code, err := t.renderElement(&at)
		if err != nil && (!t.task.ContinueOnError || list.Spent()) {
			r.fail(code, atElement(int32(i), err.Error()))
			return
		}
		if out.add(one); len(out.text) > expr.MaxResult {
			r.fail(CodeExpression, tooMuchElements)
			return
		}
	}
	r.output = out.array()
}

// renderElement returns the output of one element; an error has a code.
func (t *taskWork) renderElement(env *expr.Env) (output json.RawMessage, code string, err error) {
	if t.task.WhenElement() {
		ok, err := t.task.When.Eval(env)
		if err != nil || !ok {
			return nil, CodeExpression, err
		}
	}
	params, err := t.task.Params.Append(nil, env)
	if err != nil {
		return nil, CodeExpression, err
	}
	output, err = utilities[t.task.Action.Utility](params)
	return output, CodeFlowFailed, err
}

// Elements of one record go one after another: the part names the one that is next, and its record goes on alone once
// there is a second. The outputs of those that are over wait in rows of their own, until the last one is.

// elementKey names a task of a record.
type elementKey struct {
	batch      uuid.UUID
	position   int64
	step, task int16
}

// elementRows are the rows of elements that a settlement reads, or takes.
type elementRows db.ElementsTakeParams

func (rows *elementRows) add(k elementKey) {
	rows.BatchIds, rows.Positions = append(rows.BatchIds, k.batch), append(rows.Positions, k.position)
	rows.StepNos, rows.TaskNos = append(rows.StepNos, k.step), append(rows.TaskNos, k.task)
}

// loops are the results of a settlement that speak of single elements.
type loops struct {
	c     *Change
	bytes map[elementKey]int64
	// keep are outputs to be kept, taken the tasks that are over, of which last are to be given their output.
	keep  db.ElementAddParams
	taken elementRows
	// Their results have the outputs of the last elements.
	last map[elementKey]*Result
}

// settleElements makes, of how elements came out, how the task of their record goes on: with the next element, or with
// all their outputs. It leaves alone what speaks of a task as a whole.
func (c *Change) settleElements(ctx context.Context, results []Result) error {
	l := loops{c: c, bytes: map[elementKey]int64{}, last: map[elementKey]*Result{}}
	var stored elementRows
	some := false
	for i := range results {
		switch p := &results[i].Part; {
		case ofElement(&results[i]):
			some = true
			if p.Element > 0 {
				stored.add(keyOfElement(p))
			}
		case p.Elements == 0 && p.Element > 0: // the task as a whole failed on its way
			some = true
			l.taken.add(keyOfElement(p))
		}
	}
	if !some {
		return nil
	}
	if len(stored.TaskNos) > 0 {
		rows, err := c.s.q.ElementBytes(ctx, c.tx, db.ElementBytesParams(stored))
		if err != nil {
			return fmt.Errorf("read the outputs of elements: %w", err)
		}
		for _, r := range rows {
			l.bytes[elementKey{r.BatchID, r.Position, r.StepNo, r.TaskNo}] = r.Bytes
		}
	}
	for i := range results {
		if ofElement(&results[i]) {
			l.settle(&results[i])
		}
	}
	return l.write(ctx)
}

// ofElement reports whether a result says how one element came out, or that none is left.
func ofElement(r *Result) bool {
	return r.Part.Elements > 0 && (len(r.Exceptions) == 0 || (r.Exceptions[0].Kind != batch.EntryRetry &&
		r.Exceptions[0].Kind != batch.EntrySkipped))
}

func keyOfElement(p *batch.Part) elementKey {
	return elementKey{p.BatchID, p.First + int64(p.Offsets()[0]), p.StepNo, p.TaskNo}
}

func (l *loops) settle(r *Result) {
	p, offset := &r.Part, r.Part.Offsets()[0]
	k := keyOfElement(p)
	var failure *batch.JobError
	output := r.Output
	if p.Element == p.Elements {
		output = nil // none was left
	}
	if len(r.Exceptions) > 0 {
		e := r.Exceptions[0]
		failed := *e.Error
		failed.Message = atElement(p.Element, failed.Message)
		e.Error, failure, output = &failed, &failed, nil
		if r.Exceptions = []Exception{e}; !l.c.passes(p, &e) {
			l.taken.add(k)
			return
		}
	}
	r.Output, r.Exceptions = nil, nil
	switch {
	case l.bytes[k]+int64(len(output)) > expr.MaxResult:
		step := &l.c.heads[p.BatchID].plan.Steps[p.StepNo]
		e := &batch.JobError{Code: CodeExpression, Message: tooMuchElements, StepID: step.ID,
			TaskID: step.Tasks[p.TaskNo].ID}
		r.Exceptions = []Exception{{Offset: offset, Kind: batch.EntryFailed, Error: e}}
		l.taken.add(k)
	case p.Element+1 < p.Elements:
		r.Exceptions = []Exception{{Offset: offset, Kind: batch.EntryElement, Error: failure}}
		if len(output) > 0 {
			l.add(k, p.Element, output)
		}
	default:
		if failure != nil {
			l.c.add(p, batch.Entry{From: offset, To: offset + 1, Kind: batch.EntryElement, Attempt: p.Attempt,
				CallID:    batch.CallID(r.CallID),
				StartedAt: batch.Millis(r.StartedAt), EndedAt: batch.Millis(r.EndedAt), Error: failure})
			p.Element = p.Elements // the entry of the task as a whole tells of no call
		}
		l.taken.add(k)
		l.last[k], r.Output = r, output
	}
}

func (l *loops) add(k elementKey, element int32, output json.RawMessage) {
	l.keep.BatchIds, l.keep.Positions = append(l.keep.BatchIds, k.batch), append(l.keep.Positions, k.position)
	l.keep.StepNos, l.keep.TaskNos = append(l.keep.StepNos, k.step), append(l.keep.TaskNos, k.task)
	l.keep.Elements, l.keep.Outputs = append(l.keep.Elements, element), append(l.keep.Outputs, string(output))
}

// write keeps the outputs of elements that others follow, and joins those of tasks that are over.
func (l *loops) write(ctx context.Context) error {
	if len(l.keep.Outputs) > 0 {
		if err := l.c.s.q.ElementAdd(ctx, l.c.tx, l.keep); err != nil {
			return fmt.Errorf("keep the outputs of elements: %w", err)
		}
	}
	if len(l.taken.TaskNos) == 0 {
		return nil
	}
	rows, err := l.c.s.q.ElementsTake(ctx, l.c.tx, db.ElementsTakeParams(l.taken))
	if err != nil {
		return fmt.Errorf("take the outputs of elements: %w", err)
	}
	outputs := map[elementKey][]json.RawMessage{}
	for k, r := range l.last {
		outputs[k] = make([]json.RawMessage, r.Part.Elements)
		outputs[k][r.Part.Elements-1] = r.Output
	}
	for _, r := range rows {
		if list := outputs[elementKey{r.BatchID, r.Position, r.StepNo, r.TaskNo}]; int(r.Element) < len(list) {
			list[r.Element] = json.RawMessage(r.Output)
		}
	}
	for k, list := range outputs {
		var all joined
		for _, out := range list {
			all.add(out)
		}
		l.last[k].Output = all.array()
	}
	return nil
}

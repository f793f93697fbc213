package run

import (
	"encoding/json"
	"fmt"

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

// renderElements carries the task out for each element of a record. The output of one that is skipped, or that fails where
// the task goes on, is null.
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

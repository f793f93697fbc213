package run

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"flowlane/internal/definition"
	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/jsonraw"
	"flowlane/internal/schema"
)

// InputTemplate makes the record of a batch from the payload of what starts it. Nil passes the payload, which must then be an object.
type InputTemplate struct{ template *expr.Template }

// CompileInput compiles an object whose strings may hold expressions over payload; nil for none. It returns what is wrong with it,
// at its places below at.
func CompileInput(text json.RawMessage, at ...string) (*InputTemplate, []fault.Field) {
	if text == nil {
		return nil, nil
	}
	out, errs := expr.Compile(text, expr.Scope{Payload: true})
	if len(errs) == 0 {
		errs = out.NULs()
	}
	if len(errs) > 0 {
		return nil, BadExpressions(errs, at...)
	}
	return &InputTemplate{out}, nil
}

// BadExpressions names expressions that do not compile, each at its place below at.
func BadExpressions(errs []expr.Error, at ...string) []fault.Field {
	fields := make([]fault.Field, len(errs))
	for i, e := range errs {
		fields[i] = fault.Field{Loc: append(slices.Clone(at), e.Path...), Msg: e.Error(), Type: "value_error"}
	}
	return fields
}

// Record makes the record of a payload. The error is an *expr.EvalError.
func (t *InputTemplate) Record(payload json.RawMessage) ([]byte, error) {
	if t == nil {
		return payload, nil
	}
	record, err := t.template.Append(nil, &expr.Env{Payload: payload})
	if err != nil {
		return nil, err //nolint:wrapcheck // its text is for the author
	}
	if jsonraw.HasNUL(record) { // a function can make one
		return nil, &expr.EvalError{Msg: "the record that it makes contains a NUL character, which cannot be stored"}
	}
	return record, nil
}

// CodeInput is the code of the error of a record that breaks its flow's input schema.
const CodeInput = "input_invalid"

// Bounds of what the error of a record tells.
const (
	problemsTold = 3
	placeTold    = 100
)

// CheckInput returns why a record cannot enter a step; nil where it can.
func CheckInput(step *definition.Step, record []byte) *JobError {
	if step.Input == nil {
		return nil
	}
	problems := step.Input.Check(record)
	if len(problems) == 0 {
		return nil
	}
	var told []string
	for i, p := range problems {
		if i == problemsTold {
			more := strconv.Itoa(len(problems) - i)
			if len(problems) >= schema.MaxProblems {
				more = "many"
			}
			told = append(told, "and "+more+" more")
			break
		}
		at := strings.Join(p.Path, ".")
		if at == "" {
			at = "the record"
		}
		if len(at) > placeTold {
			at = strings.ToValidUTF8(at[:placeTold], "") + "..."
		}
		told = append(told, at+" "+p.Message)
	}
	return &JobError{Code: CodeInput, Message: "The record does not fit the input schema: " + strings.Join(told, "; ")}
}

package run

import (
	"encoding/json"
	"errors"
	"slices"

	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/jsonraw"
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

// Refusal says to people why a start failed. inside tells that nobody outside of the service can mend it: then the error is for the
// log alone.
func Refusal(err error) (reason string, inside bool) {
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return f.Detail, false
	}
	return "The flow could not be started; the service has logged why", true
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

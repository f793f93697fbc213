package definition

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"flowlane/internal/expr"
	"flowlane/internal/fault"
)

// BadExpression is an expression of a document that does not compile.
type BadExpression struct {
	// Sentence names expression, step, task and field.
	Sentence string
	// Field has its place in the body, and in Ctx the expression and the offset of what is wrong in it.
	Field fault.Field
}

// author is the task that expressions stand in; no step is set for those of the flow itself.
type author struct {
	at         place
	step, task string
}

func (c *compiler) note(by author, field string, errs []expr.Error) {
	for _, e := range errs {
		path := append(strings.Split(field, "."), e.Path...)
		sentence := fmt.Sprintf("field %s: %s", strings.Join(path, "."), e.Error())
		if by.step != "" {
			sentence = fmt.Sprintf("step %q, task %q, %s", by.step, by.task, sentence)
		}
		c.bad = append(c.bad, BadExpression{
			Sentence: sentence,
			Field: fault.Field{Loc: append(slices.Clone(by.at), path...), Type: "bad_expression", Msg: e.Error(),
				Ctx: e.Ctx()},
		})
	}
}

func sentences(bad []BadExpression) (out []string) {
	for _, b := range bad {
		out = append(out, b.Sentence)
	}
	return out
}

func places(bad []BadExpression) (out []fault.Field) {
	for _, b := range bad {
		out = append(out, b.Field)
	}
	return out
}

// beside adds bad expressions to broken rules, but for those in a value that must go anyway.
func beside(fields []fault.Field, bad []BadExpression) []fault.Field {
	gone := map[string]bool{}
	for _, f := range fields {
		gone[strings.Join(f.Loc, "\x00")] = true
	}
	for _, b := range bad {
		if !gone[strings.Join(b.Field.Loc, "\x00")] {
			fields = append(fields, b.Field)
		}
	}
	return fields
}

// CheckExpressions looks at the expressions of steps that break the schema elsewhere, so that an author reads of both
// at once. What cannot be told without the rest, such as the fields of a record, is left out; so is all where ids
// cannot be read. Fault: Unprocessable.
func CheckExpressions(steps json.RawMessage) error {
	doc, ok := looseDocument(steps)
	if !ok {
		return nil
	}
	c := newCompiler(doc, nil)
	c.broken = true
	if c.compile(doc); len(c.bad) == 0 {
		return nil
	}
	return fault.Invalidated(places(c.bad)...)
}

// looseDocument reads what can be read of steps; ok is false where an id cannot.
func looseDocument(steps json.RawMessage) (doc Document, ok bool) {
	doc.VariableSetID = "any" // that expressions may name variables
	var list []struct {
		ID    string            `json:"id"`
		Tasks []json.RawMessage `json:"tasks"`
	}
	if json.Unmarshal(steps, &list) != nil || len(list) > maxSteps {
		return doc, false
	}
	for _, s := range list {
		step := DocumentStep{ID: s.ID}
		if len(s.Tasks) > maxTasks || s.ID == "" {
			return doc, false
		}
		for _, text := range s.Tasks {
			task, ok := looseTask(text)
			if !ok {
				return doc, false
			}
			step.Tasks = append(step.Tasks, task)
		}
		doc.Steps = append(doc.Steps, step)
	}
	return doc, true
}

func looseTask(text json.RawMessage) (t DocumentTask, ok bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil || json.Unmarshal(fields["id"], &t.ID) != nil {
		return t, false
	}
	// What is of another type is the schema's matter.
	_ = json.Unmarshal(fields["action_id"], &t.ActionID)
	_ = json.Unmarshal(fields["on_error"], &t.OnError)
	for name, into := range map[string]**string{"when": &t.When, "for_each": &t.ForEach} {
		if json.Unmarshal(fields[name], into) != nil {
			*into = nil
		}
	}
	t.Params = fields["params"]
	return t, true
}

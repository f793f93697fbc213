package definition

import (
	"encoding/json"
	"slices"
	"strings"

	"flowlane/internal/schema"
)

// input checks the schema of records.
func (c *checker) input(at place, text json.RawMessage) {
	if len(text) == 0 {
		return
	}
	_, problems := schema.Compile(text)
	for _, p := range problems {
		c.add(append(slices.Clone(at), p.Path...), p.Type, nil, "%s%s", strings.ToUpper(p.Message[:1]), p.Message[1:])
	}
}

// input compiles the schema of records for the first step. In a stored version one that no longer compiles means that
// no record can enter: the tasks of the step are gone.
func (c *compiler) input(plan *Plan, text json.RawMessage) {
	if len(text) == 0 {
		return
	}
	first := &plan.Steps[0]
	compiled, problems := schema.Compile(text)
	first.Input = compiled
	if len(problems) == 0 {
		return
	}
	for i := range first.Tasks {
		t := &first.Tasks[i]
		t.Gone, t.Action = "The input schema cannot be read any more: "+problems[0].Message,
			lost(t.Action.ID, traitsOf(t.Action))
	}
}

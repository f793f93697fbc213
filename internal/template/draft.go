package template

import (
	"maps"
	"slices"

	"flowlane/internal/definition"
	"flowlane/internal/fault"
)

// Draft returns the draft of a definition that copies a template, with a credential id for each of its slots. Faults:
// NotFound for the template, Invalid for one that is not active, Unprocessable for a slot that is missing or unknown.
// Whether the credentials fit is for package definition to say, and it names the slots.
func (ts *Templates) Draft(id string, bindings map[string]string) (definition.Draft, error) {
	t, ok := ts.Get(id)
	if !ok {
		return definition.Draft{}, fault.Missing("Template")
	}
	if t.Status != StatusActive {
		return definition.Draft{}, fault.New(fault.Invalid, "Template is not active")
	}
	var fields []fault.Field
	bad := func(name, kind, msg string) {
		fields = append(fields, fault.Field{Loc: []string{"body", "bindings", name}, Type: kind, Msg: msg})
	}
	for _, s := range t.Slots {
		if _, ok := bindings[s.Name]; !ok {
			bad(s.Name, "missing", "Is required: the template calls with a credential of yours here")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(bindings)) {
		if t.slot(name) == nil {
			bad(name, "extra_forbidden", "The template has no such slot; GET /v1/flows/templates/"+t.ID+" lists them")
		}
	}
	if len(fields) > 0 {
		return definition.Draft{}, fault.Invalidated(fields...)
	}
	d := definition.Draft{Description: t.Description}
	d.Document, d.Bound = t.fill(bindings)
	return d, nil
}

// fill copies the steps with credentials in place of slots. slots tells, by task, which slot its credential stands in.
func (t *Template) fill(bindings map[string]string) (doc definition.Document, slots map[string]string) {
	slots = map[string]string{}
	for _, s := range t.Steps {
		s.Tasks = slices.Clone(s.Tasks)
		for i := range s.Tasks {
			task := &s.Tasks[i]
			if task.CredentialID == nil {
				continue
			}
			slots[task.ID] = *task.CredentialID
			id := bindings[*task.CredentialID]
			task.CredentialID = &id
		}
		doc.Steps = append(doc.Steps, s)
	}
	return doc, slots
}

package definition

import (
	"fmt"
	"strings"

	"flowlane/internal/platform/catalog"
)

// traits are what readers of a batch must know of an action even when the catalog has lost it.
type traits struct {
	// Call: tasks of the action make calls.
	Call bool `json:"call"`
	// Bulk: records whose last task it is end as accepted.
	Bulk bool `json:"bulk"`
}

func traitsOf(a *catalog.Action) traits { return traits{Call: a.Call != nil, Bulk: a.Bulk} }

// actionIDs are the actions that a document names.
func (d *Document) actionIDs() []string {
	var out []string
	for _, s := range d.Steps {
		for _, t := range s.Tasks {
			out = append(out, t.ActionID)
		}
	}
	return out
}

// actionTraits returns the traits of the actions that a document names, by id.
func actionTraits(doc Document, cat *catalog.Catalog) map[string]traits {
	out := map[string]traits{}
	for _, s := range doc.Steps {
		for _, t := range s.Tasks {
			if a, ok := cat.Action(t.ActionID); ok {
				out[t.ActionID] = traitsOf(a)
			}
		}
	}
	return out
}

// restore compiles a stored version, whatever has become of the catalog meanwhile: a task that can no longer run says
// so in Gone, and what happened stays readable. was are the traits of the actions when the version was stored.
func restore(doc Document, was map[string]traits, cat *catalog.Catalog) *Plan {
	if was == nil {
		was = map[string]traits{}
	}
	c := newCompiler(doc, cat)
	c.was = was
	return c.compile(doc)
}

// action returns the action of a task and, for a stored version, why the task can no longer run.
func (c *compiler) action(t DocumentTask) (a *catalog.Action, gone string) {
	if c.catalog == nil {
		a = lost(t.ActionID, traits{})
		if strings.HasSuffix(t.ActionID, "__"+WaitForEvent) {
			a.Utility = WaitForEvent
		}
		return a, ""
	}
	a, known := c.catalog.Action(t.ActionID)
	switch {
	case c.was == nil && !known:
		return lost(t.ActionID, traits{}), ""
	case c.was == nil:
		return a, ""
	}
	was, noted := c.was[t.ActionID]
	switch {
	case !known && !noted:
		return lost(t.ActionID, traits{Call: true}), "The catalog has no action " + t.ActionID + " any more"
	case !known:
		return lost(t.ActionID, was), "The catalog has no action " + t.ActionID + " any more"
	case noted && was != traitsOf(a):
		return lost(t.ActionID, was), "Action " + t.ActionID + " is of another kind in this catalog"
	}
	ch := checker{catalog: c.catalog}
	if ch.action(nil, t, a); len(ch.fields) > 0 {
		f := ch.fields[0]
		return lost(t.ActionID, traitsOf(a)), fmt.Sprintf("Action %s no longer takes this task, field %s: %s",
			t.ActionID, strings.Join(f.Loc, "."), f.Msg)
	}
	return a, ""
}

// lost stands for an action that the catalog does not have: enough to tell what happened, not enough to do anything.
func lost(id string, was traits) *catalog.Action {
	a := &catalog.Action{ID: id, Name: id, Bulk: was.Bulk, MaxRecordsPerRequest: 1, OutcomeCheck: catalog.CheckNone}
	if was.Call {
		a.Call = &catalog.Call{}
	}
	return a
}

// GoneError says why a version of a definition cannot run: the catalog has lost an action of it, or the action no
// longer takes a task as it is written. The version can run again once the catalog is as it was.
type GoneError struct{ reason string }

// Error is for the people of the organization: it names the step, the task and the action.
func (e *GoneError) Error() string { return e.reason }

// Runnable returns a *GoneError that names the first task that can no longer run; nil where all can.
func (p *Plan) Runnable() error {
	for _, s := range p.Steps {
		for _, t := range s.Tasks {
			if t.Gone != "" {
				return &GoneError{fmt.Sprintf("version %d of definition %s no longer fits the catalog: step %q, task %q: %s",
					p.Version, p.DefinitionID, s.ID, t.ID, t.Gone)}
			}
		}
	}
	return nil
}

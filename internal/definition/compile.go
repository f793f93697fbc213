package definition

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"flowlane/internal/catalog"
	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/schema"
)

// Compile checks a document against the catalog and returns its plan, without ids and version.
//
// What breaks a rule comes back as fields, all of it at once, each with its place below ["body"]; then there is no plan.
// Expressions are looked at once no rule is broken: each bad one is a sentence that names expression, step, task and
// field, and then there is no plan either. Credentials are not looked up here: Service does that.
func Compile(doc Document, cat *catalog.Catalog) (*Plan, []string, []fault.Field) {
	return compile(doc, cat, nil)
}

// compile is Compile where the keys of the document's variable set are known.
func compile(doc Document, cat *catalog.Catalog, vars []string) (*Plan, []string, []fault.Field) {
	if fields := check(doc, cat); len(fields) > 0 {
		return nil, nil, fields
	}
	c := newCompiler(doc, cat)
	c.vars = vars
	if len(doc.InputSchema) > 0 {
		if input, problems := schema.Compile(doc.InputSchema); len(problems) == 0 {
			c.records = input.Shape()
		}
	}
	plan := c.compile(doc)
	if len(c.bad) > 0 {
		return nil, c.bad, nil
	}
	return plan, nil, nil
}

// compiler compiles one document that broke no rule.
type compiler struct {
	catalog *catalog.Catalog
	// was holds the traits of the actions of a stored version; nil for a document that is new.
	was map[string]traits
	// vars are the keys of the variable set; nil where they are not known.
	vars []string
	// records is what the input schema says of a record; of a stored version, which runs as it is, nothing.
	records schema.Shape
	// hasVars is set where the document names a set, used holds the keys that expressions name.
	hasVars bool
	used    map[string]bool
	// earlier holds the steps before the current one, all those of the document, with their tasks.
	earlier, all map[string][]string
	// continuing holds the tasks behind whose failure a record goes on, by step and task.
	continuing map[[2]string]bool
	// plan is what is compiled so far.
	plan *Plan
	// bad collects the sentences about bad expressions.
	bad []string
}

func newCompiler(doc Document, cat *catalog.Catalog) *compiler {
	c := compiler{catalog: cat, all: map[string][]string{}, continuing: map[[2]string]bool{}}
	for _, s := range doc.Steps {
		for _, t := range s.Tasks {
			c.all[s.ID] = append(c.all[s.ID], t.ID)
			c.continuing[[2]string{s.ID, t.ID}] = t.OnError == OnErrorContinue
		}
	}
	return &c
}

func (c *compiler) compile(doc Document) *Plan {
	plan := &Plan{Lane: doc.Lane, VariableSetID: doc.variableSet(), VariableVersion: doc.VariableVersion, FailureThreshold: doc.FailureThreshold}
	c.plan = plan
	c.hasVars, c.used = doc.VariableSetID != "", map[string]bool{}
	c.earlier = map[string][]string{}
	for _, s := range doc.Steps {
		plan.Steps = append(plan.Steps, c.step(s))
		// Templates keep their scope: what later steps see goes into a new map.
		c.earlier = maps.Clone(c.earlier)
		c.earlier[s.ID] = c.all[s.ID]
	}
	c.input(plan, doc.InputSchema)
	plan.VarKeys = slices.Sorted(maps.Keys(c.used))
	return plan
}

func (c *compiler) step(s DocumentStep) Step {
	step := Step{ID: s.ID, Name: s.Name}
	if step.Name == "" {
		step.Name = s.ID
	}
	for _, t := range s.Tasks {
		step.Tasks = append(step.Tasks, c.task(s.ID, t))
	}
	return step
}

func (c *compiler) task(stepID string, t DocumentTask) Task {
	action, gone := c.action(t)
	task := Task{
		ID: t.ID, Action: action, Gone: gone, Timeout: timeout(t, action), Retry: t.Retry.policy(),
		ContinueOnError: t.OnError == OnErrorContinue, AtLeastOnce: t.Delivery == DeliveryAtLeastOnce,
	}
	if id, err := t.credential(); err == nil {
		task.CredentialID = id
	}
	if gone == "" {
		c.expressions(&task, stepID, t)
	}
	return task
}

// expressions compiles those of a task. In a stored version a bad one means that the task can no longer run.
func (c *compiler) expressions(task *Task, stepID string, t DocumentTask) {
	scope := expr.Scope{Input: true, Metadata: true, Batch: true, Vars: c.hasVars, VarKeys: c.vars, InputShape: c.records,
		Steps: c.earlier, AllSteps: c.all,
		Continues: func(step, task string) bool { return c.continuing[[2]string{step, task}] }}
	known := len(c.bad)
	var errs []expr.Error
	if t.ForEach != nil {
		task.ForEach, errs = expr.CompileList(*t.ForEach, scope)
		c.note(stepID, t.ID, "for_each", errs)
		if scope.Item = true; task.ForEach != nil {
			scope.ItemShape = task.ForEach.Element()
		}
	}
	params, match := t.params(), ""
	if task.Action.Utility == WaitForEvent {
		params, match = cutMatch(params)
	}
	task.Params, errs = expr.Compile(params, scope)
	c.note(stepID, t.ID, "params", errs)
	if match != "" {
		task.Match, errs = expr.CompileMatch(match, scope)
		c.note(stepID, t.ID, "params.match", errs)
	}
	task.Host = literalHost(t.params())
	if task.Action.Call != nil {
		task.Check = task.Action.RenderCheck(t.params())
	}
	if task.Action.Bulk && len(errs) == 0 {
		task.Row, task.Settings = split(t.params(), task.Action.Call.Records.Param, scope)
	}
	if t.When != nil {
		task.When, errs = expr.CompileCondition(*t.When, scope)
		c.note(stepID, t.ID, "when", errs)
	}
	if len(c.bad) == known {
		c.use(task.Params.Refs())
		if task.When != nil {
			c.use(task.When.Refs())
		}
		if task.Match != nil {
			c.use(task.Match.Refs())
		}
		if task.ForEach != nil {
			c.use(task.ForEach.Refs())
		}
	}
	if c.was != nil && len(c.bad) > known {
		task.Gone, task.Action = c.bad[known], lost(t.ActionID, traitsOf(task.Action))
	}
}

func (c *compiler) use(refs expr.Refs) {
	for _, key := range refs.VarKeys {
		c.used[key] = true
	}
	for _, ref := range refs.Tasks {
		if ref.Of == expr.OfError {
			c.plan.Task(ref.Step, ref.Task).ErrorBody = true // it is one of an earlier step
		}
	}
}

func (c *compiler) note(step, task, field string, errs []expr.Error) {
	for _, e := range errs {
		place := strings.Join(append([]string{field}, e.Path...), ".")
		c.bad = append(c.bad, fmt.Sprintf("step %q, task %q, field %s: %s", step, task, place, e.Error()))
	}
}

// params returns the authored parameters, "{}" for none.
func (t DocumentTask) params() json.RawMessage {
	if len(t.Params) == 0 {
		return json.RawMessage("{}")
	}
	return t.Params
}

// variableSet returns the authored set's id; not valid where there is none, or where the text is no id in the one form in
// which ids are shown.
func (d Document) variableSet() uuid.NullUUID {
	id, err := uuid.Parse(d.VariableSetID)
	return uuid.NullUUID{UUID: id, Valid: err == nil && id.String() == d.VariableSetID}
}

// credential returns the authored credential id; not valid where there is none, an error where the text is no id in the
// one form in which ids are shown.
func (t DocumentTask) credential() (uuid.NullUUID, error) {
	if t.CredentialID == nil {
		return uuid.NullUUID{}, nil
	}
	id, err := uuid.Parse(*t.CredentialID)
	if err != nil || id.String() != *t.CredentialID {
		return uuid.NullUUID{}, fmt.Errorf("%q is no credential id", *t.CredentialID)
	}
	return uuid.NullUUID{UUID: id, Valid: true}, nil
}

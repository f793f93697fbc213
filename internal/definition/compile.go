package definition

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/schema"
)

// Compile checks a document against the catalog and returns its plan, without ids and version.
//
// What breaks a rule comes back as fields, all of it at once, each with its place below ["body"]; then there is no
// plan. Expressions are looked at once no rule is broken: each bad one is a sentence that names expression, step, task
// and field, and then there is no plan either. Credentials are not looked up here: Service does that.
func Compile(doc Document, cat *catalog.Catalog) (*Plan, []string, []fault.Field) {
	plan, bad, fields := compile(doc, cat, nil)
	if len(fields) > 0 {
		return nil, nil, fields
	}
	return plan, sentences(bad), nil
}

// compile is Compile where the keys of the document's variable set are known. It finds bad expressions beside broken
// rules, too.
func compile(doc Document, cat *catalog.Catalog, vars []string) (*Plan, []BadExpression, []fault.Field) {
	fields := check(doc, cat)
	c := newCompiler(doc, cat)
	c.vars, c.broken = vars, len(fields) > 0
	if len(doc.InputSchema) > 0 {
		if input, problems := schema.Compile(doc.InputSchema); len(problems) == 0 {
			c.records = input.Shape()
		}
	}
	plan := c.compile(doc)
	if len(c.bad) > 0 || c.broken {
		return nil, c.bad, fields
	}
	return plan, nil, nil
}

// compiler compiles one document.
type compiler struct {
	catalog *catalog.Catalog
	// was holds the traits of the actions of a stored version; nil for a document that is new.
	was map[string]traits
	// broken: the document breaks rules, so that there will be no plan, and only its expressions are looked at.
	broken bool
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
	// bad collects the bad expressions.
	bad []BadExpression
	// constants is what constant expressions have spent.
	constants expr.Allowance
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
	plan := &Plan{Lane: doc.Lane, VariableSetID: doc.variableSet(), VariableVersion: doc.VariableVersion,
		FailureThreshold: doc.FailureThreshold}
	c.plan = plan
	c.hasVars, c.used = doc.VariableSetID != "", map[string]bool{}
	c.earlier = map[string][]string{}
	for i, s := range doc.Steps {
		plan.Steps = append(plan.Steps, c.step(place{"body"}.below("steps", i), s))
		// Templates keep their scope: what later steps see goes into a new map.
		c.earlier = maps.Clone(c.earlier)
		c.earlier[s.ID] = c.all[s.ID]
	}
	c.input(plan, doc.InputSchema)
	c.key(plan, doc.Key)
	plan.VarKeys = slices.Sorted(maps.Keys(c.used))
	return plan
}

// key compiles what tells records apart. In a stored version a bad one means that they have no keys.
func (c *compiler) key(plan *Plan, text string) {
	if text == "" {
		return
	}
	var errs []expr.Error
	plan.Key, errs = expr.CompileKey(text, expr.Scope{Input: true, InputShape: c.records, Constants: &c.constants})
	c.note(author{at: place{"body"}}, "key", errs)
}

func (c *compiler) step(at place, s DocumentStep) Step {
	step := Step{ID: s.ID, Name: s.Name}
	if step.Name == "" {
		step.Name = s.ID
	}
	for i, t := range s.Tasks {
		step.Tasks = append(step.Tasks, c.task(at.below("tasks", i), s.ID, t))
	}
	return step
}

func (c *compiler) task(at place, stepID string, t DocumentTask) Task {
	action, gone := c.action(t)
	task := Task{
		ID: t.ID, Action: action, Gone: gone, Timeout: timeout(t, action), Retry: t.Retry.policy(),
		ContinueOnError: t.OnError == OnErrorContinue, AtLeastOnce: t.Delivery == DeliveryAtLeastOnce,
	}
	if id, err := t.credential(); err == nil {
		task.CredentialID = id
	}
	if gone == "" {
		c.expressions(&task, author{at, stepID, t.ID}, t)
	}
	return task
}

// expressions compiles those of a task. In a stored version a bad one means that the task can no longer run.
func (c *compiler) expressions(task *Task, by author, t DocumentTask) {
	scope := expr.Scope{Input: true, Metadata: true, Batch: true, Vars: c.hasVars, VarKeys: c.vars,
		InputShape: c.records,
		Steps:      c.earlier, AllSteps: c.all, Constants: &c.constants,
		Continues: func(step, task string) bool { return c.continuing[[2]string{step, task}] }}
	known := len(c.bad)
	var errs []expr.Error
	if t.ForEach != nil {
		task.ForEach, errs = expr.CompileList(*t.ForEach, scope)
		c.note(by, "for_each", errs)
		if scope.Item = true; task.ForEach != nil {
			scope.ItemShape = task.ForEach.Element()
		}
	}
	params, match := t.params(), ""
	if task.Action.Utility == WaitForEvent {
		params, match = cutMatch(params)
	}
	task.Params, errs = expr.Compile(params, scope)
	c.note(by, "params", errs)
	if match != "" {
		task.Match, errs = expr.CompileMatch(match, scope)
		c.note(by, "params.match", errs)
	}
	if !c.broken {
		c.call(task, t, scope, len(errs) == 0)
	}
	if t.When != nil {
		task.When, errs = expr.CompileCondition(*t.When, scope)
		c.note(by, "when", errs)
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
		task.Gone, task.Action = c.bad[known].Sentence, lost(t.ActionID, traitsOf(task.Action))
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

// call compiles what the call of a task needs.
func (c *compiler) call(task *Task, t DocumentTask, scope expr.Scope, compiled bool) {
	task.Host = literalHost(t.params())
	if task.Action.Call != nil {
		task.Check = task.Action.RenderCheck(t.params())
	}
	if task.Action.Bulk && compiled {
		task.Row, task.Settings = split(t.params(), task.Action.Call.Records.Param, scope)
	}
}

// params returns the authored parameters, "{}" for none.
func (t DocumentTask) params() json.RawMessage {
	if len(t.Params) == 0 {
		return json.RawMessage("{}")
	}
	return t.Params
}

// variableSet returns the authored set's id; not valid where there is none, or where the text is no id in the one form
// in which ids are shown.
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

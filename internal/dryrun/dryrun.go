// Package dryrun owns the rehearsal of a flow: what every task would do with a sample record, its call as it would go
// out, and what records would cost. It promises that nothing is sent and nothing is stored, and that no secret is read:
// a placeholder stands in its place. Calls are rendered by the dispatcher's means, so that both say the same. It knows
// no HTTP route.
package dryrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/forecast"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
	"flowlane/internal/run"
)

// Deps are what a Service needs; all are required.
type Deps struct {
	Pool        pg.Pool
	Catalog     *catalog.Catalog
	Definitions *definition.Service
	Plans       *definition.Plans
	Credentials *credential.Service
	Forecasts   *forecast.Service
	Runs        *run.Service
	Now         func() time.Time
}

// Service rehearses flows.
type Service struct{ Deps }

// New returns a Service.
func New(d Deps) *Service { return &Service{d} }

// Input is what a flow is rehearsed with.
type Input struct {
	// Data is the sample record, Metadata the batch's; both are JSON objects.
	Data, Metadata json.RawMessage
	// Outputs are what tasks that make calls are taken to have answered, and events that others wait for to be, as an
	// object of objects by step and task.
	Outputs json.RawMessage
	// Errors are how such tasks are taken to have failed, by step and task.
	Errors map[string]map[string]Failure
	// Records is how many records the estimate is for.
	Records int64
}

// Failure is how a task is taken to have failed, and the body of the answer that says so; nil for none.
type Failure struct {
	batch.JobError
	Body json.RawMessage
}

// Outcome is what came of a rehearsal.
type Outcome struct {
	Definition definition.Definition
	Plan       *definition.Plan
	// Tasks runs in parallel to the plan's steps and their tasks.
	Tasks [][]Task
	// InputError is why the sample record would fail before its first task; nil where it fits.
	InputError *batch.JobError
	// AllowedFailures is how many of the records may fail before the batch stops; nil without a threshold.
	AllowedFailures *int64
	// Estimate is nil where the flow spends no metered budget, or none that is known.
	Estimate *forecast.Estimate
}

// Task is what a task would do.
type Task struct {
	// Kind is run.EntryOK, run.EntrySkipped or run.EntryFailed.
	Kind string
	// When is what the condition says; nil where there is none, or where it cannot be told.
	When *bool
	// Elements is how many elements the task would run for; nil where it has no for_each, or where it cannot be told.
	Elements *int
	// Call is nil where nothing would be sent; of a task with for_each it is that of the first element with one.
	Call *provider.Request
	// Output is what later steps see; nil for null.
	Output json.RawMessage
	// Error belongs to EntryFailed.
	Error *batch.JobError
}

// Run rehearses the newest version of a definition, whatever its status. What is wrong with a task stands with the
// task, and the others go on. Faults: NotFound; Unprocessable for outputs or errors of tasks that are none, or make no
// calls; Conflict for a variable set that lacks what the flow needs.
func (s *Service) Run(ctx context.Context, orgID, id uuid.UUID, in Input) (*Outcome, error) {
	def, err := s.Definitions.Get(ctx, orgID, id)
	if err != nil {
		return nil, err
	}
	plan, err := s.Plans.Plan(ctx, s.Pool, orgID, id, def.Version)
	if err != nil {
		return nil, err
	}
	return s.run(ctx, orgID, def, plan, in)
}

// RunNew rehearses a definition that is not stored. Faults: as Run, and those of a creation.
func (s *Service) RunNew(ctx context.Context, orgID uuid.UUID, d definition.Draft, in Input) (*Outcome, error) {
	plan, err := s.Definitions.Plan(ctx, orgID, d)
	if err != nil {
		return nil, err
	}
	return s.run(ctx, orgID, definition.Definition{}, plan, in)
}

func (s *Service) run(ctx context.Context, orgID uuid.UUID, def definition.Definition, plan *definition.Plan,
	in Input) (*Outcome, error) {
	given, err := readGiven(plan, &in)
	if err != nil {
		return nil, err
	}
	facts, err := run.BatchScope(uuid.Nil, def.ID, def.Version, in.Records, s.Now())
	if err != nil {
		return nil, err
	}
	vars, err := run.Vars(ctx, s.Pool, plan)
	if err != nil {
		return nil, err
	}
	r := rehearsal{s: s, orgID: orgID, lane: db.FlowLane(plan.Lane), given: given,
		results: map[expr.TaskRef]json.RawMessage{},
		env:     expr.Env{Input: in.Data, Metadata: in.Metadata, Vars: vars, Batch: facts}}
	r.env.Result = func(ref expr.TaskRef) json.RawMessage { return r.results[ref] }
	out := &Outcome{Definition: def, Plan: plan, InputError: run.CheckInput(&plan.Steps[0], in.Data)}
	if plan.FailureThreshold != nil {
		allowed := plan.FailureThreshold.Allowed(in.Records)
		out.AllowedFailures = &allowed
	}
	for i := range plan.Steps {
		tasks, err := r.step(ctx, &plan.Steps[i])
		if err != nil {
			return nil, err
		}
		out.Tasks = append(out.Tasks, tasks)
	}
	out.Estimate, err = s.Forecasts.OfBatch(pg.AsWorker(ctx), s.Pool, orgID, &run.StartedBatch{RecordCount: in.Records,
		Routes: r.routes, Plan: plan})
	return out, err
}

// answered are the in-process actions whose end others decide, by the name in the catalog.
var answered = map[string]bool{definition.StartFlow: true, definition.WaitForEvent: true}

// given is what the caller made up, by step and task.
type given struct {
	outputs map[[2]string]json.RawMessage
	errors  map[[2]string]Failure
	bad     []fault.Field
}

func readGiven(plan *definition.Plan, in *Input) (given, error) {
	g := given{outputs: map[[2]string]json.RawMessage{}, errors: map[[2]string]Failure{}}
	var steps map[string]json.RawMessage
	if len(in.Outputs) > 0 && json.Unmarshal(in.Outputs, &steps) != nil {
		g.refuse("object_type", "Must be an object", "outputs")
	}
	for _, step := range slices.Sorted(maps.Keys(steps)) {
		var tasks map[string]json.RawMessage
		if json.Unmarshal(steps[step], &tasks) != nil || tasks == nil {
			g.refuse("object_type", "Must be an object", "outputs", step)
			continue
		}
		for _, task := range slices.Sorted(maps.Keys(tasks)) {
			g.check(plan, "output", step, task)
			g.outputs[[2]string{step, task}] = tasks[task]
		}
	}
	for _, step := range slices.Sorted(maps.Keys(in.Errors)) {
		for _, task := range slices.Sorted(maps.Keys(in.Errors[step])) {
			g.check(plan, "error", step, task)
			if g.outputs[[2]string{step, task}] != nil {
				g.refuse("value_error", "The task has an output here too; give one of both", "errors", step, task)
			}
			g.errors[[2]string{step, task}] = in.Errors[step][task]
		}
	}
	if len(g.bad) > 0 {
		return given{}, fault.Invalidated(g.bad...)
	}
	return g, nil
}

// check refuses a result that is given for a task whose end is computed.
func (g *given) check(plan *definition.Plan, result, step, task string) {
	switch t := plan.Task(step, task); {
	case t == nil:
		g.refuse("value_error", "The definition has no such task", result+"s", step, task)
	case t.Action.Call == nil && !answered[t.Action.Utility]:
		g.refuse("value_error", "This task makes no call: its "+result+" is computed", result+"s", step, task)
	}
}

func (g *given) refuse(kind, msg string, at ...string) {
	g.bad = append(g.bad, fault.Field{Loc: append([]string{"body"}, at...), Type: kind, Msg: msg})
}

// asFault returns the fault that err is, or nil.
func asFault(err error) *fault.Error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return nil
}

// service returns the service of a task's action.
func (s *Service) service(t *definition.Task) (*catalog.Service, error) {
	svc := t.Action.Service()
	if svc == nil {
		return nil, fmt.Errorf("the catalog has no service %s", t.Action.ServiceID)
	}
	return svc, nil
}

package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/cell"
	"flowlane/internal/definition"
	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/jsonraw"
	"flowlane/internal/schema"
)

// preparedStart is what all starts of one version of a definition in one lane have in common. Once it is there, nothing
// about a start is refused but its record set: a transaction that starts batches for several records prepares them all
// before it writes anything.
type preparedStart struct {
	plan    *definition.Plan
	version int32
	// vars are nil where the flow has no variables.
	vars json.RawMessage
	// queues are those of the tasks that make calls, in their order.
	queues []TaskRoute
}

// prepare finds, and prepares, what a start needs. Faults: NotFound and Conflict of the plan, its variables and its
// credentials.
func (s *Service) prepare(ctx context.Context, tx pgx.Tx, orgID, definitionID uuid.UUID, version int32,
	lane *db.FlowLane) (*preparedStart, error) {
	plan, err := s.plans.Plan(ctx, tx, orgID, definitionID, version)
	if err != nil {
		return nil, fmt.Errorf("plan of definition %s: %w", definitionID, err)
	}
	if err := plan.Runnable(); err != nil {
		return nil, err
	}
	p := &preparedStart{plan: plan, version: version}
	if p.vars, err = Vars(ctx, tx, plan); err != nil {
		return nil, err
	}
	p.queues, err = s.queuesOf(ctx, tx, orgID, plan, lane)
	return p, err
}

// wake makes due what a batch has to do whose slices begin in this state, and what comes at a time.
func (p *preparedStart) wake(wakes wakeUps, b *StartedBatch, state string, now time.Time) {
	switch state {
	case batch.SliceStaged:
		wakes.add(DueRelease, b.BatchID.String(), b.NotBefore)
	case batch.SliceReady:
		wakes.add(DueSlices, b.BatchID.String(), now)
	default:
		for i := range p.queues {
			if q := &p.queues[i]; q.StepNo == 0 {
				wakes.add(DueDispatch, DispatchKey(q.Route.Domain, q.Route.Bucket), now)
			}
		}
	}
	if b.Pacing != nil {
		wakes.add(DuePacing, b.BatchID.String(), b.FirstTick)
	}
}

// queuesOf finds, and prepares, the queues of a plan.
func (s *Service) queuesOf(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, plan *definition.Plan,
	lane *db.FlowLane) (out []TaskRoute, err error) {
	var tasks []*definition.Task
	for i := range plan.Steps {
		step := &plan.Steps[i]
		for _, t := range batch.CallTasks(step) {
			task := &step.Tasks[t]
			out = append(out, TaskRoute{StepNo: int16(i), TaskNo: t, Task: task}) //nolint:gosec // at most 50 steps
			tasks = append(tasks, task)
		}
	}
	routes, err := s.router.Routes(ctx, tx, orgID, plan, tasks, lane)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Route = routes[i]
	}
	return out, nil
}

// Refusal says to people why a start failed. inside tells that the operator may have to mend it: then the error is for
// the log, too.
func Refusal(err error) (reason string, inside bool) {
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return f.Detail, false
	}
	if gone := (*definition.GoneError)(nil); errors.As(err, &gone) {
		return "The flow could not be started: " + gone.Error() +
			". Save a version of it that fits, or bring back what it needs, and start it again", true
	}
	return "The flow could not be started; the service has logged why", true
}

// Refused is a start that is refused though nobody who could be told asked for it.
type Refused = db.RefusedStartAddParams

// NoteRefused leaves a trigger that says why nothing started.
func (s *Service) NoteRefused(ctx context.Context, tx db.DBTX, r Refused) error {
	r.ID = cell.NewID()
	n, err := s.q.RefusedStartAdd(ctx, tx, r)
	if err != nil {
		return fmt.Errorf("note a refused start: %w", err)
	}
	if n != 1 {
		return fmt.Errorf("note a refused start: definition %s is not there", r.DefinitionID)
	}
	return nil
}

// InputTemplate makes the record of a batch from the payload of what starts it. Nil passes the payload, which must then
// be an object.
type InputTemplate struct{ template *expr.Template }

// CompileInput compiles an object whose strings may hold expressions over payload; nil for none. It returns what is
// wrong with it, at its places below at.
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
		fields[i] = fault.Field{Loc: append(slices.Clone(at), e.Path...), Msg: e.Error(), Type: "value_error",
			Ctx: e.Ctx()}
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
func CheckInput(step *definition.Step, record []byte) *batch.JobError {
	if step.Input == nil {
		return nil
	}
	problems := step.Input.Check(record)
	if len(problems) == 0 {
		return nil
	}
	var messages []string
	for _, p := range problems[:min(len(problems), problemsTold)] {
		at := cmp.Or(strings.Join(p.Path, "."), "the record")
		if len(at) > placeTold {
			at = strings.ToValidUTF8(at[:placeTold], "") + "..."
		}
		messages = append(messages, at+" "+p.Message)
	}
	if more := len(problems) - problemsTold; len(problems) >= schema.MaxProblems {
		messages = append(messages, "and many more")
	} else if more > 0 {
		messages = append(messages, fmt.Sprintf("and %d more", more))
	}
	return &batch.JobError{Code: CodeInput,
		Message: "The record does not fit the input schema: " + strings.Join(messages, "; ")}
}

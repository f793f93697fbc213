package dryrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/dispatch"
	"flowlane/internal/expr"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
	"flowlane/internal/run"
)

// Codes of errors, beside those of package run; the dispatcher gives the same to jobs.
const (
	codeParams     = "invalid_parameters"
	codeCredential = "credential_unusable"
	codeGone       = "action_unavailable"
)

// shownKey stands where the idempotency key of a call would.
const shownKey = "IDEMPOTENCY-KEY"

// rehearsal is one Run under way.
type rehearsal struct {
	s       *Service
	orgID   uuid.UUID
	env     expr.Env
	given   given
	results map[expr.TaskRef]json.RawMessage
	// lane is the definition's; empty where it has none.
	lane   db.FlowLane
	routes []run.TaskRoute
	// made is how many bytes of outputs and calls there are.
	made int
}

// mostMade bounds what a rehearsal shows: each task alone may make as much as an expression yields, and a flow has
// many.
const mostMade = 16 << 20

var tooMuch = fmt.Sprintf("The outputs and calls of this dry run take more than %d MiB together; "+
	"give a smaller sample record", mostMade>>20)

func (r *rehearsal) step(ctx context.Context, step *definition.Step) ([]Task, error) {
	out := make([]Task, len(step.Tasks))
	for i := range step.Tasks {
		var err error
		if out[i], err = r.task(ctx, step, &step.Tasks[i]); err != nil {
			return nil, err
		}
		out[i] = r.bound(step, &step.Tasks[i], out[i])
	}
	// Tasks of a step do not see each other.
	for i := range step.Tasks {
		r.end(step, &step.Tasks[i], &out[i])
	}
	return out, nil
}

// end puts what the caller gave in the place of what a task would get, and keeps its results for later steps.
func (r *rehearsal) end(step *definition.Step, task *definition.Task, t *Task) {
	key, ref := [2]string{step.ID, task.ID}, expr.TaskRef{Step: step.ID, Task: task.ID}
	output, failure := r.given.outputs[key], r.given.errors[key]
	switch {
	case t.Kind != batch.EntryOK:
		t.Output, failure = nil, Failure{}
	case failure.Code != "":
		e := failure.JobError
		e.StepID, e.TaskID = step.ID, task.ID
		t.Kind, t.Error, t.Output = batch.EntryFailed, &e, nil
	case output != nil:
		t.Output = output
	}
	ref.Of = expr.OfOutput
	r.results[ref] = t.Output
	ref.Of = expr.OfError
	r.results[ref] = t.Error.Value(failure.Body)
	ref.Of = expr.OfSkipped
	r.results[ref] = strconv.AppendBool(nil, t.Kind == batch.EntrySkipped)
}

// bound counts what a task has made, and fails the task where it is too much.
func (r *rehearsal) bound(step *definition.Step, task *definition.Task, t Task) Task {
	n := len(t.Output)
	if t.Call != nil {
		n += len(t.Call.URL) + int(t.Call.Size())
		for _, values := range t.Call.Header {
			for _, v := range values {
				n += len(v)
			}
		}
	}
	if r.made+n > mostMade {
		return failed(step, task, Task{When: t.When, Elements: t.Elements}, run.CodeExpression, tooMuch)
	}
	r.made += n
	return t
}

// failed returns a task that fails with what is known of it.
func failed(step *definition.Step, task *definition.Task, known Task, code, message string) Task {
	known.Kind, known.Error = batch.EntryFailed, &batch.JobError{Code: code, Message: message, StepID: step.ID,
		TaskID: task.ID}
	return known
}

func (r *rehearsal) task(ctx context.Context, step *definition.Step, task *definition.Task) (Task, error) {
	if task.Gone != "" {
		return failed(step, task, Task{}, codeGone, task.Gone), nil
	}
	cred, unusable, err := r.credential(ctx, task)
	if err != nil {
		return Task{}, err
	}
	if cred != nil && unusable == "" && task.Action.Call != nil {
		r.routes = append(r.routes, run.TaskRoute{Task: task, Route: dispatch.CredentialRoute(cred, task.Action,
			r.lane)})
	}
	out := Task{Kind: batch.EntryOK}
	env := r.env
	if task.When != nil && !task.WhenElement() {
		yes, err := task.When.Eval(&env)
		if err != nil {
			return failed(step, task, out, run.CodeExpression, err.Error()), nil
		}
		if out.When = &yes; !yes {
			out.Kind = batch.EntrySkipped
			return out, nil
		}
	}
	if task.ForEach != nil {
		more, err := elements(task, &env, &out)
		if err != nil {
			return failed(step, task, out, run.CodeExpression, err.Error()), nil
		}
		if !more && task.Action.Call != nil {
			return out, nil
		}
	}
	if task.Action.Call == nil {
		t, err := r.s.Runs.Evaluate(ctx, r.orgID, step, task, &r.env)
		if err != nil {
			return Task{}, err
		}
		out.Kind, out.Output, out.Error = t.Kind, t.Output, t.Error
		return out, nil
	}
	if unusable != "" {
		return failed(step, task, out, codeCredential, unusable), nil
	}
	call, err := r.call(task, cred, &env)
	switch {
	case errors.Is(err, provider.ErrParams), errors.Is(err, catalog.ErrRendered):
		return failed(step, task, out, codeParams, err.Error()), nil
	case errors.As(err, new(*expr.EvalError)):
		return failed(step, task, out, run.CodeExpression, err.Error()), nil
	case err != nil:
		return Task{}, err
	}
	out.Call = &call
	return out, nil
}

// elements shows env the first element that the task would run for; more is false where there is none.
func elements(task *definition.Task, env *expr.Env, out *Task) (more bool, err error) {
	list, err := task.ForEach.Eval(env)
	if err != nil {
		return false, err
	}
	n := list.Len()
	out.Elements = &n
	for i := range n {
		at := list.At(i)
		if task.WhenElement() {
			yes, err := task.When.Eval(&at)
			if err != nil {
				return false, err
			}
			if out.When = &yes; !yes {
				continue
			}
		}
		*env = at
		return true, nil
	}
	return false, nil
}

// credential returns the credential of a task, if it has one, and why it cannot be used.
func (r *rehearsal) credential(ctx context.Context, task *definition.Task) (*credential.Resolved, string, error) {
	if !task.CredentialID.Valid {
		return nil, "", nil
	}
	cred, err := r.s.Credentials.Placeholder(ctx, r.orgID, task.CredentialID.UUID)
	switch f := asFault(err); {
	case f != nil:
		return nil, f.Detail, nil //nolint:nilerr // it is what the rehearsal shows
	case err != nil:
		return nil, "", err
	case cred.Status != credential.Active:
		return cred, "The credential is " + cred.Status, nil
	case cred.TenancyID == "" && len(task.Action.Buckets) > 0:
		return cred, "Credential has no provider account", nil
	}
	return cred, "", nil
}

// call renders the call of the sample record, which goes alone where others would share it.
func (r *rehearsal) call(task *definition.Task, cred *credential.Resolved, env *expr.Env) (provider.Request, error) {
	svc, err := r.s.service(task)
	if err != nil {
		return provider.Request{}, err
	}
	var secret provider.Secret
	if cred != nil {
		secret = cred.Secret
	}
	if !task.Action.Bulk {
		params, err := task.Params.Append(nil, env)
		if err == nil {
			err = task.Check.Params(params)
		}
		if err != nil {
			return provider.Request{}, err
		}
		return provider.Prepare(svc, task.Action, params, nil, secret, shownKey)
	}
	settings, err := task.Settings.Append(nil, env)
	if err == nil {
		err = task.Check.Params(settings)
	}
	if err != nil {
		return provider.Request{}, err
	}
	rows, err := task.Row.Append([]byte{'['}, env)
	if err == nil {
		err = task.Check.Record(rows[1:])
	}
	if err != nil {
		return provider.Request{}, err
	}
	return provider.Prepare(svc, task.Action, settings, append(rows, ']'), secret, "")
}

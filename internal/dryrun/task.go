package dryrun

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"flowlane/internal/credential"
	"flowlane/internal/definition"
	"flowlane/internal/expr"
	"flowlane/internal/provider"
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
	outputs map[[2]string]json.RawMessage
	routes  []run.TaskRoute
}

func (r *rehearsal) step(ctx context.Context, step *definition.Step) ([]Task, error) {
	out := make([]Task, len(step.Tasks))
	for i := range step.Tasks {
		var err error
		if out[i], err = r.task(ctx, step, &step.Tasks[i]); err != nil {
			return nil, err
		}
	}
	// Tasks of a step do not see each other.
	for i := range step.Tasks {
		key := [2]string{step.ID, step.Tasks[i].ID}
		if out[i].Kind != run.TraceOK {
			delete(r.outputs, key)
		} else if step.Tasks[i].Action.Call == nil {
			r.outputs[key] = out[i].Output
		}
		out[i].Output = r.outputs[key]
	}
	return out, nil
}

func failed(step *definition.Step, task *definition.Task, when *bool, code, message string) Task {
	return Task{Kind: run.TraceFailed, When: when, Error: &run.JobError{Code: code, Message: message, StepID: step.ID, TaskID: task.ID}}
}

func (r *rehearsal) task(ctx context.Context, step *definition.Step, task *definition.Task) (Task, error) {
	if task.Gone != "" {
		return failed(step, task, nil, codeGone, task.Gone), nil
	}
	cred, unusable, err := r.credential(ctx, task)
	if err != nil {
		return Task{}, err
	}
	if cred != nil && unusable == "" && len(task.Action.Buckets) > 0 {
		r.routes = append(r.routes, run.TaskRoute{Task: task, Route: run.Route{Domain: cred.TenancyID, Bucket: task.Action.Buckets[0]}})
	}
	var when *bool
	if task.When != nil {
		yes, err := task.When.Eval(&r.env)
		if err != nil {
			return failed(step, task, nil, run.CodeExpression, err.Error()), nil
		}
		if when = &yes; !yes {
			return Task{Kind: run.TraceSkipped, When: when}, nil
		}
	}
	if task.Action.Call == nil {
		t, err := run.Evaluate(ctx, r.s.Pool, r.orgID, step, task, &r.env)
		if err != nil {
			return Task{}, err
		}
		return Task{Kind: t.Kind, When: when, Output: t.Output, Error: t.Error}, nil
	}
	if unusable != "" {
		return failed(step, task, when, codeCredential, unusable), nil
	}
	call, err := r.call(task, cred)
	switch {
	case errors.Is(err, provider.ErrParams):
		return failed(step, task, when, codeParams, err.Error()), nil
	case errors.As(err, new(*expr.EvalError)):
		return failed(step, task, when, run.CodeExpression, err.Error()), nil
	case err != nil:
		return Task{}, err
	}
	return Task{Kind: run.TraceOK, When: when, Call: &call}, nil
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
func (r *rehearsal) call(task *definition.Task, cred *credential.Resolved) (provider.Request, error) {
	svc, err := r.s.service(task)
	if err != nil {
		return provider.Request{}, err
	}
	var secret provider.Secret
	if cred != nil {
		secret = cred.Secret
	}
	if !task.Action.Bulk {
		params, err := task.Params.Append(nil, &r.env)
		if err != nil {
			return provider.Request{}, err
		}
		return provider.Prepare(svc, task.Action, params, nil, secret, shownKey)
	}
	settings, err := task.Settings.Append(nil, &r.env)
	if err != nil {
		return provider.Request{}, err
	}
	rows, err := task.Row.Append([]byte{'['}, &r.env)
	if err != nil {
		return provider.Request{}, err
	}
	return provider.Prepare(svc, task.Action, settings, append(rows, ']'), secret, "")
}

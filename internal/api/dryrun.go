package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/batch"
	"flowlane/internal/definition"
	"flowlane/internal/dryrun"
	"flowlane/internal/expr"
	"flowlane/internal/jsonraw"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
)

// dryRunHandler serves the dry-run of a definition.
type dryRunHandler struct{ dryRuns *dryrun.Service }

func (h dryRunHandler) DryRunDefinition(ctx context.Context, req oas.OptDryRunRequest,
	params oas.DryRunDefinitionParams) (*oas.DryRun, error) {
	id, err := pathID("Definition", params.DefinitionID)
	if err != nil {
		return nil, err
	}
	out, err := h.dryRuns.Run(ctx, account.FromContext(ctx).OrgID, id, dryRunInputOf(req.Value))
	if err != nil {
		return nil, err
	}
	return dryRunOf(out), nil
}

func (h dryRunHandler) DryRunNewDefinition(ctx context.Context, req *oas.NewDryRunRequest) (*oas.DryRun, error) {
	doc := documentOf(req.Lane, req.VariableSetID, req.VariableVersion, req.Steps)
	doc.InputSchema, doc.FailureThreshold, doc.Key = documentSchemaOf(req.InputSchema),
		documentThresholdOf(req.FailureThreshold), req.Key.Value
	draft := definition.Draft{Name: req.Name, Description: req.Description.Value, Status: string(req.Status.Value),
		Document: doc}
	out, err := h.dryRuns.RunNew(ctx, account.FromContext(ctx).OrgID, draft, dryRunInputOf(req.Rehearsal.Value))
	if err != nil {
		return nil, err
	}
	answer := dryRunOf(out)
	answer.DefinitionID = "" // there is none
	return answer, nil
}

func dryRunInputOf(req oas.DryRunRequest) dryrun.Input {
	return dryrun.Input{
		Data: jsonraw.Object(req.InputData.Value).Bytes(), Metadata: jsonraw.Object(req.Metadata.Value).Bytes(),
		Outputs: jsonraw.Object(req.Outputs.Value).Bytes(), Records: req.RecordCount.Or(1),
		Errors: failuresOf(req.Errors.Value),
	}
}

func failuresOf(steps oas.DryRunRequestErrors) map[string]map[string]dryrun.Failure {
	out := map[string]map[string]dryrun.Failure{}
	for step, tasks := range steps {
		out[step] = map[string]dryrun.Failure{}
		for task, e := range tasks {
			out[step][task] = dryrun.Failure{
				JobError: batch.JobError{
					Code: e.Code.Value, Message: e.Message.Value, ProviderStatus: e.Status.Value,
					ProviderCode: e.ProviderCode.Value, ProviderMessage: e.ProviderMessage.Value,
				},
				Body: json.RawMessage(e.Body.Value),
			}
		}
	}
	return out
}

func dryRunOf(o *dryrun.Outcome) *oas.DryRun {
	out := &oas.DryRun{DefinitionID: o.Definition.ID.String(), Version: int(o.Definition.Version),
		Estimate:   oas.NilEstimate{Null: true},
		InputError: jobErrorOf(o.InputError), AllowedFailures: oas.NilInt64{Null: true}}
	if o.AllowedFailures != nil {
		out.AllowedFailures = oas.NewNilInt64(*o.AllowedFailures)
	}
	if o.Estimate != nil {
		out.Estimate = oas.NewNilEstimate(estimateOf(o.Estimate))
	}
	for i := range o.Plan.Steps {
		step := oas.DryRunStep{ID: o.Plan.Steps[i].ID, Name: o.Plan.Steps[i].Name}
		for j := range o.Tasks[i] {
			step.Tasks = append(step.Tasks, dryRunTaskOf(&o.Plan.Steps[i].Tasks[j], &o.Tasks[i][j]))
		}
		out.Steps = append(out.Steps, step)
	}
	return out
}

var dryRunStatuses = map[string]oas.DryRunStatus{
	batch.EntryOK: oas.DryRunStatusResolved, batch.EntrySkipped: oas.DryRunStatusSkipped,
	batch.EntryFailed: oas.DryRunStatusFailed,
}

func dryRunTaskOf(task *definition.Task, t *dryrun.Task) oas.DryRunTask {
	out := oas.DryRunTask{
		ID: task.ID, ActionID: task.Action.ID, CredentialID: oas.NilString{Null: true}, Status: dryRunStatuses[t.Kind],
		When: oas.NilBool{Null: true}, Elements: oas.NilInt{Null: true}, Call: oas.NilDryRunCall{Null: true},
		Output: oas.AnyValue(t.Output), Error: jobErrorOf(t.Error),
	}
	if task.CredentialID.Valid {
		out.CredentialID = oas.NewNilString(task.CredentialID.UUID.String())
	}
	if t.Elements != nil {
		out.Elements = oas.NewNilInt(*t.Elements)
	}
	if t.When != nil {
		out.When = oas.NewNilBool(*t.When)
	}
	if t.Call != nil {
		out.Call = oas.NewNilDryRunCall(dryRunCallOf(t.Call))
	}
	return out
}

func dryRunCallOf(r *provider.Request) oas.DryRunCall {
	body := bytes.Join(r.Body, nil)
	switch {
	case len(body) == 0 || r.BodyForm == catalog.BodyJSON || r.BodyForm == "": // what a tool is asked is JSON
	case r.BodyForm == catalog.BodyBytes, !utf8.Valid(body):
		body = strconv.AppendQuote(nil, base64.StdEncoding.EncodeToString(body))
	default:
		body = expr.AppendJSONString(nil, string(body))
	}
	out := oas.DryRunCall{Method: r.Method, URL: r.URL, Headers: oas.DryRunCallHeaders{}, Body: oas.AnyValue(body)}
	for name, values := range r.Header {
		out.Headers[name] = strings.Join(values, ", ")
	}
	return out
}

package api

import (
	"encoding/json"

	"flowlane/gen/oas"
	"flowlane/internal/definition"
	"flowlane/internal/jsonraw"
)

func definitionOf(d definition.Definition) oas.Definition {
	return oas.Definition{
		ID: d.ID.String(), OrgID: d.OrgID.String(), Name: d.Name, Description: d.Description,
		Status: oas.DefinitionStatus(d.Status), Version: int(d.Version),
		Lane:          laneOf(d.Document.Lane),
		VariableSetID: nilText(d.Document.VariableSetID), VariableVersion: nilText(d.Document.VariableVersion),
		InputSchema: schemaOf(d.Document.InputSchema), FailureThreshold: thresholdOf(d.Document.FailureThreshold),
		Key: nilText(d.Document.Key), Steps: stepsOf(d.Document.Steps),
		CreatedBy: d.CreatedBy, CreatedAt: d.CreatedAt.UTC(), UpdatedAt: d.UpdatedAt.UTC(),
	}
}

func definitionVersionOf(v definition.Version) oas.DefinitionVersion {
	return oas.DefinitionVersion{
		DefinitionID: v.DefinitionID.String(), Version: int(v.Version),
		Lane:          laneOf(v.Document.Lane),
		VariableSetID: nilText(v.Document.VariableSetID), VariableVersion: nilText(v.Document.VariableVersion),
		InputSchema: schemaOf(v.Document.InputSchema), FailureThreshold: thresholdOf(v.Document.FailureThreshold),
		Key: nilText(v.Document.Key), Steps: stepsOf(v.Document.Steps),
		CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt.UTC(),
	}
}

func laneOf(lane string) oas.NilLane {
	return oas.NilLane{Value: oas.Lane(lane), Null: lane == ""}
}

func schemaOf(text json.RawMessage) oas.NilFreeObject {
	return oas.NilFreeObject{Value: oas.FreeObject(text), Null: len(text) == 0}
}

func thresholdOf(t *definition.Threshold) oas.NilFailureThreshold {
	if t == nil {
		return oas.NilFailureThreshold{Null: true}
	}
	out := oas.FailureThreshold{Count: oas.NilInt64{Null: true}, Percent: oas.NilFloat64{Null: true}}
	if t.Count != nil {
		out.Count = oas.NewNilInt64(*t.Count)
	}
	if t.Percent != nil {
		out.Percent = oas.NewNilFloat64(*t.Percent)
	}
	return oas.NewNilFailureThreshold(out)
}

// stepsOf shows steps as they were written, with the defaults that do not depend on the action.
func stepsOf(steps []definition.DocumentStep) []oas.Step {
	out := make([]oas.Step, 0, len(steps))
	for _, s := range steps {
		step := oas.Step{ID: s.ID, Name: s.Name, Tasks: make([]oas.Task, 0, len(s.Tasks))}
		if step.Name == "" {
			step.Name = s.ID
		}
		for _, t := range s.Tasks {
			step.Tasks = append(step.Tasks, taskOf(t))
		}
		out = append(out, step)
	}
	return out
}

func taskOf(t definition.DocumentTask) oas.Task {
	out := oas.Task{
		ID: t.ID, ActionID: t.ActionID, Params: oas.FreeObject(t.Params),
		OnError: oas.OnErrorFail, Delivery: oas.DeliveryAtMostOnce,
	}
	out.CredentialID.SetToNull()
	if t.CredentialID != nil {
		out.CredentialID.SetTo(*t.CredentialID)
	}
	out.When.SetToNull()
	if t.When != nil {
		out.When.SetTo(*t.When)
	}
	out.ForEach.SetToNull()
	if t.ForEach != nil {
		out.ForEach.SetTo(*t.ForEach)
	}
	out.TimeoutSeconds.SetToNull()
	if t.TimeoutSeconds != nil {
		out.TimeoutSeconds.SetTo(*t.TimeoutSeconds)
	}
	out.Retry.SetToNull()
	if t.Retry != nil {
		r := t.Retry.Filled()
		out.Retry.SetTo(oas.Retry{MaxAttempts: *r.MaxAttempts, InitialSeconds: *r.InitialSeconds, Factor: *r.Factor,
			MaxSeconds: *r.MaxSeconds})
	}
	if t.OnError != "" {
		out.OnError = oas.OnError(t.OnError)
	}
	if t.Delivery != "" {
		out.Delivery = oas.Delivery(t.Delivery)
	}
	return out
}

// draftOf takes the steps from the body, or from the template that it names. Faults: as template.Templates.Draft.
func (h definitionHandler) draftOf(req oas.DefinitionCreate) (definition.Draft, error) {
	if !req.IsDefinitionFromTemplate() {
		b := &req.DefinitionFromSteps
		doc := documentOf(b.Lane, b.VariableSetID, b.VariableVersion, b.Steps)
		doc.InputSchema, doc.FailureThreshold, doc.Key = documentSchemaOf(b.InputSchema),
			documentThresholdOf(b.FailureThreshold), b.Key.Value
		return definition.Draft{Name: b.Name, Description: b.Description.Value, Status: string(b.Status.Value),
			Document: doc}, nil
	}
	b := &req.DefinitionFromTemplate
	d, err := h.templates.Draft(b.TemplateID, b.Bindings.Value)
	if err != nil {
		return d, err
	}
	steps := d.Document.Steps
	d.Name, d.Description, d.Status = b.Name, b.Description.Or(d.Description), string(b.Status.Value)
	d.Document = documentOf(b.Lane, b.VariableSetID, b.VariableVersion, nil)
	d.Document.InputSchema, d.Document.FailureThreshold = documentSchemaOf(b.InputSchema),
		documentThresholdOf(b.FailureThreshold)
	d.Document.Steps, d.Document.Key = steps, b.Key.Value
	return d, nil
}

func replacementOf(req *oas.DefinitionReplace) definition.Draft {
	doc := documentOf(req.Lane, req.VariableSetID, req.VariableVersion, req.Steps)
	doc.InputSchema, doc.FailureThreshold, doc.Key = documentSchemaOf(req.InputSchema),
		documentThresholdOf(req.FailureThreshold), req.Key.Value
	return definition.Draft{Name: req.Name, Description: req.Description.Value, Status: string(req.Status.Value),
		Document: doc}
}

func documentSchemaOf(in oas.OptNilFreeObject) json.RawMessage {
	if text, ok := in.Get(); ok {
		return json.RawMessage(jsonraw.Object(text).Bytes())
	}
	return nil
}

func documentThresholdOf(in oas.OptNilFailureThresholdInput) *definition.Threshold {
	t, ok := in.Get()
	if !ok {
		return nil
	}
	var out definition.Threshold
	if n, ok := t.Count.Get(); ok {
		out.Count = &n
	}
	if p, ok := t.Percent.Get(); ok {
		out.Percent = &p
	}
	return &out
}

func documentOf(lane oas.OptNilLane, set, version oas.OptNilString, steps []oas.StepInput) definition.Document {
	out := definition.Document{VariableSetID: set.Value, VariableVersion: version.Value}
	if !lane.Null {
		out.Lane = string(lane.Value)
	}
	for _, s := range steps {
		step := definition.DocumentStep{ID: s.ID, Name: s.Name.Value}
		for i := range s.Tasks {
			step.Tasks = append(step.Tasks, documentTaskOf(&s.Tasks[i]))
		}
		out.Steps = append(out.Steps, step)
	}
	return out
}

func documentTaskOf(t *oas.TaskInput) definition.DocumentTask {
	out := definition.DocumentTask{
		ID: t.ID, ActionID: t.ActionID, Params: json.RawMessage(t.Params.Value),
		OnError: string(t.OnError.Value), Delivery: string(t.Delivery.Value),
	}
	if v, ok := t.CredentialID.Get(); ok {
		out.CredentialID = &v
	}
	if v, ok := t.When.Get(); ok {
		out.When = &v
	}
	if v, ok := t.ForEach.Get(); ok {
		out.ForEach = &v
	}
	if v, ok := t.TimeoutSeconds.Get(); ok {
		out.TimeoutSeconds = &v
	}
	if r, ok := t.Retry.Get(); ok {
		out.Retry = &definition.DocumentRetry{MaxAttempts: &r.MaxAttempts}
		if v, ok := r.InitialSeconds.Get(); ok {
			out.Retry.InitialSeconds = &v
		}
		if v, ok := r.Factor.Get(); ok {
			out.Retry.Factor = &v
		}
		if v, ok := r.MaxSeconds.Get(); ok {
			out.Retry.MaxSeconds = &v
		}
	}
	return out
}

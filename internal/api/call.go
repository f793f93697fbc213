package api

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider"
)

// Calls reads calls; the dispatcher does.
type Calls interface {
	Calls(ctx context.Context, f dispatch.CallFilter) ([]dispatch.Call, error)
	Call(ctx context.Context, orgID, id uuid.UUID) (*dispatch.Call, error)
	Timeline(ctx context.Context, orgID, batchID uuid.UUID) (*dispatch.Timeline, error)
}

// callHandler serves /flows/calls.
type callHandler struct{ calls Calls }

func (h callHandler) ListCalls(ctx context.Context, params oas.ListCallsParams) (*oas.CallList, error) {
	caller := account.FromContext(ctx)
	filters, _ := json.Marshal([]string{params.BatchID.Value, params.JobID.Value, params.TenancyID.Value,
		params.CredentialID.Value, params.ActionID.Value,
		string(params.Outcome.Value), params.Code.Value, string(params.Purpose.Value)}) // of texts: cannot fail
	p, err := pageOf("calls", caller.OrgID, params.Limit, oas.OptInt{}, params.Cursor, string(filters),
		params.Status.Value)
	if err != nil {
		return nil, err
	}
	f := dispatch.CallFilter{
		OrgID: caller.OrgID, Before: uuid.Max, Limit: p.Fetch(), Tenancy: optional(params.TenancyID.Value,
			params.TenancyID.Set),
		ActionID: optional(params.ActionID.Value, params.ActionID.Set), Outcome: optional(params.Outcome.Value,
			params.Outcome.Set),
		Code: optional(params.Code.Value, params.Code.Set), Purpose: optional(params.Purpose.Value, params.Purpose.Set),
	}
	if p.Key != "" {
		if f.Before, err = p.afterID(); err != nil {
			return nil, err
		}
	}
	if status, ok := params.Status.Get(); ok {
		f.Status = new(int16(status))
	}
	var calls []dispatch.Call
	if narrow(&f, &params) {
		if calls, err = h.calls.Calls(ctx, f); err != nil {
			return nil, err
		}
	}
	list := listOf(p, calls, 0, func(c dispatch.Call) string { return c.ID.String() }, callOf)
	return &oas.CallList{Items: list.Items, Limit: list.Limit, Skip: list.Skip, NextCursor: list.NextCursor}, nil
}

// narrow sets the ids of a filter; false where nothing can match.
func narrow(f *dispatch.CallFilter, params *oas.ListCallsParams) (ok bool) {
	if f.CredentialID, ok = filterID(params.CredentialID); !ok {
		return false
	}
	batch, ok := filterID(params.BatchID)
	if !ok {
		return false
	}
	f.BatchID = batch
	text, ok := params.JobID.Get()
	if !ok {
		return true
	}
	id, position, ok := parseJobID(text)
	if !ok || batch != nil && *batch != id {
		return false
	}
	f.BatchID, f.Position = &id, &position
	return true
}

func (h callHandler) GetCall(ctx context.Context, params oas.GetCallParams) (*oas.Call, error) {
	id, err := pathID("Call", params.CallID)
	if err != nil {
		return nil, err
	}
	found, err := h.calls.Call(ctx, account.FromContext(ctx).OrgID, id)
	if err != nil {
		return nil, err
	}
	out := callOf(*found)
	return &out, nil
}

func callOf(c dispatch.Call) oas.Call {
	out := oas.Call{
		ID: c.ID.String(), Purpose: oas.CallPurpose(c.Purpose), AboutCallID: nilID(c.About), ActionID: c.ActionID,
		CredentialID: nilID(c.CredentialID), TenancyID: nilString(c.Tenancy),
		Lane: oas.Lane(c.Lane), Attempt: int(c.Attempt), RecordCount: int(c.Records), Batches: make([]oas.CallBatch,
			len(c.Batches)),
		Outcome: oas.CallOutcome(c.Outcome), State: oas.NilCallState{Null: true}, Error: oas.NilCallError{Null: true},
		FailedAt: oas.NilCallFailedAt{Null: true}, Request: oas.NilCallRequest{Null: true},
		Response: oas.NilCallResponse{Null: true},
		QueuedAt: c.QueuedAt.UTC(), ClaimedAt: c.ClaimedAt.UTC(), SentAt: nilTime(c.SentAt),
		AnsweredAt: nilTime(c.AnsweredAt),
	}
	for i, b := range c.Batches {
		out.Batches[i] = oas.CallBatch{BatchID: b.BatchID.String(), StepID: b.StepID, TaskID: b.TaskID}
	}
	if c.State != "" {
		out.State = oas.NewNilCallState(oas.CallState(c.State))
	}
	if c.Code != "" {
		out.Error = oas.NewNilCallError(oas.CallError{Code: c.Code, Message: c.Message,
			ProviderCode:    nilString(optional(c.ProviderCode, c.ProviderCode != "")),
			ProviderMessage: nilString(optional(c.ProviderMessage, c.ProviderMessage != ""))})
	}
	e := c.Exchange
	if e == nil {
		return out
	}
	if e.FailedAt != "" {
		out.FailedAt = oas.NewNilCallFailedAt(oas.CallFailedAt(e.FailedAt))
	}
	out.Request = oas.NewNilCallRequest(oas.CallRequest{Method: e.Method, URL: e.URL, Body: callBodyOf(e.Request)})
	if r := e.Response; r != nil {
		headers := r.Headers
		if headers == nil {
			headers = map[string]string{}
		}
		out.Response = oas.NewNilCallResponse(oas.CallResponse{Status: r.Status, Headers: headers,
			Body: callBodyOf(r.Body)})
	}
	return out
}

func callBodyOf(h provider.Head) oas.CallBody {
	return oas.CallBody{Size: h.Size, Text: h.Text, Base64: h.Base64}
}

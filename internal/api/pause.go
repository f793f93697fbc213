package api

import (
	"context"
	"math"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/pause"
)

// pauseHandler serves /admin/dispatch, and what pauses and resumes Domains and batches. That the caller knows a Domain
// is seen to by onPlatform.
type pauseHandler struct {
	pauses *pause.Service
}

func (h pauseHandler) PauseDispatch(ctx context.Context, req oas.OptPauseCreate,
	_ oas.PauseDispatchParams) (*oas.Pause, error) {
	caller := account.FromContext(ctx)
	o := openingOf(caller, req.Value.DurationSeconds, req.Value.Reason)
	return answerPause(h.pauses.Open(ctx, pause.Target{OrgID: caller.OrgID}, o, keepCreated(answerPause)))
}

func (h pauseHandler) PauseDomain(ctx context.Context, req oas.OptDomainPauseCreate,
	params oas.PauseDomainParams) (*oas.Pause, error) {
	caller := account.FromContext(ctx)
	t := pause.Target{OrgID: caller.OrgID, TenancyID: &params.TenancyID}
	if lane := req.Value.Lane; lane.Set && !lane.Null {
		value := db.FlowLane(lane.Value)
		t.Lane = &value
	}
	o := openingOf(caller, req.Value.DurationSeconds, req.Value.Reason)
	return answerPause(h.pauses.Open(ctx, t, o, keepCreated(answerPause)))
}

func (h pauseHandler) PauseBatch(ctx context.Context, req oas.OptPauseCreate,
	params oas.PauseBatchParams) (*oas.Pause, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	o := openingOf(caller, req.Value.DurationSeconds, req.Value.Reason)
	return answerPause(h.pauses.PauseBatch(ctx, caller.OrgID, id, o, keepCreated(answerPause)))
}

func (h pauseHandler) ResumeDispatch(ctx context.Context) ([]oas.Pause, error) {
	caller := account.FromContext(ctx)
	return answerPauses(h.pauses.Release(ctx, pause.Target{OrgID: caller.OrgID}, caller.AccountID))
}

func (h pauseHandler) ResumeDomain(ctx context.Context, params oas.ResumeDomainParams) ([]oas.Pause, error) {
	caller := account.FromContext(ctx)
	t := pause.Target{OrgID: caller.OrgID, TenancyID: &params.TenancyID}
	if lane, ok := params.Lane.Get(); ok {
		value := db.FlowLane(lane)
		t.Lane = &value
	}
	return answerPauses(h.pauses.Release(ctx, t, caller.AccountID))
}

func (h pauseHandler) ResumeBatch(ctx context.Context, params oas.ResumeBatchParams) ([]oas.Pause, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	return answerPauses(h.pauses.ResumeBatch(ctx, caller.OrgID, id, caller.AccountID))
}

func (h pauseHandler) ExtendPause(ctx context.Context, req *oas.PauseExtend,
	params oas.ExtendPauseParams) (*oas.Pause, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Pause", params.PauseID)
	if err != nil {
		return nil, err
	}
	e := pause.Extending{By: caller.AccountID}
	if seconds, ok := req.DurationSeconds.Get(); ok {
		e.Seconds = &seconds
	}
	if until, ok := req.ExpiresAt.Get(); ok {
		e.Until = &until
	}
	return answerPause(h.pauses.Extend(ctx, caller.OrgID, params.TenancyID, id, e))
}

func (h pauseHandler) GetPause(ctx context.Context, params oas.GetPauseParams) (*oas.Pause, error) {
	id, err := pathID("Pause", params.PauseID)
	if err != nil {
		return nil, err
	}
	return answerPause(h.pauses.Read(ctx, account.FromContext(ctx).OrgID, id))
}

func (h pauseHandler) ListPauses(ctx context.Context, params oas.ListPausesParams) (*oas.PauseList, error) {
	caller := account.FromContext(ctx)
	f := pause.Filter{Released: params.IncludeReleased.Value, ByEnd: params.SortBy.Value == oas.PauseSortByExpiresAt,
		Descending: params.Order.Value == oas.PauseOrderDesc}
	if scope, ok := params.Scope.Get(); ok {
		value := pause.Scope(scope)
		f.Scope = &value
	}
	p, err := pageOf("pauses", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Scope.Value, "\x00",
		f.Released, f.ByEnd, f.Descending)
	if err != nil {
		return nil, err
	}
	return h.list(ctx, caller.OrgID, p, f)
}

func (h pauseHandler) ListDomainPauses(ctx context.Context, params oas.ListDomainPausesParams) (*oas.PauseList, error) {
	caller := account.FromContext(ctx)
	f := pause.Filter{TenancyID: &params.TenancyID, Released: params.IncludeReleased.Value,
		ByEnd:      params.SortBy.Value == oas.PauseSortByExpiresAt,
		Descending: params.Order.Value == oas.PauseOrderDesc}
	p, err := pageOf("domain pauses", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.TenancyID, "\x00",
		f.Released, f.ByEnd, f.Descending)
	if err != nil {
		return nil, err
	}
	return h.list(ctx, caller.OrgID, p, f)
}

func (h pauseHandler) list(ctx context.Context, orgID uuid.UUID, p page, f pause.Filter) (*oas.PauseList, error) {
	if p.Key != "" {
		at, text, err := timeAndID(p.Key)
		if err != nil {
			return nil, err
		}
		id, ok := parseID(text)
		if !ok {
			return nil, errCursor
		}
		f.After = &pause.Place{At: at, ID: id}
	}
	f.MaxRows = p.Fetch()
	f.Skip = min(p.Skip(), math.MaxInt32-f.MaxRows)
	rows, total, err := h.pauses.List(ctx, orgID, f)
	if err != nil {
		return nil, err
	}
	key := func(r *pause.Pause) string {
		place := f.Place(r)
		return timedKey(place.At, place.ID.String())
	}
	list := oas.PauseList(listOf(p, rows, total, key, pauseOf))
	return &list, nil
}

func openingOf(caller account.Caller, seconds oas.OptNilInt, reason oas.OptNilString) pause.Opening {
	o := pause.Opening{By: caller.AccountID}
	if n, ok := seconds.Get(); ok {
		o.Seconds = &n
	}
	if text, ok := reason.Get(); ok && text != "" {
		o.Reason = &text
	}
	return o
}

func answerPause(h *pause.Pause, err error) (*oas.Pause, error) {
	if err != nil {
		return nil, err
	}
	out := pauseOf(h)
	return &out, nil
}

func answerPauses(list []*pause.Pause, err error) ([]oas.Pause, error) {
	if err != nil {
		return nil, err
	}
	out := make([]oas.Pause, len(list))
	for i, h := range list {
		out[i] = pauseOf(h)
	}
	return out, nil
}

var _ oas.HoldHandler = pauseHandler{}

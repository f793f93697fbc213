package api

import (
	"context"
	"math"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/hold"
)

// holdHandler serves /admin/dispatch, and what pauses and resumes Domains and batches. That the caller knows a Domain
// is seen to by onPlatform.
type holdHandler struct {
	holds *hold.Service
}

func (h holdHandler) PauseDispatch(ctx context.Context, req oas.OptPauseCreate,
	_ oas.PauseDispatchParams) (*oas.Pause, error) {
	caller := account.FromContext(ctx)
	o := openingOf(caller, req.Value.DurationSeconds, req.Value.Reason)
	return answerHold(h.holds.Open(ctx, hold.Target{OrgID: caller.OrgID}, o, keepCreated(answerHold)))
}

func (h holdHandler) PauseDomain(ctx context.Context, req oas.OptDomainPauseCreate,
	params oas.PauseDomainParams) (*oas.Pause, error) {
	caller := account.FromContext(ctx)
	t := hold.Target{OrgID: caller.OrgID, TenancyID: &params.TenancyID}
	if lane := req.Value.Lane; lane.Set && !lane.Null {
		value := db.FlowLane(lane.Value)
		t.Lane = &value
	}
	o := openingOf(caller, req.Value.DurationSeconds, req.Value.Reason)
	return answerHold(h.holds.Open(ctx, t, o, keepCreated(answerHold)))
}

func (h holdHandler) PauseBatch(ctx context.Context, req oas.OptPauseCreate,
	params oas.PauseBatchParams) (*oas.Pause, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	o := openingOf(caller, req.Value.DurationSeconds, req.Value.Reason)
	return answerHold(h.holds.PauseBatch(ctx, caller.OrgID, id, o, keepCreated(answerHold)))
}

func (h holdHandler) ResumeDispatch(ctx context.Context) ([]oas.Pause, error) {
	caller := account.FromContext(ctx)
	return answerHolds(h.holds.Release(ctx, hold.Target{OrgID: caller.OrgID}, caller.AccountID))
}

func (h holdHandler) ResumeDomain(ctx context.Context, params oas.ResumeDomainParams) ([]oas.Pause, error) {
	caller := account.FromContext(ctx)
	t := hold.Target{OrgID: caller.OrgID, TenancyID: &params.TenancyID}
	if lane, ok := params.Lane.Get(); ok {
		value := db.FlowLane(lane)
		t.Lane = &value
	}
	return answerHolds(h.holds.Release(ctx, t, caller.AccountID))
}

func (h holdHandler) ResumeBatch(ctx context.Context, params oas.ResumeBatchParams) ([]oas.Pause, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Batch", params.BatchID)
	if err != nil {
		return nil, err
	}
	return answerHolds(h.holds.ResumeBatch(ctx, caller.OrgID, id, caller.AccountID))
}

func (h holdHandler) ExtendPause(ctx context.Context, req *oas.PauseExtend,
	params oas.ExtendPauseParams) (*oas.Pause, error) {
	caller := account.FromContext(ctx)
	id, err := pathID("Pause", params.PauseID)
	if err != nil {
		return nil, err
	}
	e := hold.Extending{By: caller.AccountID}
	if seconds, ok := req.DurationSeconds.Get(); ok {
		e.Seconds = &seconds
	}
	if until, ok := req.ExpiresAt.Get(); ok {
		e.Until = &until
	}
	return answerHold(h.holds.Extend(ctx, caller.OrgID, params.TenancyID, id, e))
}

func (h holdHandler) GetPause(ctx context.Context, params oas.GetPauseParams) (*oas.Pause, error) {
	id, err := pathID("Pause", params.PauseID)
	if err != nil {
		return nil, err
	}
	return answerHold(h.holds.Read(ctx, account.FromContext(ctx).OrgID, id))
}

func (h holdHandler) ListPauses(ctx context.Context, params oas.ListPausesParams) (*oas.PauseList, error) {
	caller := account.FromContext(ctx)
	f := hold.Filter{Released: params.IncludeReleased.Value, ByEnd: params.SortBy.Value == oas.PauseSortByExpiresAt,
		Descending: params.Order.Value == oas.PauseOrderDesc}
	if scope, ok := params.Scope.Get(); ok {
		value := hold.Scope(scope)
		f.Scope = &value
	}
	p, err := pageOf("pauses", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Scope.Value, "\x00",
		f.Released, f.ByEnd, f.Descending)
	if err != nil {
		return nil, err
	}
	return h.list(ctx, caller.OrgID, p, f)
}

func (h holdHandler) ListDomainPauses(ctx context.Context, params oas.ListDomainPausesParams) (*oas.PauseList, error) {
	caller := account.FromContext(ctx)
	f := hold.Filter{TenancyID: &params.TenancyID, Released: params.IncludeReleased.Value,
		ByEnd:      params.SortBy.Value == oas.PauseSortByExpiresAt,
		Descending: params.Order.Value == oas.PauseOrderDesc}
	p, err := pageOf("domain pauses", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.TenancyID, "\x00",
		f.Released, f.ByEnd, f.Descending)
	if err != nil {
		return nil, err
	}
	return h.list(ctx, caller.OrgID, p, f)
}

func (h holdHandler) list(ctx context.Context, orgID uuid.UUID, p page, f hold.Filter) (*oas.PauseList, error) {
	if p.Key != "" {
		at, text, err := timeAndID(p.Key)
		if err != nil {
			return nil, err
		}
		id, ok := parseID(text)
		if !ok {
			return nil, errCursor
		}
		f.After = &hold.Place{At: at, ID: id}
	}
	f.MaxRows = p.Fetch()
	f.Skip = min(p.Skip(), math.MaxInt32-f.MaxRows)
	rows, total, err := h.holds.List(ctx, orgID, f)
	if err != nil {
		return nil, err
	}
	key := func(r *hold.Hold) string {
		place := f.Place(r)
		return timedKey(place.At, place.ID.String())
	}
	list := oas.PauseList(listOf(p, rows, total, key, holdOf))
	return &list, nil
}

func openingOf(caller account.Caller, seconds oas.OptNilInt, reason oas.OptNilString) hold.Opening {
	o := hold.Opening{By: caller.AccountID}
	if n, ok := seconds.Get(); ok {
		o.Seconds = &n
	}
	if text, ok := reason.Get(); ok && text != "" {
		o.Reason = &text
	}
	return o
}

func answerHold(h *hold.Hold, err error) (*oas.Pause, error) {
	if err != nil {
		return nil, err
	}
	out := holdOf(h)
	return &out, nil
}

func answerHolds(list []*hold.Hold, err error) ([]oas.Pause, error) {
	if err != nil {
		return nil, err
	}
	out := make([]oas.Pause, len(list))
	for i, h := range list {
		out[i] = holdOf(h)
	}
	return out, nil
}

var _ oas.HoldHandler = holdHandler{}

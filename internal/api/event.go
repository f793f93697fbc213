package api

import (
	"context"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/pg"
	"flowlane/internal/trigger/event"
	"flowlane/internal/trigger/subscription"
)

// eventHandler serves /flows/event-kinds and /flows/event-subscriptions.
type eventHandler struct{ subscriptions *subscription.Service }

func (h eventHandler) ListEventKinds(ctx context.Context, params oas.ListEventKindsParams) (*oas.EventKindList, error) {
	p, err := pageOf("event-kinds", account.FromContext(ctx).OrgID, params.Limit, params.Skip, params.Cursor)
	if err != nil {
		return nil, err
	}
	name := func(k event.Kind) string { return k.Name }
	rows, err := pageFrom(p, event.Kinds, name)
	if err != nil {
		return nil, err
	}
	list := oas.EventKindList(listOf(p, rows, int64(len(event.Kinds)), name, eventKindOf))
	return &list, nil
}

func eventKindOf(k event.Kind) oas.EventKind {
	return oas.EventKind{Kind: oas.EventKindName(k.Name), Description: k.Description,
		PayloadSchema: oas.FreeObject(k.Payload)}
}

func (h eventHandler) ListEventSubscriptions(ctx context.Context,
	params oas.ListEventSubscriptionsParams) (*oas.EventSubscriptionList, error) {
	caller := account.FromContext(ctx)
	when := created{params.Order, params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("event-subscriptions", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.DefinitionID,
		"\x00",
		params.EventKind.Value, "\x00", when)
	if err != nil {
		return nil, err
	}
	whole, at, err := p.of(when)
	if err != nil {
		return nil, err
	}
	of, known := filterID(params.DefinitionID)
	if !known {
		list := oas.EventSubscriptionList(nothing[oas.EventSubscription](p))
		return &list, nil
	}
	f := subscription.Filter{DefinitionID: of, EventKind: optional(params.EventKind.Value, params.EventKind.Set),
		Created: whole}
	total, err := h.subscriptions.Count(ctx, caller.OrgID, f)
	if err != nil {
		return nil, err
	}
	size := func(s subscription.Subscription) int { return len(s.InputTemplate) + len(pg.Value(s.Filter)) }
	rows, err := gather(&p, size,
		func(last *subscription.Subscription, skip, n int32) ([]subscription.Subscription, error) {
			if last != nil {
				at = at.Behind(last.ID)
			}
			at.Skip, at.MaxRows = skip, n
			return h.subscriptions.List(ctx, caller.OrgID, f, at)
		})
	if err != nil {
		return nil, err
	}
	key := func(s subscription.Subscription) string { return s.ID.String() }
	show := func(s subscription.Subscription) oas.EventSubscription { return subscriptionOf(&s) }
	list := oas.EventSubscriptionList(listOf(p, rows, total, key, show))
	return &list, nil
}

func (h eventHandler) CreateEventSubscription(ctx context.Context, req *oas.EventSubscriptionInput,
	_ oas.CreateEventSubscriptionParams) (*oas.EventSubscription, error) {
	caller := account.FromContext(ctx)
	return answerSubscription(h.subscriptions.Create(ctx, caller.OrgID, caller.AccountID, subscription.Input{
		DefinitionID: bodyID(req.DefinitionID), Description: req.Description, EventKind: string(req.EventKind),
		Filter:   filterOf(req.Filter),
		Template: dataOf(req.InputTemplate), Enabled: req.Enabled.Or(true),
	}, keepCreated(answerSubscription)))
}

func (h eventHandler) GetEventSubscription(ctx context.Context,
	params oas.GetEventSubscriptionParams) (*oas.EventSubscription, error) {
	id, err := subscriptionID(params.SubscriptionID)
	if err != nil {
		return nil, err
	}
	return answerSubscription(h.subscriptions.Get(ctx, account.FromContext(ctx).OrgID, id))
}

func (h eventHandler) UpdateEventSubscription(ctx context.Context, req *oas.EventSubscriptionUpdate,
	params oas.UpdateEventSubscriptionParams) (*oas.EventSubscription, error) {
	id, err := subscriptionID(params.SubscriptionID)
	if err != nil {
		return nil, err
	}
	return answerSubscription(h.subscriptions.Update(ctx, account.FromContext(ctx).OrgID, id,
		func(in subscription.Input) subscription.Input {
			if req.DefinitionID.Set {
				in.DefinitionID = bodyID(req.DefinitionID.Value)
			}
			in.Description, in.Enabled = req.Description.Or(in.Description), req.Enabled.Or(in.Enabled)
			in.EventKind = string(req.EventKind.Or(oas.EventKindName(in.EventKind)))
			if req.Filter.Set {
				in.Filter = filterOf(req.Filter)
			}
			if req.InputTemplate.Set {
				in.Template = dataOf(req.InputTemplate)
			}
			return in
		}))
}

func (h eventHandler) DeleteEventSubscription(ctx context.Context, params oas.DeleteEventSubscriptionParams) error {
	id, err := subscriptionID(params.SubscriptionID)
	if err != nil {
		return err
	}
	return h.subscriptions.Delete(ctx, account.FromContext(ctx).OrgID, id)
}

// subscriptionID reads the id of a subscription in a path. Fault: NotFound.
func subscriptionID(text string) (uuid.UUID, error) { return pathID("Event subscription", text) }

func filterOf(in oas.OptNilString) *string {
	if text, ok := in.Get(); ok {
		return &text
	}
	return nil
}

func answerSubscription(s *subscription.Subscription, err error) (*oas.EventSubscription, error) {
	if err != nil {
		return nil, err
	}
	out := subscriptionOf(s)
	return &out, nil
}

func subscriptionOf(s *subscription.Subscription) oas.EventSubscription {
	out := oas.EventSubscription{
		ID: s.ID.String(), OrgID: s.OrgID.String(), DefinitionID: s.DefinitionID.String(), Description: s.Description,
		EventKind: oas.EventKindName(s.EventKind), Filter: nilString(s.Filter),
		InputTemplate: oas.NilFreeObject{Null: true}, Enabled: s.Enabled,
		StartedCount: int(s.StartedCount), FailedCount: int(s.FailedCount), LastStartedAt: nilTime(s.LastStartedAt),
		LastFailedAt: nilTime(s.LastFailedAt),
		LastError:    nilString(s.LastError), CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
	}
	if s.InputTemplate != nil {
		out.InputTemplate = oas.NewNilFreeObject(oas.FreeObject(s.InputTemplate))
	}
	return out
}

var _ oas.EventHandler = eventHandler{}

package api

import (
	"context"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/trigger/webhook"
)

// webhookHandler serves /flows/webhooks but for what senders post, which receiver.go takes.
type webhookHandler struct{ webhooks *webhook.Service }

// webhookID reads the id of a webhook in a path. Fault: NotFound.
func webhookID(text string) (uuid.UUID, error) {
	id, ok := webhook.ParseID(text)
	if !ok {
		return uuid.Nil, fault.Missing("Webhook")
	}
	return id, nil
}

func (h webhookHandler) ListWebhooks(ctx context.Context, params oas.ListWebhooksParams) (*oas.WebhookList, error) {
	caller := account.FromContext(ctx)
	when := created{params.Order, params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("webhooks", caller.OrgID, params.Limit, oas.OptInt{}, params.Cursor, params.DefinitionID, "\x00",
		when)
	if err != nil {
		return nil, err
	}
	whole, at, err := p.of(when)
	if err != nil {
		return nil, err
	}
	of, known := filterID(params.DefinitionID)
	if !known {
		list := oas.WebhookList(nothing[oas.Webhook](p))
		return &list, nil
	}
	f := webhook.Filter{DefinitionID: of, Created: whole}
	total, err := h.webhooks.Count(ctx, caller.OrgID, f)
	if err != nil {
		return nil, err
	}
	size := func(w *webhook.Webhook) int { return len(w.InputTemplate) }
	rows, err := gather(&p, size, func(last **webhook.Webhook, _, n int32) ([]*webhook.Webhook, error) {
		if last != nil {
			at = at.Behind((*last).Place)
		}
		at.MaxRows = n
		return h.webhooks.List(ctx, caller.OrgID, f, at)
	})
	if err != nil {
		return nil, err
	}
	key := func(w *webhook.Webhook) string { return w.Place.String() }
	list := oas.WebhookList(listOf(p, rows, total, key, webhookOf))
	return &list, nil
}

func (h webhookHandler) CreateWebhook(ctx context.Context, req *oas.WebhookInput) (*oas.NewWebhook, error) {
	caller := account.FromContext(ctx)
	made, secret, err := h.webhooks.Create(ctx, caller.OrgID, caller.AccountID, webhook.Input{
		DefinitionID: bodyID(req.DefinitionID), Description: req.Description, Template: dataOf(req.InputTemplate),
		Retry:     retryOf(req.DispatchRetry),
		RateLimit: perMinuteOf(req.RateLimit), Enabled: req.Enabled.Or(true),
	})
	if err != nil {
		return nil, err
	}
	w := webhookOf(made)
	return &oas.NewWebhook{
		ID: w.ID, OrgID: w.OrgID, DefinitionID: w.DefinitionID, Description: w.Description, Mode: w.Mode,
		Provider:      w.Provider,
		InputTemplate: w.InputTemplate, DispatchRetry: w.DispatchRetry, RateLimit: w.RateLimit, Enabled: w.Enabled,
		CreatedAt: w.CreatedAt,
		UpdatedAt: w.UpdatedAt, SigningSecret: secret, ReceiveURL: "/flows/webhooks/" + made.Provider + "/" + w.ID,
	}, nil
}

func (h webhookHandler) GetWebhook(ctx context.Context, params oas.GetWebhookParams) (*oas.Webhook, error) {
	id, err := webhookID(params.WebhookID)
	if err != nil {
		return nil, err
	}
	return answerWebhook(h.webhooks.Get(ctx, account.FromContext(ctx).OrgID, id))
}

func (h webhookHandler) UpdateWebhook(ctx context.Context, req *oas.WebhookUpdate,
	params oas.UpdateWebhookParams) (*oas.Webhook, error) {
	id, err := webhookID(params.WebhookID)
	if err != nil {
		return nil, err
	}
	return answerWebhook(h.webhooks.Update(ctx, account.FromContext(ctx).OrgID, id,
		func(in webhook.Input) webhook.Input {
			if req.DefinitionID.Set {
				in.DefinitionID = bodyID(req.DefinitionID.Value)
			}
			in.Description, in.Enabled = req.Description.Or(in.Description), req.Enabled.Or(in.Enabled)
			if req.InputTemplate.Set {
				in.Template = dataOf(req.InputTemplate)
			}
			if req.DispatchRetry.Set {
				in.Retry = retryOf(req.DispatchRetry)
			}
			if req.RateLimit.Set {
				in.RateLimit = perMinuteOf(req.RateLimit)
			}
			return in
		}))
}

func (h webhookHandler) RotateWebhookSecret(ctx context.Context,
	params oas.RotateWebhookSecretParams) (*oas.RotatedSecret, error) {
	id, err := webhookID(params.WebhookID)
	if err != nil {
		return nil, err
	}
	secret, until, err := h.webhooks.Rotate(ctx, account.FromContext(ctx).OrgID, id)
	if err != nil {
		return nil, err
	}
	return &oas.RotatedSecret{SigningSecret: secret, PreviousValidUntil: until.UTC()}, nil
}

func (h webhookHandler) DeleteWebhook(ctx context.Context, params oas.DeleteWebhookParams) error {
	id, err := webhookID(params.WebhookID)
	if err != nil {
		return err
	}
	return h.webhooks.Delete(ctx, account.FromContext(ctx).OrgID, id)
}

func (h webhookHandler) ListWebhookDeliveries(ctx context.Context,
	params oas.ListWebhookDeliveriesParams) (*oas.WebhookDeliveryList, error) {
	orgID := account.FromContext(ctx).OrgID
	id, err := webhookID(params.WebhookID)
	if err != nil {
		return nil, err
	}
	when := created{newestOrder(params.Order), params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("webhook-deliveries", orgID, params.Limit, oas.OptInt{}, params.Cursor, id, params.Status.Value,
		"\x00", when)
	if err != nil {
		return nil, err
	}
	whole, at, err := p.of(when)
	if err != nil {
		return nil, err
	}
	f := webhook.DeliveryFilter{Status: optional(params.Status.Value, params.Status.Set), Received: whole}
	rows, total, err := h.webhooks.Deliveries(ctx, orgID, id, f, at)
	if err != nil {
		return nil, err
	}
	key := func(d webhook.Delivery) string { return d.ID.String() }
	list := oas.WebhookDeliveryList(listOf(p, rows, total, key, deliveryOf))
	return &list, nil
}

func (h webhookHandler) GetWebhookDelivery(ctx context.Context,
	params oas.GetWebhookDeliveryParams) (*oas.WebhookDeliveryDetail, error) {
	orgID := account.FromContext(ctx).OrgID
	id, delivery, err := h.deliveryID(ctx, params.WebhookID, params.DeliveryID)
	if err != nil {
		return nil, err
	}
	found, err := h.webhooks.Delivery(ctx, orgID, id, delivery)
	if err != nil {
		return nil, err
	}
	d := deliveryOf(found.Delivery)
	return &oas.WebhookDeliveryDetail{
		ID: d.ID, WebhookMessageID: d.WebhookMessageID, ReceivedAt: d.ReceivedAt, Status: d.Status,
		Duplicates: d.Duplicates, ContentType: d.ContentType,
		ContentEncoding: nilString(found.Encoding), SizeBytes: d.SizeBytes, BatchID: d.BatchID, Attempts: d.Attempts,
		LastError: d.LastError,
		Body:      found.Body, BodyTruncated: found.Truncated,
	}, nil
}

// deliveryID reads the ids of a delivery in a path; the webhook is missed first. Fault: NotFound.
func (h webhookHandler) deliveryID(ctx context.Context, hook, text string) (id, delivery uuid.UUID, err error) {
	if id, err = webhookID(hook); err != nil {
		return id, delivery, err
	}
	if delivery, err = pathID("Delivery", text); err != nil {
		if _, missing := h.webhooks.Get(ctx, account.FromContext(ctx).OrgID, id); missing != nil {
			return id, delivery, missing
		}
	}
	return id, delivery, err
}

func (h webhookHandler) ReplayWebhookDelivery(ctx context.Context,
	params oas.ReplayWebhookDeliveryParams) (*oas.WebhookDelivery, error) {
	orgID := account.FromContext(ctx).OrgID
	id, delivery, err := h.deliveryID(ctx, params.WebhookID, params.DeliveryID)
	if err != nil {
		return nil, err
	}
	replayed, err := h.webhooks.Replay(ctx, orgID, id, delivery)
	if err != nil {
		return nil, err
	}
	out := deliveryOf(replayed)
	return &out, nil
}

func deliveryOf(d webhook.Delivery) oas.WebhookDelivery {
	return oas.WebhookDelivery{
		ID: d.ID.String(), WebhookMessageID: d.MessageID, ReceivedAt: d.ReceivedAt.UTC(),
		Status: oas.WebhookDeliveryStatus(d.Status), Duplicates: d.Duplicates,
		ContentType: nilString(d.ContentType), SizeBytes: int(d.SizeBytes), BatchID: nilID(webhook.BatchOf(&d)),
		Attempts: int(d.Attempts), LastError: nilString(d.LastError),
	}
}

func retryOf(in oas.OptNilDispatchRetryInput) *webhook.Retry {
	given, ok := in.Get()
	if !ok {
		return nil
	}
	b := given.Backoff.Value
	return &webhook.Retry{MaxAttempts: given.MaxAttempts, Backoff: webhook.Backoff{
		Initial: b.InitialSeconds.Or(webhook.DefaultBackoff.Initial),
		Factor:  b.Factor.Or(webhook.DefaultBackoff.Factor),
		Max:     b.MaxSeconds.Or(webhook.DefaultBackoff.Max),
	}}
}

func perMinuteOf(in oas.OptNilInt) *int32 {
	given, ok := in.Get()
	if !ok {
		return nil
	}
	rate := int32(given)
	return &rate
}

func answerWebhook(w *webhook.Webhook, err error) (*oas.Webhook, error) {
	if err != nil {
		return nil, err
	}
	out := webhookOf(w)
	return &out, nil
}

func webhookOf(w *webhook.Webhook) oas.Webhook {
	out := oas.Webhook{
		ID: webhook.FormatID(w.ID), OrgID: w.OrgID.String(), DefinitionID: w.DefinitionID.String(),
		Description: w.Description,
		Mode:        oas.WebhookMode(w.Mode), Provider: oas.WebhookProvider(w.Provider),
		InputTemplate: oas.NilFreeObject{Null: true},
		DispatchRetry: oas.NilDispatchRetry{Null: true}, RateLimit: oas.NilInt{Null: true}, Enabled: w.Enabled,
		CreatedAt: w.CreatedAt.UTC(), UpdatedAt: w.UpdatedAt.UTC(),
	}
	if w.InputTemplate != nil {
		out.InputTemplate = oas.NewNilFreeObject(oas.FreeObject(w.InputTemplate))
	}
	if r := w.Retry; r != nil {
		out.DispatchRetry = oas.NewNilDispatchRetry(oas.DispatchRetry{MaxAttempts: r.MaxAttempts,
			Backoff: oas.DispatchRetryBackoff{
				InitialSeconds: r.Backoff.Initial, Factor: r.Backoff.Factor, MaxSeconds: r.Backoff.Max,
			}})
	}
	if w.RateLimit != nil {
		out.RateLimit = oas.NewNilInt(int(*w.RateLimit))
	}
	return out
}

var _ oas.WebhookHandler = webhookHandler{}

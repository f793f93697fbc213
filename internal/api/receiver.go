package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-faster/jx"
	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/webhook"
)

// receiverRoute takes what senders post to webhooks past the generated server: a signature is over raw bytes, which come with any
// Content-Type or none, and nothing is parsed before it is known to be good.
type receiverRoute struct {
	next     http.Handler
	errs     errorHandler
	webhooks *webhook.Service
	// medium and large bound how many bodies of these sizes are in memory at once, half of them of one webhook; further ones wait.
	medium, large *slots
}

const (
	// smallBody is the announced size up to which a message takes no slot, mediumBody that up to which it takes one of many.
	smallBody  = 16 << 10
	mediumBody = 128 << 10
	// Bodies that take slots have 16 MiB of memory as medium ones, and as much as large ones.
	mediumSlots = 16 << 20 / mediumBody
	largeSlots  = 16 << 20 / webhook.MaxBody
	// messageWithin is how long a message may take to arrive, so that slow senders do not keep its slot.
	messageWithin = 20 * time.Second
	// maxMediaHeader is how many bytes of the headers that say what a body is are kept.
	maxMediaHeader = 256
)

func (c receiverRoute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := exchangeOf(r.Context()).route
	if route.Name() != oas.ReceiveWebhookOperation {
		c.next.ServeHTTP(w, r)
		return
	}
	args := route.Args()
	delivery, err := c.receive(w, r, args[0], args[1])
	if err != nil {
		c.errs.fail(r.Context(), w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(http.StatusAccepted)
	var e jx.Encoder
	(&oas.WebhookReceipt{DeliveryID: delivery.String()}).Encode(&e)
	_, _ = w.Write(e.Bytes())
}

func (c receiverRoute) receive(w http.ResponseWriter, r *http.Request, provider, address string) (uuid.UUID, error) {
	if slots := c.slotsFor(r.ContentLength); slots != nil {
		// Whoever knows no address takes no slot.
		if err := c.webhooks.Expects(r.Context(), provider, address); err != nil {
			return uuid.Nil, err
		}
		id, _ := webhook.ParseID(address)
		release, err := slots.take(r.Context(), id)
		if err != nil {
			return uuid.Nil, err
		}
		defer release()
		// As that of every body, it is lifted once the body is there; what cannot be set does not arrive slowly, either.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(messageWithin))
	}
	body, err := readAll(rawBody(r), r.ContentLength, webhook.MaxBody, nil)
	if err != nil {
		return uuid.Nil, err
	}
	return c.webhooks.Receive(r.Context(), provider, address, webhook.Message{
		ID: r.Header.Get("Webhook-Id"), Timestamp: r.Header.Get("Webhook-Timestamp"), Signature: r.Header.Get("Webhook-Signature"),
		ContentType: mediaHeader(r, "Content-Type"), ContentEncoding: mediaHeader(r, "Content-Encoding"), Body: body,
	})
}

// slotsFor returns where a body of an announced size takes its slot; nil where it needs none.
func (c receiverRoute) slotsFor(length int64) *slots {
	switch {
	case length < 0 || length > mediumBody:
		return c.large
	case length > smallBody:
		return c.medium
	}
	return nil
}

// mediaHeader is a header as it can be stored.
func mediaHeader(r *http.Request, name string) string {
	text := r.Header.Get(name)
	return strings.ToValidUTF8(text[:min(len(text), maxMediaHeader)], "\ufffd")
}

// ReceiveWebhook stands in the generated interface for the operation that receiverRoute serves.
func (webhookHandler) ReceiveWebhook(context.Context, *oas.ReceiveWebhookReqWithContentType, oas.ReceiveWebhookParams) (*oas.WebhookReceipt, error) {
	return nil, errors.New("api: a message reached the generated server; receiverRoute must take it first")
}

package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/go-faster/jx"
	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/fault"
	"flowlane/internal/memory"
	"flowlane/internal/trigger/webhook"
)

// receiverRoute takes what senders post to webhooks past the generated server: a signature is over raw bytes, which
// come with any Content-Type or none, and nothing is parsed before it is known to be good.
type receiverRoute struct {
	next     http.Handler
	errs     errorHandler
	webhooks *webhook.Service
	// room bounds the bytes of bodies that are in memory at once, as they come and by organization; further ones wait.
	room *memory.Budget
}

const (
	// smallBody is how much of a body needs no room, messageBytes is how much room there is.
	smallBody    = 16 << 10
	messageBytes = 32 << 20
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
	delivery, err := c.receive(r, args[0], args[1])
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

func (c receiverRoute) receive(r *http.Request, provider, address string) (uuid.UUID, error) {
	m := webhook.Message{
		ID: r.Header.Get("Webhook-Id"), Timestamp: r.Header.Get("Webhook-Timestamp"),
		Signature:   r.Header.Get("Webhook-Signature"),
		ContentType: mediaHeader(r, "Content-Type"), ContentEncoding: mediaHeader(r, "Content-Encoding"),
	}
	orgID, err := c.webhooks.Expect(r.Context(), provider, address, &m)
	if tooLarge := refuseLarge(r.ContentLength, webhook.MaxBody); tooLarge != nil && !fault.Is(err, fault.NotFound) {
		err = tooLarge
	}
	if err != nil {
		exchangeOf(r.Context()).unread = true
		return uuid.Nil, err
	}
	room := c.room.Begin(orgID)
	defer room.Release()
	if m.Body, err = readMessage(r, room); err != nil {
		return uuid.Nil, err
	}
	return c.webhooks.Receive(r.Context(), provider, address, m)
}

// readMessage reads a body, which has memory as it comes, so that slow senders hold little.
func readMessage(r *http.Request, room *memory.Grant) ([]byte, error) {
	most := webhook.MaxBody + 1
	if r.ContentLength >= 0 {
		most = int(r.ContentLength) + 1
	}
	return readOn(rawBody(r), webhook.MaxBody, make([]byte, 0, min(most, smallBody)),
		func(full []byte) ([]byte, error) {
			larger := min(2*len(full), most)
			if err := room.Grow(r.Context(), int64(larger), int64(most)); err != nil {
				return nil, err //nolint:wrapcheck // says everything
			}
			return append(make([]byte, 0, larger), full...), nil
		})
}

// mediaHeader is a header as it can be stored.
func mediaHeader(r *http.Request, name string) string {
	text := r.Header.Get(name)
	return strings.ToValidUTF8(text[:min(len(text), maxMediaHeader)], "\ufffd")
}

// ReceiveWebhook stands in the generated interface for the operation that receiverRoute serves.
func (webhookHandler) ReceiveWebhook(context.Context, *oas.ReceiveWebhookReqWithContentType,
	oas.ReceiveWebhookParams) (*oas.WebhookReceipt, error) {
	return nil, errors.New("api: a message reached the generated server; receiverRoute must take it first")
}

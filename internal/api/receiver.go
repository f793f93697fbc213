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
	server   *oas.Server
	errs     errorHandler
	webhooks *webhook.Service
	// slots bounds how many large bodies are in memory at once, half of them of one webhook; further ones wait.
	slots *slots
}

const (
	// receiverSlots times 1 MiB is the most memory that large bodies of messages take.
	receiverSlots = 32
	// smallBody is the announced size up to which a message takes no slot.
	smallBody = 16 << 10
	// messageWithin is how long a message may take to arrive, so that slow senders do not keep its slot.
	messageWithin = 20 * time.Second
	// maxMediaHeader is how many bytes of the headers that say what a body is are kept.
	maxMediaHeader = 256
)

func (c receiverRoute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, prefix+"/flows/webhooks/") {
		c.next.ServeHTTP(w, r)
		return
	}
	route, ok := c.server.FindPath(r.Method, r.URL)
	if !ok || route.Name() != oas.ReceiveWebhookOperation {
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
	if r.ContentLength < 0 || r.ContentLength > smallBody {
		id, _ := webhook.ParseID(address)
		release, err := c.slots.take(r.Context(), id)
		if err != nil {
			return uuid.Nil, err
		}
		defer release()
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(messageWithin)) // what cannot be set does not arrive slowly, either
	body, err := readAll(rawBody(r), r.ContentLength, webhook.MaxBody, nil)
	if err != nil {
		return uuid.Nil, err
	}
	_ = control.SetReadDeadline(time.Time{})
	return c.webhooks.Receive(r.Context(), provider, address, webhook.Message{
		ID: r.Header.Get("Webhook-Id"), Timestamp: r.Header.Get("Webhook-Timestamp"), Signature: r.Header.Get("Webhook-Signature"),
		ContentType: mediaHeader(r, "Content-Type"), ContentEncoding: mediaHeader(r, "Content-Encoding"), Body: body,
	})
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

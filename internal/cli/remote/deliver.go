package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"flowlane/internal/trigger/webhook"
)

// deliveryTimeout bounds one attempt, from the connection to the end of the answer.
const deliveryTimeout = 30 * time.Second

// Delivery is what a sender posts to a webhook.
type Delivery struct {
	URL, ContentType string
	// Secret signs it, ID is its webhook-id.
	Secret, ID string
	Body       []byte
}

// Delivered is what became of a delivery.
type Delivered struct {
	Status     int    `json:"status"`
	DeliveryID string `json:"delivery_id"`
	MessageID  string `json:"webhook_message_id"`
	Attempts   int    `json:"attempts"`
}

// refusal is an answer to a delivery, in words for its sender.
type refusal struct{ *AnswerError }

func (r refusal) Error() string {
	text := fmt.Sprintf("the receiver answered %d", r.Status)
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	switch r.Status {
	case http.StatusUnauthorized:
		text += " (check the secret and the clock of this machine)"
	case http.StatusNotFound:
		text += " (check the address, and that the webhook is enabled)"
	}
	return text
}

func (r refusal) Unwrap() error { return r.AnswerError }

// Deliver posts a delivery until it is taken: every attempt has the same id and a signature of its own time. Failures
// that may pass are tried again. The errors name no secret.
func Deliver(ctx context.Context, d Delivery) (Delivered, error) {
	out := Delivered{MessageID: d.ID}
	client := &http.Client{
		Timeout:       deliveryTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	err := retry(ctx, mayPass, func() error {
		out.Attempts++
		return d.post(ctx, client, &out)
	})
	var network *url.Error
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, context.Canceled):
		return out, context.Canceled
	case errors.Is(err, syscall.ECONNREFUSED):
		return out, fmt.Errorf("no server answers at %s", d.URL)
	case errors.As(err, &network):
		return out, fmt.Errorf("%s: %w", d.URL, network.Err)
	}
	return out, err
}

// mayPass tells whether a delivery is worth another attempt.
func mayPass(err error) bool {
	var p *AnswerError
	if errors.As(err, &p) {
		return p.Status == http.StatusTooManyRequests || p.Status >= http.StatusInternalServerError
	}
	return temporary(err)
}

func (d *Delivery) post(ctx context.Context, client *http.Client, out *Delivered) error {
	now := time.Now()
	signature, err := webhook.Sign(d.Secret, d.ID, now, d.Body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(d.Body))
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("webhook-id", d.ID)
	req.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("webhook-signature", signature)
	if d.ContentType != "" {
		req.Header.Set("Content-Type", d.ContentType)
	}
	res, err := client.Do(req)
	if err != nil {
		return err //nolint:wrapcheck // Deliver knows it
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return &url.Error{Op: "Read", URL: d.URL, Err: err}
	}
	if out.Status = res.StatusCode; out.Status/100 == 2 {
		var answer struct {
			DeliveryID string `json:"delivery_id"`
		}
		_ = json.Unmarshal(text, &answer) // other receivers answer something else
		out.DeliveryID = answer.DeliveryID
		return nil
	}
	return refused(res, text)
}

// refused reads an answer that is no success.
func refused(res *http.Response, text []byte) error { return refusal{problemOf(res, text)} }

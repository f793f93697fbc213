package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"flowlane/internal/trigger/webhook"
)

func hook(ctx context.Context, w *world) (values, error) {
	v, _, err := hookOf(ctx, w, "active")
	return v, err
}

// hookOf makes a webhook of a definition in this status, and returns its secret, too.
func hookOf(ctx context.Context, w *world, status string) (v values, secret string, err error) {
	def, err := definition(status)(ctx, w)
	if err != nil {
		return nil, "", err
	}
	made, err := w.post(ctx, "/flows/webhooks", `{"definition_id":"`+def["definition_id"]+`","description":"contract"}`)
	if err != nil {
		return nil, "", err
	}
	return values{"webhook_id": made["id"].(string)}, made["signing_secret"].(string), nil
}

// deadDelivery is a message whose flow could not be started.
func deadDelivery(ctx context.Context, w *world) (values, error) {
	v, secret, err := hookOf(ctx, w, "draft")
	if err != nil {
		return nil, err
	}
	if err := w.send(ctx, v["webhook_id"], secret, "{}"); err != nil {
		return nil, err
	}
	return v, w.await(ctx, "/flows/webhooks/"+v["webhook_id"]+"/deliveries", func(list map[string]any) bool {
		first := list["items"].([]any)[0].(map[string]any)
		v["delivery_id"] = first["id"].(string)
		return first["status"] == "dead"
	})
}

// send posts a signed message to a webhook.
func (w *world) send(ctx context.Context, id, secret, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.service.url+prefix+"/flows/webhooks/standard/"+id,
		strings.NewReader(body))
	if err != nil {
		return err
	}
	message, now := unique(), time.Now()
	signature, err := webhook.Sign(secret, message, now, []byte(body))
	if err != nil {
		return err
	}
	req.Header.Set("Webhook-Id", message)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("Webhook-Signature", signature)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("the message was answered %s", res.Status)
	}
	return nil
}

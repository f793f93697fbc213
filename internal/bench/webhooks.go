package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"flowlane/internal/pg"
	"flowlane/internal/webhook"
)

const (
	// webhookMessages is how many small messages a measurement sends; of large ones it is a tenth.
	webhookMessages = 10_000
	// rawConns are the connections of the raw inserts, however many senders there are: those of a server are few.
	rawConns = 32
)

// webhooks measures how long a signed message takes over HTTP to its 202, and how many there are a second, next to raw inserts of
// one row with the same body. The service dispatches nothing meanwhile.
func webhooks(ctx context.Context, e *env) ([]row, error) {
	own, err := e.apart(ctx)
	if err != nil {
		return nil, err
	}
	defer own.close()
	h, err := newHook(ctx, own)
	if err != nil {
		return nil, err
	}
	var out []row
	for _, c := range []struct {
		senders, size, messages int
		target                  float64
	}{{32, 1 << 10, webhookMessages, 1}, {256, 1 << 10, webhookMessages, 1.4}, {32, 100 << 10, webhookMessages / 10, 1}} {
		if e.records > 0 {
			c.messages = e.records
		}
		rows, err := h.measure(ctx, own, c.senders, c.size, c.messages, c.target)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

// hook is a webhook, and a place for raw inserts.
type hook struct {
	s           *service
	url, secret string
	senders     *http.Client
	sent        atomic.Int64
}

func newHook(ctx context.Context, e *env) (*hook, error) {
	s, err := e.stack(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.serve(ctx, e, idleVariable+"=1"); err != nil {
		return nil, err
	}
	def, err := s.define(ctx, `{"id":"t","action_id":"core__flow__transform","params":{"value":1}}`)
	if err != nil {
		return nil, err
	}
	var made struct {
		Secret string `json:"signing_secret"`
		URL    string `json:"receive_url"`
	}
	body := fmt.Appendf(nil, `{"definition_id":%q,"description":"bench","rate_limit":1000000}`, def)
	if err := s.call(ctx, http.MethodPost, "/flows/webhooks", body, &made); err != nil {
		return nil, err
	}
	if _, err := e.pool.Exec(ctx, "CREATE TABLE raw_message (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz DEFAULT now(), body bytea)"); err != nil {
		return nil, err
	}
	if _, err := e.pool.Exec(ctx, "ALTER TABLE raw_message ALTER COLUMN body SET STORAGE EXTERNAL"); err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	return &hook{s: s, url: s.url + "/v1" + made.URL, secret: made.Secret, senders: client}, nil
}

func (h *hook) measure(ctx context.Context, e *env, senders, size, messages int, target float64) ([]row, error) {
	raw, err := pg.Open(ctx, e.dsn, pg.Options{MaxConns: rawConns})
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	body, err := json.Marshal(map[string]string{"text": string(bytes.Repeat([]byte("x"), size-len(`{"text":""}`)))})
	if err != nil {
		return nil, err
	}
	insert := func() error {
		_, err := raw.Exec(ctx, "INSERT INTO raw_message (body) VALUES ($1)", body)
		return err
	}
	send := func() error { return h.send(ctx, body) }
	var ours, theirs, times []time.Duration
	for range e.repeats {
		inserted, _, err := together(senders, messages, insert)
		if err != nil {
			return nil, err
		}
		acknowledged, took, err := together(senders, messages, send)
		if err != nil {
			return nil, err
		}
		theirs, ours, times = append(theirs, inserted), append(ours, acknowledged), append(times, took...)
	}
	what := fmt.Sprintf("webhook, %d senders, %d KiB", senders, size>>10)
	p50, p99 := quantile(times, 0.5), quantile(times, 0.99)
	rows := []row{{what: what + ", acknowledged", ours: perSecond(messages, median(ours), "messages"), raw: "insert " + perSecond(messages, median(theirs), "rows"),
		ratio: median(theirs).Seconds() / median(ours).Seconds(), target: target}}
	if senders <= rawConns {
		rows = append(rows, row{what: what + ", p99 to its 202", ours: fmt.Sprintf("p50 %s, p99 %s", p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond)),
			ratio: p99.Seconds() * 1e3, target: 25, most: true, unit: "ms"})
	}
	return rows, nil
}

// together has so many at once do something n times in all, and returns how long all of it took, and each.
func together(many, n int, do func() error) (all time.Duration, took []time.Duration, err error) {
	took = make([]time.Duration, n)
	errs := make([]error, many)
	var next atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for i := range many {
		group.Go(func() {
			for {
				at := next.Add(1) - 1
				if at >= int64(n) || errs[i] != nil {
					return
				}
				one := time.Now()
				errs[i] = do()
				took[at] = time.Since(one)
			}
		})
	}
	group.Wait()
	return time.Since(began), took, errors.Join(errs...)
}

// send posts one message and reads its answer.
func (h *hook) send(ctx context.Context, body []byte) error {
	id, now := "msg_"+strconv.FormatInt(h.sent.Add(1), 10), time.Now()
	signature, err := webhook.Sign(h.secret, id, now, body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("Webhook-Signature", signature)
	res, err := h.senders.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	if err = errors.Join(err, res.Body.Close()); err == nil && res.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("a message was answered %s", res.Status)
	}
	return err
}

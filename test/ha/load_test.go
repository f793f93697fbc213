package ha_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"flowlane/internal/trigger/webhook"
)

const (
	// rate is how many messages and triggers are sent in a second; each tenth is a trigger.
	rate    = 40
	senders = 200
	// again is how long a sender waits before it tries the next process.
	again = 200 * time.Millisecond
	// endless is how long an answer may take: two groups of messages that wait for a server which says nothing.
	endless = time.Minute
)

// load sends signed messages and triggers at a steady rate, each until it is acknowledged, to one process after the
// other.
type load struct {
	*testing.T

	service *service
	client  http.Client
	// key is that of the API; path and secret are those of the webhook, flow is what triggers start.
	key, path, secret, flow string

	group sync.WaitGroup
	stop  context.CancelFunc

	mu sync.Mutex
	// acks are what was acknowledged, in this order.
	acks []ack
	// sent is how many messages and triggers there are.
	sent int
	// answers are how often each other answer was given, wrong what must not be.
	answers map[string]int
	wrong   map[string]int
}

// ack is a message or trigger that was acknowledged: by its delivery or its batch.
type ack struct {
	key, id     string
	began, done time.Time
}

func newLoad(c *client, s *service, flow, trigger string) *load {
	c.Helper()
	_, hook := c.make("/flows/webhooks", fmt.Sprintf(
		`{"definition_id":%q,"description":"load","rate_limit":1000000}`, flow))
	secret, _ := hook["signing_secret"].(string)
	path, _ := hook["receive_url"].(string)
	return &load{T: c.T, service: s, key: c.key, path: path, secret: secret, flow: trigger, answers: map[string]int{},
		wrong: map[string]int{}, client: http.Client{Timeout: endless,
			Transport: &http.Transport{MaxIdleConnsPerHost: senders}}}
}

func (l *load) start() {
	ctx, stop := context.WithCancel(l.Context())
	l.stop = stop
	l.group.Go(func() {
		tick := time.NewTicker(time.Second / rate)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			l.mu.Lock()
			l.sent++
			l.mu.Unlock()
			l.group.Go(func() { l.deliver(n) })
		}
	})
}

// end sends nothing new, and waits until all that was sent is acknowledged.
func (l *load) end() {
	l.stop()
	l.group.Wait()
}

// deliver sends one thing until it is acknowledged.
func (l *load) deliver(n int) {
	kind := "message"
	if n%10 == 0 {
		kind = "trigger"
	}
	a := ack{key: fmt.Sprintf("%s-%x", kind, n), began: time.Now()}
	for try := n; l.Context().Err() == nil; try++ {
		p := l.service.processes[try%processes]
		if a.id = l.try(p, kind, a.key); a.id != "" {
			a.done = time.Now()
			l.mu.Lock()
			l.acks = append(l.acks, a)
			l.mu.Unlock()
			return
		}
		select {
		case <-l.Context().Done():
		case <-time.After(again):
		}
	}
}

// try sends it once, and returns the id of what became of it; an empty one where it must be sent again.
func (l *load) try(p *process, kind, key string) string {
	down := p.down.Load()
	began := time.Now()
	res, err := l.client.Do(l.request(p, kind, key))
	var text []byte
	if err == nil {
		text, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	var out struct {
		Code     string
		Delivery string `json:"delivery_id"`
		Batch    string `json:"batch_id"`
	}
	_ = json.Unmarshal(text, &out) // what is wrong with it shows below
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil && (down || p.down.Load()):
		l.answers["none, by a process that was ended"]++
	case err != nil:
		l.wrong[fmt.Sprintf("none after %s: %v", time.Since(began).Round(time.Second), err)]++
	case res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "":
		l.answers["503 "+out.Code+", Retry-After "+res.Header.Get("Retry-After")]++
	case res.StatusCode < http.StatusMultipleChoices && out.Delivery+out.Batch != "":
		return out.Delivery + out.Batch
	default:
		l.wrong[fmt.Sprintf("%s: %s", res.Status, text)]++
	}
	return ""
}

func (l *load) request(p *process, kind, key string) *http.Request {
	path, body := l.path, fmt.Sprintf(`{"id":%q}`, key)
	if kind == "trigger" {
		path, body = "/flows/definitions/"+l.flow+"/trigger", fmt.Sprintf(`{"input_data":%s}`, body)
	}
	req := must(http.NewRequestWithContext(l.Context(), http.MethodPost, p.url+"/v1"+path, strings.NewReader(body)))
	req.Header.Set("Content-Type", "application/json")
	if kind == "trigger" {
		req.Header.Set("X-API-Key", l.key)
		req.Header.Set("Idempotency-Key", key)
		return req
	}
	now := time.Now()
	req.Header.Set("Webhook-Id", key)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("Webhook-Signature", must(webhook.Sign(l.secret, key, now, []byte(body))))
	return req
}

// since are the acknowledgements since a time.
func (l *load) since(at time.Time) []ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := slices.IndexFunc(l.acks, func(a ack) bool { return a.done.After(at) })
	if from < 0 {
		return nil
	}
	return slices.Clone(l.acks[from:])
}

// counts are how often each other answer was given so far, and takes those that must not be.
func (l *load) counts() (answers, wrong map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong, l.wrong = l.wrong, map[string]int{}
	return maps.Clone(l.answers), wrong
}

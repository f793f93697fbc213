package torture_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/internal/trigger/webhook"
)

const (
	// senders post to a webhook at the same time, all of them together so many messages a second if the machine can:
	// twice as many as have to come while a process is there, since each waits for its answers.
	senders  = 32
	postRate = 1000
)

// post is the sending side of a webhook: who must not lose a message sends it until it is answered 202.
type post struct {
	*world

	path, secret string
	client       http.Client
	// to is the process that is there.
	to atomic.Pointer[string]
	// acked counts answers of 202, cut the requests that got none.
	acked, cut atomic.Int64

	mu sync.Mutex
	// deliveries are what the messages were answered.
	deliveries map[string]string
}

// webhook makes a webhook of a flow that makes no calls.
func (w *world) webhook(p *process) *post {
	w.Helper()
	def := w.define(0, `[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":1}}]}]`)
	return w.webhookOf(p, w.key, def)
}

// webhookOf makes a webhook of a flow, as who has the key.
func (w *world) webhookOf(p *process, key string, def uuid.UUID) *post {
	w.Helper()
	req := must(http.NewRequestWithContext(w.Context(), http.MethodPost, p.url+"/v1/flows/webhooks",
		strings.NewReader(fmt.Sprintf(`{"definition_id":%q,"description":"torture","rate_limit":1000000}`, def))))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", key)
	res := must(http.DefaultClient.Do(req))
	defer res.Body.Close()
	var made struct {
		Secret string `json:"signing_secret"`
		URL    string `json:"receive_url"`
	}
	if err := json.NewDecoder(res.Body).Decode(&made); err != nil || res.StatusCode != http.StatusCreated {
		w.Fatalf("making a webhook was answered %s: %v", res.Status, err)
	}
	out := &post{world: w, path: "/v1" + made.URL, secret: made.Secret, deliveries: map[string]string{},
		client: http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: senders}}}
	out.to.Store(&p.url)
	return out
}

// send sends one message once. It returns the id of its delivery, or an empty one where there was no answer, or one of
// trouble.
func (p *post) send(ctx context.Context, id string) (string, error) {
	body := fmt.Sprintf(`{"id":%q}`, id)
	now := time.Now()
	req := must(http.NewRequestWithContext(ctx, http.MethodPost, *p.to.Load()+p.path, strings.NewReader(body)))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("Webhook-Signature", must(webhook.Sign(p.secret, id, now, []byte(body))))
	res, err := p.client.Do(req)
	if err != nil {
		return "", nil //nolint:nilerr // a killed process is what this is about
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	switch {
	case err != nil || res.StatusCode >= http.StatusInternalServerError:
		return "", nil //nolint:nilerr // as above
	case res.StatusCode != http.StatusAccepted:
		return "", fmt.Errorf("message %s was answered %s: %s", id, res.Status, text)
	}
	var receipt struct {
		ID string `json:"delivery_id"`
	}
	return receipt.ID, json.Unmarshal(text, &receipt)
}

// keep sends message after message until stop; what it has begun it goes on with until it is acknowledged.
func (p *post) keep(ctx context.Context, who int, stop <-chan struct{}) error {
	tick := time.NewTicker(time.Second * senders / postRate)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		id := fmt.Sprintf("msg_%d_%d", who, n)
		for {
			delivery, err := p.send(ctx, id)
			if err != nil || ctx.Err() != nil {
				return err
			}
			if delivery != "" {
				p.mu.Lock()
				p.deliveries[id] = delivery
				p.mu.Unlock()
				p.acked.Add(1)
				break
			}
			p.cut.Add(1)
			pass(ctx, 20*time.Millisecond)
		}
	}
}

// A process that takes messages and starts their flows is killed, again and again: what was acknowledged has its batch
// when another one has gone on, and nothing has two.
func TestKill_Webhook(t *testing.T) {
	t.Parallel()
	w := setup(t, 1)
	n := (kills(t) + 2) / 3
	process := w.serve(hasty).ready(w)
	p := w.webhook(process)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for who := range senders {
		group.Go(func() {
			if err := p.keep(w.Context(), who, stop); err != nil {
				t.Error(err)
			}
		})
	}
	waiting, took, there := 0, int64(0), time.Duration(0)
	for range n {
		already, began := p.acked.Load(), time.Now()
		w.until("messages are acknowledged", 60*time.Second, func() bool { return p.acked.Load() > already+50 })
		pass(w.Context(), w.between(time.Millisecond, 700*time.Millisecond))
		took, there = took+p.acked.Load()-already, there+time.Since(began)
		process.kill()
		waiting += w.count("SELECT count(*) FROM flow.webhook_delivery WHERE next_at IS NOT NULL")
		process = w.serve(hasty).ready(w)
		p.to.Store(&process.url)
	}
	close(stop)
	group.Wait()
	p.drain()
	p.check()
	t.Logf("%d kills, %d messages, %.0f/s of them while a process was there, %d requests that got no answer, "+
		"%d deliveries that waited for their start at a kill",
		n, p.acked.Load(), float64(took)/there.Seconds(), p.cut.Load(), waiting)
	if p.cut.Load() == 0 || waiting == 0 {
		t.Error("no kill hit a message: the test shows nothing")
	}
}

// drain waits until every delivery has its batch, as long as it goes on.
func (p *post) drain() {
	p.Helper()
	left := func() int { return p.count("SELECT count(*) FROM flow.webhook_delivery WHERE next_at IS NOT NULL") }
	for before := left(); before > 0; {
		now := before
		p.until("starts go on", time.Minute, func() bool {
			now = left()
			return now != before
		}, func() { p.Logf("%d deliveries wait for their start", before) })
		before = now
	}
}

// check holds deliveries and batches against what was acknowledged.
func (p *post) check() {
	p.Helper()
	batches := map[string][]string{}
	for _, b := range p.pairs(`SELECT flow.batch_metadata(b)::json ->> 'delivery_id', id::text FROM flow.batch b
		WHERE trigger_type = 'webhook'`) {
		batches[b[0]] = append(batches[b[0]], b[1])
	}
	noted := map[string]string{}
	for _, d := range p.pairs(`SELECT id::text, CASE status WHEN 'dispatched' THEN coalesce(batch_id, id)::text ELSE '' END
		FROM flow.webhook_delivery`) {
		noted[d[0]] = d[1]
	}
	deliveries := 0
	for _, d := range p.pairs("SELECT message_id, id::text FROM flow.webhook_delivery") {
		if id := d[1]; p.deliveries[d[0]] != id || !slices.Equal(batches[id], []string{noted[id]}) {
			p.Errorf("message %s was answered delivery %q and is delivery %s, which has batches %v and notes %q",
				d[0], p.deliveries[d[0]], id, batches[id], noted[id])
		}
		deliveries++
	}
	if deliveries != len(p.deliveries) {
		p.Errorf("%d messages were acknowledged, and there are %d deliveries", len(p.deliveries), deliveries)
	}
	if n := p.count("SELECT count(*) FROM flow.batch"); n != deliveries {
		p.Errorf("%d deliveries have %d batches", deliveries, n)
	}
}

// pairs are the rows of a query with two columns of text.
func (p *post) pairs(query string) [][2]string {
	p.Helper()
	out, err := pgx.CollectRows(must(p.pool.Query(p.Context(), query)),
		func(r pgx.CollectableRow) (pair [2]string, err error) {
			return pair, r.Scan(&pair[0], &pair[1])
		})
	if err != nil {
		p.Fatal(err)
	}
	return out
}

package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/trigger/webhook"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// signed are the headers of a message.
func (s *stack) signed(secret, id string, body []byte) []string {
	s.t.Helper()
	at := s.clock()
	signature, err := webhook.Sign(secret, id, at, body)
	require.NoError(s.t, err)
	return []string{"webhook-id", id, "webhook-timestamp", strconv.FormatInt(at.Unix(), 10), "webhook-signature",
		signature}
}

// sendTo posts a signed message to a process, without an API key.
func (s *stack) sendTo(c *apitest.Client, h hook, id, body string, header ...string) apitest.Response {
	s.t.Helper()
	return c.As("").Do(http.MethodPost, h.url, body, append(s.signed(h.secret, id, []byte(body)), header...)...)
}

func (s *stack) send(h hook, id, body string, header ...string) apitest.Response {
	s.t.Helper()
	return s.sendTo(s.Client, h, id, body, header...)
}

type deliveryRow struct {
	ID          string `json:"id"`
	MessageID   string `json:"webhook_message_id"`
	Status      string `json:"status"`
	Duplicates  int    `json:"duplicates"`
	ContentType string `json:"content_type"`
	SizeBytes   int    `json:"size_bytes"`
	BatchID     string `json:"batch_id"`
	Attempts    int    `json:"attempts"`
	LastError   string `json:"last_error"`
}

func (s *stack) deliveries(h hook, query string) (out []deliveryRow) {
	s.t.Helper()
	for _, item := range s.pages("/flows/webhooks/"+h.id+"/deliveries"+query, 3) {
		var d deliveryRow
		require.NoError(s.t, json.Unmarshal(item, &d))
		out = append(out, d)
	}
	return out
}

// settledDeliveries waits until none of so many deliveries waits for its start.
func (s *stack) settledDeliveries(h hook, n int) []deliveryRow {
	s.t.Helper()
	s.eventually(func() bool {
		return s.count("flow.webhook_delivery WHERE webhook_id::text = $1 AND next_at IS NULL", dashed(h.id)) == n
	})
	rows := s.deliveries(h, "")
	require.Len(s.t, rows, n)
	return rows
}

// record is the one record of a batch.
func (s *stack) record(batch string) string {
	s.t.Helper()
	body := s.Do(http.MethodGet, "/flows/jobs/"+batch+".0", nil).Want(http.StatusOK).Body
	var job struct {
		Input json.RawMessage `json:"input_data"`
	}
	require.NoError(s.t, json.Unmarshal(body, &job))
	return string(job.Input)
}

// deadDelivery is one of a webhook whose start was refused.
func (s *stack) deadDelivery(h hook) string {
	s.t.Helper()
	id := s.send(h, s.unique(), "{}").Want(http.StatusAccepted).JSON()["delivery_id"].(string)
	_, err := s.owner.Exec(s.t.Context(),
		`UPDATE flow.webhook_delivery SET status = 'dead', next_at = NULL, batch_id = NULL, attempts = 1, last_error = 'x' WHERE id = $1`, id)
	require.NoError(s.t, err)
	return id
}

// A message starts one batch, however often it is sent.
func TestReceiver_StartsABatch(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	replica := s.replica()
	h := s.webhook(hookOf(s.define(transformSteps),
		`"input_template":{"n":"{{ payload.a[0] }}","all":"{{ payload }}"}`))
	body := ` {"a":[1.50,2]}`
	first := s.send(h, "msg_1", body).Want(http.StatusAccepted)
	id := first.JSON()["delivery_id"].(string)
	for _, c := range []*apitest.Client{s.Client, replica, s.Client} {
		assert.Equal(t, string(first.Body), string(s.sendTo(c, h, "msg_1", body).Want(http.StatusAccepted).Body))
	}
	d := s.settledDeliveries(h, 1)[0]
	assert.Equal(t, deliveryRow{ID: id, MessageID: "msg_1", Status: "dispatched", Duplicates: 3,
		ContentType: "application/json", SizeBytes: len(body), BatchID: id, Attempts: 1}, d)
	batch := s.await(d.BatchID)
	assert.Equal(t, []any{"completed", "webhook", h.id}, []any{batch["status"], batch["trigger_type"],
		batch["trigger_source"]})
	assert.Equal(t, map[string]any{"webhook_id": h.id, "delivery_id": id}, batch["metadata"])
	var told string
	s.scan("SELECT flow.batch_event($1)->>'metadata'", &told, id)
	assert.JSONEq(t, `{"webhook_id":"`+h.id+`","delivery_id":"`+id+`"}`, told, "of the event of its end")
	assert.Equal(t, `{"n":1.50,"all":{"a":[1.50,2]}}`, s.record(d.BatchID))
	assert.Len(t, s.pages("/flows/batches", 10), 1)
	s.send(h, "msg_2", body).Want(http.StatusAccepted)
	rows := s.settledDeliveries(h, 2)
	assert.Equal(t, []string{"msg_2", "msg_1"}, []string{rows[0].MessageID, rows[1].MessageID}, "newest first")
	assert.Len(t, s.deliveries(h, "?status=dispatched"), 2)
	assert.Empty(t, s.deliveries(h, "?status=dead"))
}

// Without a template the whole payload is the record.
func TestReceiver_WholePayload(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	h := s.webhook(s.webhookBody())
	repetitive, random := `{"text":"`+strings.Repeat("ab", 8<<10)+`"}`, `{"text":"`
	for range 100 {
		random += rand.Text()
	}
	random += `"}`
	for id, c := range map[string]struct{ contentType, body, record string }{
		"repetitive": {"application/json", repetitive, repetitive},
		"random":     {"application/json", random, random},
		"object":     {"application/json", `{"b":1.0,"a":2}`, `{"b":1.0,"a":2}`},
		"array":      {"application/json", `[1]`, `{"payload":[1]}`},
		"null":       {"application/json", `null`, `{"payload":null}`},
		"bad":        {"application/json", `{`, `{"raw":"{","content_type":"application/json"}`},
		"nul":        {"text/plain", "a\x00b", `{"raw":"a` + "\ufffd" + `b","content_type":"text/plain"}`},
		"form":       {"application/x-www-form-urlencoded", "a=1&a=2", `{"a":["1","2"]}`},
		"xml":        {"text/xml", "<a b='1'>x</a>", `{"a":{"@b":"1","#text":"x"}}`},
		"none":       {"", "x", `{"raw":"x","content_type":""}`},
		"odd": {"not a media type;;;\xff", "x", `{"raw":"x","content_type":"not a media type;;;` + "\ufffd" +
			`"}`},
		"empty": {"", "", `{"raw":"","content_type":""}`},
		"large": {"", strings.Repeat("x", webhook.MaxBody), `{"raw":"` + strings.Repeat("x", webhook.MaxBody) +
			`","content_type":""}`},
	} {
		t.Run(id, func(t *testing.T) {
			h := h
			delivery := s.send(h, id, c.body, "Content-Type",
				c.contentType).Want(http.StatusAccepted).JSON()["delivery_id"].(string)
			batch := ""
			s.eventually(func() bool {
				batch, _ = s.get("/flows/webhooks/" + h.id + "/deliveries/" + delivery)["batch_id"].(string)
				return batch != ""
			})
			if id == "large" {
				return // its record is more than a job shows
			}
			assert.Equal(t, c.record, s.record(batch))
		})
	}
	assert.Equal(t, 2, s.count("flow.webhook_delivery WHERE packed AND octet_length(body) < size_bytes / 10"),
		"what is large and can be made smaller is")
	assert.Zero(t, s.count("flow.webhook_delivery WHERE packed <> (octet_length(body) < size_bytes)"))
	s.sendUnsigned(h.url, strings.Repeat("x", webhook.MaxBody+1)).Detail(http.StatusRequestEntityTooLarge,
		"Request body exceeds 1048576 bytes")
}

func (s *stack) sendUnsigned(url, body string, header ...string) apitest.Response {
	s.t.Helper()
	return s.As("").Do(http.MethodPost, url, body, header...)
}

// Whatever is wrong with a signature, the answer is the same to the byte; where there is no webhook it is 404.
func TestReceiver_Refuses(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	h := s.webhook(s.webhookBody())
	other := s.webhook(s.webhookBody())
	body := `{"a":1}`
	good := s.signed(h.secret, "m", []byte(body))
	with := func(name, value string) []string {
		out := append([]string{}, good...)
		for i := 0; i < len(out); i += 2 {
			if out[i] == name {
				out[i+1] = value
			}
		}
		return out
	}
	stamp := func(d time.Duration) []string {
		at := s.clock().Add(d)
		signature, err := webhook.Sign(h.secret, "m", at, []byte(body))
		require.NoError(t, err)
		return []string{"webhook-id", "m", "webhook-timestamp", strconv.FormatInt(at.Unix(), 10), "webhook-signature",
			signature}
	}
	for name, header := range map[string][]string{
		"nothing":          nil,
		"no id":            with("webhook-id", ""),
		"no timestamp":     with("webhook-timestamp", ""),
		"no signature":     with("webhook-signature", ""),
		"another id":       with("webhook-id", "n"),
		"another time":     with("webhook-timestamp", strconv.FormatInt(s.clock().Unix()+1, 10)),
		"old":              stamp(-6 * time.Minute),
		"early":            stamp(6 * time.Minute),
		"another secret":   s.signed(other.secret, "m", []byte(body)),
		"another body":     s.signed(h.secret, "m", []byte(body+" ")),
		"a huge id":        with("webhook-id", strings.Repeat("x", 50_000)),
		"a huge signature": with("webhook-signature", strings.Repeat("v1,x ", 10_000)),
		"a strange id":     with("webhook-id", "\xff\xfe'--"),
	} {
		t.Run(name, func(t *testing.T) {
			res := s.sendUnsigned(h.url, body, header...).Want(http.StatusUnauthorized)
			assert.Equal(t, `{"detail":"Signature verification failed"}`, apitest.Detail(string(res.Body)))
			assert.Empty(t, res.Header.Get("WWW-Authenticate"))
		})
	}
	s.sendUnsigned(h.url, body, with("webhook-signature", "v1a,zzz v1,AAAA "+good[5]+" v2,x")...).Want(
		http.StatusAccepted)
	missing := s.sendUnsigned(strings.Replace(h.url, "standard", "stripe", 1), body,
		good...).Detail(http.StatusNotFound, "Webhook not found")
	for _, url := range []string{altered(h.id), strings.ToUpper(h.id), "x", "%00", h.id + "0"} {
		got := s.sendUnsigned("/flows/webhooks/standard/"+url, body, good...).Want(http.StatusNotFound)
		assert.Equal(t, missing.Alike(), got.Alike())
		s.sendUnsigned("/flows/webhooks/standard/"+url, body).Want(http.StatusNotFound)
	}
	s.Do(http.MethodPatch, "/flows/webhooks/"+h.id, `{"enabled":false}`).Want(http.StatusOK)
	s.sendUnsigned(h.url, body, good...).Detail(http.StatusNotFound, "Webhook not found")
	s.Do(http.MethodPatch, "/flows/webhooks/"+h.id, `{"enabled":true}`).Want(http.StatusOK)
	s.send(h, "again", body).Want(http.StatusAccepted)
	s.Do(http.MethodDelete, "/flows/webhooks/"+h.id, nil).Want(http.StatusNoContent)
	s.sendUnsigned(h.url, body, good...).Detail(http.StatusNotFound, "Webhook not found")
	s.Do(http.MethodGet, "/flows/webhooks/"+h.id+"/deliveries", nil).Detail(http.StatusNotFound, "Webhook not found")
	s.Do(http.MethodGet, h.url, nil).Want(http.StatusMethodNotAllowed)
	_, err := s.owner.Exec(t.Context(), `UPDATE flow.organization SET status = 'suspended'`)
	require.NoError(t, err)
	s.sendUnsigned(other.url, body, s.signed(other.secret, "m", []byte(body))...).Detail(http.StatusNotFound,
		"Webhook not found")
}

// A secret is good for a day after its rotation, however many follow, in every process from its answer on.
func TestReceiver_Rotation(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	processes := []*apitest.Client{s.Client, s.replica()}
	h := s.webhook(s.webhookBody())
	sent := 0
	want := func(secret string, status int) {
		t.Helper()
		for _, c := range processes {
			sent++
			s.sendTo(c, hook{h.id, secret, h.url}, fmt.Sprint(sent), "{}").Want(status)
		}
	}
	rotate := func() string {
		return s.Do(http.MethodPost, "/flows/webhooks/"+h.id+"/rotate-secret",
			nil).Want(http.StatusOK).JSON()["signing_secret"].(string)
	}
	want(h.secret, http.StatusAccepted)
	second := rotate()
	want(h.secret, http.StatusAccepted)
	want(second, http.StatusAccepted)
	pgtest.MoveClock(t, s.owner, 24*time.Hour-time.Minute)
	want(h.secret, http.StatusAccepted)
	pgtest.MoveClock(t, s.owner, 2*time.Minute)
	want(h.secret, http.StatusUnauthorized)
	want(second, http.StatusAccepted)
	third := rotate()
	pgtest.MoveClock(t, s.owner, 12*time.Hour)
	fourth := rotate()
	for _, secret := range []string{second, third, fourth} {
		want(secret, http.StatusAccepted)
	}
	pgtest.MoveClock(t, s.owner, 12*time.Hour)
	want(second, http.StatusUnauthorized)
	want(third, http.StatusAccepted)
	want(fourth, http.StatusAccepted)
}

// TestReceiver_RotatedOften: a rotation that would have more secrets live than are compared with is refused, and says
// when it is not.
func TestReceiver_RotatedOften(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	h := s.webhook(s.webhookBody())
	rotate := func() apitest.Response { return s.Do(http.MethodPost, "/flows/webhooks/"+h.id+"/rotate-secret", nil) }
	all := []string{h.secret}
	var ends time.Time
	for i := range 10 {
		rotated := rotate().Want(http.StatusOK).JSON()
		all = append(all, rotated["signing_secret"].(string))
		if i == 0 {
			var err error
			ends, err = time.Parse(time.RFC3339, rotated["previous_valid_until"].(string))
			require.NoError(t, err)
		}
	}
	again := ends.Truncate(time.Second).Add(time.Second).Format(time.RFC3339)
	rotate().Detail(http.StatusConflict,
		"The webhook has 10 earlier secrets that are still valid; it can be rotated again at "+again)
	for i, secret := range all {
		s.sendTo(s.Client, hook{h.id, secret, h.url}, fmt.Sprint(i), "{}").Want(http.StatusAccepted)
	}
	pgtest.MoveClock(t, s.owner, 24*time.Hour)
	rotate().Want(http.StatusOK)
	s.sendTo(s.Client, hook{h.id, all[10], h.url}, "last", "{}").Want(http.StatusAccepted)
	s.sendTo(s.Client, hook{h.id, all[0], h.url}, "first", "{}").Want(http.StatusUnauthorized)
}

// The batch of a message is there once it is acknowledged, and what could not be started then is dispatched by whoever
// is there next.
func TestReceiver_OutlivesItsProcess(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	h := s.webhook(hookOf(flow))
	want := map[string]bool{}
	send := func(from int) {
		for i := range 10 {
			want[s.send(h, fmt.Sprint(from+i), "{}").Want(http.StatusAccepted).JSON()["delivery_id"].(string)] = true
		}
	}
	send(0)
	packed := func(size int) string { return `{"x":"` + strings.Repeat("x", size) + `"}` } // stored in much less
	want[s.send(h, "packed", packed(4<<10)).Want(http.StatusAccepted).JSON()["delivery_id"].(string)] = true
	// A busy machine may leave some of them for later.
	started := s.count("flow.batch")
	assert.Equal(t, 11-started, s.count("flow.webhook_delivery WHERE status = 'accepted'"))
	s.editing(flow, func() { send(10) })
	want[s.send(h, "large", packed(512<<10)).Want(http.StatusAccepted).JSON()["delivery_id"].(string)] = true
	assert.Equal(t, started, s.count("flow.batch"))
	assert.Equal(t, 22-started, s.count("flow.webhook_delivery WHERE status = 'accepted'"))
	s.Do(http.MethodDelete, "/flows/webhooks/"+h.id, nil).Want(http.StatusNoContent)
	s.restart(true)
	s.eventually(func() bool { return s.count("flow.webhook_delivery WHERE status = 'dispatched'") == len(want) })
	batches := s.pages("/flows/batches?trigger_type=webhook", 7)
	assert.Len(t, batches, len(want))
	for _, b := range batches {
		metadata := field[map[string]any](t, b, "metadata")
		assert.True(t, want[metadata["delivery_id"].(string)], metadata)
		delete(want, metadata["delivery_id"].(string))
	}
	assert.Empty(t, want)
}

// Copies that come all at once, to two processes, are one delivery and one batch.
func TestReceiver_Copies(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	processes := []*apitest.Client{s.Client, s.replica()}
	h := s.webhook(hookOf(s.define(transformSteps), `"rate_limit":3`))
	const copies = 10_000
	atOnce := make(chan struct{}, 2000)
	header := s.signed(h.secret, "m", []byte("{}"))
	answers := make([]apitest.Response, copies)
	var group sync.WaitGroup
	// Each process is kept busy with another message, so that the first copies are written together.
	lock, err := s.owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = lock.Exec(t.Context(), "SELECT FROM flow.webhook FOR UPDATE")
	require.NoError(t, err)
	for i, p := range processes {
		other := s.signed(h.secret, fmt.Sprint(i), []byte("{}"))
		group.Go(func() { p.As("").Do(http.MethodPost, h.url, "{}", other...).Want(http.StatusAccepted) })
	}
	s.eventually(func() bool {
		return s.count("pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == len(
			processes)
	})
	for i := range answers {
		group.Go(func() {
			atOnce <- struct{}{} // each has two files open here
			defer func() { <-atOnce }()
			answers[i] = processes[i%2].As("").Do(http.MethodPost, h.url, "{}", header...)
		})
	}
	require.NoError(t, lock.Rollback(t.Context()))
	group.Wait()
	for _, a := range answers {
		a.Want(http.StatusAccepted)
		assert.True(t, bytes.Equal(answers[0].Body, a.Body))
	}
	duplicates := 0
	for _, d := range s.settledDeliveries(h, 3) {
		duplicates += d.Duplicates
	}
	assert.Equal(t, copies-1, duplicates)
	assert.Len(t, s.pages("/flows/batches", 10), 3)
}

// What changes between the look-up of a message and its acceptance counts.
func TestReceiver_ChangedMeanwhile(t *testing.T) {
	t.Parallel()
	rotate := func(h hook) [][3]string {
		one := [3]string{http.MethodPost, "/flows/webhooks/" + h.id + "/rotate-secret", ""}
		return [][3]string{one, one}
	}
	for name, c := range map[string]struct {
		changes func(h hook) [][3]string
		status  int
	}{
		"its secret":       {func(h hook) [][3]string { return rotate(h)[:1] }, http.StatusAccepted},
		"its secret twice": {rotate, http.StatusAccepted},
		"switched off": {func(h hook) [][3]string {
			return [][3]string{{http.MethodPatch, "/flows/webhooks/" + h.id, `{"enabled":false}`}}
		}, http.StatusNotFound},
		"deleted": {func(h hook) [][3]string {
			return [][3]string{{http.MethodDelete, "/flows/webhooks/" + h.id, ""}}
		}, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveStack(t, false)
			h := s.webhook(s.webhookBody())
			tx, err := s.owner.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "SELECT FROM flow.webhook WHERE id::text = $1 FOR NO KEY UPDATE",
				dashed(h.id))
			require.NoError(t, err)
			var group sync.WaitGroup
			for i, change := range c.changes(h) {
				group.Go(func() {
					var body any
					if change[2] != "" {
						body = change[2]
					}
					s.Do(change[0], change[1], body)
				})
				s.blocked(i + 1)
			}
			header := s.signed(h.secret, "m", []byte("{}"))
			var answer apitest.Response
			group.Go(func() { answer = s.sendUnsigned(h.url, "{}", header...) })
			s.blocked(len(c.changes(h)) + 1)
			require.NoError(t, tx.Rollback(t.Context()))
			group.Wait()
			answer.Want(c.status)
			assert.Equal(t, map[bool]int{true: 1, false: 0}[c.status == http.StatusAccepted],
				s.count("flow.webhook_delivery"))
		})
	}
}

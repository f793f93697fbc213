package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/trigger/webhook"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
	"flowlane/test/webhooktest"
)

// TestReceiver_HostileBodies: without a signature no body is read, with one every body starts a batch, whatever it is.
func TestReceiver_HostileBodies(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	h := s.webhook(hookOf(s.define(transformSteps), `"rate_limit":1000000`))
	want := map[string]deliveryRow{}
	for i, b := range webhooktest.Hostile() {
		id := strconv.Itoa(i)
		if len(b.Text) > webhook.MaxBody {
			s.sendUnsigned(h.url, b.Text, "Content-Type", b.ContentType).Want(http.StatusRequestEntityTooLarge)
			s.send(h, id, b.Text, "Content-Type", b.ContentType).Detail(http.StatusRequestEntityTooLarge,
				"Request body exceeds 1048576 bytes")
			continue
		}
		s.sendUnsigned(h.url, b.Text, "Content-Type", b.ContentType).Detail(http.StatusUnauthorized,
			"Signature verification failed")
		encoding := []string{"", "gzip", "br"}[i%3]
		answer := s.send(h, id, b.Text, "Content-Type", b.ContentType, "Content-Encoding",
			encoding).Want(http.StatusAccepted)
		delivery := answer.JSON()["delivery_id"].(string)
		if b.Text == "" {
			b.ContentType = "" // a body that is not there has no type
		}
		want[id] = deliveryRow{ID: delivery, MessageID: id, Status: "dispatched", ContentType: b.ContentType,
			SizeBytes: len(b.Text), Attempts: 1}
	}
	for _, d := range s.settledDeliveries(h, len(want)) {
		assert.NotEmpty(t, d.BatchID)
		d.BatchID = ""
		assert.Equal(t, want[d.MessageID], d)
	}
}

// TestReceiver_Strangers: who knows no address cannot keep large messages, and those of unknown length, from others by
// sending slowly.
func TestReceiver_Strangers(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	h := s.webhook(s.webhookBody())
	for range 40 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.app.URL(), "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		stranger := uuid.New()
		_, err = fmt.Fprintf(conn,
			"POST /v1/flows/webhooks/standard/%x HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n{", stranger[:])
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // before any of them is cut off
	defer cancel()
	for i := range 20 {
		body, id := []byte("{}"), strconv.Itoa(i)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.app.URL()+"/v1"+h.url,
			io.MultiReader(bytes.NewReader(body)))
		require.NoError(t, err)
		for header := range slices.Chunk(s.signed(h.secret, id, body), 2) {
			req.Header.Set(header[0], header[1])
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusAccepted, res.StatusCode)
	}
}

// TestReceiver_StandardWebhooks: the receiver takes what the Standard Webhooks library signs, and refuses it, in the
// same bytes, with any byte of it changed.
func TestReceiver_StandardWebhooks(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	h := s.webhook(s.webhookBody())
	sender, err := standardwebhooks.NewWebhook(h.secret)
	require.NoError(t, err)
	now := s.clock()
	signature, err := sender.Sign("msg_1", now, []byte(`{"n":1}`))
	require.NoError(t, err)
	parts := [...]string{"msg_1", strconv.FormatInt(now.Unix(), 10), signature, `{"n":1}`}
	post := func(p [4]string) apitest.Response {
		return s.sendUnsigned(h.url, p[3], "webhook-id", p[0], "webhook-timestamp", p[1], "webhook-signature", p[2])
	}
	refused := s.sendUnsigned(h.url, "").Detail(http.StatusUnauthorized, "Signature verification failed").Alike()
	for part := range parts {
		for at := range parts[part] {
			forged := parts
			text := []byte(forged[part])
			text[at] ^= 1
			forged[part] = string(text)
			assert.Equal(t, refused, post(forged).Want(http.StatusUnauthorized).Alike(), "%q", forged)
		}
	}
	post(parts).Want(http.StatusAccepted)
}

// TestReceiver_Escapes: a body that takes six times as much as JSON is passed whole and in parts; a template that
// copies it whole says what is wrong.
func TestReceiver_Escapes(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.content_type }}"}}]}]`)
	body := strings.Repeat("\x01", 1<<20)
	for template, want := range map[string]string{
		``: "dispatched",
		`"input_template":{"content_type":"{{ payload.content_type }}"}`: "dispatched",
		`"input_template":{"all":"{{ payload.raw }}"}`:                   "dead",
	} {
		hook := hookOf(flow)
		if template != "" {
			hook = hookOf(flow, template)
		}
		h := s.webhook(hook)
		s.send(h, "m", body, "Content-Type", "text/plain").Want(http.StatusAccepted)
		d := s.settledDeliveries(h, 1)[0]
		require.Equal(t, want, d.Status, d.LastError)
		if want == "dead" {
			assert.Contains(t, d.LastError, "input_template: {{ payload.raw }}")
			assert.Contains(t, d.LastError,
				"bytes as JSON, because it escapes characters of the body, and an expression may yield 1048576")
			continue
		}
		assert.Equal(t, "completed", s.await(d.BatchID)["status"])
		assert.Equal(t, []any{"text/plain"}, s.outputs(d.BatchID))
	}
}

// The minute of a webhook is one for all processes; copies and what is not signed do not count.
func TestReceiver_RateLimit(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	processes := []*apitest.Client{s.Client, s.replica()}
	h, free := s.webhook(hookOf(s.define(transformSteps), `"rate_limit":6`)), s.webhook(s.webhookBody())
	var group sync.WaitGroup
	statuses := make([]int, 40)
	for i := range statuses {
		group.Go(func() { statuses[i] = s.sendTo(processes[i%2], h, fmt.Sprint("m", i/4), "{}").Status })
		s.sendUnsigned(h.url, "{}").Want(http.StatusUnauthorized)
	}
	group.Wait()
	for i, status := range statuses {
		assert.Equal(t, statuses[i/4*4], status, "the copies of a message fare alike")
	}
	assert.Equal(t, 6*4, len(statuses)-countOf(statuses, http.StatusTooManyRequests))
	assert.Equal(t, 6*4, countOf(statuses, http.StatusAccepted))
	for _, c := range processes {
		full := s.sendTo(c, h, "more", "{}").Detail(http.StatusTooManyRequests, "Rate limit exceeded: 6 per 1 minute")
		seconds, err := strconv.Atoi(full.Header.Get("Retry-After"))
		require.NoError(t, err)
		assert.True(t, seconds > 0 && seconds <= 60, seconds)
		s.sendTo(c, free, "m", "{}").Want(http.StatusAccepted)
	}
	for i, status := range statuses {
		if status == http.StatusAccepted {
			s.send(h, fmt.Sprint("m", i/4), "{}").Want(http.StatusAccepted)
		}
	}
	assert.InDelta(t, 6, s.get("/flows/webhooks/" + h.id + "/deliveries")["total"], 0)
	s.Do(http.MethodPatch, "/flows/webhooks/"+h.id, `{"rate_limit":7}`).Want(http.StatusOK)
	s.send(h, "seventh", "{}").Want(http.StatusAccepted)
	s.send(h, "eighth", "{}").Want(http.StatusTooManyRequests)
	s.Do(http.MethodPatch, "/flows/webhooks/"+h.id, `{"rate_limit":2}`).Want(http.StatusOK)
	for _, c := range processes {
		s.sendTo(c, h, "seventh", "{}").Want(http.StatusAccepted) // a copy, however low the limit has become
		s.sendTo(c, h, "eighth", "{}").Detail(http.StatusTooManyRequests, "Rate limit exceeded: 2 per 1 minute")
	}
	pgtest.MoveClock(t, s.owner, time.Minute)
	s.send(h, "eighth", "{}").Want(http.StatusAccepted)
}

func countOf(all []int, one int) (n int) {
	for _, v := range all {
		if v == one {
			n++
		}
	}
	return n
}

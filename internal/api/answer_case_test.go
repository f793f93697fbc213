package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

// chat answers everything with 200, and says in the body what it did, as Slack does.
const chat = `
id: chat
name: Chat
description: A platform of the operator.
status: active
docs_url: https://chat.example/docs
services:
  - id: chat__api
    name: API
    description: Posts messages.
    kind: api
    protocol: REST
    auth_method: none
    base_url: https://chat.example
    docs_url: https://chat.example/docs
    requires_connection: false
    status: active
    actions:
      - id: chat__api__post
        name: Post
        description: Posts a message.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object, required: [text], properties: {text: {type: string}}}
        output_schema: {}
        call:
          method: POST
          path: /post
          body: {text: "{{ params.text }}"}
          max_in_flight: 4
          answer:
            success: [200]
            output: [ts]
            cases:
              - {when: '{{ answer.body.error == "busy" }}', is: retry_later, wait_seconds: 1}
              - {when: '{{ answer.body.ok != true }}', is: refused, code: error}`

// TestAnswerCases: an error inside a 200 fails its record with what the platform said, and one that asks to come back
// costs no attempt.
func TestAnswerCases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat.yaml"), []byte(chat), 0o600))
	var busy atomic.Int32
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"ok":true,"ts":"1.2"}`
		switch body, _ := io.ReadAll(r.Body); {
		case strings.Contains(string(body), "nowhere"):
			answer = `{"ok":false,"error":"channel_not_found"}`
		case strings.Contains(string(body), "later") && busy.Add(1) <= 4:
			answer = `{"ok":false,"error":"busy"}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(platform.Close)
	s := serveStack(t, true, func(c *app.Config) { c.CatalogDir, c.BaseURLs["chat"] = dir, platform.URL })
	batch := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"chat__api__post","params":{"text":"{{ input.text }}"}}]}]`),
		`{"records":[{"text":"hello"},{"text":"nowhere"},{"text":"later"}]}`)
	assert.Equal(t, map[string]int{"completed": 2, "failed": 1}, counted(s.await(batch)))
	assert.Equal(t, map[string]any{"ts": "1.2"}, s.get("/flows/jobs/" + batch + ".2")["output"])
	assert.Equal(t, map[string]any{"code": "provider_refused", "message": "The provider refused the call (status 200)",
		"step_id": "s", "task_id": "t",
		"provider_status": 200.0, "provider_code": "channel_not_found", "provider_message": "channel_not_found"},
		s.get("/flows/jobs/" + batch + ".1")["error"])
	assert.Len(t, s.calls("batch_id="+batch+"&outcome=retry_later"), 4)
	refused := s.calls("batch_id=" + batch + "&status=200&outcome=refused&code=channel_not_found")
	require.Len(t, refused, 1)
	assert.Equal(t, "refused", *refused[0].State)
}

// TestAnswerCases_Budget: a 403 that is a rate limit holds the budget back: no call of it goes out until the time is
// over, and nothing has failed. A 202 that only says that it is queued is done.
func TestAnswerCases_Budget(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var arrived []time.Time
	text := strings.NewReplacer("$BUCKET", "windows: {60: 1000}", "refused: [400], ",
		`refused: [400, 403], output: [id, state], cases: [
            {when: '{{ answer.status == 403 and answer.body.reason == "rateLimitExceeded" }}',
              is: retry_later, wait_seconds: 2, rate_limit: true},
            {when: '{{ answer.status == 202 and answer.body.state == "queued" }}', is: success}], `).Replace(mailer)
	s, credential, _ := serveMailer(t, true, text, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		arrived = append(arrived, time.Now())
		w.Header().Set("Content-Type", "application/json")
		switch {
		case len(arrived) == 1:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"reason":"rateLimitExceeded"}`)
		case strings.Contains(string(body), "barred"):
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"reason":"forbidden","message":"not yours"}`)
		default:
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"id":"m-1","state":"queued"}`)
		}
	})
	flow := s.mails(credential, "{{ input.to }}")
	first := s.trigger(flow, `{"records":[{"to":"a"}]}`)
	s.eventually(func() bool { return len(s.calls("batch_id="+first+"&outcome=retry_later&status=403")) == 1 })
	others := s.trigger(flow, `{"records":[{"to":"b"},{"to":"barred"},{"to":"c"}]}`)
	assert.Equal(t, map[string]int{"completed": 1}, counted(s.await(first)))
	assert.Equal(t, map[string]int{"completed": 2, "failed": 1}, counted(s.await(others)))
	assert.Equal(t, map[string]any{"id": "m-1", "state": "queued"}, s.get("/flows/jobs/" + first + ".0")["output"])
	assert.Equal(t, "not yours", s.get("/flows/jobs/" + others + ".1")["error"].(map[string]any)["provider_message"])
	mu.Lock()
	defer mu.Unlock()
	if assert.Len(t, arrived, 5) {
		assert.GreaterOrEqual(t, arrived[1].Sub(arrived[0]), 2*time.Second)
	}
}

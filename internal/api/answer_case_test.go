package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

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
	assert.Equal(t, map[string]any{"code": "provider_refused", "message": "The provider refused the call (status 200)", "step_id": "s", "task_id": "t",
		"provider_status": 200.0, "provider_code": "channel_not_found", "provider_message": "channel_not_found"}, s.get("/flows/jobs/" + batch + ".1")["error"])
	assert.Len(t, s.calls("batch_id="+batch+"&outcome=retry_later"), 4)
	refused := s.calls("batch_id=" + batch + "&status=200&outcome=refused&code=channel_not_found")
	require.Len(t, refused, 1)
	assert.Equal(t, "refused", *refused[0].State)
}

package api_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

const formPlatform = `id: forms
name: Forms
description: Takes forms.
status: active
services:
  - id: forms__api
    name: API
    description: Messages.
    kind: api
    protocol: REST
    auth_method: none
    base_url: https://forms.example
    requires_connection: false
    status: active
    actions:
      - id: forms__api__send
        name: Send
        description: Sends a message.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object, properties: {to: {}, media: {}, page: {}, all: {}}}
        call:
          method: POST
          path: /messages
          query: {page: "{{ params.page }}", all: "{{ params.all }}"}
          body: {To: "{{ params.to }}", Media: "{{ params.media }}"}
          body_form: form
          answer: {success: [201]}
`

// TestDryRun_Form shows a form as a text, and a query without what is null.
func TestDryRun_Form(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := []byte(formPlatform)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "forms.yaml"), text, 0o600))
	s := serveStack(t, false, func(c *app.Config) { c.CatalogDir = dir })
	id := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"forms__api__send","params":{"to":"{{ input.to }}","media":["a","b\"c"],"page":2}}]}]`)
	var dry struct {
		Steps []struct {
			Tasks []struct {
				Call struct{ URL, Body string }
			}
		}
	}
	s.Do(http.MethodPost, "/flows/definitions/"+id+"/dry-run", `{"input_data":{"to":"+1 \\5"}}`).Want(
		http.StatusOK).Into(&dry)
	call := dry.Steps[0].Tasks[0].Call
	assert.Equal(t, "https://forms.example/messages?page=2", call.URL)
	assert.Equal(t, "To=%2B1+%5C5&Media=a&Media=b%22c", call.Body)
}

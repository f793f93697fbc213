package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane"
	"flowlane/internal/api"
)

// problem is an error as callers read it.
type problem struct {
	Detail    json.RawMessage `json:"detail"`
	Code      string          `json:"code"`
	RequestID string          `json:"request_id"`
	Hint      string          `json:"hint"`
	Docs      string          `json:"docs"`
}

// TestProblem: every status has the one shape, whoever answers it.
func TestProblem(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	missing := "/flows/batches/0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11"
	set := s.upload(rowsOf(1))
	for _, tt := range []struct {
		name, method, path string
		body               any
		header             []string
		status             int
		code, hint         string
	}{
		{"Cursor", "GET", "/flows/batches?cursor=x", nil, nil, 400, "invalid_cursor",
			"Pass next_cursor back as it came"},
		{"Key", "GET", "/account/me", nil, []string{"X-API-Key", "nonsense"}, 401, "unauthenticated",
			"X-API-Key: flow_..."},
		{"Resource", "GET", missing, nil, nil, 404, "not_found", "another organization"},
		{"Path", "GET", "/flows/batchez/x/y/z", nil, nil, 404, "path_not_found", "/openapi.yaml"},
		{"Slash", "GET", "/flows/batches/", nil, nil, 404, "path_not_found", "/v1/flows/batches."},
		{"VersionTwice", "GET", "/v1/flows/batches", nil, nil, 404, "path_not_found", "to /v1/flows/batches."},
		{"Method", "PUT", "/account/api-keys", nil, nil, 405, "method_not_allowed", "GET and POST, not PUT"},
		{"State", "POST", "/data/record-sets/" + set + "/records", `{"chunk_index":1,"records":[{}]}`, nil, 409,
			"record_set_not_open", "create another record set"},
		{"Large", "POST", "/account/api-keys", strings.Repeat(" ", 1<<20+1), nil, 413, "too_large", "several chunks"},
		{"Media", "POST", "/account/api-keys", `{}`, []string{"Content-Type", "text/csv"}, 415, "unsupported",
			"Content-Type: application/json"},
		{"Field", "POST", "/account/api-keys", `{}`, nil, 422, "validation_failed", "every place that detail lists"},
		{"Syntax", "POST", "/account/api-keys", `{"name":`, nil, 422, "validation_failed",
			"every place that detail lists"},
		{"Signature", "POST", s.webhook(s.webhookBody()).url, `{}`, nil, 401, "invalid_signature", "webhook-timestamp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := s.Do(tt.method, tt.path, tt.body, tt.header...).Want(tt.status)
			var p problem
			got.Into(&p)
			assert.Equal(t, tt.code, p.Code)
			assert.Contains(t, p.Hint, tt.hint)
			assert.Equal(t, got.Header.Get("X-Request-Id"), p.RequestID)
			assert.True(t, strings.HasSuffix(p.Docs, "/docs/reference#error-"+tt.code), p.Docs)
			assert.True(t, strings.HasPrefix(p.Docs, "http"), p.Docs)
		})
	}
}

// TestProblem_Consumed: who sends a record set twice reads which batch has it.
func TestProblem_Consumed(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	set := s.upload(rowsOf(1))
	body := map[string]any{"record_set_id": set}
	path := "/flows/definitions/" + s.define(transformSteps) + "/trigger"
	batch := s.Do("POST", path, body).Want(200).JSON()["batch_id"].(string)
	for _, again := range []struct{ method, path string }{{"POST", path}, {"DELETE", "/data/record-sets/" + set}} {
		got := s.Do(again.method, again.path, body).Detail(409, "Record set is already consumed").JSON()
		assert.Equal(t, "record_set_consumed", got["code"])
		assert.Contains(t, got["hint"], batch)
	}
}

// TestProblem_NoVersion: who forgets the version reads where it belongs.
func TestProblem_NoVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, hint := range map[string]string{
		"/flows/batches?limit=1": "Every path begins with /v1: send the request to /v1/flows/batches.",
		"/favicon.ico": "See GET /openapi.yaml for all paths; " +
			"each begins with /v1 and has no slash at its end.",
	} {
		res, err := b.HTTP.Get(b.URL + path)
		require.NoError(t, err)
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		require.NoError(t, err)
		var p problem
		require.NoError(t, json.Unmarshal(text, &p))
		assert.Equal(t, http.StatusNotFound, res.StatusCode)
		assert.Equal(t, hint, p.Hint)
		assert.Equal(t, "path_not_found", p.Code)
	}
}

// TestCodes: the document tells of each code.
func TestCodes(t *testing.T) {
	t.Parallel()
	for _, code := range api.Codes() {
		assert.Contains(t, string(flowlane.OpenAPI), "`"+code.Code+"`")
	}
}

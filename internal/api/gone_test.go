package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

const extraPlatform = `
id: extra
name: Extra
description: A platform of the operator.
status: active
docs_url: https://extra.example/docs
services:
  - id: extra__api
    name: API
    description: Takes rows.
    kind: api
    protocol: REST
    auth_method: none
    base_url: https://extra.example
    docs_url: https://extra.example/docs
    requires_connection: false
    status: active
    actions:
      - id: extra__api__push
        name: Push
        description: Takes many rows in one call.
        default_lane: bulk
        bulk: true
        max_records_per_request: 100
        max_bytes_per_request: 65536
        outcome_check: none
        params_schema: {type: object, required: [row], properties: {row: {type: object}}}
        output_schema: {}
        call: {method: POST, path: /push, body: {}, max_in_flight: 1, records: {at: rows, param: row}, answer: {success: [200], output: [ref]}}
  - id: extra__flow
    name: Flow
    description: In process.
    kind: utility
    protocol: REST
    auth_method: none
    base_url: ""
    docs_url: https://extra.example/docs
    requires_connection: false
    status: active
    actions:
      - id: extra__flow__copy
        name: Copy
        description: Builds a value.
        utility: transform
        default_lane: bulk
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, required: [value], properties: {value: {}}}
        output_schema: {}`

// TestBatch_ActionGone: what happened stays readable when the catalog has lost the actions, and what waits can be
// cancelled, but nothing new starts.
func TestBatch_ActionGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "extra.yaml"), []byte(extraPlatform), 0o600))
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ref": "r1"}`)
	}))
	t.Cleanup(platform.Close)
	s := serveStack(t, true, func(c *app.Config) { c.CatalogDir, c.BaseURLs["extra"] = dir, platform.URL })
	const push = `[{"id":"send","tasks":[{"id":"up","action_id":"extra__api__push","params":{"row":"{{ input }}"}}]}]`
	definition := s.define(push)
	ended := s.trigger(definition, `{"records":[{"id":"k0"},{"id":"k1"},{"id":"k2"}]}`)
	require.Equal(t, "completed", s.await(ended)["status"])
	starter := s.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__start_flow",
		"params":{"definition_id":%q}}]}]`, definition))
	copied := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"extra__flow__copy","params":{"value":7}}]}]`), `{"records":[{}]}`)
	require.Equal(t, "completed", s.await(copied)["status"])
	waiting := s.trigger(definition, `{"records":[{"id":"k3"}],"scheduled_at":"2099-01-01T00:00:00Z"}`)
	reads := []string{
		"/flows/jobs", "/flows/executions", "/flows/batches/" + ended, "/flows/batches/" + copied,
		"/flows/jobs?batch_id=" + ended, "/flows/jobs/" + ended + ".2", "/flows/executions?batch_id=" + ended,
		"/flows/executions/" + ended + ".2.1",
		"/flows/batches/" + ended + "/results", "/flows/executions/" + copied + ".0.1", "/flows/definitions/" +
			definition, "/flows/executions?status=pending",
	}
	before := map[string]string{}
	for _, path := range reads {
		before[path] = string(s.Do(http.MethodGet, path, nil).Want(http.StatusOK).Body)
	}
	assert.Equal(t, "accepted", s.get("/flows/jobs/" + ended + ".0")["status"])

	s.stop()
	s.config.CatalogDir = ""
	delete(s.config.BaseURLs, "extra")
	s.serve()
	s.URL = s.app.URL()
	for _, path := range reads {
		assert.Equal(t, before[path], string(s.Do(http.MethodGet, path, nil).Want(http.StatusOK).Body), path)
	}
	assert.Len(t, s.lines("/flows/batches/"+ended+"/results?format=ndjson"), 3)
	s.Do(http.MethodPost, "/flows/definitions", `{"name":"again","steps":`+push+
		`}`).Want(http.StatusUnprocessableEntity)
	refused := s.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger",
		`{}`).Want(http.StatusServiceUnavailable)
	assert.Contains(t, string(refused.Body), "Workflow start failed, records cleaned up")
	assert.Equal(t, 3, strings.Count(string(s.Do(http.MethodGet, "/flows/batches", nil).Want(http.StatusOK).Body),
		`"trigger_id"`))

	// A task that starts such a flow fails, and says why; its batch does not wait for the catalog.
	failed := s.trigger(starter, `{"records":[{}]}`)
	require.Equal(t, "failed", s.await(failed)["status"])
	assert.Contains(t, string(s.Do(http.MethodGet, "/flows/jobs/"+failed+".0", nil).Want(http.StatusOK).Body),
		"version 1 of definition "+definition+" no longer fits the catalog: step")
	s.Do(http.MethodPost, "/flows/batches/"+waiting+"/cancel", nil).Want(http.StatusOK)
	assert.Equal(t, "unprocessed", s.get("/flows/jobs/" + waiting + ".0")["status"])
}

// TestBatch_ActionGoneWaits: records wait for an action that a process does not have, hold up nobody else, and go when
// the catalog has it again.
func TestBatch_ActionGoneWaits(t *testing.T) {
	t.Parallel()
	const note = `
      - id: extra__api__note
        name: Note
        description: Takes one row.
        default_lane: bulk
        max_records_per_request: 1
        outcome_check: none
        params_schema: {type: object, required: [value], properties: {value: {}}}
        output_schema: {}
        call: {method: POST, path: /note, body: {}, max_in_flight: 1, answer: {success: [200]}}`
	head, rest, _ := strings.Cut(extraPlatform, "\n      - id: extra__api__push")
	_, flows, _ := strings.Cut(rest, "\n  - id: extra__flow\n")
	whole, part := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(whole, "extra.yaml"),
		[]byte(head+note+"\n      - id: extra__api__push"+rest), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(part, "extra.yaml"), []byte(head+note+"\n  - id: extra__flow\n"+
		flows), 0o600))
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ref": "r1"}`)
	}))
	t.Cleanup(platform.Close)
	s := serveStack(t, true, func(c *app.Config) { c.CatalogDir, c.BaseURLs["extra"] = whole, platform.URL })
	push := s.define(`[{"id":"send","tasks":[{"id":"up","action_id":"extra__api__push","params":{"row":"{{ input }}"}}]}]`)
	notes := s.define(`[{"id":"send","tasks":[{"id":"up","action_id":"extra__api__note","params":{"value":1}}]}]`)
	waiting := s.trigger(push, `{"records":[{"id":"k0"},{"id":"k1"}],"scheduled_at":"2099-01-01T00:00:00Z"}`)

	again := func(dir string) {
		s.stop()
		s.config.CatalogDir = dir
		s.serve()
		s.URL = s.app.URL()
	}
	again(part)
	_, err := s.owner.Exec(t.Context(), "UPDATE flow.due SET due_at = flow.clock() WHERE kind = 'release'")
	require.NoError(t, err)
	s.until(waiting, func(b map[string]any) bool { return b["job_counts"].(map[string]any)["queued"] == 2.0 })
	for range 3 {
		require.Equal(t, "completed", s.await(s.trigger(notes, `{"records":[{}]}`))["status"])
	}
	assert.Equal(t, "queued", s.get("/flows/batches/" + waiting)["status"])
	again(whole)
	assert.Equal(t, "completed", s.await(waiting)["status"])
}

// TestTrigger_TogetherGone: triggers of a flow whose action is gone from the catalog are refused, and keep others from
// sharing transactions in no way.
func TestTrigger_TogetherGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "extra.yaml"), []byte(extraPlatform), 0o600))
	s := serveStack(t, false, func(c *app.Config) { c.CatalogDir = dir })
	gone, runs := s.define(`[{"id":"send","tasks":[{"id":"up","action_id":"extra__api__push","params":{"row":"{{ input }}"}}]}]`),
		s.define(transformSteps)
	s.stop()
	s.config.CatalogDir = ""
	s.serve()
	s.URL = s.app.URL()
	s.Do(http.MethodPost, "/flows/definitions/"+gone+"/trigger", `{"input_data":{}}`).
		Want(http.StatusServiceUnavailable)
	s.slowStarts()
	const each = 40
	var all []*startGrouper
	for i := range 2 * each {
		all = append(all, &startGrouper{client: s.Client, flow: []string{gone, runs}[i%2], body: `{"input_data":{"n":1}}`})
	}
	sendTogether(all)
	for i, one := range all {
		one.res.Want([]int{http.StatusServiceUnavailable, http.StatusOK}[i%2])
	}
	assert.Equal(t, each, s.number("SELECT count(*) FROM flow.batch"))
	assert.Less(t, s.number("SELECT count(DISTINCT xmin::text) FROM flow.batch"), each/2, "each started alone")
}

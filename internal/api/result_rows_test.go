package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

// news imports profiles on its own time, and lists what was wrong with them in pages of another address, as Klaviyo
// does.
const news = `
id: news
name: News
description: A platform of the operator.
status: active
docs_url: https://news.example/docs
services:
  - id: news__api
    name: API
    description: Profiles.
    kind: api
    protocol: REST
    auth_method: none
    base_url: https://news.example
    docs_url: https://news.example/docs
    requires_connection: false
    status: active
    actions:
      - &ask
        id: news__api__job
        name: Job
        description: Reads a job.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, required: [id], properties: {id: {}, cursor: {}}}
        output_schema: {}
        call: {method: GET, path: '/jobs/{{ params.id }}', answer: {success: [200]}}
      - <<: *ask
        id: news__api__errors
        name: Errors
        call: {method: GET, path: '/jobs/{{ params.id }}/errors', query: {cursor: '{{ params.cursor }}'}, answer: {success: [200]}}
      - id: news__api__import
        name: Import
        description: Creates or changes profiles.
        default_lane: bulk
        bulk: true
        max_records_per_request: 300 # calls of several batches would be joined
        max_bytes_per_request: 1000000
        outcome_check: none
        params_schema: {type: object, required: [row], properties: {row: {type: object}}}
        output_schema: {}
        call:
          method: POST
          path: /jobs
          body: {}
          records: {at: profiles, param: row}
          answer: {pending: [202], reference: id}
          result:
            action: news__api__job
            params: {id: '{{ reference }}'}
            done_when: '{{ answer.body.status == "complete" }}'
            failed_when: '{{ answer.body.status == "cancelled" }}'
            every_seconds: 1
            rows: {at: errors, pointer: source.pointer, code: code, reason: detail}
            rows_from: {action: news__api__errors, params: {id: '{{ reference }}', cursor: '{{ call.cursor }}'}, page: {cursor: next, max_pages: 4}}
            output: [status]
`

// jobs plays the platform.
type jobs struct {
	mu sync.Mutex
	// bad are the rows of each job that were wrong, polls how often each address was asked.
	bad   map[string][]int
	polls map[string]int
	made  int
	// admits: the job of the kind denied may be asked about.
	admits bool
}

func (j *jobs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	j.polls[r.URL.String()]++
	id, listing := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/jobs/"), "/errors")
	switch {
	case r.Method == http.MethodPost:
		var in struct{ Profiles []map[string]any }
		_ = json.NewDecoder(r.Body).Decode(&in)
		kind := in.Profiles[0]["kind"].(string)
		for i, p := range in.Profiles {
			if p["bad"] == true {
				j.bad[kind] = append(j.bad[kind], i)
			}
		}
		j.made++
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]any{"id": kind})
	case !listing:
		status := map[bool]string{true: "processing", false: "complete"}[j.polls[r.URL.String()] < 2]
		if id == "cancelled" {
			status = id
		}
		if id == "denied" && !j.admits {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(map[string]any{"message": "the key may not read jobs"})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": status})
	default:
		page, bad := 0, j.bad[id]
		_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &page)
		if page == 1 && j.polls[r.URL.String()] == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		out := map[string]any{"errors": []any{}}
		if page < len(bad) {
			out["errors"] = []any{map[string]any{"code": "invalid", "detail": fmt.Sprint("page ", page),
				"source": map[string]any{"pointer": fmt.Sprintf("/profiles/%d/attributes/email", bad[page])}}}
		}
		if page+1 < len(bad) {
			out["next"] = fmt.Sprint(page + 1)
		}
		_ = json.NewEncoder(w).Encode(out)
	}
}

// TestResultRows: the parts of an import that failed are asked for page by page once it is done. One that was cancelled
// has taken nothing, and of one with more pages than are read nobody knows. Where the questions are refused, the jobs
// say so.
func TestResultRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "news.yaml"), []byte(news), 0o600))
	j := &jobs{bad: map[string][]int{}, polls: map[string]int{}}
	platform := httptest.NewServer(j)
	t.Cleanup(platform.Close)
	s := serveStack(t, true, func(c *app.Config) { c.CatalogDir, c.BaseURLs["news"] = dir, platform.URL })
	definition := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"news__api__import","params":{"row":"{{ input }}"}}]}]`)
	start := func(kind string, bad ...int) string {
		rows := make([]string, 300)
		for i := range rows {
			rows[i] = fmt.Sprintf(`{"kind":%q}`, kind)
		}
		for _, i := range bad {
			rows[i] = fmt.Sprintf(`{"kind":%q,"bad":true}`, kind)
		}
		return s.trigger(definition, `{"records":[`+strings.Join(rows, ",")+`]}`)
	}
	some, none, many, cancelled := start("some", 5, 251, 299), start("none"), start("many", 1, 2, 3, 4, 5),
		start("cancelled")
	denied := start("denied")
	assert.Equal(t, map[string]int{"accepted": 297, "rejected": 3}, counted(s.await(some)))
	for position, page := range map[int]string{5: "page 0", 251: "page 1", 299: "page 2"} {
		failure := s.get(fmt.Sprintf("/flows/jobs/%s.%d", some, position))["error"].(map[string]any)
		assert.Equal(t, []any{"invalid", page}, []any{failure["provider_code"], failure["provider_message"]}, position)
	}
	assert.Equal(t, map[string]any{"status": "complete"}, s.get("/flows/jobs/" + some + ".250")["output"])
	assert.Equal(t, map[string]int{"accepted": 300}, counted(s.await(none)))
	assert.Equal(t, map[string]int{"failed": 300}, counted(s.await(cancelled)))
	s.until(many, func(b map[string]any) bool { return counted(b)["unresolved"] == 300 })
	s.saying(many+".7", "The provider has accepted the call; its result is not known; the provider's list is longer "+
		"than what is read of it: look there, then resolve the job or have it sent again")
	s.saying(denied+".0", "The provider has accepted the call; its result is not known yet; the last question failed: "+
		"it answered with status 401: the key may not read jobs")
	assert.Equal(t, "started", s.get("/flows/jobs/" + denied + ".0")["status"])
	j.mu.Lock()
	j.admits = true
	j.mu.Unlock()
	assert.Equal(t, map[string]int{"accepted": 300}, counted(s.await(denied)))
	assert.Nil(t, s.get("/flows/jobs/" + denied + ".0")["error"])
	j.mu.Lock()
	defer j.mu.Unlock()
	assert.Equal(t, 5, j.made, "nothing is sent twice")
}

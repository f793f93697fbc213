package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

// crm is a platform whose calls carry up to 100 records, and whose answers say of each what became of it, as HubSpot
// does.
const crm = `
id: crm
name: CRM
description: A platform of the operator.
status: active
docs_url: https://crm.example/docs
account:
  time_zone: UTC
  whoami: {path: /whoami, account_number: portalId, account_name: name, time_zone: zone}
services:
  - id: crm__api
    name: API
    description: Contacts.
    kind: api
    protocol: REST
    auth_method: api_key
    base_url: https://crm.example
    docs_url: https://crm.example/docs
    requires_connection: true
    status: active
    credential_fields:
      - {name: api_key, label: Key, type: password, required: true, secret: true}
    rate_buckets:
      calls:
        label: Calls
        default_lane: bulk
        windows: {86400: 650000}
        further_windows: [{seconds: 10, calls: 190, kind: rolling}, {seconds: 1, calls: 9, kind: rolling}]
    actions:
      - &upsert
        id: crm__api__upsert
        name: Upsert
        description: Creates or changes contacts by their addresses.
        buckets: [calls]
        default_lane: bulk
        bulk: true
        max_records_per_request: 100
        max_bytes_per_request: 1000000
        outcome_check: safe
        params_schema: {type: object, required: [row], properties: {row: {type: object}}}
        output_schema: {}
        call: &call
          method: POST
          path: /batch/upsert
          body: {}
          records: {at: inputs, param: row, key: id, distinct: true}
          answer:
            success: [200, 207]
            refused: [400]
            code: category
            message: message
            rows:
              at: errors
              key: context.trace.0
              of: objectWriteTraceId
              code: category
              reason: message
              retry_when: '{{ item.category == "CONFLICT" }}'
              unnamed: unknown
              more: [{at: results, is: accepted, key: objectWriteTraceId, of: objectWriteTraceId, output: [id, new]}]
      - <<: *upsert
        id: crm__api__create
        name: Create
        outcome_check: none
        call: {<<: *call, path: /batch/create}
`

// contacts plays the platform: 190 calls in any 10 seconds and 9 in any second, 100 records a call, each of one
// contact.
type contacts struct {
	mu    sync.Mutex
	calls []time.Time
	// over are calls that broke a limit, seen how often records came, by their contact.
	over []string
	seen map[string]int
}

func (c *contacts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/whoami" {
		_, _ = io.WriteString(w, `{"portalId":"7","name":"Acme","zone":"UTC"}`)
		return
	}
	now := time.Now()
	for len(c.calls) > 0 && now.Sub(c.calls[0]) >= 10*time.Second {
		c.calls = c.calls[1:]
	}
	if c.calls = append(c.calls, now); len(c.calls) > 190 {
		c.over = append(c.over, "190 calls in 10 seconds")
	}
	if n := len(c.calls); n > 9 && now.Sub(c.calls[n-10]) < time.Second {
		c.over = append(c.over, "9 calls in a second")
	}
	var in struct{ Inputs []map[string]any }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Inputs) > 100 {
		c.over = append(c.over, fmt.Sprintf("%d records: %v", len(in.Inputs), err))
	}
	among := map[string]bool{}
	out := map[string][]any{"results": {}, "errors": {}}
	for i := len(in.Inputs) - 1; i >= 0; i-- { // in an order of its own
		id, _ := in.Inputs[i]["id"].(string)
		trace := in.Inputs[i]["objectWriteTraceId"]
		if c.seen[id]++; among[id] {
			c.over = append(c.over, id+" twice in a call")
		}
		among[id] = true
		switch {
		case strings.HasPrefix(id, "bad"):
			out["errors"] = append(out["errors"], map[string]any{"category": "VALIDATION_ERROR", "message": "bad " + id,
				"context": map[string]any{"trace": []any{trace}}})
		case strings.HasPrefix(id, "busy") && c.seen[id] == 1:
			out["errors"] = append(out["errors"], map[string]any{"category": "CONFLICT", "message": "busy",
				"context": map[string]any{"trace": []any{trace}}})
		case strings.HasPrefix(id, "lost") && c.seen[id] == 1: // taken, and not named
		default:
			out["results"] = append(out["results"], map[string]any{"id": "c-" + id, "new": c.seen[id] == 1,
				"objectWriteTraceId": trace})
		}
	}
	if len(out["errors"]) > 0 {
		w.WriteHeader(http.StatusMultiStatus)
	}
	_ = json.NewEncoder(w).Encode(out)
}

// serveContacts is a stack with the platform, whose credential CRM stands for in flows.
func serveContacts(t *testing.T) (s *stack, c *contacts, credential string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "crm.yaml"), []byte(crm), 0o600))
	c = &contacts{seen: map[string]int{}}
	platform := httptest.NewServer(c)
	t.Cleanup(platform.Close)
	s = serveStack(t, true, func(c *app.Config) {
		c.CatalogDir, c.BaseURLs["crm"] = dir, platform.URL
		c.AllowHosts = append(c.AllowHosts, strings.TrimPrefix(platform.URL, "http://"))
	})
	made := s.Do(http.MethodPost, "/credentials",
		`{"name":"crm","platform_id":"crm","auth_method":"api_key","api_key_placement":{"header_name":"X-Key"},"credentials":{"api_key":"k"}}`).
		Want(http.StatusCreated).JSON()
	return s, c, made["id"].(string)
}

const contactSteps = `[{"id":"s","tasks":[{"id":"t","action_id":"crm__api__%s","credential_id":%q,"retry":{"max_attempts":3,"initial_seconds":1},
	"params":{"row":{"id":"{{ input.id }}","objectWriteTraceId":"{{ input.n }}"}}}]}]`

// TestRowResults: of 2,000 records that go in calls of 100, a tenth is rejected inside answers of 207. Each has its own
// outcome, reason and output; what was not done goes again, as does what the answer forgot, because that does no harm.
func TestRowResults(t *testing.T) {
	t.Parallel()
	s, platform, credential := serveContacts(t)
	rows, want := make([]string, 2000), make([]string, 2000)
	for i := range rows {
		kind := "ok"
		switch {
		case i%10 == 3:
			kind = "bad"
		case i%100 == 7:
			kind = "busy"
		case i%500 == 11:
			kind = "lost"
		}
		id := fmt.Sprintf("%s%d@x.example", kind, i)
		rows[i] = fmt.Sprintf(`{"id":%q,"n":%d}`, id, i)
		want[i] = fmt.Sprintf("accepted c-%s %t", id, kind == "ok")
		if kind == "bad" {
			want[i] = "rejected VALIDATION_ERROR bad " + id
		}
	}
	batch := s.trigger(s.define(fmt.Sprintf(contactSteps, "upsert", credential)), fmt.Sprintf(`{"record_set_id":%q}`,
		s.upload(rows)))
	assert.Equal(t, map[string]int{"accepted": 1800, "rejected": 200}, counted(s.await(batch)))
	got := make([]string, 2000)
	for _, line := range s.lines("/flows/batches/" + batch + "/results?format=ndjson") {
		var r struct {
			Position int
			Status   string
			Output   struct {
				ID  string
				New bool
			}
			Error struct {
				Code    string `json:"provider_code"`
				Message string `json:"provider_message"`
			}
		}
		require.NoError(t, json.Unmarshal(line, &r))
		got[r.Position] = fmt.Sprintf("%s %s %t", r.Status, r.Output.ID, r.Output.New)
		if r.Status == "rejected" {
			got[r.Position] = fmt.Sprintf("%s %s %s", r.Status, r.Error.Code, r.Error.Message)
		}
	}
	assert.Equal(t, want, got)
	assert.Empty(t, platform.over)
	again := 0
	for id, n := range platform.seen {
		if again += n - 1; n > 1 && !strings.HasPrefix(id, "busy") && !strings.HasPrefix(id, "lost") {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
	assert.Equal(t, 24, again)
}

// TestRowResults_Open: a record of which the answer says nothing is unresolved, by itself: its call did what it said of
// the others, and nothing goes twice.
func TestRowResults_Open(t *testing.T) {
	t.Parallel()
	s, platform, credential := serveContacts(t)
	rows := make([]string, 600) // over several pages
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":"%s%d","n":%d}`, map[int]string{0: "lost", 99: "lost", 255: "lost", 250: "bad",
			599: "lost"}[i]+"x", i, i)
	}
	batch := s.trigger(s.define(fmt.Sprintf(contactSteps, "create", credential)), fmt.Sprintf(`{"record_set_id":%q}`,
		s.upload(rows)))
	b := s.until(batch, func(b map[string]any) bool {
		return counted(b)["accepted"] == 595 &&
			counted(b)["unresolved"] == 4
	})
	assert.Equal(t, map[string]int{"accepted": 595, "unresolved": 4, "rejected": 1}, counted(b))
	assert.Equal(t, "running", b["status"])
	job := s.get("/flows/jobs/" + batch + ".255")
	assert.Equal(t, "unresolved", job["status"])
	assert.Contains(t, job["error"].(map[string]any)["message"],
		"its answer does not say what became of the record (status 207)")
	assert.Equal(t, "accepted", s.get("/flows/jobs/" + batch + ".254")["status"])
	for position, outcome := range map[int]string{0: "accepted", 99: "rejected", 255: "accepted", 599: "requeue"} {
		s.resolve(batch, position, fmt.Sprintf(`{"outcome":%q}`, outcome))
	}
	assert.Equal(t, map[string]int{"accepted": 598, "rejected": 2}, counted(s.await(batch)))
	for id, n := range platform.seen {
		if id == "lostx599" {
			n-- // as a person said
		}
		assert.Equal(t, 1, n, id)
	}
	assert.Zero(t, s.number(`SELECT count(*) FROM flow.call WHERE state NOT IN ('settled', 'refused')`),
		"no call is left in doubt")
	assert.Zero(t, s.number(`SELECT count(*) FROM flow.part`))
}

// TestRowResults_Distinct: rows of one key never share a call, and none is lost or sent twice for it.
func TestRowResults_Distinct(t *testing.T) {
	t.Parallel()
	s, platform, credential := serveContacts(t)
	rows := make([]string, 40)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":"x%d","n":%d}`, i%16, i)
	}
	batch := s.trigger(s.define(fmt.Sprintf(contactSteps, "create", credential)), `{"records":[`+
		strings.Join(rows, ",")+`]}`)
	assert.Equal(t, map[string]int{"accepted": 40}, counted(s.await(batch)))
	platform.mu.Lock()
	defer platform.mu.Unlock()
	assert.Empty(t, platform.over)
	assert.Len(t, platform.calls, 3)
	assert.Equal(t, 3, platform.seen["x0"])
	assert.Equal(t, 2, platform.seen["x9"])
}

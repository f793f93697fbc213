package api_test

import (
	"bufio"
	"encoding/csv"
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
)

// sheets takes tables of CSV as jobs and lists in a table what it rejected, as Bulk APIs do, and takes lines of JSON.
const sheets = `
id: sheets
name: Sheets
description: A platform of the operator.
status: active
services:
  - id: sheets__api
    name: API
    description: Tables.
    kind: api
    protocol: REST
    auth_method: none
    base_url: https://sheets.example
    requires_connection: false
    status: active
    actions:
      - &ask
        id: sheets__api__job
        name: Job
        description: Reads a job.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, required: [id], properties: {id: {}}}
        call: {method: GET, path: '/jobs/{{ params.id }}', answer: {success: [200]}}
      - <<: *ask
        id: sheets__api__failed
        name: Failed
        call: {method: GET, path: '/jobs/{{ params.id }}/failed', answer: {success: [200], form: csv}}
      - &load
        id: sheets__api__load
        name: Load
        description: Loads a table.
        default_lane: bulk
        bulk: true
        max_records_per_request: 100
        max_bytes_per_request: 100000
        outcome_check: none
        params_schema: {type: object, required: [row], properties: {row: {type: object}}}
        call:
          method: PUT
          path: /jobs
          body_form: csv
          records: {param: row, columns: [id, name, note], "null": "#N/A"}
          answer: {pending: [202], reference: id}
          result:
            action: sheets__api__job
            params: {id: '{{ reference }}'}
            done_when: '{{ answer.body.done }}'
            every_seconds: 1
            rows: {row: line, base: 1, code: code, reason: why}
            rows_from: {action: sheets__api__failed, params: {id: '{{ reference }}'}}
      - <<: *load
        id: sheets__api__append
        name: Append
        call:
          method: PUT
          path: /lines
          body_form: jsonl
          records: {param: row}
          answer: {success: [200], form: jsonl, rows: {order: true, failed_when: '{{ item.error != null }}', code: error, output: [n]}}
`

// table plays the platform: it rejects names that are "bad".
type table struct {
	mu     sync.Mutex
	loaded map[string][]string
	failed []string
	kinds  []string
	refuse error
}

func (p *table) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/lines":
		p.kinds = append(p.kinds, r.Header.Get("Content-Type"))
		w.Header().Set("Content-Type", "application/x-ndjson")
		for scan, n := bufio.NewScanner(r.Body), 0; scan.Scan(); n++ {
			var row map[string]any
			if p.refuse = json.Unmarshal(scan.Bytes(), &row); row["name"] == "bad" {
				_, _ = fmt.Fprintln(w, `{"error":"BAD"}`)
			} else {
				_, _ = fmt.Fprintf(w, "{\"n\":%d}\n", n)
			}
		}
	case r.Method == http.MethodPut:
		p.kinds = append(p.kinds, r.Header.Get("Content-Type"))
		var rows [][]string
		rows, p.refuse = csv.NewReader(r.Body).ReadAll()
		p.failed = nil
		for i, row := range rows {
			p.loaded[row[0]] = row
			if row[1] == "bad" {
				p.failed = append(p.failed, fmt.Sprintf("%d,INVALID,\"name, that is \"\"bad\"\"\"", i))
			}
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(`{"id":"j1"}`))
	case strings.HasSuffix(r.URL.Path, "/failed"):
		w.Header().Set("Content-Type", "text/csv")
		_, _ = fmt.Fprintln(w, "line,code,why\n"+strings.Join(p.failed, "\n"))
	default:
		_, _ = w.Write([]byte(`{"done":true}`))
	}
}

// TestLines: records go out as lines of CSV and JSON that others read, and lines of an answer say what became of them.
// A record that has no form in the table fails by itself.
func TestLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sheets.yaml"), []byte(sheets), 0o600))
	p := &table{loaded: map[string][]string{}}
	platform := httptest.NewServer(p)
	t.Cleanup(platform.Close)
	s := serveStack(t, true, func(c *app.Config) { c.CatalogDir, c.BaseURLs["sheets"] = dir, platform.URL })
	load := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"sheets__api__load","params":{"row":"{{ input }}"}}]}]`)
	batch := s.trigger(load, `{"records":[{"id":1,"name":"a, \"b\"\nc","note":null},{"id":2,"name":"bad"},{"id":3,"name":"x","other":"lost"},{"name":"y","id":4}]}`)
	assert.Equal(t, map[string]int{"accepted": 2, "rejected": 1, "failed": 1}, counted(s.await(batch)))
	failure := s.get("/flows/jobs/" + batch + ".1")["error"].(map[string]any)
	assert.Equal(t, []any{"INVALID", `name, that is "bad"`}, []any{failure["provider_code"],
		failure["provider_message"]})
	assert.Contains(t, s.get("/flows/jobs/" + batch + ".2")["error"].(map[string]any)["message"],
		`field "other" has no form in CSV`)
	lines := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"sheets__api__append","params":{"row":"{{ input }}"}}]}]`)
	other := s.trigger(lines, `{"records":[{"name":"x","deep":{"a":[1]}},{"name":"bad"}]}`)
	assert.Equal(t, map[string]int{"accepted": 1, "rejected": 1}, counted(s.await(other)))
	assert.Equal(t, map[string]any{"n": 0.0}, s.get("/flows/jobs/" + other + ".0")["output"])
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NoError(t, p.refuse)
	assert.Equal(t, map[string][]string{"id": {"id", "name", "note"}, "1": {"1", "a, \"b\"\nc", "#N/A"},
		"2": {"2", "bad", ""}, "4": {"4", "y", ""}}, p.loaded)
	assert.Equal(t, []string{"text/csv; charset=utf-8", "application/x-ndjson"}, p.kinds)
}

// files are the jobs of sheets whose rejected rows lie in a file elsewhere.
var files = strings.NewReplacer(
	"auth_method: none", "auth_method: api_key\n    sign_in: {header: X-Key}\n"+
		"    credential_fields: [{name: api_key, label: Key, type: password, required: true, secret: true}]",
	"requires_connection: false", "requires_connection: true", "columns: [id, name, note], ", "",
	"rows_from: {action: sheets__api__failed, params: {id: '{{ reference }}'}}",
	"rows_from: {when: '{{ answer.body.bad > 0 }}', action: sheets__files__read, params: {url: "+
		"'{{ answer.body.file }}'}}",
).Replace(sheets) + `
  - id: sheets__files
    name: Files
    description: Files with what was rejected.
    kind: api
    protocol: REST
    auth_method: none
    requires_connection: false
    status: active
    actions:
      - id: sheets__files__read
        name: Read
        description: Reads a file.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, required: [url], properties: {url: {type: string}}}
        call: {method: GET, url: '{{ params.url }}', origins: ["ORIGIN"], answer: {success: [200], form: csv}}
`

// TestLines_File: rows of a result lie in a file that an answer names. Nothing of the credential goes there, nor
// anything to where files must not lie. The table that was sent has the fields of all records.
func TestLines_File(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []http.Header
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Header.Clone())
		w.Header().Set("Content-Type", "binary/octet-stream")
		_, _ = fmt.Fprint(w, "line,code,why\n2,INVALID,no\n")
	}))
	t.Cleanup(store.Close)
	elsewhere, sent := "", ""
	polls := 0
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, "secret-key", r.Header.Get("X-Key"))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPut:
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			sent = string(body)
			w.WriteHeader(http.StatusAccepted)
			_, _ = fmt.Fprintf(w, `{"id":%q}`, r.Header.Get("Content-Length"))
		case elsewhere != "" && polls == 0:
			polls++
			_, _ = fmt.Fprintf(w, `{"done":true,"bad":1,"file":%q}`, elsewhere)
		default:
			_, _ = fmt.Fprintf(w, `{"done":true,"bad":1,"file":"%s/f.csv?X-Amz-Signature=abc"}`, store.URL)
		}
	}))
	t.Cleanup(platform.Close)
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		t.Error("asked where no file may lie")
	}))
	t.Cleanup(other.Close)
	elsewhere = other.URL + "/f.csv"
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sheets.yaml"),
		[]byte(strings.Replace(files, "ORIGIN", store.URL, 1)), 0o600))
	s := serveStack(t, true, func(c *app.Config) {
		c.CatalogDir, c.BaseURLs["sheets"] = dir, platform.URL
		c.AllowHosts = append(c.AllowHosts, strings.TrimPrefix(store.URL, "http://"), strings.TrimPrefix(other.URL,
			"http://"))
	})
	credential := s.made("/credentials?verify=false",
		`{"name":"k","platform_id":"sheets","auth_method":"api_key","credentials":{"api_key":"secret-key"}}`)
	load := s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"sheets__api__load","credential_id":"` + credential +
		`","params":{"row":"{{ input }}"}}]}]`)
	batch := s.trigger(load, `{"records":[{"id":1,"a":"x"},{"b":null,"id":2},{"id":3}]}`)
	assert.Equal(t, map[string]int{"accepted": 2, "rejected": 1}, counted(s.await(batch)))
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, asked, 1)
	assert.Empty(t, asked[0].Get("X-Key"))
	assert.Equal(t, 1, polls)
	assert.Equal(t, "id,a,b\n1,x,\n2,,#N/A\n3,,\n", sent)
}

package api_test

import (
	"encoding/json"
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

// people creates one contact a call, and can be asked for contacts by their addresses.
const people = `
id: people
name: People
description: A platform of the operator.
status: active
docs_url: https://people.example/docs
services:
  - id: people__api
    name: API
    description: Contacts.
    kind: api
    protocol: REST
    auth_method: none
    base_url: https://people.example
    docs_url: https://people.example/docs
    requires_connection: false
    status: active
    actions:
      - id: people__api__find
        name: Find
        description: Finds contacts.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: safe
        params_schema: {type: object, properties: {email: {}, page: {}}}
        output_schema: {}
        call:
          method: GET
          path: /contacts
          query: {email: "{{ params.email }}", page: "{{ params.page }}"}
          answer: {success: [200]}
      - id: people__api__create
        name: Create
        description: Creates a contact.
        default_lane: interactive
        max_records_per_request: 1
        outcome_check: lookup
        params_schema: {type: object, required: [email], properties: {email: {type: string}, age: {}}}
        output_schema: {}
        call:
          method: POST
          path: /contacts
          body: {email: "{{ params.email }}", age: "{{ params.age }}"}
          timeout_seconds: 1
          answer: {success: [201], output: [id]}
          lookup:
            action: people__api__find
            params: {email: "{{ params.email }}", page: "{{ call.cursor }}"}
            page: {cursor: next}
            items: items
            match: {properties.email: "{{ params.email }}", properties.age: "{{ params.age }}"}
            reference: id
            output: [id]
            settles_within_seconds: 1
            horizon_seconds: 60
`

// directory plays the platform. Its addresses are in small letters, and it answers one contact a page.
type directory struct {
	mu   sync.Mutex
	made []map[string]any
	// tries are how often contacts came.
	tries map[string]int
}

func (d *directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		email, after := strings.ToLower(r.URL.Query().Get("email")), r.URL.Query().Get("page")
		out := map[string]any{"items": []any{}}
		for _, c := range d.made {
			switch {
			case c["properties"].(map[string]any)["email"] != email:
			case after != "":
				if after == c["id"] {
					after = ""
				}
			case len(out["items"].([]any)) == 0:
				out["items"] = []any{c}
			default:
				out["next"] = out["items"].([]any)[0].(map[string]any)["id"]
			}
		}
		_ = json.NewEncoder(w).Encode(out)
		return
	}
	var in map[string]any
	_ = json.NewDecoder(r.Body).Decode(&in)
	email := in["email"].(string)
	d.tries[email]++
	create := func() string {
		id := "p" + string(rune('0'+len(d.made)))
		in["email"] = strings.ToLower(email)
		d.made = append(d.made, map[string]any{"id": id, "properties": in})
		return id
	}
	switch {
	case strings.HasPrefix(email, "Taken"):
		create()
	case strings.HasPrefix(email, "twice"):
		create()
		create()
	case strings.HasPrefix(email, "other"): // somebody else's, who is older
		in = map[string]any{"age": 99}
		create()
		in = map[string]any{"age": 40}
		create()
	case d.tries[email] > 1:
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"id": create()})
		return
	}
	conn, _, _ := http.NewResponseController(w).Hijack()
	_ = conn.Close()
}

// TestLookupMatch: a call of one record of which nobody knows whether it arrived is found by fields of its record, over
// pages: it is settled with its output, sent again where it is not there, and left to a person where it may be several.
func TestLookupMatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "people.yaml"), []byte(people), 0o600))
	d := &directory{tries: map[string]int{}}
	platform := httptest.NewServer(d)
	t.Cleanup(platform.Close)
	s := serveStack(t, true, func(c *app.Config) { c.CatalogDir, c.BaseURLs["people"] = dir, platform.URL })
	batch := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"people__api__create","params":{"email":"{{ input.email }}","age":"{{ input.age }}"}}]}]`),
		`{"records":[{"email":"Taken@x.example","age":40.0},{"email":"absent@x.example","age":40},{"email":"twice@x.example","age":40},{"email":"other@x.example","age":40}]}`)
	b := s.until(batch, func(b map[string]any) bool {
		return counted(b)["completed"] == 3 &&
			counted(b)["unresolved"] == 1
	})
	assert.Equal(t, "running", b["status"])
	output := func(position string) any { return s.get("/flows/jobs/" + batch + position)["output"] }
	made := s.calls("job_id=" + batch + ".0&purpose=call")
	for _, asked := range s.calls("job_id=" + batch + ".0&purpose=lookup") {
		assert.Equal(t, []any{"people__api__find", made[0].ID, "success"}, []any{asked.ActionID, *asked.About,
			asked.Outcome})
	}
	assert.NotEmpty(t, s.calls("job_id="+batch+".0&purpose=lookup"))
	d.mu.Lock()
	defer d.mu.Unlock()
	byEmail := map[any]map[string]any{}
	for _, c := range d.made {
		byEmail[c["properties"].(map[string]any)["email"]] = c // the last of them
	}
	for position, email := range map[string]string{".0": "taken@x.example", ".1": "absent@x.example",
		".3": "other@x.example"} {
		assert.Equal(t, map[string]any{"id": byEmail[email]["id"]}, output(position), email)
	}
	twice := s.get("/flows/jobs/" + batch + ".2")
	assert.Equal(t, "unresolved", twice["status"])
	assert.Contains(t, twice["error"].(object)["message"],
		"; several of what the provider has received look like this call: look there, then")
	assert.Equal(t, map[string]int{"Taken@x.example": 1, "absent@x.example": 2, "twice@x.example": 1,
		"other@x.example": 1}, d.tries)
}

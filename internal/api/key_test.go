package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failingSteps fail records that say so.
const failingSteps = `[{"id":"s","tasks":[{"id":"no","when":"{{ input.fail ?? false }}","action_id":"core__flow__fail","params":{"message":"no"}}]}]`

// TestKey: results, jobs and executions carry the key of their record, and those of a batch are found by it.
func TestKey(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	rows := []string{
		`{"id":"a","fail":true}`, `{"id":1.50}`, `{"id":true}`, `{"id":null}`, `{}`, `{"id":{"a":1}}`, `{"id":["a"]}`,
		`{"id":""}`, `{"id":"\u0061\n\"=1"}`,
		`{"id":"=1+1","fail":true}`, `{"id":"` + strings.Repeat("ł", 200) + `"}`, `{"id":"` + strings.Repeat("x", 201) +
			`"}`, `{"id":"aa","other":"a"}`,
		`{"other":"\u0061","id":"\u0061"}`, `{"id":"b","id":"a"}`,
	}
	want := []any{"a", "1.50", "true", nil, nil, nil, nil, nil, "a\n\"=1", "=1+1", strings.Repeat("ł", 200), nil, "aa",
		"a", "a"}
	for i := range 600 {
		rows, want = append(rows, fmt.Sprintf(`{"id":"k%d"}`, i)), append(want, fmt.Sprintf("k%d", i))
	}
	batch := s.trigger(s.defineWith(`"key":"{{ input.id }}"`, failingSteps), fmt.Sprintf(`{"record_set_id":%q}`,
		s.upload(rows)))
	s.await(batch)
	keysOf := func(items []json.RawMessage) (keys []any) {
		for _, item := range items {
			var r struct{ Key any }
			require.NoError(t, json.Unmarshal(item, &r))
			keys = append(keys, r.Key)
		}
		return keys
	}
	results, jobs := "/flows/batches/"+batch+"/results", "/flows/jobs?batch_id="+batch
	assert.Equal(t, want, keysOf(s.pages(results, 251)))
	assert.Equal(t, want, keysOf(s.lines(results+"?format=ndjson")))
	assert.Equal(t, want[3:], keysOf(s.lines(results+"?format=ndjson&skip=3")))
	assert.Equal(t, want, keysOf(s.pages(jobs, 300)))
	assert.Equal(t, want, keysOf(s.pages("/flows/executions?batch_id="+batch, 300)))
	assert.Equal(t, "k5", s.get("/flows/jobs/" + batch + ".20")["key"])
	assert.Equal(t, "k5", s.get("/flows/executions/" + batch + ".20.1")["key"])
	assert.Nil(t, s.get("/flows/jobs/" + batch + ".3")["key"])
	csv := parseCSV(t, string(s.Do(http.MethodGet, results+"?format=csv", nil).Want(http.StatusOK).Body))
	for i, key := range want {
		text, _ := key.(string)
		if text == "=1+1" {
			text = "'" + text // no formula
		}
		require.Equal(t, text, csv[i+1][12])
	}

	found := func(path string) (out []any) {
		page := s.get(path)
		assert.Nil(t, page["next_cursor"], path)
		items := page["items"].([]any)
		assert.InDelta(t, len(items), page["total"], 0)
		for _, item := range items {
			out = append(out, item.(map[string]any)["position"])
		}
		return out
	}
	escaped := strings.NewReplacer("\n", "%0A", `"`, "%22", "=", "%3D", "+", "%2B")
	for key, positions := range map[string][]any{
		"a": {0.0, 13.0, 14.0}, "aa": {12.0}, "1.50": {1.0}, "1.5": nil, "true": {2.0}, "k599": {614.0}, "k59": {74.0},
		"null": nil, "a\n\"=1": {8.0},
		"=1+1": {9.0}, strings.Repeat("ł", 200): {10.0}, "nobody": nil,
	} {
		assert.Equal(t, positions, found(results+"?key="+escaped.Replace(key)), key)
		assert.Equal(t, positions, found(jobs+"&key="+escaped.Replace(key)), key)
		assert.Len(t, s.lines(results+"?format=ndjson&key="+escaped.Replace(key)), len(positions), key)
	}
	assert.Equal(t, []any{0.0}, found(results+"?key=a&status=failed"))
	assert.Equal(t, []any{13.0, 14.0}, found(jobs+"&key=a&status=completed"))
	first := s.get(results + "?key=a&limit=1")
	assert.Len(t, first["items"], 1)
	cursor := first["next_cursor"].(string)
	assert.Equal(t, []any{13.0, 14.0}, found(results+"?key=a&cursor="+cursor))
	s.Do(http.MethodGet, results+"?key=aa&cursor="+cursor, nil).Detail(http.StatusBadRequest, "Invalid cursor")
	s.Do(http.MethodGet, results+"?cursor="+cursor, nil).Detail(http.StatusBadRequest, "Invalid cursor")
	s.Do(http.MethodGet, results+"?key=a&skip=1", nil).Invalid("query.skip value_error")
	s.Do(http.MethodGet, "/flows/jobs?key=a", nil).Invalid("query.batch_id missing")
	s.Do(http.MethodGet, jobs+"&key=", nil).Invalid("query.key string_too_short")
	s.Do(http.MethodGet, jobs+"&key="+strings.Repeat("x", 201), nil).Invalid("query.key string_too_long")
	s.other.Do(http.MethodGet, results+"?key=a", nil).Detail(http.StatusNotFound, "Batch not found")
	assert.Empty(t, s.other.Do(http.MethodGet, jobs+"&key=a", nil).Want(http.StatusOK).JSON()["items"])

	retry := s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", nil).Want(http.StatusOK).
		JSON()["batch_id"].(string)
	s.await(retry)
	assert.Equal(t, []any{"a", "=1+1"}, keysOf(s.pages("/flows/batches/"+retry+"/results", 1)), "of what is done again")
	assert.Equal(t, []any{9.0}, found("/flows/batches/"+retry+"/results?key=%3D1%2B1"))

	none := s.trigger(s.define(failingSteps), `{"records":[{"id":"a"}]}`)
	s.await(none)
	assert.Equal(t, []any{nil}, keysOf(s.pages("/flows/batches/"+none+"/results", 1)))
	assert.Empty(t, found("/flows/batches/"+none+"/results?key=a"))
	assert.Empty(t, s.lines("/flows/batches/"+none+"/results?format=ndjson&key=a"))
}

// TestKey_Definition: the expression is checked as those of tasks are, stays what it was, and belongs to the version.
func TestKey_Definition(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	for key, says := range map[string]string{
		"id":                      "field key: a key must name something of the record",
		"{{ 1 + 1 }}":             "field key: a key must name something of the record",
		"{{ inptu.id }}":          "field key: {{ inptu.id }}",
		"{{ metadata.id }}":       "field key: {{ metadata.id }}",
		"{{ steps.s.no.output }}": "field key: {{ steps.s.no.output }}",
		"{{ input.id":             "field key: ",
	} {
		body := fmt.Sprintf(`{"name":"f","key":%q,"steps":%s}`, key, failingSteps)
		var bad struct {
			Detail struct {
				Errors []string `json:"expression_errors"`
			}
		}
		s.Do(http.MethodPost, "/flows/definitions", body).Want(http.StatusUnprocessableEntity).Into(&bad)
		require.Len(t, bad.Detail.Errors, 1, key)
		assert.Contains(t, bad.Detail.Errors[0], says)
	}
	s.Do(http.MethodPost, "/flows/definitions", fmt.Sprintf(`{"name":"f","key":%q,"steps":%s}`, "{{ input.a }}"+
		strings.Repeat("x", 1000), failingSteps)).
		Invalid("body.key string_too_long")
	s.Do(http.MethodPost, "/flows/definitions",
		`{"name":"f","input_schema":{"properties":{"id":{}},"additionalProperties":false},"key":"{{ input.ip }}","steps":`+
			failingSteps[:len(failingSteps)-1]+`]}`).Want(http.StatusUnprocessableEntity)

	flow := "/flows/definitions/" + s.defineWith(`"key":"{{ input.country }}-{{ input.n }}"`, failingSteps)
	old := s.trigger(strings.TrimPrefix(flow, "/flows/definitions/"), `{"records":[{"country":"CZ","n":7}]}`)
	d := s.get(flow)
	assert.Equal(t, "{{ input.country }}-{{ input.n }}", d["key"])
	assert.Equal(t, d["key"], s.Do(http.MethodPut, flow, d).Want(http.StatusOK).JSON()["key"],
		"what is read can be sent back")
	d["key"] = nil
	assert.Nil(t, s.Do(http.MethodPut, flow, d).Want(http.StatusOK).JSON()["key"])
	assert.Equal(t, "{{ input.country }}-{{ input.n }}", s.get(flow + "/versions/1")["key"])
	s.await(old)
	assert.Equal(t, "CZ-7", s.get("/flows/jobs/" + old + ".0")["key"])
	assert.Len(t, s.get("/flows/batches/" + old + "/results?key=CZ-7")["items"], 1)
}

package definition_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/definition"
	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/platform/catalog"
)

func load(t *testing.T) *catalog.Catalog {
	t.Helper()
	cat, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	return cat
}

// document reads a document in the form in which authors write it.
func document(t *testing.T, text string) definition.Document {
	t.Helper()
	doc, err := definition.Decode([]byte(text))
	require.NoError(t, err)
	return doc
}

// places lists the places of fields as dotted text, each with its type.
func places(fields []fault.Field) []string {
	var out []string
	for _, f := range fields {
		out = append(out, strings.Join(f.Loc, ".")+" "+f.Type)
	}
	return out
}

const threeSteps = `{"lane": "backfill", "steps": [
	{"id": "ask", "name": "Ask", "tasks": [{"id": "http", "action_id": "core__http__request", "params": {"url": "https://example.com/{{ input.id }}", "body": {"big": 12345678901234567890.10}}}]},
	{"id": "change", "tasks": [{"id": "modify", "action_id": "dialer__api__modify", "credential_id": "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11",
		"params": {"list": "demo", "key": "{{ input.id }}", "fields": {"note": "{{ steps.ask.http.output.body.note }}"}},
		"when": "{{ input.id != null }}", "timeout_seconds": 7, "retry": {"max_attempts": 5, "initial_seconds": 0.5, "factor": 3, "max_seconds": 9}, "on_error": "continue", "delivery": "at_least_once"}]},
	{"id": "upload", "tasks": [{"id": "rows", "action_id": "dialer__api__upload", "credential_id": "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11", "params": {"list": "demo", "row": "{{ input }}"}}]}]}`

func TestCompile(t *testing.T) {
	t.Parallel()
	plan, bad, fields := definition.Compile(document(t, threeSteps), load(t))
	require.Empty(t, bad)
	require.Empty(t, fields)
	require.Len(t, plan.Steps, 3)
	assert.Equal(t, "backfill", plan.Lane)
	assert.Equal(t, "Ask", plan.Steps[0].Name)
	assert.Equal(t, "upload", plan.Steps[2].Name, "a step without a name has its id for one")

	ask := plan.Steps[0].Tasks[0]
	assert.False(t, ask.CredentialID.Valid)
	assert.Nil(t, ask.When)
	assert.Equal(t, 30*time.Second, ask.Timeout, "the action's own")
	assert.Equal(t, definition.Retry{MaxAttempts: 3, Initial: time.Second, Factor: 2, Max: time.Minute}, ask.Retry)
	assert.False(t, ask.ContinueOnError || ask.AtLeastOnce)
	got, err := ask.Params.Append(nil, &expr.Env{Input: json.RawMessage(`{"id": 7}`)})
	require.NoError(t, err)
	assert.Equal(t, `{"url":"https://example.com/7","body":{"big":12345678901234567890.10}}`, string(got))

	change := plan.Steps[1].Tasks[0]
	assert.True(t, change.CredentialID.Valid)
	assert.NotNil(t, change.When)
	assert.Equal(t, 7*time.Second, change.Timeout)
	assert.Equal(t, definition.Retry{MaxAttempts: 5, Initial: 500 * time.Millisecond, Factor: 3, Max: 9 * time.Second},
		change.Retry)
	assert.True(t, change.ContinueOnError && change.AtLeastOnce)
	assert.Equal(t, []expr.TaskRef{{Step: "ask", Task: "http", Of: expr.OfOutput}}, change.Params.Refs().Tasks)
	assert.Nil(t, change.Row)
	assert.Equal(t, "example.com", ask.Host)

	rows := plan.Steps[2].Tasks[0]
	assert.Equal(t, 60*time.Second, rows.Timeout)
	got, err = rows.Row.Append(nil, &expr.Env{Input: json.RawMessage(`{"id":1}`)})
	require.NoError(t, err)
	assert.Equal(t, `{"id":1}`, string(got))
	got, err = rows.Settings.Append(nil, &expr.Env{})
	require.NoError(t, err)
	assert.Equal(t, `{"list":"demo"}`, string(got))
}

// TestCompile_InputSchema: what no record can have is an error at its place, in every expression of a task.
func TestCompile_InputSchema(t *testing.T) {
	t.Parallel()
	const doc = `{"input_schema": {"additionalProperties": %s, "properties": {"email": {}, "items": {"items": {"additionalProperties": %[1]s, "properties": {"id": {}}}}}},
		"steps": [{"id": "s", "tasks": [
		{"id": "a", "action_id": "core__flow__transform", "params": {"value": {"to": "{{ input.emial }}"}}, "when": "{{ input.emial != null }}"},
		{"id": "b", "action_id": "core__flow__transform", "params": {"value": "{{ item.idd }}"}, "for_each": "{{ input.items }}"},
		{"id": "c", "action_id": "core__flow__wait_for_event", "params": {"event_kind": "flow.event", "timeout_seconds": 9, "match": "{{ event.id == input.emial }}"}}]}]}`
	_, bad, fields := definition.Compile(document(t, fmt.Sprintf(doc, "false")), load(t))
	require.Empty(t, fields)
	assert.Equal(t, []string{
		`step "s", task "a", field params.value.to: {{ input.emial }}: input has no field "emial" by its schema; did you mean "email"? (at character 7)`,
		`step "s", task "a", field when: {{ input.emial != null }}: input has no field "emial" by its schema; did you mean "email"? (at character 7)`,
		`step "s", task "b", field params.value: {{ item.idd }}: item has no field "idd" by its schema; did you mean "id"? (at character 6)`,
		`step "s", task "c", field params.match: {{ event.id == input.emial }}: input has no field "emial" by its schema; did you mean "email"? (at character 19)`,
	}, bad)
	plan, bad, fields := definition.Compile(document(t, fmt.Sprintf(doc, "true")), load(t))
	assert.Empty(t, bad)
	assert.Empty(t, fields)
	assert.NotNil(t, plan)
}

func TestCompile_Host(t *testing.T) {
	t.Parallel()
	cat := load(t)
	for url, want := range map[string]string{
		"https://Example.com:8443/a": "example.com:8443", "https://example.com/{{ input.id }}": "example.com",
		"https://example.com?id={{ input.id }}": "example.com",
		"{{ input.url }}":                       "", "https://{{ input.host }}/": "",
		"https://example.com{{ input.rest }}":    "",
		"https://example.com:80{{ input.rest }}": "", "https://user{{ input.rest }}@example.com/": "",
	} {
		plan, bad, fields := definition.Compile(document(t,
			`{"steps": [{"id": "s", "tasks": [{"id": "t", "action_id": "core__http__request", "params": {"url": "`+url+
				`"}}]}]}`), cat)
		require.Empty(t, bad)
		require.Empty(t, fields)
		assert.Equal(t, want, plan.Steps[0].Tasks[0].Host, url)
	}
}

func TestCompile_Fields(t *testing.T) {
	t.Parallel()
	one := func(task string) string { return `{"steps": [{"id": "s", "tasks": [` + task + `]}]}` }
	cases := map[string]struct {
		doc  string
		want []string
	}{
		"NoSteps":       {`{"steps": []}`, []string{"body.steps too_short"}},
		"NoTasks":       {`{"steps": [{"id": "s", "tasks": []}]}`, []string{"body.steps.0.tasks too_short"}},
		"Lane":          {`{"lane": "fast", "steps": [{"id": "s", "tasks": [{"id": "t", "action_id": "core__flow__transform", "params": {"value": 1}}]}]}`, []string{"body.lane enum"}},
		"UnknownAction": {one(`{"id": "t", "action_id": "core__flow__transform", "params": {"value": 1}}, {"id": "u", "action_id": "no__such__action"}`), []string{"body.steps.0.tasks.1.action_id value_error"}},
		"Ids": {
			one(`{"id": "T", "action_id": "core__flow__transform", "params": {"value": 1}}, {"id": "u", "action_id": "core__flow__transform", "params": {"value": 1}}, {"id": "u", "action_id": "core__flow__transform", "params": {"value": 1}}`),
			[]string{"body.steps.0.tasks.0.id string_pattern_mismatch", "body.steps.0.tasks.2.id value_error"},
		},
		"NoCredential": {one(`{"id": "t", "action_id": "dialer__api__dial", "params": {"number": "1", "campaign": "c"}}`), []string{"body.steps.0.tasks.0.credential_id missing"}},
		"Params": {
			one(`{"id": "t", "action_id": "core__http__request", "params": {"method": "SEND", "headers": {"X": 1}, "more": 1}}`),
			[]string{"body.steps.0.tasks.0.params.headers.X type_error", "body.steps.0.tasks.0.params.method enum",
				"body.steps.0.tasks.0.params.more extra_forbidden", "body.steps.0.tasks.0.params.url missing"},
		},
		"NoParams": {one(`{"id": "t", "action_id": "core__flow__fail"}`),
			[]string{"body.steps.0.tasks.0.params.message missing"}},
		"ParamsNoObject": {one(`{"id": "t", "action_id": "core__flow__fail", "params": "{{ input }}"}`),
			[]string{"body.steps.0.tasks.0.params object_type"}},
		"BulkWithoutRecords": {
			one(`{"id": "t", "action_id": "dialer__api__upload", "credential_id": "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11", "params": {"list": "demo"}}`),
			[]string{"body.steps.0.tasks.0.params.row missing"},
		},
		"Policy": {
			one(`{"id": "t", "action_id": "core__flow__fail", "params": {"message": "m"}, "timeout_seconds": 0, "retry": {"max_attempts": 21, "initial_seconds": -1, "factor": 0.5, "max_seconds": 86401}, "on_error": "stop", "delivery": "twice"}`),
			[]string{
				"body.steps.0.tasks.0.on_error enum", "body.steps.0.tasks.0.delivery enum",
				"body.steps.0.tasks.0.timeout_seconds greater_than_equal",
				"body.steps.0.tasks.0.retry.max_attempts less_than_equal",
				"body.steps.0.tasks.0.retry.initial_seconds greater_than_equal",
				"body.steps.0.tasks.0.retry.factor greater_than_equal",
				"body.steps.0.tasks.0.retry.max_seconds less_than_equal",
			},
		},
	}
	cat := load(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, bad, fields := definition.Compile(document(t, c.doc), cat)
			assert.Nil(t, plan)
			assert.Empty(t, bad, "expressions wait until the schema holds")
			assert.ElementsMatch(t, c.want, places(fields))
		})
	}
}

func TestCompile_Bounds(t *testing.T) {
	t.Parallel()
	step := definition.DocumentStep{Tasks: []definition.DocumentTask{{ActionID: "core__flow__transform",
		Params: json.RawMessage(`{"value": 1}`)}}}
	var doc definition.Document
	for i := range 51 {
		step.ID = "s" + strings.Repeat("x", i)
		step.Tasks = []definition.DocumentTask{step.Tasks[0]}
		step.Tasks[0].ID = "t" + strings.Repeat("x", i)
		doc.Steps = append(doc.Steps, step)
	}
	cat := load(t)
	_, _, fields := definition.Compile(doc, cat)
	assert.Equal(t, []string{"body.steps too_long"}, places(fields))
	doc.Steps = doc.Steps[:50]
	plan, _, fields := definition.Compile(doc, cat)
	assert.Empty(t, fields)
	assert.NotNil(t, plan)
}

func TestCompile_BadExpressions(t *testing.T) {
	t.Parallel()
	plan, bad, fields := definition.Compile(document(t, `{"steps": [
		{"id": "enrich", "tasks": [
			{"id": "lookup", "action_id": "core__http__request", "params": {"url": "{{ inptu.id }}", "body": {"list": [1, "{{ steps.change.fields.output }}"]}}, "when": "{{ input.id == }}"},
			{"id": "beside", "action_id": "core__flow__transform", "params": {"value": "{{ steps.enrich.lookup.output }}"}}]},
		{"id": "change", "tasks": [{"id": "fields", "action_id": "core__flow__transform", "params": {"value": "{{ steps.enrich.lookup.output }} {{ steps.nowhere.x.output }}"}}]}]}`), load(t))
	assert.Nil(t, plan)
	assert.Empty(t, fields)
	require.Len(t, bad, 5, strings.Join(bad, "\n"))
	for i, want := range [][]string{
		{`step "enrich", task "lookup", field params.`, `{{ inptu.id }}`, `unknown name "inptu"`},
		{`step "enrich", task "lookup", field params.body.list.1: {{ steps.change.fields.output }}: `, "later"},
		{`step "enrich", task "lookup", field when: {{ input.id == }}: `},
		{`step "enrich", task "beside", field params.value: {{ steps.enrich.lookup.output }}: `},
		{`step "change", task "fields", field params.value: {{ steps.nowhere.x.output }}: `},
	} {
		for _, part := range want {
			assert.Contains(t, bad[i], part)
		}
	}
}

func TestDocument_Encode(t *testing.T) {
	t.Parallel()
	text := `{"steps":[{"id":"s","tasks":[{"id":"t","action_id":"a","params":{"z":1.10,"a":"<&>","n":` +
		strings.Repeat("9", 400) + `}}]}]}`
	got, err := document(t, text).Encode()
	require.NoError(t, err)
	assert.Equal(t, text, string(got))
}

func TestRetry_Delay(t *testing.T) {
	t.Parallel()
	r := definition.Retry{MaxAttempts: 20, Initial: time.Second, Factor: 2, Max: 10 * time.Second}
	assert.Equal(t, 500*time.Millisecond, r.Delay(1, 0))
	assert.Equal(t, time.Second, r.Delay(2, 0))
	assert.Equal(t, 3*time.Second, r.Delay(3, 0.5))
	assert.Equal(t, 5*time.Second, r.Delay(5, 0))
	almost := math.Nextafter(1, 0)
	assert.LessOrEqual(t, r.Delay(5, almost), 10*time.Second)
	assert.Equal(t, 5*time.Second, r.Delay(100000, 0), "no overflow")
	assert.Zero(t, definition.Retry{Factor: 10, Max: time.Hour}.Delay(100000, almost), "no pause stays none")
}

package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider/dialersim"
)

// seen is a step that shows what became of task s.t of the step before.
const seen = `{"id":"seen","tasks":[{"id":"shown","action_id":"core__flow__transform","params":{"value":{
	"output":"{{ steps.s.t.output }}","error":"{{ steps.s.t.error }}","skipped":"{{ steps.s.t.skipped }}"}}}]}`

// TestTaskResult: a record goes on behind a task that failed, and reads why, whatever it failed of.
func TestTaskResult(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("é", 5<<10)
	cases := map[string]answerCase{
		"conflict": {method: "POST", status: 409, body: ` {"code":"EXISTS","message":"is there","id":77.10} `},
		"text":     {method: "POST", status: 404, media: "text/plain", body: "No such\x00 thing"},
		"large":    {method: "POST", status: 400, body: `{"message":"no","of":"` + large + `"}`},
		"empty":    {method: "POST", status: 403},
		"broken":   {method: "PUT", status: 503, body: `{"message":"boom"}`},
		"cut":      {method: "PUT", cut: true},
		"fine":     {method: "POST", status: 201, body: `{"id":1}`},
		"skipped":  {method: "POST", status: 400},
	}
	s, host, _ := serveAnswers(t, cases)
	refused := func(status int, code, said, body string) string {
		return fmt.Sprintf(`{"code":"provider_refused","message":"The provider refused the call (status %d)","status":%d,
			"provider_code":%s,"provider_message":%s,"body":%s}`, status, status, code, said, body)
	}
	unclear := func(status, why, said, body string) string {
		return fmt.Sprintf(`{"code":"outcome_unknown","message":"The provider gave no clear answer: %s","status":%s,
			"provider_code":null,"provider_message":%s,"body":%s}`, why, status, said, body)
	}
	cut, _ := json.Marshal(`{"message":"no","of":"` + strings.Repeat("é", (8<<10-22)/2))
	want := map[string]string{
		"conflict": refused(409, `"EXISTS"`, `"is there"`, `{"code":"EXISTS","message":"is there","id":77.10}`),
		"text":     refused(404, "null", `"No such\ufffd thing"`, `"No such\ufffd thing"`),
		"large":    refused(400, "null", `"no"`, string(cut)),
		"empty":    refused(403, "null", "null", "null"),
		"broken":   unclear("503", "it failed (status 503)", `"boom"`, `{"message":"boom"}`),
		"cut": unclear("null", "the connection broke before an answer came: the connection was closed", "null",
			"null"),
	}
	for name, c := range cases {
		batch := s.trigger(s.define(fmt.Sprintf(`[{"id":"s","tasks":[
			{"id":"t","action_id":"core__http__request","on_error":"continue","when":%q,"retry":{"max_attempts":2,"initial_seconds":0.1},"params":{"method":%q,"url":"http://%s/%s"}}]},%s]`,
			map[bool]string{true: "{{ input.x }}", false: "{{ not input.x }}"}[name == "skipped"], c.method, host, name,
			seen)),
			`{"input_data":{"x":false}}`)
		assert.Equal(t, "completed", s.settledJob(batch)["status"], name)
		got := string(s.execution(batch, 0).Steps[1].Tasks[0].Output)
		switch name {
		case "fine":
			assert.Contains(t, got, `"error":null,"skipped":false}`)
			assert.Contains(t, got, `"body":{"id":1}`)
		case "skipped":
			assert.JSONEq(t, `{"output":null,"error":null,"skipped":true}`, got)
		default:
			assert.JSONEq(t, `{"output":null,"error":`+want[name]+`,"skipped":false}`, got, name)
		}
	}
}

// TestTaskResult_Rows: of a bulk task each record reads its own error, of a task in process too, by the expressions of
// a call as by those of others, in when as in params.
func TestTaskResult_Rows(t *testing.T) {
	t.Parallel()
	away := newElsewhere(t)
	s := serveStack(t, true, func(c *app.Config) { c.AllowHosts = []string{strings.TrimPrefix(away.URL, "http://")} })
	rule := dialersim.Rule{Kind: "equals", Field: "n", Value: []byte(`3`)}
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{rule}})
	batch := s.trigger(s.define(s.steps(fmt.Sprintf(`[{"id":"a-1","tasks":[
			{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","on_error":"continue",
				"params":{"list":"demo","key_field":"id","row":"{{ input }}"}},
			{"id":"in-process","action_id":"core__flow__transform","on_error":"continue",
				"params":{"value":"{{ 12 / input.n }}"}}]},
		{"id":"b","tasks":[
			{"id":"tell","action_id":"core__http__request","when":"{{ steps.a-1.up.error?.code == \"record_rejected\" }}",
				"params":{"method":"PUT","url":"%s/{{ input.id }}","body":"{{ steps.a-1.up.error.body }}"}},
			{"id":"mark","action_id":"core__flow__transform","params":{"value":
				["{{ steps.a-1.in-process.error.code }}","{{ steps.a-1.in-process.output }}"]}}]},
		{"id":"c","tasks":[{"id":"end","action_id":"core__flow__transform",
			"params":{"value":"{{ steps.b.tell.skipped }}"}}]}]`, away.URL))),
		`{"records":[{"id":"x","n":2},{"id":"y","n":3},{"id":"z","n":0}]}`)
	s.await(batch)
	assert.Equal(t, []string{"PUT /y"}, away.requests, "an answer that takes other records is not the error of one")
	for i, want := range []string{`[null,6]`, `[null,4]`, `["expression_failed",null]`} {
		run := s.execution(batch, i)
		assert.JSONEq(t, want, string(run.Steps[1].Tasks[1].Output))
		assert.Equal(t, fmt.Sprint(i != 1), string(run.Steps[2].Tasks[0].Output))
	}
}

// TestTaskResult_Retried: what became of a task of an earlier batch is read by the batch that tries its records again.
func TestTaskResult_Retried(t *testing.T) {
	t.Parallel()
	s, f, _ := serveFussy(t)
	batch := s.trigger(s.define(fmt.Sprintf(`[{"id":"s","tasks":[
			{"id":"t","action_id":"core__http__request","on_error":"continue",
				"params":{"method":"POST","url":"http://%[1]s/exists/{{ input.id }}"}}]},
		{"id":"patch","tasks":[{"id":"p","action_id":"core__http__request","when":"{{ steps.s.t.error.status == 409 }}",
			"params":{"method":"POST","url":"http://%[1]s/phone/{{ steps.s.t.error.provider_code }}-{{ input.id }}"}}]}]`, f.host)),
		`{"records":[{"id":"1"},{"id":"2"}]}`)
	assert.Equal(t, "failed", s.await(batch)["status"])
	f.mend()
	retried := s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", nil).Want(http.StatusOK).
		JSON()["batch_id"].(string)
	assert.Equal(t, "completed", s.await(retried)["status"])
	require.Equal(t, 1, f.sent("/exists/1"), "it is not sent again")
	assert.Equal(t, 2, f.sent("/phone/EXISTS-2"))
}

// TestSkippedTasks: whatever shows the output of a record says that a condition left it out, and its batch says how
// many.
func TestSkippedTasks(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	const flow = `[{"id":"a","tasks":[
			{"id":"mod","action_id":"dialer__api__modify","credential_id":"CRED","when":"{{ input.n > 2 }}",
				"params":{"list":"l","key":"{{ input.id }}","fields":{"n":"{{ input.n }}"}}}]},
		{"id":"b","tasks":[
			{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","when":"{{ input.n % 2 == 0 }}",
				"params":{"list":"demo","key_field":"id","row":"{{ input }}"}},
			{"id":"mark","action_id":"core__flow__transform","when":"{{ input.n != 2 }}","params":{"value":null}}]}]`
	batch := s.trigger(s.define(flow), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(6))))
	count := func(step, task string, n float64) any {
		return map[string]any{"step_id": step, "task_id": task, "record_count": n}
	}
	want := []any{count("a", "mod", 3), count("b", "up", 3), count("b", "mark", 1)}
	assert.Equal(t, want, s.await(batch)["skipped_tasks"])
	assert.Equal(t, want, s.get("/flows/batches")["items"].([]any)[0].(map[string]any)["skipped_tasks"])
	var shown struct {
		Items []struct {
			SkippedTasks []string `json:"skipped_tasks"`
		}
	}
	lines := s.lines("/flows/batches/" + batch + "/results?format=ndjson")
	table := s.table("/flows/batches/" + batch + "/results?format=csv")
	s.Do(http.MethodGet, "/flows/batches/"+batch+"/results", nil).Want(http.StatusOK).Into(&shown)
	for i, skipped := range [][]string{{}, {"up"}, {"mark"}, {"up"}, {}, {"up"}} {
		text, _ := json.Marshal(skipped)
		assert.Equal(t, skipped, shown.Items[i].SkippedTasks, "record %d", i)
		assert.Contains(t, string(lines[i]), `"skipped_tasks":`+string(text))
		assert.Equal(t, strings.Join(skipped, " "), table[i+1][11])
		job := s.get(fmt.Sprintf("/flows/jobs/%s.%d", batch, i))
		assert.Len(t, job["skipped_tasks"], len(skipped))
	}

	one := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","when":"{{ input.on }}",
		"params":{"value":null}}]}]`), `{"records":[{"on":true},{"on":false}]}`)
	assert.Equal(t, []any{count("s", "t", 1)}, s.await(one)["skipped_tasks"])
	lines = s.lines("/flows/batches/" + one + "/results?format=ndjson")
	assert.Contains(t, string(lines[0]), `"output":null,"skipped_tasks":[],`)
	assert.Contains(t, string(lines[1]), `"output":null,"skipped_tasks":["t"],`)
}

// TestSkippedTasks_FullCalls: records that a condition leaves out take no room in calls, which are metered.
func TestSkippedTasks_FullCalls(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	batch := s.trigger(s.define(`[{"id":"s","tasks":[
		{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","when":"{{ input.n % 2 == 0 }}",
			"params":{"list":"demo","key_field":"id","row":"{{ input }}"}}]}]`),
		fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(130_000))))
	assert.Equal(t, "completed", s.await(batch)["status"])
	used := s.get("/flows/usage?group_by=action")["items"].([]any)[0].(map[string]any)
	assert.Equal(t, "dialer__api__upload", used["key"])
	assert.EqualValues(t, 65_000, used["records"])
	assert.EqualValues(t, 2, used["calls"], "50,000 and what is left")
}

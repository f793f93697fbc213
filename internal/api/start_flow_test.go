package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/trigger/event"
)

// starting is a task that starts a flow; more follows its params.
func starting(params, more string) string {
	return fmt.Sprintf(`{"id":"go","action_id":"core__flow__start_flow","params":%s%s}`, params, more)
}

// children are the batches that flows have started, by the job that did.
func (s *stack) children() map[string]map[string]any {
	s.t.Helper()
	out := map[string]map[string]any{}
	for _, item := range s.pages("/flows/batches?trigger_type=flow", 500) {
		var b map[string]any
		require.NoError(s.t, json.Unmarshal(item, &b))
		job := b["trigger_source"].(string)
		assert.NotContains(s.t, out, job, "it started two")
		out[job] = b
	}
	return out
}

// TestStartFlow_Once: each of many records starts one batch, while connections are lost at any time.
func TestStartFlow_Once(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	const records = 1000
	child := s.define(transformSteps)
	flow := s.define(`[{"id":"s","tasks":[` +
		starting(fmt.Sprintf(`{"definition_id":%q,"input":{"n":"{{ input.n }}","z":1.50},"metadata":{"of":"{{ batch.id }}"},"lane":"bulk"}`, child),
			`,"when":"{{ input.n != 7 }}"`) +
		`]},{"id":"end","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ steps.s.go.output }}"}}]}]`)
	batch := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(records))))
	killed := s.breakAt("BatchLock", "DefinitionForStart", "BatchesStart", "SliceMove", "BatchCountMove")
	s.config.Workers = true
	for range 2 {
		s.worker()
	}
	assert.Equal(t, "completed", s.await(batch)["status"])
	s.eventually(func() bool { return s.count("flow.batch_count WHERE status <> 'completed'") == 0 })
	assert.Positive(t, killed(), "no connection was lost: the test shows less than it should")
	children := s.children()
	assert.Len(t, children, records-1)
	for i, line := range s.lines("/flows/batches/" + batch + "/results?format=ndjson") {
		var r struct {
			JobID  string `json:"job_id"`
			Output *struct {
				BatchID string `json:"batch_id"`
			}
		}
		require.NoError(t, json.Unmarshal(line, &r))
		got := children[r.JobID]
		if i == 7 {
			assert.Nil(t, r.Output)
			assert.Nil(t, got)
			continue
		}
		require.NotNil(t, r.Output)
		assert.Equal(t, []any{r.Output.BatchID, child, "bulk", 1.0, map[string]any{"of": batch}},
			[]any{got["id"], got["definition_id"], got["lane"], got["record_count"], got["metadata"]})
		if i%100 == 0 {
			assert.Equal(t, []any{float64(i)}, s.outputs(r.Output.BatchID))
		}
	}
	first := children[batch+".0"]["id"].(string)
	assert.Contains(t, string(s.Do(http.MethodGet, "/flows/jobs/"+first+".0", nil).Want(http.StatusOK).Body),
		`{"n":0,"z":1.50}`)
	trigger := s.get("/flows/triggers?trigger_type=flow&limit=1")["items"].([]any)[0].(map[string]any)
	assert.Contains(t, children, trigger["trigger_source"])
}

// TestStartFlow_Depth: a flow that starts itself stops, and says why. So does one that events and flows start in turns.
func TestStartFlow_Depth(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(`[{"id":"s","tasks":[` + starting(`{"definition_id":"{{ batch.definition_id }}"}`, "") + `]}]`)
	s.trigger(flow, oneRecord)
	s.eventually(func() bool { return s.count("flow.batch_count WHERE status = 'failed'") == 1 })
	assert.Equal(t, event.MaxDepth+1, s.count("flow.batch"))
	last := s.get("/flows/batches?status=failed")["items"].([]any)[0].(map[string]any)["id"].(string)
	failure := s.get("/flows/jobs/" + last + ".0")["error"].(map[string]any)
	assert.Equal(t, []any{"start_refused",
		"The batch is the last of 8 starts by events and flows in a row, which is the most"}, []any{failure["code"],
		failure["message"]})

	emits := s.define(emitting("again", "", ""))
	starts := s.define(`[{"id":"s","tasks":[` + starting(fmt.Sprintf(`{"definition_id":%q}`, emits), "") + `]}]`)
	id := s.subscribe(listening(starts, event.FlowEvent))
	s.trigger(emits, oneRecord)
	assert.Contains(t, s.subscription(id, event.MaxDepth/2, 1)["last_error"],
		"the last of 8 starts by events and flows in a row")
	assert.Equal(t, event.MaxDepth/2, s.count("flow.batch WHERE definition_id = $1 AND trigger_type = 'event'", starts))
	assert.Equal(t, event.MaxDepth/2, s.count("flow.batch WHERE definition_id = $1 AND trigger_type = 'flow'", emits))
}

// TestStartFlow_Refused: what cannot start fails its record and no other.
func TestStartFlow_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	good, archived := s.define(transformSteps), s.define(transformSteps)
	s.Do(http.MethodPatch, "/flows/definitions/"+archived, `{"status":"archived"}`).Want(http.StatusOK)
	theirs := s.other.Do(http.MethodPost, "/flows/definitions", `{"name":"f","status":"active","steps":`+transformSteps+
		`}`).Want(http.StatusCreated).JSON()["id"].(string)
	revoked := s.define(uploadSteps)
	s.change(s.credential, `"status":"revoked"`)
	flow := s.define(`[{"id":"s","tasks":[` +
		starting(`{"definition_id":"{{ input.id }}","input":"{{ input.input }}","metadata":"{{ input.metadata ?? {} }}","lane":"{{ input.lane ?? \"bulk\" }}"}`, "") + `]}]`)
	record := func(id, input, more string) string { return fmt.Sprintf(`{"id":%s,"input":%s%s}`, id, input, more) }
	quoted := func(id string) string { return fmt.Sprintf("%q", id) }
	cases := [][2]string{
		{record(quoted(good), `{"n":1}`, ""), ""},
		{record(quoted(archived), `{}`, ""), "Definition is not active"},
		{record(quoted(theirs), `{}`, ""), "Definition not found"},
		{record(`"none"`, `{}`, ""), "Definition not found"},
		{record(`"0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11"`, `{}`, ""), "Definition not found"},
		{record(quoted(revoked), `{}`, ""), "Credential is revoked: set its status to active, or choose another"},
		{record(`5`, `{}`, ""), "definition_id and lane must be strings"},
		{record(quoted(good), `[]`, ""), "input must be an object"},
		{record(quoted(good), `null`, ""), "input must be an object"},
		{record(quoted(good), `{}`, `,"lane":"fast"`), "lane must be one of interactive, compliance, bulk, backfill"},
		{record(quoted(good), `{}`, `,"metadata":[]`), "metadata must be an object"},
		{record(quoted(good), `{}`, `,"metadata":{"a":"`+strings.Repeat("x", 64<<10)+`"}`),
			"metadata takes 65544 bytes, and may take 65536"},
		{record(quoted(good), `{"n":2}`, ""), ""},
	}
	var records []string
	for _, c := range cases {
		records = append(records, c[0])
	}
	batch := s.trigger(flow, `{"records":[`+strings.Join(records, ",")+`]}`)
	assert.Equal(t, "partially_failed", s.await(batch)["status"])
	var started []string
	for i, line := range s.lines("/flows/batches/" + batch + "/results?format=ndjson") {
		if cases[i][1] == "" {
			assert.Equal(t, "completed", field[string](t, line, "status"))
			started = append(started, fmt.Sprintf("%s.%d", batch, i))
			continue
		}
		failure := field[map[string]any](t, line, "error")
		assert.Equal(t, []any{"start_refused", cases[i][1], "s", "go"}, []any{failure["code"], failure["message"],
			failure["step_id"], failure["task_id"]})
	}
	children := s.children()
	assert.Len(t, children, len(started))
	for _, job := range started {
		assert.Contains(t, children, job)
	}
	// An expression can make a text that nothing can store.
	nul := s.define(`[{"id":"s","tasks":[` +
		starting(fmt.Sprintf(`{"definition_id":%q,"input":{"a":"{{ fromBase64('AA==') }}"}}`, good), "") + `]}]`)
	assert.Equal(t, "failed", s.await(s.trigger(nul, oneRecord))["status"])
	// A record may go on all the same.
	on := s.define(`[{"id":"s","tasks":[` + starting(`{"definition_id":"none"}`, `,"on_error":"continue"`) + `]}]`)
	assert.Equal(t, "completed", s.await(s.trigger(on, oneRecord))["status"])
	assert.Len(t, s.children(), len(started))
}

// TestStartFlow_Calls: the batches of a flow that makes calls send them.
func TestStartFlow_Calls(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	child := s.define(uploadSteps)
	flow := s.define(`[{"id":"s","tasks":[` +
		starting(fmt.Sprintf(`{"definition_id":%q,"input":{"id":"{{ input.id }}"}}`, child), "") + `]}]`)
	s.await(s.trigger(flow, `{"records":[{"id":"a"},{"id":"b"},{"id":"c"}]}`))
	s.eventually(func() bool { return s.count("flow.batch_count WHERE status = 'completed'") == 4 })
	assert.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, s.sim.Arrivals("demo"))
}

func TestStartFlow_DryRun(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	child := s.define(uploadSteps)
	flow := s.define(`[{"id":"s","tasks":[` + starting(`{"definition_id":"{{ input.id }}"}`, "") + `]}]`)
	run := func(id string) map[string]any {
		return dryRunTasks(s.Do(http.MethodPost, "/flows/definitions/"+flow+"/dry-run",
			fmt.Sprintf(`{"input_data":{"id":%q}}`, id)).Want(http.StatusOK).JSON())["go"]
	}
	before := s.stored(t)
	assert.Equal(t, map[string]any{"batch_id": "00000000-0000-0000-0000-000000000000"}, run(child)["output"])
	assert.Equal(t, "Definition not found", run("none")["error"].(map[string]any)["message"])
	assert.Equal(t, before, s.stored(t), "nothing is written")
	s.change(s.credential, `"status":"revoked"`)
	assert.Equal(t, "Credential is revoked: set its status to active, or choose another",
		run(child)["error"].(map[string]any)["message"])
}

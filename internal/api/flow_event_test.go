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

// emitting is a flow of one task that emits; params are those beside the name, more is beside params.
func emitting(name, params, more string) string {
	return fmt.Sprintf(`[{"id":"s","tasks":[{"id":"say","action_id":"core__flow__emit_event","params":{"name":%q%s}%s}]}]`, name, params, more)
}

// TestEmitEvent_Once: each of many records emits, and starts one batch, while connections are lost at any time.
func TestEmitEvent_Once(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	const records = 1000
	flow := s.define(emitting("paid", `,"payload":{"z":1.50,"n":"{{ input.n }}"}`, `,"when":"{{ input.n != 7 }}"`))
	listener := s.define(transformSteps)
	paid := s.subscribe(listening(listener, event.FlowEvent, `"filter":"{{ payload.name == \"paid\" }}"`,
		`"input_template":{"n":"{{ payload.payload.n }}","payload":"{{ payload.payload }}","job":"{{ payload.job_id }}","of":["{{ payload.batch_id }}","{{ payload.definition_id }}","{{ payload.step_id }}","{{ payload.task_id }}"]}`))
	other := s.subscribe(listening(listener, event.FlowEvent, `"filter":"{{ payload.name == \"other\" }}"`))
	batch := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(records))))
	killed := s.breakAt("BatchLock", "EventEmit", "SliceMove", "BatchCountMove", "EventDeliver%", "BatchesStart")
	s.config.Workers = true
	for range 2 {
		s.worker()
	}
	assert.Equal(t, "completed", s.await(batch)["status"])
	s.subscription(paid, records-1, 0)
	s.subscription(other, 0, 0)
	assert.Positive(t, killed(), "no connection was lost: the test shows less than it should")
	seen := map[int]bool{}
	for _, record := range s.heard(paid) {
		var r struct {
			N       int
			Payload json.RawMessage
			Job     string
			Of      []string
		}
		require.NoError(t, json.Unmarshal(record, &r))
		assert.Equal(t, fmt.Sprintf(`{"z":1.50,"n":%d}`, r.N), string(r.Payload))
		assert.Equal(t, fmt.Sprintf("%s.%d", batch, r.N), r.Job)
		assert.Equal(t, []string{batch, flow, "s", "say"}, r.Of)
		assert.False(t, seen[r.N], "%d came twice", r.N)
		seen[r.N] = true
	}
	assert.Len(t, seen, records-1)
	// The output names the event that the batch tells of.
	emitted := map[string]bool{}
	for _, line := range s.lines("/flows/batches/" + batch + "/results?format=ndjson") {
		var r struct {
			Output *struct {
				EventID string `json:"event_id"`
			}
		}
		require.NoError(t, json.Unmarshal(line, &r))
		if r.Output != nil {
			emitted[r.Output.EventID] = true
		}
	}
	assert.Len(t, emitted, records-1)
	for _, item := range s.pages("/flows/batches?trigger_type=event", 500) {
		assert.Contains(t, emitted, field[map[string]any](t, item, "metadata")["event_id"])
	}
}

// TestEmitEvent_Depth: a flow that listens to its own events stops.
func TestEmitEvent_Depth(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(emitting("again", "", ""))
	id := s.subscribe(listening(flow, event.FlowEvent))
	s.trigger(flow, oneRecord)
	got := s.subscription(id, event.MaxDepth, 1)
	assert.Contains(t, got["last_error"], "the last of 8 starts")
	assert.Equal(t, event.MaxDepth+1, s.count("flow.batch"))
}

func TestEmitEvent_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(`[{"id":"s","tasks":[{"id":"say","action_id":"core__flow__emit_event","params":{"name":"{{ input.name }}","payload":"{{ input.payload ?? null }}"}}]}]`)
	id := s.subscribe(listening(s.define(transformSteps), event.FlowEvent))
	cases := [][2]string{
		{`{"name":"` + strings.Repeat("é", 200) + `","payload":"` + strings.Repeat("x", 64<<10-2) + `"}`, ""},
		{`{"name":""}`, "name must be a string that is not empty"},
		{`{"name":7}`, "name must be a string that is not empty"},
		{`{"name":"` + strings.Repeat("é", 201) + `"}`, "name has 201 characters, and may have 200"},
		{`{"name":"n","payload":"` + strings.Repeat("x", 64<<10-1) + `"}`,
			"payload takes 65537 bytes, and may take 65536"},
	}
	var records []string
	for _, c := range cases {
		records = append(records, c[0])
	}
	batch := s.trigger(flow, `{"records":[`+strings.Join(records, ",")+`]}`)
	assert.Equal(t, "partially_failed", s.await(batch)["status"])
	for i, line := range s.lines("/flows/batches/" + batch + "/results?format=ndjson") {
		if cases[i][1] == "" {
			assert.Equal(t, "completed", field[string](t, line, "status"))
			continue
		}
		failure := field[map[string]any](t, line, "error")
		assert.Equal(t, []any{"event_refused", cases[i][1], "s", "say"}, []any{failure["code"], failure["message"],
			failure["step_id"], failure["task_id"]})
	}
	s.subscription(id, 1, 0)
	// An expression can make a text that nothing can store.
	nul := s.trigger(s.define(emitting("n", `,"payload":["{{ fromBase64('AA==') }}"]`, "")), oneRecord)
	assert.Equal(t, "failed", s.await(nul)["status"])
	s.subscription(id, 1, 0)

	bad := `{"name":"f","steps":[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__emit_event","params":{"name":"","more":1},"for_each":"{{ input.list }}"}]}]}`
	s.Do(http.MethodPost, "/flows/definitions", bad).Invalid("body.steps.0.tasks.0.for_each value_error",
		"body.steps.0.tasks.0.params.name string_too_short", "body.steps.0.tasks.0.params.more extra_forbidden")
}

func TestEmitEvent_DryRun(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(emitting("n", `,"payload":"{{ input.text }}"`, ""))
	s.subscribe(listening(flow, event.FlowEvent))
	run := func(text string) map[string]any {
		return dryRunTasks(s.Do(http.MethodPost, "/flows/definitions/"+flow+"/dry-run",
			fmt.Sprintf(`{"input_data":{"text":%q}}`, text)).Want(http.StatusOK).JSON())["say"]
	}
	assert.Equal(t, map[string]any{"event_id": "00000000-0000-0000-0000-000000000000"}, run("x")["output"])
	assert.Equal(t, "event_refused", run(strings.Repeat("x", 64<<10))["error"].(map[string]any)["code"])
	assert.Zero(t, s.count("flow.event_delivery"), "nothing happened")
}

package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/apitest"
)

// waitingStart is a task that starts a flow and waits for it up to a day; more follows its params.
func waitingStart(id, flow, input, more string) string {
	return fmt.Sprintf(`{"id":%q,"action_id":"core__flow__start_flow","params":{"definition_id":%q,"input":%s,"wait":true,"timeout_seconds":86400}%s}`, id, flow, input, more)
}

// childOutcome is the output of a task that waited for a batch.
type childOutcome struct {
	BatchID   string `json:"batch_id"`
	Status    string
	JobStatus string `json:"job_status"`
	Output    json.RawMessage
	Truncated bool
}

// outputOf decodes the output of a result.
func outputOf[T any](t *testing.T, result json.RawMessage) (out T) {
	t.Helper()
	var r struct{ Output json.RawMessage }
	require.NoError(t, json.Unmarshal(result, &r))
	require.NoError(t, json.Unmarshal(r.Output, &out))
	return out
}

// failureOf returns the error of a record.
func (s *stack) failureOf(batch string, position int) (code, message string) {
	s.t.Helper()
	e, failed := s.get(fmt.Sprintf("/flows/jobs/%s.%d", batch, position))["error"].(map[string]any)
	require.True(s.t, failed, "record %d has no error", position)
	return e["code"].(string), e["message"].(string)
}

// childOf is the batch that the task of a record started.
func (s *stack) childOf(batch string, position int) string {
	s.t.Helper()
	job := fmt.Sprintf("%s.%d", batch, position)
	for _, item := range s.pages("/flows/batches?trigger_type=flow", 500) {
		if field[string](s.t, item, "trigger_source") == job {
			return field[string](s.t, item, "id")
		}
	}
	require.Fail(s.t, "no batch was started by "+job)
	return ""
}

// TestStartFlow_WaitOnce: each of many records waits for two batches, some of which take an hour, and gets what they
// gave, while three processes lose their connections. Each batch is started once, and each wait ends once.
func TestStartFlow_WaitOnce(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	for range 2 {
		s.worker()
	}
	const n = 150
	slow := s.define(`[{"id":"d","tasks":[` + delayTask("d", `{"seconds":"{{ input.n % 2 == 0 ? 0 : 3600 }}"}`, "") +
		`]},
		{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.n }}"}}]}]`)
	calls := s.define(uploadSteps)
	flow := s.define(`[{"id":"s","tasks":[` + waitingStart("slow", slow, `{"n":"{{ input.n }}"}`, "") + `,` +
		waitingStart("calls", calls, `{"id":"{{ input.id }}"}`, "") + `]},
		{"id":"end","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":["{{ steps.s.slow.output }}","{{ steps.s.calls.output }}"]}}]}]`)
	killed := s.breakAt("WaitInsert", "WaitChildrenOver", "WaitsOver", "WaitDelete", "BatchesRead", "BatchCountMove")
	batch := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(n))))
	s.settle(func() bool { return s.count("flow.batch_count WHERE status = 'completed'") == n+n/2 })
	s.waiting(batch, n/2)
	// also where a lost connection held up the start of one
	s.settle(func() bool { return s.count("flow.wait WHERE child IS NULL") == n/2 })
	s.settle(func() bool { return s.get("/flows/jobs/" + batch + ".0")["status"] == "completed" })
	assert.Equal(t, []string{"completed", "completed", "completed"}, s.execution(batch, 0).statuses())
	assert.Equal(t, []string{"waiting", "completed", "pending"}, s.execution(batch, 1).statuses())
	s.later(day / 24)
	s.inTheEnd(batch)
	assert.Positive(t, killed(), "no connection was lost: the test shows less than it should")
	assert.Equal(t, 1+2*n, s.count("flow.batch_count WHERE status = 'completed'"))
	assert.Zero(t, s.count("flow.wait"))
	seen := map[string]bool{}
	results := s.pages("/flows/batches/"+batch+"/results", 500)
	require.Len(t, results, n)
	for i, r := range results {
		got := outputOf[[]childOutcome](t, r)
		require.Len(t, got, 2)
		assert.Equal(t, []string{"completed", "completed", fmt.Sprint(i)}, []string{got[0].Status, got[0].JobStatus,
			string(got[0].Output)})
		for _, c := range got {
			assert.False(t, c.Truncated)
			assert.Equal(t, fmt.Sprintf("%s.%d", batch, i), s.get("/flows/batches/" + c.BatchID)["trigger_source"])
			seen[c.BatchID] = true
		}
		if i%50 == 0 {
			job := s.get("/flows/jobs/" + got[1].BatchID + ".0")
			var output any
			require.NoError(t, json.Unmarshal(got[1].Output, &output))
			assert.Equal(t, []any{job["status"], s.outputs(got[1].BatchID)[0]}, []any{got[1].JobStatus, output})
		}
	}
	assert.Len(t, seen, 2*n)
}

// TestStartFlow_WaitOutcomes: a batch that does not end well, or not in time, fails the task, and no other.
func TestStartFlow_WaitOutcomes(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	child := s.define(`[{"id":"d","tasks":[` + delayTask("d", `{"seconds":"{{ input.wait ?? 0 }}"}`, "") + `,
		{"id":"f","action_id":"core__flow__fail","params":{"message":"no"},"when":"{{ input.bad ?? false }}"}]},
		{"id":"s","tasks":[{"id":"a","action_id":"core__flow__transform","params":{"value":"{{ input.a ?? 0 }}"}},
			{"id":"b","action_id":"core__flow__transform","params":{"value":"{{ input.a ?? 0 }}"},"when":"{{ input.a != 1.5 }}"}]}]`)
	steps := func(more string) string {
		return s.define(`[{"id":"s","tasks":[` + waitingStart("go", child, `"{{ input }}"`, more) +
			`]},{"id":"e","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ steps.s.go.output }}"}}]}]`)
	}
	rows := `{"records":[{"a":1.50},{"bad":true},{"wait":172800},{"wait":3600,"a":"cancelled"},{"a":"` +
		strings.Repeat("x", 600_000) + `"}]}`
	fails, goes := s.trigger(steps(""), rows), s.trigger(steps(`,"on_error":"continue"`), rows)
	s.waiting(fails, 2)
	s.waiting(goes, 2)
	cancelled, late := s.childOf(fails, 3), s.childOf(fails, 2)
	s.Do(http.MethodPost, "/flows/batches/"+cancelled+"/cancel", `{}`).Want(http.StatusOK)
	s.waiting(fails, 1)
	s.later(day / 24)
	s.waiting(goes, 1)
	s.restart(false)
	s.later(day)
	s.restart(true)
	assert.Equal(t, "partially_failed", s.await(fails)["status"])
	assert.Equal(t, "completed", s.await(goes)["status"])
	assert.Zero(t, s.count("flow.wait WHERE child IS NOT NULL"))
	code, message := s.failureOf(fails, 1)
	assert.Equal(t, []string{"flow_failed", "Batch " + s.childOf(fails, 1) +
		", which the task started, ended as failed"}, []string{code, message})
	code, message = s.failureOf(fails, 2)
	assert.Equal(t, []string{"wait_timeout", "Batch " + late + ", which the task started, was not over in time"},
		[]string{code, message})
	code, message = s.failureOf(fails, 3)
	assert.Equal(t, []string{"flow_failed", "Batch " + cancelled + ", which the task started, ended as cancelled"},
		[]string{code, message})
	assert.Equal(t, []string{"failed", "cancelled"}, s.execution(fails, 2).statuses())
	assert.Equal(t, []string{"failed", "completed"}, s.execution(goes, 2).statuses())

	results := s.pages("/flows/batches/"+goes+"/results", 10)
	first, long := outputOf[childOutcome](t, results[0]), outputOf[childOutcome](t, results[4])
	assert.Equal(t, []string{s.childOf(goes, 0), "completed", `{"a":1.50,"b":null}`}, []string{first.BatchID,
		first.Status, string(first.Output)})
	assert.Equal(t, []any{s.childOf(goes, 4), "null", true}, []any{long.BatchID, string(long.Output), long.Truncated})
	assert.Equal(t, []any{nil, nil}, s.outputs(goes)[1:3])
	assert.Equal(t, "completed", outputOf[childOutcome](t, results[3]).JobStatus)

	s.later(day)
	assert.Equal(t, "completed", s.await(late)["status"], "it goes on all the same")
}

// TestStartFlow_WaitSteered: a batch that is paused goes on with what became of the others meanwhile. One that is
// cancelled waits for nothing, and its retry starts others; those that it had started go on.
func TestStartFlow_WaitSteered(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.store(customers)
	child := s.define(`[{"id":"d","tasks":[` + delayTask("d", `{"seconds":"{{ input.n * 3600 }}"}`, "") +
		`]},{"id":"s","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.n }}"}}]}]`)
	write := storeTask("w", "write",
		`{"store":"customers","key":"{{ input.id }}","layer":"agent","values":{"visits":"{{ input.n }}"}}`, "")
	flow := s.define(`[{"id":"s","tasks":[` + waitingStart("go", child, `"{{ input }}"`, "") + `,` + write +
		`]},{"id":"e","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ steps.s.go.output.output }}"}}]}]`)
	rows := `{"records":[{"id":"a","n":1},{"id":"b","n":25}]}`
	paused, cancelled := s.trigger(flow, rows), s.trigger(flow, rows)
	s.waiting(paused, 2)
	s.waiting(cancelled, 2)
	s.Do(http.MethodPost, "/flows/batches/"+paused+"/pause", `{}`).Want(http.StatusCreated)
	s.Do(http.MethodPost, "/flows/batches/"+cancelled+"/cancel", `{}`).Want(http.StatusOK)
	s.waiting(cancelled, 0)
	assert.Equal(t, []string{"cancelled", "completed", "cancelled"}, s.execution(cancelled, 0).statuses())
	s.settle(func() bool { return s.count("flow.wait WHERE child IS NULL") == 4 }) // those that they started wait, too
	s.later(day / 24)
	s.settle(func() bool { return s.count("flow.batch_count WHERE status = 'completed'") == 2 })
	s.later(day)
	s.settle(func() bool {
		return s.count("flow.batch_count WHERE status = 'completed'") == 4 &&
			s.count("flow.due WHERE kind = 'wait'") == 0
	})
	assert.Equal(t, 2, s.count("flow.wait"))
	assert.InDelta(t, 2, s.get("/flows/batches/" + paused)["job_counts"].(map[string]any)["queued"], 0)
	s.Do(http.MethodPost, "/flows/batches/"+paused+"/resume", nil).Want(http.StatusOK)
	assert.Equal(t, "partially_failed", s.await(paused)["status"])
	assert.Equal(t, []any{1.0, nil}, s.outputs(paused))
	code, _ := s.failureOf(paused, 1)
	assert.Equal(t, "wait_timeout", code, "the batch was over an hour too late, whenever anybody looked")

	_, err := s.owner.Exec(t.Context(), "UPDATE flow.store_record SET updated_at = '2001-01-01'")
	require.NoError(t, err)
	_, again := s.retry(cancelled, `{}`)
	s.waiting(again, 2)
	assert.Equal(t, 6, s.count("flow.batch WHERE definition_id = $1", child))
	assert.NotEqual(t, s.childOf(cancelled, 0), s.childOf(again, 0))
	s.settle(func() bool { return s.count("flow.wait WHERE child IS NULL") == 2 }) // those that it started wait, too
	s.later(day / 24)
	s.waiting(again, 1)
	s.settle(func() bool { return s.get("/flows/jobs/" + again + ".0")["status"] == "completed" })
	assert.Zero(t, s.count("flow.store_record WHERE updated_at > '2001-01-01'"), "nothing is written again")
}

// TestStartFlow_WaitRefused: what cannot be is refused when the flow is saved, where that can be known, and starts
// nothing.
func TestStartFlow_WaitRefused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	child := s.define(transformSteps)
	task := func(params string) string { return starting(fmt.Sprintf(`{"definition_id":%q,%s}`, child, params), "") }
	refused := func(params string) apitest.Response {
		return s.Do(http.MethodPost, "/flows/definitions", `{"name":"f","steps":[{"id":"s","tasks":[`+task(params)+
			`]}]}`)
	}
	refused(`"wait":true`).Invalid("body.steps.0.tasks.0.params.timeout_seconds missing")
	refused(`"wait":"yes","timeout_seconds":5`).Invalid("body.steps.0.tasks.0.params.wait type_error")
	refused(`"wait":true,"timeout_seconds":0`).Invalid("body.steps.0.tasks.0.params.timeout_seconds greater_than_equal")
	refused(`"wait":true,"timeout_seconds":31536001`).Invalid(
		"body.steps.0.tasks.0.params.timeout_seconds less_than_equal")

	flow := s.define(`[{"id":"s","tasks":[` +
		task(`"input":{"n":1},"wait":"{{ input.wait }}","timeout_seconds":"{{ input.seconds }}"`) + `,
		{"id":"f","action_id":"core__flow__fail","params":{"message":"no"},"when":"{{ input.bad ?? false }}"}]}]`)
	cases := [][2]string{
		{`{"wait":true,"seconds":60}`, ""},
		{`{"wait":false}`, ""},
		{`{"wait":true}`, "timeout_seconds must be a number"},
		{`{"wait":true,"seconds":"60"}`, "timeout_seconds must be a number"},
		{`{"wait":true,"seconds":0.5}`, "timeout_seconds must be from 1 to 31536000"},
		{`{"wait":1,"seconds":60}`, "wait must be true or false"},
		{`{"seconds":60}`, "wait must be true or false"},
		{`{"wait":true,"seconds":60,"bad":true}`, "no"},
	}
	var records []string
	for _, c := range cases {
		records = append(records, c[0])
	}
	batch := s.trigger(flow, `{"records":[`+strings.Join(records, ",")+`]}`)
	assert.Equal(t, "partially_failed", s.await(batch)["status"])
	for i, c := range cases[2:] {
		_, message := s.failureOf(batch, 2+i)
		assert.Equal(t, c[1], message)
	}
	assert.Equal(t, 2, s.count("flow.batch WHERE trigger_type = 'flow'"))
	outputs := s.lines("/flows/batches/" + batch + "/results?format=ndjson")
	assert.JSONEq(t, fmt.Sprintf(`{"go":{"batch_id":%q,"status":"completed","job_status":"completed","output":1,"truncated":false},"f":null}`, s.childOf(batch, 0)), string(outputOf[json.RawMessage](t, outputs[0])))
	assert.JSONEq(t, fmt.Sprintf(`{"go":{"batch_id":%q},"f":null}`, s.childOf(batch, 1)),
		string(outputOf[json.RawMessage](t, outputs[1])))
}

// TestStartFlow_WaitDryRun: a dry run takes the outcome that its caller made up, else a run that completed. Nothing
// works beside it: River notes the end of a job a moment after the work, and everything stored is compared.
func TestStartFlow_WaitDryRun(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	child := s.define(transformSteps)
	flow := s.define(`[{"id":"s","tasks":[` +
		starting(fmt.Sprintf(`{"definition_id":%q,"wait":"{{ input.wait }}","timeout_seconds":"{{ input.seconds }}"}`,
			child), "") + `]}]`)
	before := s.stored(t)
	dry := dryRunTasks(s.Do(http.MethodPost, "/flows/definitions/"+flow+"/dry-run",
		`{"input_data":{"wait":true,"seconds":60}}`).Want(http.StatusOK).JSON())["go"]
	assert.Equal(t, map[string]any{"batch_id": "00000000-0000-0000-0000-000000000000", "status": "completed",
		"job_status": "completed", "output": nil, "truncated": false}, dry["output"])
	given := `{"input_data":{"wait":true,"seconds":60},"outputs":{"s":{"go":{"output":5}}}}`
	dry = dryRunTasks(s.Do(http.MethodPost, "/flows/definitions/"+flow+"/dry-run",
		given).Want(http.StatusOK).JSON())["go"]
	assert.Equal(t, map[string]any{"output": 5.0}, dry["output"], "a made-up batch may have given anything")
	assert.Equal(t, before, s.stored(t), "nothing is written")
}

// TestStartFlow_WaitImpossible: no batch is started to be waited for by a record that another task fails, which would
// have to wait for too long.
func TestStartFlow_WaitImpossible(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	child := s.define(`[{"id":"s","tasks":[` + delayTask("d", `{"seconds":3600}`, "") + `]}]`)
	for _, tasks := range []string{
		waitingStart("a", child, `{}`, "") + `,` + delayTask("b", `{"until":"2999-01-01T00:00:00Z"}`, ""),
		delayTask("a", `{"until":"2999-01-01T00:00:00Z"}`, "") + `,` + waitingStart("b", child, `{}`, ""),
	} {
		batch := s.trigger(s.define(`[{"id":"s","tasks":[`+tasks+`]}]`), oneRecord)
		assert.Equal(t, "failed", s.await(batch)["status"])
	}
	assert.Equal(t, 2, s.number("SELECT count(*) FROM flow.batch"), "no child")
}

// TestStartFlow_WaitBeside: a record that fails by one wait while another transaction is about to end its other wait
// does not wait for that one, which may want the first.
func TestStartFlow_WaitBeside(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	child := s.define(`[{"id":"s","tasks":[` + delayTask("d", `{"seconds":3600}`, "") + `]}]`)
	flow := s.define(`[{"id":"s","tasks":[` + waitingStart("a", child, `{}`, "") + `,` + waitingStart("b", child, `{}`,
		"") + `]}]`)
	batch := s.trigger(flow, oneRecord)
	s.waiting(batch, 2)
	tx, err := s.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0")
	require.NoError(t, err)
	var other string
	require.NoError(t, tx.QueryRow(t.Context(),
		"SELECT child::text FROM flow.wait WHERE batch_id = $1 AND task_no = 0 FOR UPDATE", batch).Scan(new(string)))
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT child::text FROM flow.wait WHERE batch_id = $1 AND task_no = 1",
		batch).Scan(&other))
	s.Do(http.MethodPost, "/flows/batches/"+other+"/cancel", `{}`).Want(http.StatusOK)
	assert.Equal(t, "failed", s.await(batch)["status"])
	assert.Equal(t, []string{"cancelled", "failed"}, s.execution(batch, 0).statuses())
	require.NoError(t, tx.Rollback(t.Context()))
	s.later(day / 24)
	s.waiting(batch, 0)
	assert.Equal(t, "failed", s.get("/flows/batches/" + batch)["status"])
}

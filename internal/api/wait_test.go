package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// waiting waits until so many waits of a batch have begun; one of a whole slice is one.
func (s *stack) waiting(batch string, n int) {
	s.t.Helper()
	s.settle(func() bool { return s.count("flow.wait WHERE batch_id = $1", batch) == n })
}

// later moves the clock on.
func (s *stack) later(d time.Duration) {
	s.t.Helper()
	pgtest.MoveClock(s.t, s.owner, d)
}

func delayTask(id, params, more string) string {
	return fmt.Sprintf(`{"id":%q,"action_id":"core__flow__delay","params":%s%s}`, id, params, more)
}

const day = 24 * time.Hour

// TestDelay: records wait for days, with their slices or alone, while processes come and go; what stands beside and
// behind the delay is done once.
func TestDelay(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	path := s.store(customers)
	flow := s.define(`[{"id":"s","tasks":[` + delayTask("d", `{"seconds":259200}`, `,"when":"{{ input.n != 3 }}"`) + `,
		{"id":"w","action_id":"core__store__write","params":{"store":"customers","key":"{{ input.id }}","layer":"agent","values":{"visits":"{{ input.n }}"}}}]},
		{"id":"send","tasks":[` + delayTask("last", `{"seconds":"{{ input.n == 5 ? 3600 : 0 }}"}`, "") + `,
		{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","key_field":"id","row":{"id":"{{ input.id }}","until":"{{ steps.s.d.output.waited_until ?? \"never\" }}"}}}]}]`)
	batch := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(600))))
	began := s.clock()
	s.waiting(batch, 249+2) // record 3 does not wait: its slice does not wait as one
	s.settle(func() bool { return len(s.sim.ArrivalsOf("acme", "demo", dialersim.KindUpload)) == 1 })
	assert.Equal(t, 600, s.count("flow.store_record WHERE store_id = $1", s.storeID("customers")))
	e := s.execution(batch, 0)
	assert.Equal(t, []any{"running", []string{"waiting", "completed", "pending", "pending"}},
		[]any{e.Status, e.statuses()})
	assert.Equal(t, 1, e.Steps[0].Tasks[0].Attempts)
	assert.NotNil(t, e.Steps[0].Tasks[0].StartedAt)
	assert.Equal(t, "queued", s.get("/flows/jobs/" + batch + ".300")["status"])
	assert.InDelta(t, 599, s.get("/flows/batches/" + batch)["job_counts"].(map[string]any)["queued"], 0)
	assert.Equal(t, 1, s.count("flow.due WHERE kind = 'wait'"), "one row, however many wait")

	s.restart(true)
	s.later(2 * day)
	s.restart(true)
	assert.Equal(t, 251, s.count("flow.wait"), "it is not time yet")
	s.later(day)
	s.settle(func() bool { return len(s.sim.ArrivalsOf("acme", "demo", dialersim.KindUpload)) == 600 })
	s.waiting(batch, 1)
	s.later(time.Hour)
	assert.Equal(t, "completed", s.await(batch)["status"])
	assert.Zero(t, s.count("flow.wait")+s.count("flow.due WHERE kind = 'wait'"))
	assert.Len(t, s.sim.ArrivalsOf("acme", "demo", dialersim.KindUpload), 600)
	for i, write := range []string{"k0", "k599"} {
		got := s.get(path + "/records/" + write + "?include=layers")
		assert.Equal(t, map[string]any{"visits": float64(i * 599)}, got["layers"].([]any)[0].(map[string]any)["values"])
	}
	e = s.execution(batch, 400)
	assert.Equal(t, []string{"completed", "completed", "completed", "completed"}, e.statuses())
	var out struct {
		Until time.Time `json:"waited_until"`
	}
	require.NoError(t, json.Unmarshal(e.Steps[0].Tasks[0].Output, &out))
	assert.WithinDuration(t, began.Add(3*day), out.Until, time.Minute)
	assert.Equal(t, "skipped", s.execution(batch, 3).statuses()[0])
}

// TestDelay_Params: how long records wait can depend on them, and what cannot be is refused, when the flow is saved
// where that can be known.
func TestDelay_Params(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	refused := func(task string) apitest.Response {
		return s.Do(http.MethodPost, "/flows/definitions", `{"name":"f","steps":[{"id":"s","tasks":[`+task+`]}]}`)
	}
	refused(delayTask("d", `{"seconds":-1}`, "")).Invalid("body.steps.0.tasks.0.params.seconds greater_than_equal")
	refused(delayTask("d", `{"seconds":31536001}`, "")).Invalid("body.steps.0.tasks.0.params.seconds less_than_equal")
	refused(delayTask("d", `{"seconds":1,"until":"2030-01-01T00:00:00Z"}`, "")).Want(http.StatusUnprocessableEntity)
	refused(delayTask("d", `{}`, "")).Want(http.StatusUnprocessableEntity)
	refused(delayTask("d", `{"seconds":1}`, `,"for_each":"{{ input.list }}"`)).Invalid(
		"body.steps.0.tasks.0.for_each value_error")

	now := s.clock()
	flow := s.define(`[{"id":"s","tasks":[` + delayTask("d", `{"until":"{{ input.until }}"}`, "") + `]}]`)
	batch := s.trigger(flow, fmt.Sprintf(
		`{"records":[{"until":%q},{"until":"2001-02-03T04:05:06.5+02:00"},{"until":%q},{"until":"soon"},{"until":null}]}`,
		now.Add(10*day).Format(time.RFC3339), now.Add(366*day).Format(time.RFC3339)))
	s.waiting(batch, 1)
	results := s.pages("/flows/batches/"+batch+"/results", 10)
	assert.Equal(t, "queued", field[string](t, results[0], "status"))
	assert.Equal(t, map[string]any{"waited_until": "2001-02-03T02:05:06.5Z"}, field[map[string]any](t, results[1],
		"output"))
	for i, want := range []string{"until is more than 365 days away",
		"until must be a time such as 2030-01-31T08:00:00Z", "one of seconds and until must have a value"} {
		failure := field[map[string]any](t, results[2+i], "error")
		assert.Equal(t, []any{"flow_failed", want, "d"}, []any{failure["code"], failure["message"], failure["task_id"]})
	}
	s.later(10 * day)
	assert.Equal(t, "partially_failed", s.await(batch)["status"])

	// A rehearsal says until when it would wait.
	res := s.Do(http.MethodPost, "/flows/definitions/"+s.define(`[{"id":"s","tasks":[`+
		delayTask("d", `{"seconds":86400}`, "")+`]}]`)+"/dry-run", nil).Want(http.StatusOK).JSON()
	until, err := time.Parse(time.RFC3339, dryRunTasks(res)["d"]["output"].(map[string]any)["waited_until"].(string))
	require.NoError(t, err)
	assert.WithinDuration(t, s.clock().Add(day), until, time.Minute)
	assert.Zero(t, s.count("flow.wait"))
}

// TestDelay_Steered: what waits goes on when its batch is resumed, ends with one that is cancelled, and waits anew in a
// retry; what was done beside it is not done again.
func TestDelay_Steered(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.store(customers)
	write := storeTask("w", "write",
		`{"store":"customers","key":"{{ input.id }}","layer":"agent","values":{"visits":"{{ input.n }}"}}`, "")
	flow := s.define(`[{"id":"s","tasks":[` + delayTask("d", `{"seconds":86400}`, "") + `,` + write +
		`]},{"id":"e","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ input.n }}"}}]}]`)
	rows := `{"records":[` + strings.Join(rowsOf(300), ",") + `]}`
	paused, cancelled := s.trigger(flow, rows), s.trigger(flow, rows)
	s.waiting(paused, 2)
	s.waiting(cancelled, 2)
	s.Do(http.MethodPost, "/flows/batches/"+paused+"/pause", `{}`).Want(http.StatusCreated)
	s.Do(http.MethodPost, "/flows/batches/"+cancelled+"/cancel", `{}`).Want(http.StatusOK)
	s.waiting(cancelled, 0)
	assert.Equal(t, []string{"cancelled", "completed", "cancelled"}, s.execution(cancelled, 7).statuses())
	assert.InDelta(t, 300, s.get("/flows/batches/" + cancelled)["job_counts"].(map[string]any)["unprocessed"], 0)
	s.later(day)
	s.settle(func() bool { return s.count("flow.due WHERE kind = 'wait'") == 0 })
	assert.Equal(t, 2, s.count("flow.wait"))
	assert.InDelta(t, 300, s.get("/flows/batches/" + paused)["job_counts"].(map[string]any)["queued"], 0)
	s.Do(http.MethodPost, "/flows/batches/"+paused+"/resume", nil).Want(http.StatusOK)
	assert.Equal(t, "completed", s.await(paused)["status"])

	_, err := s.owner.Exec(t.Context(), "UPDATE flow.store_record SET updated_at = '2001-01-01'")
	require.NoError(t, err)
	_, again := s.retry(cancelled, `{}`)
	s.waiting(again, 2)
	s.later(day)
	assert.Equal(t, "completed", s.await(again)["status"])
	assert.Equal(t, []any{0.0, 1.0, 2.0}, s.outputs(again)[:3])
	assert.Zero(t, s.count("flow.store_record WHERE updated_at > '2001-01-01'"), "nothing is written again")
}

// TestDelay_OneSlice: records of one slice that go on together from different steps each see the outputs of their own.
func TestDelay_OneSlice(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	value := func(id, from string) string {
		return fmt.Sprintf(`{"id":%q,"action_id":"core__flow__transform","params":{"value":"{{ %s }}"}}`, id, from)
	}
	const hour = `{"seconds":3600}`
	flow := s.define(`[{"id":"a","tasks":[` + value("o", "input.n") + `,` +
		delayTask("d", hour, `,"when":"{{ input.waits == 1 }}"`) + `]},
		{"id":"b","tasks":[` + value("x", "steps.a.o.output") + `,` +
		delayTask("e", hour, `,"when":"{{ input.waits == 2 }}"`) + `]},
		{"id":"c","tasks":[` + value("y", "steps.b.x.output") + `]}]`)
	var records []string
	for n := range 9 {
		records = append(records, fmt.Sprintf(`{"n":%d,"waits":%d}`, n, n%3))
	}
	batch := s.trigger(flow, `{"records":[`+strings.Join(records, ",")+`]}`)
	s.waiting(batch, 6)
	s.later(day / 12)
	s.inTheEnd(batch)
	for i, r := range s.lines("/flows/batches/" + batch + "/results?format=ndjson") {
		assert.Equal(t, i, outputOf[int](t, r))
	}
}

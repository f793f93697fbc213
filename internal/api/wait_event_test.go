package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/internal/trigger/event"
	"flowlane/test/apitest"
)

func eventTask(id, kind, match, more string) string {
	return fmt.Sprintf(`{"id":%q,"action_id":"core__flow__wait_for_event","params":{"event_kind":%q,"timeout_seconds":86400%s}%s}`, id, kind, match, more)
}

const ownEvent = `,"match":"{{ event.payload.name == \"paid\" && event.payload.payload.order == input.id }}"`

// happens causes an event, as if something did.
func (s *stack) happens(kind string, payload any) {
	s.t.Helper()
	org := uuid.MustParse(s.orgID(s.Key))
	require.NoError(s.t, pg.InTx(context.WithoutCancel(s.t.Context()), s.owner, func(ctx context.Context,
		tx pgx.Tx) error {
		return event.Publish(ctx, tx, s.app.Scheduler, event.Event{OrgID: org, Kind: kind, Payload: payload})
	}))
}

// paid is the event that an order was paid.
func (s *stack) paid(order string, n int) {
	s.t.Helper()
	s.happens(event.FlowEvent, map[string]any{"name": "paid", "payload": map[string]any{"order": order, "n": n}})
}

// TestWaitForEvent_Own: each of many records waits for its own event of as many, which come while three processes lose
// their connections and others begin to wait; each gets it, once.
func TestWaitForEvent_Own(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	for range 2 {
		s.worker()
	}
	const n = 1000
	waits := s.define(`[{"id":"s","tasks":[` + eventTask("w", "flow.event", ownEvent, "") + `]},
		{"id":"after","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":["{{ input.id }}","{{ steps.s.w.output.payload.payload }}"]}}]}]`)
	emits := s.define(`[{"id":"e","tasks":[{"id":"e","action_id":"core__flow__emit_event","params":{"name":"paid","payload":{"order":"{{ input.id }}","n":"{{ input.n }}"}}}]}]`)
	rows := rowsOf(n)
	waiting := s.trigger(waits, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rows)))
	s.waiting(waiting, n)
	killed := s.breakAt("Wait%", "Arrival%")
	var emitting []string
	for i := range 4 {
		emitting = append(emitting, s.trigger(emits, `{"records":[`+strings.Join(rows[i*n/4:(i+1)*n/4], ",")+`]}`))
	}
	late := s.trigger(waits, `{"records":[{"id":"late"}]}`)
	for _, batch := range append(emitting, waiting) {
		s.inTheEnd(batch)
	}
	results := s.pages("/flows/batches/"+waiting+"/results", n)
	require.Len(t, results, n)
	for i, r := range results {
		require.Equal(t, []any{fmt.Sprintf("k%d", i), map[string]any{"order": fmt.Sprintf("k%d", i), "n": float64(i)}},
			field[[]any](t, r, "output"))
	}
	e := s.execution(waiting, 17)
	assert.Equal(t, []string{"completed", "completed"}, e.statuses())
	var got map[string]any
	require.NoError(t, json.Unmarshal(e.Steps[0].Tasks[0].Output, &got))
	assert.Equal(t, "flow.event", got["kind"])
	s.waiting(late, 1)
	s.paid("late", 1)
	assert.Equal(t, "completed", s.await(late)["status"])
	s.settle(func() bool { return s.count("flow.event_arrival") == 0 })
	assert.Positive(t, killed(), "no connection was lost: the test shows less than it should")
}

// inTheEnd waits until a batch of much work is completed, on a busy machine too.
func (s *stack) inTheEnd(batch string) {
	s.t.Helper()
	over := func() bool { return s.get("/flows/batches/" + batch)["completed_at"] != nil }
	require.Eventually(s.t, over, 5*time.Minute, 100*time.Millisecond)
	require.Equal(s.t, "completed", s.get("/flows/batches/" + batch)["status"])
}

// TestWaitForEvent_Static: records that wait for the same event wait with their slices; what happened before does not
// count.
func TestWaitForEvent_Static(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	before := s.trigger(s.define(transformSteps), `{"input_data":{"n":1},"metadata":{"go":true}}`)
	assert.Equal(t, "completed", s.await(before)["status"])
	flow := s.define(`[{"id":"s","tasks":[` + eventTask("w", "batch.completed",
		`,"match":"{{ event.payload.metadata.go && event.payload.metadata.by == metadata.by }}"`, "") + `,` +
		delayTask("d", `{"seconds":60}`, "") +
		`]},{"id":"t","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ steps.s.w.output.payload.batch_id }}"}}]}]`)
	batch := s.trigger(flow, fmt.Sprintf(`{"record_set_id":%q,"metadata":{"by":7}}`, s.upload(rowsOf(1000))))
	s.waiting(batch, 2*4)
	for _, metadata := range []string{`{"by":7}`, `{"go":1,"by":7}`, `{"go":true,"by":8}`} {
		assert.Equal(t, "completed", s.await(s.trigger(s.define(transformSteps), `{"input_data":{"n":1},"metadata":`+
			metadata+`}`))["status"])
	}
	s.later(day / 2)
	s.waiting(batch, 4)
	assert.Equal(t, []string{"waiting", "completed", "pending"}, s.execution(batch, 0).statuses())
	cause := s.trigger(s.define(transformSteps), `{"input_data":{"n":1},"metadata":{"go":true,"by":7.0}}`)
	assert.Equal(t, "completed", s.await(batch)["status"])
	for _, out := range s.outputs(batch) {
		require.Equal(t, cause, out)
	}
	s.settle(func() bool { return s.count("flow.event_arrival") == 0 })
	assert.Zero(t, s.count("flow.wait"))
}

// TestWaitForEvent_Timeout: an event counts exactly if it happened before the time was over, however late it is looked
// at.
func TestWaitForEvent_Timeout(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	steps := func(more string) string {
		return s.define(`[{"id":"s","tasks":[` + eventTask("w", "flow.event", ownEvent, more) + `,` +
			delayTask("d", `{"seconds":604800}`, `,"when":"{{ input.both ?? false }}"`) + `]},
			{"id":"t","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ steps.s.w.output.kind }}"}}]}]`)
	}
	fails := s.trigger(steps(""),
		`{"records":[{"id":"in time"},{"id":"late"},{"id":"never"},{"id":"never","both":true}]}`)
	goes := s.trigger(steps(`,"on_error":"continue"`), `{"records":[{"id":"in time"},{"id":"late"}]}`)
	all := s.define(`[{"id":"s","tasks":[` + eventTask("w", "credential.rotated", "", "") + `,` +
		delayTask("d", `{"seconds":604800}`, "") + `]}]`)
	together := s.trigger(all, `{"records":[`+strings.Join(rowsOf(300), ",")+`]}`)
	s.waiting(fails, 5)
	s.waiting(goes, 2)
	s.waiting(together, 4)
	s.restart(false)
	s.paid("in time", 1)
	s.later(day)
	s.paid("late", 2)
	s.restart(true)
	assert.Equal(t, "partially_failed", s.await(fails)["status"])
	assert.Equal(t, "completed", s.await(goes)["status"])
	assert.Equal(t, "failed", s.await(together)["status"])
	results := s.pages("/flows/batches/"+fails+"/results", 10)
	assert.Equal(t, "flow.event", field[string](t, results[0], "output"))
	for _, r := range results[1:] {
		failure := field[map[string]any](t, r, "error")
		assert.Equal(t, []any{"wait_timeout", "No event flow.event that matches came in time", "s", "w"},
			[]any{failure["code"], failure["message"], failure["step_id"], failure["task_id"]})
	}
	assert.Equal(t, []string{"failed", "cancelled", "cancelled"}, s.execution(fails, 3).statuses())
	assert.Equal(t, []string{"failed", "cancelled"}, s.execution(together, 299).statuses())
	assert.Equal(t, []any{"flow.event", nil}, s.outputs(goes))
	assert.Equal(t, "failed", s.execution(goes, 1).statuses()[0])
	s.settle(func() bool { return s.count("flow.event_arrival") == 0 })
	assert.Zero(t, s.count("flow.wait"))

	_, again := s.retry(fails, `{}`)
	s.waiting(again, 4)
	s.paid("late", 3)
	s.settle(func() bool { return s.get("/flows/jobs/" + again + ".1")["status"] == "completed" })
}

// TestWaitForEvent_Steered: what came while a batch was paused counts when it is resumed; what is cancelled waits for
// nothing.
func TestWaitForEvent_Steered(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	flow := s.define(`[{"id":"s","tasks":[` + eventTask("w", "flow.event", ownEvent, "") + `]}]`)
	paused, cancelled := s.trigger(flow, `{"records":[{"id":"a"},{"id":"b"}]}`),
		s.trigger(flow, `{"records":[{"id":"a"}]}`)
	s.waiting(paused, 2)
	s.waiting(cancelled, 1)
	s.Do(http.MethodPost, "/flows/batches/"+paused+"/pause", `{}`).Want(http.StatusCreated)
	s.Do(http.MethodPost, "/flows/batches/"+cancelled+"/cancel", `{}`).Want(http.StatusOK)
	s.waiting(cancelled, 0)
	s.paid("a", 1)
	s.settle(func() bool {
		return s.count("flow.wait WHERE event_no IS NOT NULL") == 1 &&
			s.count("flow.due WHERE kind IN ('wait', 'arrival')") == 0
	})
	s.later(2 * day)
	s.paid("b", 2)
	s.settle(func() bool { return s.count("flow.due WHERE kind IN ('wait', 'arrival')") == 0 })
	assert.InDelta(t, 2, s.get("/flows/batches/" + paused)["job_counts"].(map[string]any)["queued"], 0)
	s.Do(http.MethodPost, "/flows/batches/"+paused+"/resume", nil).Want(http.StatusOK)
	assert.Equal(t, "partially_failed", s.await(paused)["status"])
	results := s.pages("/flows/batches/"+paused+"/results", 10)
	assert.InDelta(t, 1, field[map[string]any](t, results[0],
		"output")["payload"].(map[string]any)["payload"].(map[string]any)["n"], 0)
	assert.Equal(t, "wait_timeout", field[map[string]any](t, results[1], "error")["code"])
	assert.Equal(t, "cancelled", s.get("/flows/batches/" + cancelled)["status"])
	// Events of others let nothing go on.
	org := uuid.MustParse(s.orgID(s.other.Key))
	batch := s.trigger(flow, `{"records":[{"id":"a"}]}`)
	s.waiting(batch, 1)
	require.NoError(t, pg.InTx(t.Context(), s.owner, func(ctx context.Context, tx pgx.Tx) error {
		return event.Publish(ctx, tx, s.app.Scheduler, event.Event{OrgID: org, Kind: event.FlowEvent,
			Payload: map[string]any{"name": "paid", "payload": map[string]any{"order": "a"}}})
	}))
	assert.Zero(t, s.count("flow.event_arrival"))
}

// TestWaitForEvent_Refused: what cannot be is refused when the flow is saved, and there is an end to what must be
// looked at for each event.
func TestWaitForEvent_Refused(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	refused := func(task string) apitest.Response {
		return s.Do(http.MethodPost, "/flows/definitions", `{"name":"f","steps":[{"id":"s","tasks":[`+task+`]}]}`)
	}
	refused(eventTask("w", "no.kind", "", "")).Invalid("body.steps.0.tasks.0.params.event_kind value_error")
	refused(eventTask("w", "{{ input.kind }}", "", "")).Invalid("body.steps.0.tasks.0.params.event_kind value_error")
	refused(eventTask("w", "flow.event", `,"match":""`, "")).Invalid("body.steps.0.tasks.0.params.match value_error")
	refused(eventTask("w", "flow.event", `,"match":7`, "")).Invalid("body.steps.0.tasks.0.params.match type_error")
	detail := refused(eventTask("w", "flow.event", `,"match":"{{ event.x == inputs.y }}"`, "")).Want(
		http.StatusUnprocessableEntity).JSON()["detail"].(map[string]any)
	assert.Contains(t, detail["expression_errors"].([]any)[0], `step "s", task "w", field params.match`)
	long := refused(eventTask("w", "flow.event", `,"match":"{{ event.id == '`+strings.Repeat("a", 5000)+`' }}"`,
		"")).Want(http.StatusUnprocessableEntity)
	assert.Contains(t, string(long.Body), `step \"s\", task \"w\", field params.match: {{ event.id == 'aaa`)
	assert.Contains(t, string(long.Body), `aaa... }}: the expression is longer than 4096 bytes`)
	assert.Less(t, len(long.Body), 3000,
		"the beginning of the expression stands in three places, the whole of 5,000 characters in none")
	refused(`{"id":"w","action_id":"core__flow__wait_for_event","params":{"event_kind":"flow.event","timeout_seconds":0}}`).Invalid("body.steps.0.tasks.0.params.timeout_seconds greater_than_equal")
	refused(eventTask("w", "flow.event", "", `,"for_each":"{{ [1] }}"`)).Invalid(
		"body.steps.0.tasks.0.for_each value_error")

	flow := s.define(`[{"id":"s","tasks":[` + eventTask("w", "flow.event", ownEvent, "") +
		`]},{"id":"t","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":"{{ steps.s.w.output.payload.payload.n }}"}}]}]`)
	path := "/flows/definitions/" + flow + "/dry-run"
	tasks := dryRunTasks(s.Do(http.MethodPost, path, nil).Want(http.StatusOK).JSON())
	assert.Equal(t, "flow.event", tasks["w"]["output"].(map[string]any)["kind"])
	assert.Nil(t, tasks["t"]["output"])
	tasks = dryRunTasks(s.Do(http.MethodPost, path, `{"outputs":{"s":{"w":{"payload":{"payload":{"n":5}}}}}}`).Want(
		http.StatusOK).JSON())
	assert.InDelta(t, 5, tasks["t"]["output"], 0)

	_, err := s.owner.Exec(t.Context(),
		`INSERT INTO flow.wait (org_id, batch_id, slice_no, beside, step_no, task_no, began_at, ends_at, event_kind)
		SELECT $1, gen_random_uuid(), 0, false, 0, 0, flow.clock(), flow.clock(), 'flow.event' FROM generate_series(1, 9998)`, s.orgID(s.Key))
	require.NoError(t, err)
	vague := s.define(`[{"id":"s","tasks":[` + eventTask("w", "flow.event",
		`,"match":"{{ event.payload.name contains input.id }}"`, "") + `]}]`)
	batch := s.trigger(vague, `{"records":[`+strings.Join(rowsOf(5), ",")+`]}`)
	s.waiting(batch, 2)
	results := s.pages("/flows/batches/"+batch+"/results", 10)
	assert.Equal(t, "queued", field[string](t, results[1], "status"))
	assert.Equal(t, "too_many_waits", field[map[string]any](t, results[2], "error")["code"])
	batch = s.trigger(flow, `{"records":[{"id":"keyed"}]}`)
	s.waiting(batch, 1)
}

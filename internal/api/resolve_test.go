package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/test/pgtest"
)

// doubt lets what a batch without workers has queued be in calls that are under way (an intent), or of which nobody
// knows what became: one for each task.
func (s *stack) doubt(batch, state string) {
	s.t.Helper()
	status := map[string]string{"intent": "started", "unknown": "needs_reconcile", "unresolved": "unresolved"}[state]
	pgtest.WriteOutParts(s.t, s.owner)
	for _, sql := range []string{
		`INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner, records, digest, params, outcome_check, claimed_at, send_before, counts_in)
			SELECT gen_random_uuid(), l.org_id, l.domain, l.bucket, l.lane, 'dialer__api__' || l.bucket, '` + state +
			`', l.step_no || '.' || l.task_no || '.' || l.batch_id,
			l.ready_records, '', '{}', 'lookup', flow.clock(), flow.clock(), '{}' FROM flow.lane_batch l WHERE l.batch_id = $1 AND l.ready_parts > 0`,
		`UPDATE flow.part p SET call_id = c.id, call_seq = 0 FROM flow.call c WHERE p.batch_id = $1 AND c.owner = p.step_no || '.' || p.task_no || '.' || p.batch_id`,
		`UPDATE flow.lane_batch SET ready_parts = 0, ready_records = 0 WHERE batch_id = $1`,
		`UPDATE flow.slice SET ` + status + ` = queued, queued = 0 WHERE batch_id = $1`,
		`UPDATE flow.batch_count SET ` + status + ` = queued, queued = 0 WHERE batch_id = $1`,
		`UPDATE flow.batch_count SET status = 'running', started_at = flow.clock() WHERE batch_id = $1`,
	} {
		_, err := s.owner.Exec(context.WithoutCancel(s.t.Context()), sql, batch)
		require.NoError(s.t, err)
	}
}

func (s *stack) resolve(batch string, position int, body string) map[string]any {
	s.t.Helper()
	return s.Do(http.MethodPost, fmt.Sprintf("/flows/jobs/%s.%d/resolve", batch, position),
		body).Want(http.StatusOK).JSON()
}

func counted(b map[string]any) map[string]int {
	out := map[string]int{}
	for status, n := range b["job_counts"].(map[string]any) {
		if n != 0.0 {
			out[status] = int(n.(float64))
		}
	}
	return out
}

// TestJob_ResolveBulk settles the records of one bulk call one by one, across pages.
func TestJob_ResolveBulk(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(700))))
	s.doubt(batch, "unknown")
	require.Equal(t, map[string]int{"needs_reconcile": 700}, counted(s.get("/flows/batches/"+batch)))

	job := s.resolve(batch, 300, `{"outcome":"accepted"}`)
	assert.Equal(t, "accepted", job["status"])
	assert.Equal(t, 1.0, job["attempts"])
	assert.Nil(t, job["error"])
	job = s.resolve(batch, 249, `{"outcome":"rejected","note":"not in their list"}`)
	assert.Equal(t, "rejected", job["status"])
	e := job["error"].(map[string]any)
	assert.Equal(t, []any{"resolved_by_person", "send", "up"}, []any{e["code"], e["step_id"], e["task_id"]})
	assert.Contains(t, e["message"], "not in their list")
	job = s.resolve(batch, 250, `{"outcome":"requeue","note":"lost by them"}`)
	assert.Equal(t, "queued", job["status"])
	s.resolve(batch, 0, `{"outcome":"accepted"}`)
	s.resolve(batch, 699, `{"outcome":"rejected"}`)
	want := map[string]int{"needs_reconcile": 695, "accepted": 2, "rejected": 2, "queued": 1}
	require.Equal(t, want, counted(s.get("/flows/batches/"+batch)))
	for status, n := range want {
		assert.Len(t, s.pages("/flows/jobs?batch_id="+batch+"&status="+status, 500), n, status)
	}
	path := "/flows/jobs/" + batch
	s.Do(http.MethodPost, path+".300/resolve", `{"outcome":"accepted"}`).Detail(http.StatusConflict,
		"Job is accepted; only a job that is needs_reconcile or unresolved can be resolved")
	s.Do(http.MethodPost, path+".250/resolve", `{"outcome":"accepted"}`).Detail(http.StatusConflict,
		"Job is queued; only a job that is needs_reconcile or unresolved can be resolved")
	s.Do(http.MethodPost, path+".1/resolve", `{"outcome":"lost","note":5,"why":1}`).Invalid("body.note string_type",
		"body.outcome enum", "body.why extra_forbidden")
	s.Do(http.MethodPost, path+".1/resolve", fmt.Sprintf(`{"note":%q}`, strings.Repeat("x", 501))).Invalid(
		"body.note string_too_long", "body.outcome missing")
	for _, id := range []string{batch + ".700", batch, "x.0", batch + ".00"} {
		s.Do(http.MethodPost, "/flows/jobs/"+id+"/resolve", `{"outcome":"accepted"}`).Detail(http.StatusNotFound,
			"Job not found")
	}
	s.other.Do(http.MethodPost, path+".1/resolve", `{"outcome":"accepted"}`).Detail(http.StatusNotFound,
		"Job not found")

	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	s.Do(http.MethodPost, path+".5/resolve", `{"outcome":"requeue"}`).Detail(http.StatusConflict,
		"Batch sends nothing any more: its jobs cannot be queued again; resolve the job as accepted or rejected")
	s.resolve(batch, 5, `{"outcome":"accepted"}`)
	assert.Equal(t, map[string]int{"needs_reconcile": 694, "accepted": 3, "rejected": 2, "unprocessed": 1},
		counted(s.get("/flows/batches/"+batch)))
}

// TestJob_ResolveEndsItsCall: nobody asks any more about a call of which every record is resolved.
func TestJob_ResolveEndsItsCall(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(uploadSteps), `{"records":[{"id":"a"},{"id":"b"},{"id":"c"}]}`)
	s.doubt(batch, "unresolved")
	call := func() (state string, resolved, parts int) {
		require.NoError(t, s.owner.QueryRow(t.Context(),
			`SELECT state, resolved, (SELECT count(*) FROM flow.part p WHERE p.call_id = c.id) FROM flow.call c`).
			Scan(&state, &resolved, &parts))
		return state, resolved, parts
	}
	for i, outcome := range []string{"accepted", "requeue", "rejected"} {
		state, resolved, _ := call()
		assert.Equal(t, "unresolved", state)
		assert.Equal(t, i, resolved)
		s.resolve(batch, []int{1, 2, 0}[i], `{"outcome":"`+outcome+`"}`)
	}
	state, _, parts := call()
	assert.Equal(t, "settled", state)
	assert.Zero(t, parts)
	var rows []int
	require.NoError(t, s.owner.QueryRow(t.Context(),
		`SELECT array_agg(call_row ORDER BY created_at) FROM flow.resolution`).Scan(&rows))
	assert.Equal(t, []int{1, 2, 0}, rows, "places in the call")
}

// TestJob_ResolveSteps: a job that a person settles goes on as one that the provider settled; with calls side by side
// all that are in doubt are settled.
func TestJob_ResolveSteps(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	modify := func(id, more string) string {
		return `{"id":"` + id +
			`","action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"l","key":"{{ input.id }}","fields":{"a":1}}` + more + `}`
	}
	flow := s.define(`[{"id":"one","tasks":[` + modify("a", "") + `,` + modify("b", `,"on_error":"continue"`) +
		`]},{"id":"two","tasks":[` + modify("c", "") + `]}]`)
	batch := s.trigger(flow, `{"records":[{"id":"a"}]}`)
	s.doubt(batch, "unresolved")
	assert.Equal(t, "queued", s.resolve(batch, 0, `{"outcome":"accepted"}`)["status"], "the second step comes")
	e := s.execution(batch, 0)
	assert.Equal(t, []string{"completed", "completed", "waiting"}, e.statuses())
	s.doubt(batch, "unknown")
	assert.Equal(t, "completed", s.resolve(batch, 0, `{"outcome":"accepted"}`)["status"])
	assert.Equal(t, "completed", s.get("/flows/batches/" + batch)["status"])

	batch = s.trigger(flow, `{"records":[{"id":"a"}]}`)
	s.doubt(batch, "unknown")
	job := s.resolve(batch, 0, `{"outcome":"rejected"}`)
	assert.Equal(t, "failed", job["status"])
	assert.Equal(t, "a", job["error"].(map[string]any)["task_id"])
	assert.Equal(t, "failed", s.get("/flows/batches/" + batch)["status"])
}

// TestJob_Requeue follows a job into its second run, which is sent.
func TestJob_Requeue(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(uploadSteps), `{"records":[{"id":"a"},{"id":"b"},{"id":"c"}]}`)
	s.doubt(batch, "unresolved")
	s.resolve(batch, 1, `{"outcome":"requeue","note":"lost by them"}`)
	first := s.get("/flows/executions/" + batch + ".1.1")
	assert.Equal(t, []any{"cancelled", 1.0}, []any{first["status"], first["run"]})
	assert.Contains(t, first["error"].(map[string]any)["message"], "lost by them")
	second := s.get("/flows/executions/" + batch + ".1.2")
	assert.Equal(t, []any{"running", 2.0, batch + ".1"}, []any{second["status"], second["run"], second["job_id"]})
	assert.Equal(t, first["completed_at"], second["created_at"])
	assert.Nil(t, second["completed_at"])
	s.Do(http.MethodGet, "/flows/executions/"+batch+".1.3", nil).Detail(http.StatusNotFound, "Execution not found")
	s.Do(http.MethodGet, "/flows/executions/"+batch+".0.2", nil).Detail(http.StatusNotFound, "Execution not found")
	ids := func(filter string, limit int) (out []string) {
		for _, item := range s.pages("/flows/executions?"+filter, limit) {
			out = append(out, strings.TrimPrefix(field[string](t, item, "id"), batch+"."))
		}
		return out
	}
	for limit := 1; limit < 5; limit++ {
		assert.Equal(t, []string{"0.1", "1.1", "1.2", "2.1"}, ids("batch_id="+batch, limit))
		assert.Equal(t, []string{"1.1", "1.2"}, ids("job_id="+batch+".1", limit))
		assert.Equal(t, []string{"2.1", "1.2", "1.1", "0.1"}, ids("order=desc&batch_id="+batch, limit))
		assert.Equal(t, []string{"1.2", "1.1"}, ids("order=desc&job_id="+batch+".1", limit))
		assert.Equal(t, []string{"1.1"}, ids("status=cancelled", limit))
		assert.Equal(t, []string{"0.1", "1.2", "2.1"}, ids("status=running", limit))
	}
	for skip, want := range []string{"0.1", "1.1", "1.2", "2.1"} {
		got := s.get(fmt.Sprintf("/flows/executions?limit=1&skip=%d", skip))["items"].([]any)
		assert.Equal(t, batch+"."+want, got[0].(map[string]any)["id"])
	}
	s.resolve(batch, 0, `{"outcome":"accepted"}`)
	s.resolve(batch, 2, `{"outcome":"accepted"}`)
	s.config.Workers = true
	s.serve() // a process that works, beside the one that answers
	b := s.await(batch)
	assert.Equal(t, map[string]int{"accepted": 3}, counted(b))
	assert.Equal(t, map[string]int{"b": 1}, s.sim.Arrivals("demo"))
	second = s.get("/flows/executions/" + batch + ".1.2")
	assert.Equal(t, "completed", second["status"])
	assert.Equal(t, "cancelled", s.get("/flows/executions/" + batch + ".1.1")["status"])
	assert.Equal(t, 2.0, s.get("/flows/jobs/" + batch + ".1")["attempts"])
}

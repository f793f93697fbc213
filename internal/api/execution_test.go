package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
)

type execution struct {
	Status                 string
	StartedAt, CompletedAt *string
	Error                  map[string]any
	Steps                  []struct {
		ID, Status string
		Tasks      []struct {
			ID, Status string
			Attempts   int
			StartedAt  *string `json:"started_at"`
			Completed  *string `json:"completed_at"`
			Output     json.RawMessage
			Error      map[string]any
		}
	}
}

func (s *stack) execution(batch string, position int) (e execution) {
	s.t.Helper()
	s.Do(http.MethodGet, fmt.Sprintf("/flows/executions/%s.%d.1", batch, position), nil).Want(http.StatusOK).Into(&e)
	return e
}

// statuses lists the statuses of the tasks, step by step.
func (e execution) statuses() (out []string) {
	for _, s := range e.Steps {
		for _, t := range s.Tasks {
			out = append(out, t.Status)
		}
	}
	return out
}

// TestExecution_Path follows records through a request, a change of a record, and a bulk upload beside a transform.
func TestExecution_Path(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "equals", Field: "n",
		Value: []byte("3")}}})
	definition := s.define(`[
		{"id":"fetch","name":"Fetch","tasks":[{"id":"get","action_id":"core__http__request","params":{"url":"SIM{{ input.n == 7 ? \"/nowhere\" : \"/echo\" }}"}}]},
		{"id":"change","tasks":[{"id":"mod","action_id":"dialer__api__modify","credential_id":"CRED","when":"{{ input.n % 2 == 0 }}",
			"params":{"list":"l","key":"{{ input.id }}","fields":{"status":"{{ steps.fetch.get.output.status }}"}}}]},
		{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","on_error":"continue","params":{"list":"demo","row":{"id":"{{ input.id }}","n":"{{ input.n }}"}}},
			{"id":"note","action_id":"core__flow__transform","params":{"value":{"n":"{{ input.n }}"}}}]}]`)
	batch := s.trigger(definition, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(40))))
	b := s.await(batch)
	assert.Equal(t, "partially_failed", b["status"])
	assert.Equal(t, 39.0, b["job_counts"].(map[string]any)["completed"])
	assert.Equal(t, 1.0, b["job_counts"].(map[string]any)["failed"])

	whole := s.execution(batch, 4)
	assert.Equal(t, "completed", whole.Status)
	assert.Equal(t, []string{"completed", "completed", "completed", "completed"}, whole.statuses())
	for _, step := range whole.Steps {
		assert.Equal(t, "completed", step.Status)
		for _, task := range step.Tasks {
			assert.Equal(t, 1, task.Attempts, task.ID)
			assert.NotNil(t, task.StartedAt, task.ID)
			assert.NotNil(t, task.Completed, task.ID)
			assert.NotEqual(t, "null", string(task.Output), task.ID)
		}
	}
	assert.Contains(t, string(whole.Steps[0].Tasks[0].Output), `"status":200`)

	skipped := s.execution(batch, 5)
	assert.Equal(t, "completed", skipped.Status)
	assert.Equal(t, []string{"completed", "skipped", "completed", "completed"}, skipped.statuses())
	assert.Zero(t, skipped.Steps[1].Tasks[0].Attempts)
	assert.Equal(t, "skipped", skipped.Steps[1].Status)

	failed := s.execution(batch, 7)
	assert.Equal(t, "failed", failed.Status)
	assert.Equal(t, []string{"failed", "cancelled", "cancelled", "cancelled"}, failed.statuses())
	assert.Equal(t, "get", failed.Error["task_id"])
	assert.Equal(t, "fetch", failed.Error["step_id"])

	rejected := s.execution(batch, 3)
	assert.Equal(t, "completed", rejected.Status, "its author lets it go on")
	assert.Equal(t, []string{"completed", "skipped", "failed", "completed"}, rejected.statuses())
	assert.NotNil(t, rejected.Steps[2].Tasks[0].Error)
	assert.Nil(t, rejected.Error)

	results := s.pages("/flows/batches/"+batch+"/results", 7)
	require.Len(t, results, 40)
	var result struct{ Output map[string]json.RawMessage }
	require.NoError(t, json.Unmarshal(results[4], &result))
	assert.JSONEq(t, `{"n":4}`, string(result.Output["note"]))
	assert.Contains(t, string(result.Output["up"]), "import_id")
	lines := s.lines("/flows/batches/" + batch + "/results?format=ndjson")
	for i := range lines {
		require.JSONEq(t, string(results[i]), string(lines[i]))
	}
	job := s.get("/flows/jobs/" + batch + ".4")
	assert.Equal(t, 3.0, job["attempts"], "three calls carried it")
}

// TestExecution_UnderWay reads records that wait for a call and records whose call is under way.
func TestExecution_UnderWay(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"modify": {60: 1000, 3600: 1000,
		86400: 1000}}})
	release := s.hold("/upload")
	definition := s.define(uploadSteps)
	batch := s.trigger(definition, `{"input_data":{"id":"a"}}`)
	b := s.until(batch, func(b map[string]any) bool { return b["job_counts"].(map[string]any)["started"] == 1.0 })
	second := s.trigger(definition, `{"input_data":{"id":"b"}}`)
	assert.Equal(t, "running", b["status"])
	e := s.execution(batch, 0)
	assert.Equal(t, "running", e.Status)
	assert.Equal(t, []string{"running"}, e.statuses())
	assert.Equal(t, 1, e.Steps[0].Tasks[0].Attempts)
	assert.NotNil(t, e.Steps[0].Tasks[0].StartedAt)
	assert.Nil(t, e.Steps[0].Tasks[0].Completed)
	job := s.get("/flows/jobs/" + batch + ".0")
	assert.Equal(t, "started", job["status"])
	assert.Equal(t, 1.0, job["attempts"])
	assert.NotNil(t, job["started_at"])
	waiting := s.execution(second, 0)
	assert.Equal(t, "pending", waiting.Status, "the list takes one upload at a time")
	assert.Equal(t, []string{"waiting"}, waiting.statuses())
	assert.Len(t, s.pages("/flows/executions?status=running", 5), 1)
	assert.Len(t, s.pages("/flows/executions?status=pending", 5), 1)

	// A cancelled batch still settles what is under way; what was not sent never will be.
	for _, id := range []string{batch, second} {
		s.Do(http.MethodPost, "/flows/batches/"+id+"/cancel", nil).Want(http.StatusOK)
	}
	assert.Equal(t, "started", s.get("/flows/jobs/" + batch + ".0")["status"])
	assert.Equal(t, "unprocessed", s.get("/flows/jobs/" + second + ".0")["status"])
	release()
	b = s.until(batch, func(b map[string]any) bool { return b["job_counts"].(map[string]any)["accepted"] == 1.0 })
	assert.Equal(t, "cancelled", b["status"])
	assert.Equal(t, "completed", s.execution(batch, 0).Status)
	assert.Equal(t, map[string]int{"a": 1}, s.sim.Arrivals("demo"))
}

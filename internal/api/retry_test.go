package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
)

func (s *stack) retry(batch, body string) (started map[string]any, id string) {
	s.t.Helper()
	started = s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", body).Want(http.StatusOK).JSON()
	return started, started["batch_id"].(string)
}

func (s *stack) number(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.owner.QueryRow(context.WithoutCancel(s.t.Context()), sql, args...).Scan(&n))
	return n
}

const nothingLeft = "No job of the batch can be retried: none has the statuses asked for, " +
	"or their retries are under way, succeeded or may have"

// TestRetry_Rejected retries rows of a bulk call that are scattered over a record set, and reads the sparse batch in
// every way.
func TestRetry_Rejected(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "equals", Field: "bad",
		Value: []byte(`"yes"`)}}})
	rows := rowsOf(700)
	var bad []int
	for i := 5; i < len(rows); i += 100 {
		rows[i] = fmt.Sprintf(`{"id":"k%d","bad":"yes"}`, i)
		bad = append(bad, i)
	}
	set := s.upload(rows)
	batch := s.Do(http.MethodPost, "/flows/definitions/"+s.define(uploadSteps)+"/trigger",
		fmt.Sprintf(`{"record_set_id":%q,"metadata":{"a":1.50}}`, set)).
		Want(http.StatusOK).JSON()["batch_id"].(string)
	require.Equal(t, map[string]int{"accepted": 693, "rejected": 7}, counted(s.await(batch)))
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{}})
	s.sim.AddFault(dialersim.Fault{Kind: "status", Status: 422, Operation: "upload", Probability: 1})

	_, failed := s.retry(batch, `{"job_statuses":["rejected"]}`)
	require.Equal(t, map[string]int{"failed": 7}, counted(s.await(failed)), "refused as a whole")
	s.sim.ClearFaults()
	started, again := s.retry(batch, `{"job_statuses":["failed","rejected"]}`)
	assert.Equal(t, 7.0, started["record_count"])
	assert.Nil(t, started["execution_id"])
	assert.NotNil(t, started["estimate"])
	b := s.await(again)
	assert.Equal(t, map[string]int{"accepted": 7}, counted(b))
	assert.Equal(t, []any{"completed", 100.0, batch, batch, "retry", set}, []any{b["status"], b["progress_percent"],
		b["retry_of"], b["trigger_source"], b["trigger_type"], b["record_set_id"]})
	assert.Equal(t, s.get("/flows/batches/" + batch)["metadata"], b["metadata"])
	assert.Nil(t, s.get("/flows/batches/" + batch)["retry_of"])
	assert.Equal(t, batch, s.get("/data/record-sets/" + set)["batch_id"], "the set stays with its batch")
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", nil).Detail(http.StatusConflict, nothingLeft)
	s.Do(http.MethodPost, "/flows/batches/"+failed+"/retry", nil).Detail(http.StatusConflict, nothingLeft)
	for key, n := range s.sim.Arrivals("demo") {
		want := 1
		if strings.HasSuffix(key, "05") || key == "k5" {
			want = 2 // it was rejected once
		}
		assert.Equal(t, want, n, key)
	}
	s.wantSparse(again, bad, rows)
	assert.Len(t, s.pages("/flows/batches?trigger_type=retry", 1), 2)
}

// wantSparse reads a batch of these positions in every way.
func (s *stack) wantSparse(batch string, positions []int, rows []string) {
	s.t.Helper()
	t := s.t
	results := s.pages("/flows/batches/"+batch+"/results", 2)
	require.Len(t, results, len(positions))
	for i, p := range positions {
		assert.InDelta(t, float64(p), field[float64](t, results[i], "position"), 0)
		job := s.get(fmt.Sprintf("/flows/jobs/%s.%d", batch, p))
		input, err := json.Marshal(job["input_data"])
		require.NoError(t, err)
		assert.JSONEq(t, rows[p], string(input))
		assert.Equal(t, 1.0, job["attempts"])
		s.Do(http.MethodGet, fmt.Sprintf("/flows/jobs/%s.%d", batch, p+1), nil).Detail(http.StatusNotFound,
			"Job not found")
		s.Do(http.MethodGet, fmt.Sprintf("/flows/executions/%s.%d.1", batch, p+1), nil).Detail(http.StatusNotFound,
			"Execution not found")
		assert.Equal(t, "completed", s.execution(batch, p).Status)
		assert.Len(t, s.pages(fmt.Sprintf("/flows/executions?job_id=%s.%d", batch, p), 5), 1)
		for _, list := range []string{"results", "jobs"} {
			path := "/flows/batches/" + batch + "/results?"
			if list == "jobs" {
				path = "/flows/jobs?batch_id=" + batch + "&"
			}
			page := s.get(fmt.Sprintf("%sskip=%d&limit=1", path, i))["items"].([]any)
			assert.Contains(t, fmt.Sprint(page[0]), fmt.Sprintf("%s.%d", batch, p), "%s skip %d", list, i)
		}
		lines := s.lines(fmt.Sprintf("/flows/batches/%s/results?format=ndjson&skip=%d", batch, i))
		require.Len(t, lines, len(positions)-i)
		assert.JSONEq(t, string(results[i]), string(lines[0]))
	}
	assert.Empty(t, s.lines(fmt.Sprintf("/flows/batches/%s/results?format=ndjson&skip=%d", batch, len(positions))))
	for _, path := range []string{"/flows/jobs?batch_id=" + batch, "/flows/jobs?status=accepted&batch_id=" + batch,
		"/flows/executions?status=completed&batch_id=" + batch} {
		assert.Len(t, s.pages(path, 3), len(positions), path)
	}
}

// TestRetry_Resumes: records go on at the step that failed, with the outputs of all steps before, however often they
// are retried.
func TestRetry_Resumes(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	definition := s.define(`[
		{"id":"make","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":{"n":"{{ input.n }}"}}}]},
		{"id":"change","tasks":[
			{"id":"a","action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"la","key":"{{ input.id }}","fields":{"n":"{{ steps.make.t.output.n }}"}}},
			{"id":"b","action_id":"core__http__request","params":{"method":"POST","url":"SIM/echo","body":{"n":"{{ steps.make.t.output.n }}"}}}]},
		{"id":"send","tasks":[{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED",
			"params":{"list":"demo","key_field":"id","row":{"id":"{{ input.id }}","n":"{{ steps.make.t.output.n }}","same":"{{ 1 / (steps.make.t.output.n == input.n ? 1 : 0) }}","s":"{{ steps.change.b.output.status }}"}}}]}]`)
	s.sim.AddFault(dialersim.Fault{Kind: "status", Status: 422, Operation: "modify", Count: 300})
	batch := s.trigger(definition, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(300))))
	require.Equal(t, map[string]int{"failed": 300}, counted(s.await(batch)))

	s.sim.AddFault(dialersim.Fault{Kind: "status", Status: 422, Operation: "modify", Count: 40})
	_, second := s.retry(batch, "")
	counts := counted(s.await(second))
	require.Equal(t, map[string]int{"failed": 40, "accepted": 260}, counts)
	s.sim.AddFault(dialersim.Fault{Kind: "status", Status: 422, Operation: "upload", Probability: 1})
	_, third := s.retry(second, "")
	require.Equal(t, map[string]int{"failed": 40}, counted(s.await(third)), "in however many calls they went")
	s.sim.ClearFaults()
	_, fourth := s.retry(batch, "") // of the first: it goes on where the third left it
	require.Equal(t, map[string]int{"accepted": 40}, counted(s.await(fourth)))

	for list, kind := range map[string]dialersim.Kind{"la": dialersim.KindModify, "demo": dialersim.KindUpload} {
		arrived := s.sim.ArrivalsOf("", list, kind)
		assert.Len(t, arrived, 300, list)
		for key, n := range arrived {
			assert.Equal(t, 1, n, "%s in %s", key, list)
		}
	}
	assert.Zero(t, s.number(`SELECT count(*) FROM flow.all_fragments WHERE batch_id = ANY($1) AND step_no = 0`,
		[]string{second, third, fourth}), "the first step is not done again")
	assert.Zero(t, s.number(`SELECT count(*) FROM flow.all_fragments WHERE batch_id = ANY($1) AND step_no = 1 AND task_no = 1`, []string{second, third, fourth}), "nor the task that came out well")
	position := int(field[float64](t, s.pages("/flows/batches/"+fourth+"/results", 50)[7], "position"))
	e := s.execution(fourth, position)
	assert.Equal(t, []string{"completed", "completed", "completed", "completed"}, e.statuses())
	assert.JSONEq(t, fmt.Sprintf(`{"n":%d}`, position), string(e.Steps[0].Tasks[0].Output))
	assert.Contains(t, string(e.Steps[1].Tasks[1].Output), `"status":200`)
	job := s.get(fmt.Sprintf("/flows/jobs/%s.%d", fourth, position))
	assert.Equal(t, 1.0, job["attempts"], "calls of this batch")
	assert.GreaterOrEqual(t, job["started_at"], job["created_at"])
}

// TestRetry_Outputs: of a step that a retry goes on in, outputs show what earlier batches did, and attempts what it did
// itself. Its records are scattered over theirs, so that each lies elsewhere in a slice of every batch.
func TestRetry_Outputs(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	refuse := func(field string) {
		s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "equals", Field: field,
			Value: []byte(`"yes"`)}}})
	}
	rows := rowsOf(600)
	var worse []int
	for i := 3; i < len(rows); i += 7 {
		rows[i] = fmt.Sprintf(`{"id":"k%d","n":%d,"bad":"yes"}`, i, i)
		if i%2 == 1 {
			rows[i] = fmt.Sprintf(`{"id":"k%d","n":%d,"bad":"yes","worse":"yes"}`, i, i)
			worse = append(worse, i)
		}
	}
	refuse("bad")
	batch := s.trigger(s.define(`[{"id":"make","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":{"n":"{{ input.n }}"}}}]},
		{"id":"send","tasks":[
			{"id":"echo","action_id":"core__flow__transform","params":{"value":{"made":"{{ steps.make.t.output.n }}"}}},
			{"id":"up","action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","row":"{{ input }}"}}]}]`),
		fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rows)))
	require.Equal(t, map[string]int{"completed": 514, "rejected": 86}, counted(s.await(batch)))
	refuse("worse")
	_, second := s.retry(batch, "")
	require.Equal(t, map[string]int{"completed": 43, "rejected": 43}, counted(s.await(second)))
	refuse("none")
	_, third := s.retry(second, "")
	require.Equal(t, map[string]int{"completed": 43}, counted(s.await(third)))

	assert.Zero(t, s.number(`SELECT count(*) FROM flow.all_fragments WHERE batch_id = ANY($1) AND (step_no, task_no) <> (1, 1)`, []string{second, third}), "nothing is done twice")
	type listed struct {
		Position int
		JobID    string `json:"job_id"`
		ID       string
		Attempts int
		Output   map[string]map[string]any
	}
	read := func(name string, items []json.RawMessage) {
		require.Len(t, items, len(worse), name)
		for i, item := range items {
			var got listed
			require.NoError(t, json.Unmarshal(item, &got))
			at := fmt.Sprintf("%s: %s", name, item)
			assert.Contains(t, got.JobID+got.ID, fmt.Sprintf("%s.%d", third, worse[i]), at)
			assert.InDelta(t, float64(worse[i]), got.Output["echo"]["made"], 0, at)
			assert.NotEmpty(t, got.Output["up"], at)
			if name != "results" {
				assert.Equal(t, 1, got.Attempts, at)
			}
		}
	}
	read("results", s.pages("/flows/batches/"+third+"/results", 10))
	read("results", s.lines("/flows/batches/"+third+"/results?format=ndjson"))
	read("jobs", s.pages("/flows/jobs?batch_id="+third, 10))
	for _, e := range s.pages("/flows/executions?batch_id="+third, 10) {
		assert.Equal(t, "completed", field[string](t, e, "status"))
	}
}

// TestRetry_Unprocessed: what was never sent costs a few rows for a thousand records, and can be cancelled and retried
// again.
func TestRetry_Unprocessed(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(5000))))
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", nil).Detail(http.StatusConflict,
		"Batch is queued; only a batch that is over can be retried")
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", `{"job_statuses":["failed","rejected"]}`).Detail(
		http.StatusConflict, nothingLeft)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", `{"job_statuses":["done"],"why":1}`).Invalid(
		"body.job_statuses.0 enum", "body.why extra_forbidden")
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", `{"job_statuses":[]}`).Invalid(
		"body.job_statuses too_short")
	s.other.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", nil).Detail(http.StatusNotFound, "Batch not found")

	started, again := s.retry(batch, "")
	assert.Equal(t, []any{5000.0, "queued"}, []any{started["record_count"], started["status"]})
	assert.Equal(t, map[string]int{"queued": 5000}, counted(s.get("/flows/batches/"+again)))
	assert.Equal(t, 20, s.number("SELECT count(*) FROM flow.slice WHERE batch_id = $1", again))
	assert.Equal(t, 1, s.number("SELECT count(*) FROM flow.part WHERE batch_id = $1", again))
	assert.Zero(t, s.number("SELECT count(*) FROM flow.job WHERE batch_id = $1", again))
	assert.Len(t, s.pages("/flows/executions?status=pending&batch_id="+again, 2000), 5000)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", nil).Detail(http.StatusConflict, nothingLeft)

	s.doubt(again, "unresolved")
	s.resolve(again, 3, `{"outcome":"accepted"}`)
	s.resolve(again, 4, `{"outcome":"rejected"}`)
	s.Do(http.MethodPost, "/flows/batches/"+again+"/cancel", nil).Want(http.StatusOK)
	_, third := s.retry(batch, "")
	b := s.get("/flows/batches/" + third)
	assert.Equal(t, 1.0, b["record_count"], "all others may have arrived")
	assert.Equal(t, third+".4", field[string](t, s.pages("/flows/jobs?batch_id="+third, 5)[0], "id"))
	s.Do(http.MethodPost, "/flows/batches/"+third+"/cancel", nil).Want(http.StatusOK)
	started, fourth := s.retry(third, "")
	assert.Equal(t, fourth+".4.1", started["execution_id"])
	s.Do(http.MethodPost, "/flows/batches/"+fourth+"/cancel", nil).Want(http.StatusOK)
	s.Do(http.MethodDelete, "/flows/definitions/"+b["definition_id"].(string), nil).Want(http.StatusNoContent)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", nil).Detail(http.StatusConflict,
		"The definition of the batch was deleted; start its records with another one")
}

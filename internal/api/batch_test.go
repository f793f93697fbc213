package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
)

// TestBatch_Upload runs the main job with rows that the platform rejects, and reads it in every way.
func TestBatch_Upload(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "equals", Field: "bad",
		Value: []byte(`"yes"`), Code: "BAD_ROW", Reason: "Row is \"bad\", sir"}}})
	rows := rowsOf(700)
	for i := 5; i < len(rows); i += 100 {
		rows[i] = fmt.Sprintf(`{"id":"k%d","n":1.50,"bad":"yes"}`, i)
	}
	set := s.upload(rows)
	definition := s.define(uploadSteps)
	started := s.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger",
		fmt.Sprintf(`{"record_set_id":%q,"metadata":{"b":1,"a":2.0}}`, set)).Want(http.StatusOK).JSON()
	assert.Nil(t, started["execution_id"])
	assert.Equal(t, "queued", started["status"])
	assert.Equal(t, 700.0, started["record_count"])
	estimate := started["estimate"].(map[string]any)
	assert.Equal(t, 1.0, estimate["estimated_calls"])
	assert.Equal(t, 0.0, estimate["queued_estimated_calls"], "the batch itself is not queued before itself")
	batch := started["batch_id"].(string)

	b := s.await(batch)
	assert.Equal(t, "partially_failed", b["status"])
	assert.Equal(t, 100.0, b["progress_percent"])
	assert.Equal(t, set, b["record_set_id"])
	assert.Equal(t, 693.0, b["job_counts"].(map[string]any)["accepted"])
	assert.Equal(t, 7.0, b["job_counts"].(map[string]any)["rejected"])
	assert.Equal(t, batch, s.get("/data/record-sets/" + set)["batch_id"])

	path := "/flows/batches/" + batch + "/results"
	all := s.pages(path, 100)
	require.Len(t, all, 700)
	for i, item := range all {
		require.Equal(t, float64(i), field[float64](t, item, "position"))
	}
	assert.JSONEq(t, fmt.Sprintf(`{"position":105,"job_id":"%s.105","key":null,"status":"rejected","output":null,"error":{"code":"record_rejected",
		"message":"The provider rejected the record","step_id":"send","task_id":"up",
		"provider_status":null,"provider_code":"BAD_ROW","provider_message":"Row is \"bad\", sir"},
		"skipped_tasks":[]}`, batch), string(all[105]))
	for _, filter := range []string{"", "status=rejected", "status=accepted", "status=failed", "skip=10", "skip=700",
		"status=rejected&skip=3", "status=accepted&skip=498"} {
		lines := s.lines(path + "?format=ndjson&" + filter)
		if !strings.Contains(filter, "skip") {
			paged := s.pages(path+"?"+filter, 3)
			require.Len(t, lines, len(paged), filter)
			for i := range lines {
				require.JSONEq(t, string(paged[i]), string(lines[i]))
			}
			continue
		}
		var one struct{ Items []any }
		s.Do(http.MethodGet, path+"?limit=50000&"+filter, nil).Want(http.StatusOK).Into(&one)
		require.Len(t, lines, len(one.Items), filter)
	}

	for range 20 { // each gives its place back
		require.Len(t, s.lines(path+"?format=ndjson&status=rejected"), 7)
	}

	table := s.table(path + "?format=csv&skip=104")
	require.Len(t, table, 1+700-104)
	assert.Equal(t, []string{"position", "job_id", "status", "output", "error_code", "error_message",
		"step_id", "task_id", "provider_status", "provider_code", "provider_message", "skipped_tasks", "key"}, table[0])
	assert.Equal(t, []string{"104", batch + ".104", "accepted"}, table[1][:3])
	assert.Contains(t, table[1][3], `{"import_id":"`)
	assert.Equal(t, []string{"105", batch + ".105", "rejected", "", "record_rejected",
		"The provider rejected the record",
		"send", "up", "", "BAD_ROW", `Row is "bad", sir`, "", ""}, table[2])
	assert.Len(t, s.table(path+"?format=csv&status=rejected"), 1+7)
	assert.Len(t, s.table(path+"?format=csv&status=failed"), 1)

	jobs := s.pages("/flows/jobs?status=rejected", 2)
	require.Len(t, jobs, 7)
	assert.Contains(t, string(jobs[0]), `"input_data":{"id":"k5","n":1.50,"bad":"yes"}`, "digit for digit")
	assert.Equal(t, 1.0, field[float64](t, jobs[0], "attempts"))
	job := s.Do(http.MethodGet, "/flows/jobs/"+batch+".5", nil).Want(http.StatusOK)
	assert.JSONEq(t, string(jobs[0]), string(job.Body))

	require.Len(t, s.pages("/flows/executions?status=failed", 5), 7)
	require.Len(t, s.pages("/flows/executions?status=completed&batch_id="+batch, 300), 693)
	require.Empty(t, s.pages("/flows/executions?status=running", 5))
	one := s.pages("/flows/executions?job_id="+batch+".5", 5)
	require.Len(t, one, 1)
	e := s.get("/flows/executions/" + batch + ".5.1")
	step := e["steps"].([]any)[0].(map[string]any)
	task := step["tasks"].([]any)[0].(map[string]any)
	assert.Equal(t, "failed", step["status"])
	assert.Equal(t, "failed", task["status"])
	assert.Equal(t, 1.0, task["attempts"])
	assert.Equal(t, "BAD_ROW", task["error"].(map[string]any)["provider_code"])
	assert.NotNil(t, task["started_at"])
	assert.NotNil(t, task["completed_at"])
	assert.NotEmpty(t, inside(s.get("/flows/executions/"+batch+".6.1"),
		"steps", 0, "tasks", 0, "output", "import_id"))

	head := s.get("/platforms/dialer/domains/" + s.tenancy + "/headroom")
	assert.NotNil(t, head["as_of"])
	_, err := s.owner.Exec(t.Context(), "DELETE FROM flow.call")
	assert.NoError(t, err)
	assert.NotNil(t, s.get("/platforms/dialer/domains/" + s.tenancy + "/headroom")["as_of"],
		"windows tell of calls that are gone")
	day := inside(head, "buckets", "upload", "windows", "86400").(map[string]any)
	assert.Equal(t, 1.0, day["used"])
	assert.Equal(t, day["cap"].(float64)-1, day["remaining"])
}

func TestBatch_List(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	first, second := s.define(transformSteps), s.define(uploadSteps)
	var ids []string
	for i := range 7 {
		definition := first
		if i%3 == 0 {
			definition = second
		}
		ids = append(ids, s.trigger(definition, `{"input_data":{"n":1}}`))
	}
	s.Do(http.MethodPost, "/flows/batches/"+ids[1]+"/cancel", nil).Want(http.StatusOK)
	list := func(filter string) (out []string) {
		for _, item := range s.pages("/flows/batches?"+filter, 2) {
			out = append(out, field[string](t, item, "id"))
		}
		return out
	}
	assert.Equal(t, ids, list(""))
	assert.Equal(t, []string{ids[0], ids[3], ids[6]}, list("definition_id="+second))
	assert.Equal(t, ids[1:2], list("status=cancelled"))
	assert.Len(t, list("status=queued&trigger_type=api_call"), 6)
	for _, empty := range []string{"trigger_type=webhook", "definition_id=x", "schedule_id=" + ids[0], "schedule_id=",
		"status=failed"} {
		assert.Empty(t, list(empty), empty)
	}
	assert.Len(t, s.pages("/flows/jobs", 2), 7, "every batch has one job")
	assert.Len(t, s.pages("/flows/jobs?status=unprocessed", 2), 1)
	assert.Len(t, s.pages("/flows/jobs?batch_id="+ids[2], 2), 1)
	var skipped struct{ Items []struct{ ID string } }
	s.Do(http.MethodGet, "/flows/jobs?skip=4&limit=2", nil).Want(http.StatusOK).Into(&skipped)
	assert.Equal(t, ids[4]+".0", skipped.Items[0].ID)

	cursor := s.get("/flows/batches?limit=2")["next_cursor"].(string)
	s.Do(http.MethodGet, "/flows/batches?status=queued&cursor="+cursor, nil).Detail(http.StatusBadRequest,
		"Invalid cursor")
	s.Do(http.MethodGet, "/flows/jobs?cursor="+cursor, nil).Detail(http.StatusBadRequest, "Invalid cursor")
	s.Do(http.MethodGet, "/flows/batches?skip=1&cursor="+cursor, nil).Invalid("query.skip value_error")
	s.Do(http.MethodGet, "/flows/batches?status=done&limit=0", nil).Invalid("query.limit greater_than_equal",
		"query.status enum")
}

func TestBatch_Cancel(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	definition := s.define(uploadSteps)
	batch := s.trigger(definition, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(600))))
	b := s.get("/flows/batches/" + batch)
	assert.Equal(t, 600.0, b["job_counts"].(map[string]any)["queued"])
	assert.Equal(t, 0.0, b["progress_percent"])
	require.Len(t, s.pages("/flows/executions?status=pending", 500), 600)

	path := "/flows/batches/" + batch + "/cancel"
	s.Do(http.MethodPost, path, fmt.Sprintf(`{"reason":%q}`, strings.Repeat("x", 501))).Invalid(
		"body.reason string_too_long")
	s.Do(http.MethodPost, path, `{"why":1}`).Invalid("body.why extra_forbidden")
	b = s.Do(http.MethodPost, path, `{"reason":"wrong list"}`).Want(http.StatusOK).JSON()
	assert.Equal(t, "cancelled", b["status"])
	assert.Equal(t, "wrong list", b["status_reason"])
	assert.Equal(t, 600.0, b["job_counts"].(map[string]any)["unprocessed"])
	assert.Equal(t, 100.0, b["progress_percent"])
	assert.NotNil(t, b["completed_at"])
	s.Do(http.MethodPost, path, nil).Detail(http.StatusConflict, "Batch is already cancelled")

	jobs := s.pages("/flows/jobs?status=unprocessed", 500)
	require.Len(t, jobs, 600)
	assert.Equal(t, 0.0, field[float64](t, jobs[599], "attempts"))
	assert.Empty(t, s.pages("/flows/jobs?status=queued", 500))
	assert.Len(t, s.lines("/flows/batches/"+batch+"/results?format=ndjson&status=unprocessed"), 600)
	executions := s.pages("/flows/executions?status=cancelled", 500)
	require.Len(t, executions, 600)
	e := s.get("/flows/executions/" + batch + ".599.1")
	assert.Nil(t, e["started_at"])
	assert.Equal(t, b["completed_at"], e["completed_at"])
	assert.Equal(t, "cancelled", e["steps"].([]any)[0].(map[string]any)["tasks"].([]any)[0].(map[string]any)["status"])
}

func TestBatch_Scheduled(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	definition := s.define(transformSteps)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	batch := s.trigger(definition, fmt.Sprintf(`{"records":[{"n":1},{"n":2}],"scheduled_at":%q}`,
		at.Format(time.RFC3339)))
	b := s.get("/flows/batches/" + batch)
	assert.Equal(t, at.Format(time.RFC3339), b["scheduled_at"])
	assert.Equal(t, 2.0, b["job_counts"].(map[string]any)["staged"])
	assert.Len(t, s.pages("/flows/jobs?status=staged", 1), 2)
	assert.Len(t, s.pages("/flows/executions?status=pending", 1), 2)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	assert.Len(t, s.pages("/flows/jobs?status=unprocessed", 1), 2)
}

// TestBatch_Foreign: another organization sees nothing of a batch.
func TestBatch_Foreign(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(transformSteps), `{"input_data":{"n":1}}`)
	for path, detail := range map[string]string{
		"/flows/batches/" + batch:                              "Batch not found",
		"/flows/batches/" + batch + "/results":                 "Batch not found",
		"/flows/batches/" + batch + "/results?format=ndjson":   "Batch not found",
		"/flows/jobs/" + batch + ".0":                          "Job not found",
		"/flows/executions/" + batch + ".0.1":                  "Execution not found",
		"/platforms/dialer/domains/" + s.tenancy:               "Domain not found",
		"/platforms/dialer/domains/" + s.tenancy + "/headroom": "Domain not found",
	} {
		s.other.Do(http.MethodGet, path, nil).Detail(http.StatusNotFound, detail)
		s.Do(http.MethodGet, path, nil).Want(http.StatusOK)
	}
	s.other.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Detail(http.StatusNotFound, "Batch not found")
	s.other.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits",
		nil).Detail(http.StatusNotFound, "Domain not found")
	s.other.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate",
		`{"bucket":"upload","record_count":1}`).Detail(http.StatusNotFound, "Domain not found")
	for _, list := range []string{"/flows/batches", "/flows/jobs", "/flows/jobs?batch_id=" + batch,
		"/flows/executions?job_id=" + batch + ".0", "/platforms/dialer/domains"} {
		assert.Zero(t, s.other.Do(http.MethodGet, list, nil).Want(http.StatusOK).JSON()["total"], list)
	}
	for _, id := range []string{"x", batch, batch + ".1", batch + ".00", batch + ".-1", batch + ".0.1",
		strings.ToUpper(batch) + ".0", batch + ".99999999999999999999"} {
		s.Do(http.MethodGet, "/flows/jobs/"+id, nil).Detail(http.StatusNotFound, "Job not found")
	}
	for _, id := range []string{batch + ".0", batch + ".0.2", batch + ".0.01", batch + ".1.1"} {
		s.Do(http.MethodGet, "/flows/executions/"+id, nil).Detail(http.StatusNotFound, "Execution not found")
	}
	assert.Equal(t, "queued", s.get("/flows/batches/" + batch)["status"])
}

package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// waitDetached starts a batch of which every record waits for a time of its own, hence is detached, and returns it with
// the marks of the rows of its jobs.
func (s *stack) waitDetached(fields string, records int) (batch, marks string) {
	s.t.Helper()
	flow := s.defineWith(fields,
		`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__delay","params":{"seconds":"{{ 3600 + input.n }}"}}]},
		{"id":"last","tasks":[{"id":"u","action_id":"core__flow__transform","params":{"value":"{{ input.n }}"}}]}]`)
	batch = s.trigger(flow, `{"records":[`+strings.Join(rowsOf(records), ",")+`]}`)
	s.settle(func() bool { return s.count("flow.wait WHERE batch_id = $1", batch) == records })
	return batch, s.marks(batch)
}

// marks say which version of the rows of its jobs a batch has.
func (s *stack) marks(batch string) (marks string) {
	s.t.Helper()
	require.NoError(s.t, s.owner.QueryRow(s.t.Context(),
		"SELECT coalesce(string_agg(ctid || ' ' || xmin, ',' ORDER BY position), '') FROM flow.job WHERE batch_id = $1",
		batch).Scan(&marks))
	return marks
}

// TestCancel_Detached: a cancel costs the same however many records are detached: it touches no row of theirs. Every
// reader shows them as unprocessed since then, and a retry works on them.
func TestCancel_Detached(t *testing.T) {
	t.Parallel()
	const records = 300
	s := serveStack(t, true)
	batch, marks := s.waitDetached(`"description":"d"`, records)
	require.NotEmpty(t, marks)
	cancelled := s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK).JSON()
	assert.Equal(t, marks, s.marks(batch), "no row of a job is touched")
	assert.Equal(t, map[string]int{"unprocessed": records}, counted(cancelled))
	for path, n := range map[string]int{
		"/flows/jobs?batch_id=" + batch + "&status=unprocessed": records, "/flows/jobs?batch_id=" + batch +
			"&status=queued": 0,
		"/flows/executions?batch_id=" + batch + "&status=cancelled": records, "/flows/executions?batch_id=" + batch +
			"&status=running": 0,
		"/flows/batches/" + batch + "/results?status=unprocessed": records,
	} {
		assert.Len(t, s.pages(path, 100), n, path)
	}
	assert.Len(t, s.lines("/flows/batches/"+batch+"/results?format=ndjson&status=unprocessed"), records)
	job := s.get("/flows/jobs/" + batch + ".7")
	assert.Equal(t, []any{"unprocessed", cancelled["completed_at"]}, []any{job["status"], job["updated_at"]})
	execution := s.get("/flows/executions/" + batch + ".7.1")
	assert.Equal(t, []any{"cancelled", cancelled["completed_at"]}, []any{execution["status"],
		execution["completed_at"]})
	stream := openStream(t, s.Client, batch+".7.1", "token="+streamToken(s.Client, ""))
	assert.Equal(t, "execution.closed", stream.all()[1].name)
	s.Do(http.MethodPost, "/flows/jobs/"+batch+".7/resolve", `{"outcome":"accepted"}`).
		Detail(http.StatusConflict,
			"Job is unprocessed; only a job that is needs_reconcile or unresolved can be resolved")
	s.settle(func() bool { return s.count("flow.wait WHERE batch_id = $1", batch) == 0 })

	started, again := s.retry(batch, `{"job_statuses":["unprocessed"]}`)
	assert.EqualValues(t, records, started["record_count"])
	s.settle(func() bool { return s.count("flow.wait WHERE batch_id = $1", again) == records })
	assert.Equal(t, map[string]int{"queued": records}, counted(s.get("/flows/batches/"+again)))
}

// TestThreshold_Detached: so does a failure threshold.
func TestThreshold_Detached(t *testing.T) {
	t.Parallel()
	const records = 300
	s := serveStack(t, true)
	flow := s.defineWith(`"failure_threshold":{"count":0}`,
		`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__delay",
			"params":{"seconds":"{{ input.n == 0 ? 1 : 3600 + input.n }}"}}]},
		{"id":"last","tasks":[{"id":"u","action_id":"core__flow__fail","params":{"message":"no"}}]}]`)
	batch := s.trigger(flow, `{"records":[`+strings.Join(rowsOf(records), ",")+`]}`)
	stopped := s.await(batch)
	assert.Equal(t, map[string]int{"failed": 1, "unprocessed": records - 1}, counted(stopped))
	assert.Equal(t, records-1, s.count("flow.job WHERE batch_id = $1 AND status = 'queued'", batch),
		"no row of the others is touched")
	assert.Len(t, s.pages("/flows/jobs?batch_id="+batch+"&status=unprocessed", 100), records-1)
}

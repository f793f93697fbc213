package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/platform/provider/dialersim"
)

// defineWith makes an active definition of these steps with more fields, as JSON members.
func (s *stack) defineWith(fields, steps string) (id string) {
	s.t.Helper()
	steps = strings.NewReplacer("CRED", s.credential, "SIM", s.simURL).Replace(steps)
	return s.Do(http.MethodPost, "/flows/definitions", fmt.Sprintf(`{"name":"flow","status":"active",%s,"steps":%s}`,
		fields, steps)).
		Want(http.StatusCreated).JSON()["id"].(string)
}

func TestDefinitions_FailureThreshold(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	body := func(threshold string) string {
		return fmt.Sprintf(`{"name":"f","failure_threshold":%s,"steps":%s}`, threshold, transformSteps)
	}
	for _, tt := range []struct {
		threshold string
		wrong     []string
	}{
		{`{}`, []string{"body.failure_threshold value_error"}},
		{`{"count":null}`, []string{"body.failure_threshold value_error"}},
		{`{"count":1,"percent":2}`, []string{"body.failure_threshold value_error"}},
		{`{"count":-1}`, []string{"body.failure_threshold.count greater_than_equal"}},
		{`{"percent":100.5}`, []string{"body.failure_threshold.percent less_than_equal"}},
		{`{"count":"1","also":2}`, []string{"body.failure_threshold.also extra_forbidden",
			"body.failure_threshold.count int_type"}},
	} {
		s.Do(http.MethodPost, "/flows/definitions", body(tt.threshold)).Invalid(tt.wrong...)
	}
	assert.Nil(t, s.Do(http.MethodPost, "/flows/definitions",
		body("null")).Want(http.StatusCreated).JSON()["failure_threshold"])
	made := s.Do(http.MethodPost, "/flows/definitions", body(`{"percent":2.5}`)).Want(http.StatusCreated).JSON()
	assert.Equal(t, map[string]any{"count": nil, "percent": 2.5}, made["failure_threshold"])
	path := "/flows/definitions/" + made["id"].(string)
	assert.Equal(t, made["failure_threshold"], s.Do(http.MethodPut, path,
		made).Want(http.StatusOK).JSON()["failure_threshold"], "what was read can be sent back")
	assert.Equal(t, made["failure_threshold"], s.get(path + "/versions/2")["failure_threshold"])
	assert.Equal(t, 25.0, s.Do(http.MethodPost, path+"/dry-run", `{"record_count":1001}`).Want(
		http.StatusOK).JSON()["allowed_failures"])
	warnings := s.Do(http.MethodPost, "/flows/definitions/validate", body(`{"percent":100}`)).Want(
		http.StatusOK).JSON()["warnings"]
	assert.Len(t, warnings, 1)
}

// TestThreshold_Stops fails many records at a provider: the batch stops past the threshold, and says so everywhere.
func TestThreshold_Stops(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	def := s.defineWith(`"failure_threshold":{"percent":1}`,
		`[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request",
		"params":{"url":"SIM{{ input.n % 2 == 0 ? \"/nowhere\" : \"/echo\" }}"}}]},
		{"id":"last","tasks":[{"id":"t2","action_id":"core__flow__transform","params":{"value":1}}]}]`)
	batch := s.trigger(def, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(3000))))
	b := s.await(batch)
	counts := b["job_counts"].(map[string]any)
	assert.Equal(t, "failed", b["status"], "although some records came through")
	assert.Equal(t, "Stopped by its failure threshold: more than 30 of 3000 jobs failed", b["status_reason"])
	assert.Equal(t, 100.0, b["progress_percent"])
	failed, unprocessed := counts["failed"].(float64), counts["unprocessed"].(float64)
	assert.Greater(t, failed, 30.0)
	assert.Less(t, failed, 600.0, "no more than were in calls under way")
	assert.Equal(t, 3000.0, failed+unprocessed+counts["completed"].(float64))
	for _, status := range []string{"failed", "unprocessed", "completed"} {
		assert.Len(t, s.pages("/flows/jobs?batch_id="+batch+"&status="+status, 1000), int(counts[status].(float64)),
			status)
		assert.Len(t, s.lines("/flows/batches/"+batch+"/results?format=ndjson&status="+status),
			int(counts[status].(float64)), status)
	}
	assert.Empty(t, s.pages("/flows/executions?status=running&batch_id="+batch, 1000))
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusConflict)
}

// TestThreshold_Exact fails records without a call: exactly one more than is allowed fails.
func TestThreshold_Exact(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	for _, task := range []string{
		`"action_id":"core__flow__fail","params":{"message":"no"}`,
		`"action_id":"core__http__request","params":{"url":"https://{{ input.none }}"}`,
		`"action_id":"dialer__api__upload","credential_id":"CRED","params":{"list":"demo","key_field":"id","row":{"id":"{{ 1 / input.zero }}"}}`,
	} {
		def := s.defineWith(`"failure_threshold":{"count":7}`, `[{"id":"s","tasks":[{"id":"t",`+task+`}]}]`)
		b := s.await(s.trigger(def, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(900)))))
		counts := b["job_counts"].(map[string]any)
		assert.Equal(t, []any{"failed", 8.0, 892.0}, []any{b["status"], counts["failed"], counts["unprocessed"]}, task)
	}
	def := s.defineWith(`"failure_threshold":{"count":7}`,
		`[{"id":"s","tasks":[{"id":"t","action_id":"core__flow__fail","when":"{{ input.n < 7 }}","params":{"message":"no"}}]}]`)
	b := s.await(s.trigger(def, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(900)))))
	assert.Equal(t, []any{"partially_failed", nil}, []any{b["status"], b["status_reason"]}, "as many as are allowed")
}

// TestThreshold_Open keeps a record open whose outcome only a person can tell: the batch is stopped, but not over.
func TestThreshold_Open(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "dial"})
	def := s.defineWith(`"failure_threshold":{"count":1}`, `[
		{"id":"call","tasks":[{"id":"dial","action_id":"dialer__api__dial","credential_id":"CRED","when":"{{ input.n == 0 }}","params":{"number":"+420123456789","campaign":"c"}}]},
		{"id":"next","tasks":[{"id":"stop","action_id":"core__flow__fail","params":{"message":"no"}}]}]`)
	pad := strings.Repeat("x", 40<<10) // one record a slice: the others do not wait for it
	rows := make([]string, 6)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"n":%d,"pad":%q}`, i, pad)
	}
	batch := s.trigger(def, `{"records":[`+strings.Join(rows, ",")+`]}`)
	b := s.until(batch, func(b map[string]any) bool {
		counts := b["job_counts"].(map[string]any)
		return b["status_reason"] != nil && counts["unresolved"] == 1.0
	})
	counts := b["job_counts"].(map[string]any)
	assert.Equal(t, []any{"running", nil, 2.0, 3.0}, []any{b["status"], b["completed_at"], counts["failed"],
		counts["unprocessed"]})
	assert.Len(t, s.pages("/flows/jobs?status=unprocessed&batch_id="+batch, 10), 3)
	b = s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK).JSON()
	assert.Equal(t, "cancelled", b["status"])
	assert.Contains(t, b["status_reason"], "failure threshold")
}

package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type bulkResult struct {
	Matched, Done, Refused, Left int
	Batches                      []struct {
		BatchID string `json:"batch_id"`
		Outcome string
		Detail  *string
		Started *string `json:"started_batch_id"`
	}
	Next *string `json:"next_cursor"`
}

// bulk changes batches that a filter means; rest are further fields of the body.
func (s *stack) bulk(action, filter, rest string) (out bulkResult) {
	s.t.Helper()
	body := fmt.Sprintf(`{"action":%q,"filter":%s%s}`, action, filter, rest)
	s.Do(http.MethodPost, "/flows/batches/bulk", body).Want(http.StatusOK).Into(&out)
	return out
}

// statuses are those of batches.
func (s *stack) statuses(batches []string) (all []string) {
	s.t.Helper()
	for _, id := range batches {
		all = append(all, s.get("/flows/batches/" + id)["status"].(string))
	}
	return all
}

// TestBulk_Filter: nothing is done without a filter, without the right number, or to what another organization has.
func TestBulk_Filter(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	batches := []string{s.trigger(flow, "{}"), s.trigger(flow, "{}")}
	path, filter := "/flows/batches/bulk", `{"definition_id":"`+flow+`"}`
	unprocessable := s.Do(http.MethodPost, path, `{"action":"cancel","filter":{},"expected_count":2}`).Want(
		http.StatusUnprocessableEntity)
	assert.Contains(t, string(unprocessable.Body), "Must have at least 1 of its fields")
	assert.Equal(t, bulkResult{Matched: 2, Left: 2, Batches: s.bulk("cancel", filter, "").Batches},
		s.bulk("cancel", filter, ""), "without a number nothing is done")
	for _, n := range []int{1, 3} {
		s.Do(http.MethodPost, path, fmt.Sprintf(`{"action":"cancel","filter":%s,"expected_count":%d}`, filter, n)).
			Detail(http.StatusConflict, fmt.Sprintf("2 batches are meant, not %d; look at them again", n))
	}
	ids := `{"ids":["` + strings.Join(batches, `","`) + `"]}`
	other := *s
	other.Client = s.other
	for _, f := range []string{filter, ids, `{"ids":["x"]}`, `{"definition_id":"x"}`, `{"schedule_id":"` + flow +
		`"}`} {
		assert.Zero(t, other.bulk("cancel", f, `,"expected_count":0`).Matched, f)
	}
	for _, f := range []string{`{"ids":["x"]}`, `{"trigger_type":"webhook"}`, `{"status":"paused"}`,
		`{"status":"completed"}`, `{"created_before":"2020-01-01T00:00:00Z"}`} {
		assert.Zero(t, s.bulk("cancel", f, "").Matched, f)
	}
	for _, f := range []string{ids, `{"trigger_type":"api_call"}`, `{"status":"queued"}`,
		`{"created_after":"2020-01-01T00:00:00Z"}`} {
		assert.Equal(t, 2, s.bulk("cancel", f, "").Matched, f)
	}
	assert.Equal(t, []string{"queued", "queued"}, s.statuses(batches))
}

// TestBulk_Actions: each action does what that of one batch does, to those alone that it can be done to.
func TestBulk_Actions(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	flow := s.define(transformSteps)
	var batches []string
	for range 11 {
		batches = append(batches, s.trigger(flow, `{"input_data":{"n":1}}`))
	}
	all := `{"definition_id":"` + flow + `"}`
	two := `{"ids":["` + batches[0] + `","` + batches[10] + `"]}`
	done := s.bulk("pause", two, `,"expected_count":2,"reason":"why","duration_seconds":3600`)
	assert.Equal(t, []any{2, 2, 0, 0}, []any{done.Matched, done.Done, done.Refused, done.Left})
	assert.Equal(t, []string{batches[10], batches[0]}, []string{done.Batches[0].BatchID, done.Batches[1].BatchID},
		"the newest first")
	assert.Equal(t, []string{"paused", "queued", "paused"}, s.statuses([]string{batches[0], batches[1], batches[10]}))
	assert.Equal(t, 2, s.number(`SELECT count(*) FROM flow.pause WHERE reason = 'why' AND expires_at IS NOT NULL`))
	assert.Equal(t, 9, s.bulk("pause", all, "").Matched, "none that is paused")
	assert.Equal(t, 2, s.bulk("resume", all, `,"expected_count":2`).Done)
	assert.Equal(t, []string{"queued", "queued"}, s.statuses([]string{batches[0], batches[10]}))

	assert.Equal(t, 11, s.bulk("raise_priority", all, `,"expected_count":11`).Done)
	assert.Equal(t, 2, s.bulk("lower_priority", two, `,"expected_count":2`).Done)
	assert.Equal(t, 9, s.number(`SELECT count(*) FROM flow.batch_count WHERE priority = 'high'`))

	assert.Equal(t, 11, s.bulk("cancel", all, `,"expected_count":11,"reason":"wrong file"`).Done)
	assert.Equal(t, "wrong file", s.get("/flows/batches/" + batches[3])["status_reason"])
	assert.Equal(t, 11, s.number(`SELECT count(*) FROM flow.audit_log WHERE action = 'changeBatches' AND resource_id = ANY($1)
		AND created_at >= (SELECT min(completed_at) FROM flow.batch_count WHERE completed_at IS NOT NULL)`, batches),
		"each is audited")
	assert.Zero(t, s.bulk("cancel", all, "").Matched)

	first := s.bulk("retry", all, `,"expected_count":11`)
	require.NotNil(t, first.Next)
	assert.Equal(t, []int{11, 10, 1}, []int{first.Matched, first.Done, first.Left})
	rest := s.bulk("retry", all, `,"cursor":"`+*first.Next+`"`)
	assert.Equal(t, []any{1, 1, 0, (*string)(nil)}, []any{rest.Matched, rest.Done, rest.Left, rest.Next})
	assert.Equal(t, batches[0], s.get("/flows/batches/" + *rest.Batches[0].Started)["retry_of"])
	again := s.bulk("retry", all, `,"expected_count":11`)
	assert.Equal(t, []int{0, 10}, []int{again.Done, again.Refused}, "their retries are under way")
	assert.Contains(t, *again.Batches[0].Detail, "No job of the batch can be retried")
	s.Do(http.MethodPost, "/flows/batches/bulk", `{"action":"cancel","filter":`+all+`,"cursor":"`+*first.Next+
		`"}`).Detail(http.StatusBadRequest, "Invalid cursor")
}

package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestBatch_EstimateAtStart: what the start of a large batch was told can be read as long as there is the batch;
// nothing is kept of small ones, and nobody else reads it.
func TestBatch_EstimateAtStart(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	definition := s.define(uploadSteps)
	start := func(records int) (estimate map[string]any, batch string) {
		body := fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(records)))
		answer := s.Do(http.MethodPost, "/flows/definitions/"+definition+"/trigger", body).Want(http.StatusOK).JSON()
		return answer["estimate"].(map[string]any), answer["batch_id"].(string)
	}
	told, batch := start(1000)
	wanted := map[string]any{"eta_at": told["completion"].(map[string]any)["eta_at"], "unknown_reason": nil}
	for _, name := range []string{"tenancy_id", "bucket", "estimated_calls", "pct_of_remaining_day"} {
		wanted[name] = told[name]
	}
	read := s.get("/flows/batches/" + batch)
	kept := read["estimate_at_start"].(map[string]any)
	assert.GreaterOrEqual(t, kept["made_at"], read["created_at"])
	delete(kept, "made_at")
	assert.Equal(t, wanted, kept)
	assert.NotNil(t, kept["pct_of_remaining_day"])
	assert.NotNil(t, kept["eta_at"])
	assert.NotContains(t, s.pages("/flows/batches", 50)[0], "estimate_at_start")
	s.other.Do(http.MethodGet, "/flows/batches/"+batch, nil).Detail(http.StatusNotFound, "Batch not found")

	_, small := start(999)
	assert.NotContains(t, s.get("/flows/batches/"+small), "estimate_at_start")

	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/pause", nil).Want(http.StatusCreated)
	_, held := start(1000)
	kept = s.get("/flows/batches/" + held)["estimate_at_start"].(map[string]any)
	assert.Equal(t, []any{nil, "paused_indefinitely"}, []any{kept["eta_at"], kept["unknown_reason"]})

	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	again := s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", nil).Want(http.StatusOK).
		JSON()["batch_id"].(string)
	assert.Contains(t, s.get("/flows/batches/"+again), "estimate_at_start", "of a retry, too")
}

// TestTrigger_EstimateWaits: what a flow waits for before its last calls is in the estimate, where its author has
// written how long; else the estimate says that it is not.
func TestTrigger_EstimateWaits(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	task := strings.TrimSuffix(strings.TrimPrefix(modifyOne, "["), "]")
	const event = `"action_id":"core__flow__wait_for_event","params":{"event_kind":"batch.completed","timeout_seconds":`
	for name, c := range map[string]struct {
		between string
		waits   time.Duration
		told    bool
	}{
		"none":   {`{"id":"t","action_id":"core__flow__transform","params":{"value":{}}}`, 0, true},
		"delay":  {`{"id":"t","action_id":"core__flow__delay","params":{"seconds":86400}}`, 24 * time.Hour, true},
		"until":  {`{"id":"t","action_id":"core__flow__delay","params":{"until":"2000-01-01T00:00:00Z"}}`, 0, true},
		"event":  {`{"id":"t",` + event + `7200}}`, 2 * time.Hour, true},
		"both":   {`{"id":"t",` + event + `7200}},{"id":"u",` + event + `3600}}`, 2 * time.Hour, true},
		"record": {`{"id":"t","action_id":"core__flow__delay","params":{"seconds":"{{ input.wait }}"}}`, 0, false},
	} {
		flow := s.define(fmt.Sprintf(`[%s,{"id":"between","tasks":[%s]},%s]`, task, c.between,
			strings.NewReplacer(`"send"`, `"again"`, `"m"`, `"n"`).Replace(task)))
		answer := s.Do(http.MethodPost, "/flows/definitions/"+flow+"/trigger", `{"input_data":{"id":"a","wait":5}}`).
			Want(http.StatusOK).JSON()
		estimate := answer["estimate"].(map[string]any)
		completion := estimate["completion"].(map[string]any)
		seconds := time.Duration(completion["eta_seconds"].(float64) * float64(time.Second))
		assert.GreaterOrEqual(t, seconds, c.waits, name)
		assert.Less(t, seconds, c.waits+time.Hour, name)
		if c.told {
			assert.NotContains(t, completion["caveats"], "batch_sample_truncated", name)
		} else {
			assert.Contains(t, completion["caveats"], "batch_sample_truncated", name)
			assert.Contains(t, estimate["warning"], "waits for as long as the data of each record says", name)
		}
	}
}

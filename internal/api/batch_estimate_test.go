package api_test

import (
	"fmt"
	"net/http"
	"testing"

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

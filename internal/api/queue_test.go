package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// queue reads what waits for an account, and what of it waits for a bucket.
func (s *stack) queue(bucket string) (all, of map[string]any) {
	s.t.Helper()
	all = s.get("/platforms/dialer/domains/" + s.tenancy + "/queue")
	return all, all["buckets"].(map[string]any)[bucket].(map[string]any)
}

func TestDomain_Queue(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false) // nothing is sent
	_, none := s.queue("upload")
	empty := map[string]any{"eta_seconds": 0.0, "binding_window": 86400.0, "binding_source": "empty", "unknown_reason": nil, "hold_causes": []any{},
		"caveats": []any{}, "paced_batches_active": 0.0}
	done := none["completion"].(map[string]any)
	assert.NotNil(t, done["eta_at"])
	delete(done, "eta_at")
	delete(done, "binding_window")
	delete(empty, "binding_window")
	assert.Equal(t, empty, done)

	changes := s.define(fmt.Sprintf(changeSteps, s.credential))
	s.trigger(changes, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(1000))))
	s.trigger(s.define(uploadSteps), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(600))))
	s.trigger(s.define(transformSteps), `{"records":[{"n":1}]}`)
	all, modify := s.queue("modify")
	depth := func(m map[string]any) []any {
		return []any{m["queued_records"], m["paused_records"], m["paused_items"], m["estimated_calls"], m["estimated_calls_unpaused"]}
	}
	assert.Equal(t, []any{1000.0, 0.0, 0.0, 1000.0, 1000.0}, depth(modify))
	_, upload := s.queue("upload")
	assert.Equal(t, []any{600.0, 0.0, 0.0, 1.0, 1.0}, depth(upload))
	assert.Equal(t, []any{1600.0, 0.0, 0.0, 1001.0, 1001.0}, depth(all["totals"].(map[string]any)))
	assert.Equal(t, all["totals"], all["lanes"].(map[string]any)["bulk"])
	assert.Len(t, all["lanes"], 4)
	c := modify["completion"].(map[string]any)
	assert.Equal(t, []any{"window", 60.0, nil}, []any{c["binding_source"], c["binding_window"], c["unknown_reason"]})
	assert.Equal(t, []any{"estimated_calls_pre_coalescing_projection"}, c["caveats"])
	// 140 go in a minute: 1,000 need 8 of them, the first of which has begun.
	seconds := c["eta_seconds"].(float64)
	assert.Greater(t, seconds, 6.0*60)
	assert.LessOrEqual(t, seconds, 7.5*60)
	at, err := time.Parse(time.RFC3339, c["eta_at"].(string))
	require.NoError(t, err)
	asOf, err := time.Parse(time.RFC3339, all["as_of"].(string))
	require.NoError(t, err)
	assert.InDelta(t, seconds, at.Sub(asOf).Seconds(), 1)

	s.other.Do(http.MethodGet, "/platforms/dialer/domains/"+s.tenancy+"/queue", nil).Detail(http.StatusNotFound, "Domain not found")
	e := s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate", `{"action_id":"dialer__api__modify","record_count":1400}`).Want(http.StatusOK).JSON()
	later := e["completion"].(map[string]any)
	assert.Equal(t, 1000.0, e["queued_estimated_calls"])
	assert.Greater(t, later["eta_seconds"], seconds+9*60, "behind what is queued")
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate", `{"action_id":"dialer__api__modify","record_count":0}`).Want(http.StatusOK)
}

// TestDomain_QueueHeld: what is held counts as paused, has its cause, and its end is the earliest time; what has no end has no time.
func TestDomain_QueueHeld(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(fmt.Sprintf(changeSteps, s.credential)), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(20))))
	seen := func() (depth []any, c map[string]any) {
		_, b := s.queue("modify")
		return []any{b["queued_records"], b["paused_records"], b["estimated_calls"], b["estimated_calls_unpaused"]}, b["completion"].(map[string]any)
	}
	domain := "/platforms/dialer/domains/" + s.tenancy
	s.Do(http.MethodPost, domain+"/pause", `{"duration_seconds":7200}`).Want(http.StatusCreated)
	depth, c := seen()
	assert.Equal(t, []any{20.0, 20.0, 20.0, 0.0}, depth)
	assert.Equal(t, []any{"hold", []any{"admin_request"}, nil}, []any{c["binding_source"], c["hold_causes"], c["unknown_reason"]})
	assert.Greater(t, c["eta_seconds"], 7100.0)
	assert.Less(t, c["eta_seconds"], 7300.0)

	s.Do(http.MethodPost, "/flows/batches/"+batch+"/pause", nil).Want(http.StatusCreated)
	depth, c = seen()
	assert.Equal(t, []any{20.0, 20.0, 20.0, 0.0}, depth)
	assert.Equal(t, []any{"hold", "paused_indefinitely", nil, nil}, []any{c["binding_source"], c["unknown_reason"], c["eta_seconds"], c["eta_at"]})

	s.Do(http.MethodPost, domain+"/resume", nil).Want(http.StatusOK)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/resume", nil).Want(http.StatusOK)
	s.Do(http.MethodPatch, "/flows/batches/"+batch, `{"pacing":{"records_per_period":2,"period_minutes":10}}`).Want(http.StatusOK)
	depth, c = seen()
	assert.Equal(t, []any{20.0, 0.0, 20.0, 20.0}, depth)
	assert.Equal(t, []any{"pacing", 1.0, []any{}}, []any{c["binding_source"], c["paced_batches_active"], c["hold_causes"]})
	assert.Greater(t, c["eta_seconds"], 89*60.0, "ten releases, the first at once")
	assert.Less(t, c["eta_seconds"], 101*60.0)
}

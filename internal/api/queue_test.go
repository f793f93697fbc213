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
	empty := map[string]any{"eta_seconds": 0.0, "binding_window": 86400.0, "binding_source": "empty",
		"unknown_reason": nil, "hold_causes": []any{},
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
		return []any{m["queued_records"], m["paused_records"], m["paused_items"], m["estimated_calls"],
			m["estimated_calls_unpaused"]}
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
	// 140 go in a minute: 1,000 need 8 of them, the first of which has begun. How long calls take is not known yet, so
	// that each may take its timeout of 30 seconds: the last one, and those of a minute's second half, which then count
	// in the next minute, too, and which passes come some seconds later.
	seconds := c["eta_seconds"].(float64)
	assert.Greater(t, seconds, 6.0*60)
	assert.Less(t, seconds, 9*60+30.0)
	at, err := time.Parse(time.RFC3339, c["eta_at"].(string))
	require.NoError(t, err)
	asOf, err := time.Parse(time.RFC3339, all["as_of"].(string))
	require.NoError(t, err)
	assert.InDelta(t, seconds, at.Sub(asOf).Seconds(), 1)

	s.other.Do(http.MethodGet, "/platforms/dialer/domains/"+s.tenancy+"/queue", nil).Detail(http.StatusNotFound,
		"Domain not found")
	e := s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate",
		`{"action_id":"dialer__api__modify","record_count":1400}`).Want(http.StatusOK).JSON()
	later := e["completion"].(map[string]any)
	assert.Equal(t, 1000.0, e["queued_estimated_calls"])
	assert.Greater(t, later["eta_seconds"], seconds+9*60, "behind what is queued")
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate",
		`{"action_id":"dialer__api__modify","record_count":0}`).Want(http.StatusOK)
}

// TestDomain_QueueHeld: what is held counts as paused, has its cause, and its end is the earliest time; what has no end
// has no time.
func TestDomain_QueueHeld(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	batch := s.trigger(s.define(fmt.Sprintf(changeSteps, s.credential)), fmt.Sprintf(`{"record_set_id":%q}`,
		s.upload(rowsOf(20))))
	seen := func() (depth []any, c map[string]any) {
		_, b := s.queue("modify")
		return []any{b["queued_records"], b["paused_records"], b["estimated_calls"], b["estimated_calls_unpaused"]},
			b["completion"].(map[string]any)
	}
	domain := "/platforms/dialer/domains/" + s.tenancy
	s.Do(http.MethodPost, domain+"/pause", `{"duration_seconds":7200}`).Want(http.StatusCreated)
	depth, c := seen()
	assert.Equal(t, []any{20.0, 20.0, 20.0, 0.0}, depth)
	assert.Equal(t, []any{"hold", []any{"admin_request"}, nil}, []any{c["binding_source"], c["hold_causes"],
		c["unknown_reason"]})
	assert.Greater(t, c["eta_seconds"], 7100.0)
	assert.Less(t, c["eta_seconds"], 7300.0)

	s.Do(http.MethodPost, "/flows/batches/"+batch+"/pause", nil).Want(http.StatusCreated)
	depth, c = seen()
	assert.Equal(t, []any{20.0, 20.0, 20.0, 0.0}, depth)
	assert.Equal(t, []any{"hold", "paused_indefinitely", nil, nil}, []any{c["binding_source"], c["unknown_reason"],
		c["eta_seconds"], c["eta_at"]})

	s.Do(http.MethodPost, domain+"/resume", nil).Want(http.StatusOK)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/resume", nil).Want(http.StatusOK)
	s.Do(http.MethodPatch, "/flows/batches/"+batch, `{"pacing":{"records_per_period":2,"period_minutes":10}}`).Want(
		http.StatusOK)
	depth, c = seen()
	assert.Equal(t, []any{20.0, 0.0, 20.0, 20.0}, depth)
	assert.Equal(t, []any{"pacing", 1.0, []any{}}, []any{c["binding_source"], c["paced_batches_active"],
		c["hold_causes"]})
	assert.Greater(t, c["eta_seconds"], 89*60.0, "ten releases, the first at once")
	assert.Less(t, c["eta_seconds"], 101*60.0)
}

// TestDomain_QueueSums: what waits is the same sum whether queues are counted together or one by one.
func TestDomain_QueueSums(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	changes := s.define(fmt.Sprintf(changeSteps, s.credential))
	var batches []string
	for range 6 {
		batches = append(batches, s.trigger(changes, fmt.Sprintf(`{"records":[%s]}`, strings.Join(rowsOf(7), ","))))
	}
	all, _ := s.queue("modify")
	totals := all["totals"].(map[string]any)
	assert.Equal(t, []any{42.0, 42.0}, []any{totals["queued_records"], totals["estimated_calls"]})
	for i, b := range batches[2:4] {
		s.Do(http.MethodPost, "/flows/batches/"+b+"/pause", fmt.Sprintf(`{"duration_seconds":%d}`, 600*(i+1))).Want(
			http.StatusCreated)
		s.Do(http.MethodPatch, "/flows/batches/"+batches[4+i],
			`{"pacing":{"records_per_period":2,"period_minutes":10}}`).Want(http.StatusOK)
	}
	_, modify := s.queue("modify")
	c := modify["completion"].(map[string]any)
	assert.Equal(t, []any{42.0, 14.0, 42.0, 28.0, 2.0}, []any{modify["queued_records"], modify["paused_records"],
		modify["estimated_calls"],
		modify["estimated_calls_unpaused"], c["paced_batches_active"]})
	assert.Equal(t, []any{"admin_request"}, c["hold_causes"])
	assert.Greater(t, c["eta_seconds"], 29*60.0, "seven records are four releases")
	assert.Less(t, c["eta_seconds"], 35*60.0)
}

// TestDomain_QueueAfterCalls: records in calls come to later steps, and are not promised away meanwhile.
func TestDomain_QueueAfterCalls(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"*": {60: 140, 3600: 7200,
		86400: 172_800}}})
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK)
	eta := func() float64 {
		e := s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate",
			`{"action_id":"dialer__api__modify","record_count":1}`).Want(http.StatusOK).JSON()
		assert.Equal(t, 0.0, e["queued_estimated_calls"])
		return e["completion"].(map[string]any)["eta_seconds"].(float64)
	}
	assert.Less(t, eta(), 61.0)
	s.sim.AddFault(dialersim.Fault{Operation: "upload", Kind: "hang", Accept: true, Count: 1000})
	steps := strings.TrimSuffix(uploadSteps, "]") + "," + strings.Replace(fmt.Sprintf(changeSteps, s.credential),
		`[{"id":"s"`, `{"id":"second"`, 1)
	batch := s.trigger(s.define(steps), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(500))))
	s.until(batch, func(b map[string]any) bool { return counted(b)["started"] == 500 })
	assert.Greater(t, eta(), 120.0, "140 go in a minute, and 500 more may come")
}

// TestDomain_QueueDelayed: what waits for its next attempt is not promised before that; what waits beside it may go at
// once.
func TestDomain_QueueDelayed(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.sim.AddFault(dialersim.Fault{Kind: "status", Operation: "modify", Count: 3})
	steps := strings.Replace(fmt.Sprintf(changeSteps, s.credential), `"params"`,
		`"retry":{"max_attempts":2,"initial_seconds":3600,"max_seconds":3600},"params"`, 1)
	batch := s.trigger(s.define(steps), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(20))))
	s.until(batch, func(b map[string]any) bool { return counted(b)["queued"] == 3 && counted(b)["completed"] == 17 })
	_, modify := s.queue("modify")
	assert.Equal(t, []any{3.0, 0.0, 3.0}, []any{modify["queued_records"], modify["paused_records"],
		modify["estimated_calls"]})
	var last float64
	require.NoError(t, s.owner.QueryRow(t.Context(),
		`SELECT extract(epoch FROM max(ready_at) - flow.clock())::float8 FROM flow.part WHERE batch_id = $1`,
		batch).Scan(&last))
	require.Greater(t, last, 600.0)
	seconds := modify["completion"].(map[string]any)["eta_seconds"].(float64)
	assert.GreaterOrEqual(t, seconds, last)
	assert.Less(t, seconds, last+120)
	e := s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate",
		`{"action_id":"dialer__api__modify","record_count":1}`).Want(http.StatusOK).JSON()
	assert.Less(t, e["completion"].(map[string]any)["eta_seconds"], 120.0, "new work does not wait for that")
}

// TestDomain_QueueLane: calls of a lane that may have one under way at a time take as long as they do one by one.
func TestDomain_QueueLane(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.trigger(s.define(fmt.Sprintf(changeSteps, s.credential)), fmt.Sprintf(`{"record_set_id":%q}`,
		s.upload(rowsOf(100))))
	eta := func() (queued, behind float64) {
		_, modify := s.queue("modify")
		e := s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate",
			`{"action_id":"dialer__api__modify","record_count":20}`).Want(http.StatusOK).JSON()
		return modify["completion"].(map[string]any)["eta_seconds"].(float64),
			e["completion"].(map[string]any)["eta_seconds"].(float64)
	}
	freely, freelyBehind := eta()
	assert.Less(t, freely, 150.0)
	s.Do(http.MethodPut, "/platforms/dialer/domains/"+s.tenancy+"/lanes/backfill",
		`{"weight":5,"max_concurrent_calls":1}`).Want(http.StatusOK)
	queued, behind := eta()
	assert.InDelta(t, freely, queued, 5, "nothing waits in that lane")
	assert.Greater(t, behind, freelyBehind+60, "the upload may go there")
	s.Do(http.MethodPut, "/platforms/dialer/domains/"+s.tenancy+"/lanes/bulk",
		`{"weight":15,"max_concurrent_calls":1}`).Want(http.StatusOK)
	queued, behind = eta()
	assert.Greater(t, queued, 200.0, "calls take two seconds where nothing is known of them")
	assert.Greater(t, behind, 240.0)
}

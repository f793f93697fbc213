package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/platform/provider/dialersim"
)

// perMinute has the provider allow so many calls of dial a minute.
func (s *stack) perMinute(n int) {
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"dial": {60: int64(n)}}})
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK)
}

// thenDial is a flow whose records go through a task first, and then are dialed.
func (s *stack) thenDial(task string) string {
	return s.define(`[{"id":"first","tasks":[` + task + `]},{"id":"next","tasks":[{"id":"dial",
		"action_id":"dialer__api__dial","credential_id":"CRED","params":{"number":"+420111111111","campaign":"c"}}]}]`)
}

// TestEstimate_Arrivals: records that will come to a budget have their turns before new ones wherever they are: in the
// queue of somebody else, worked on, or in a batch that is scheduled. Before they can come they take nobody's.
func TestEstimate_Arrivals(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.perMinute(60)
	eta := func(records int) float64 { return s.completion("dialer__api__dial", records)["eta_seconds"].(float64) }
	alone, long := eta(10), eta(70*60)
	body := func(records int) string { return fmt.Sprintf(`{"record_set_id":%q`, s.upload(rowsOf(records))) }
	flow := s.thenDial(`{"id":"t","action_id":"core__flow__transform","params":{"value":{}}}`)

	in := fmt.Sprintf(`,"scheduled_at":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	s.trigger(flow, body(300)+in)
	assert.Less(t, eta(10), alone+10, "all of it is over before that is due")
	assert.Greater(t, eta(70*60), long+200, "it comes meanwhile")

	batch := s.trigger(flow, body(300)+`}`)
	worked := eta(10)
	assert.Greater(t, worked, alone+200, "before their first step is worked on")
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/pause", nil).Want(http.StatusCreated)
	assert.Less(t, eta(10), alone+10, "nobody releases them")
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/resume", nil).Want(http.StatusOK)
	assert.Greater(t, eta(10), alone+200)
	s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	assert.Less(t, eta(10), alone+10, "cancelled")

	s.trigger(s.thenDial(`{"id":"t","action_id":"core__http__request","params":{"url":"http://127.0.0.1:1/"}}`),
		body(300)+`}`)
	assert.Greater(t, eta(10), alone+200, "in the queue of a receiver")
	first := eta(10)
	s.trigger(s.define(fmt.Sprintf(changeSteps, s.credential)), body(300)+`}`)
	assert.InDelta(t, first, eta(10), 70, "another budget; a minute can begin meanwhile")
}

// TestEstimate_ArrivalsWait: records that wait for a time come then; those that wait for an event may come at any time.
func TestEstimate_ArrivalsWait(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	s.perMinute(60)
	eta := func(records int) float64 { return s.completion("dialer__api__dial", records)["eta_seconds"].(float64) }
	alone, long := eta(10), eta(130*60)
	wait := func(task string) {
		batch := s.trigger(s.thenDial(task), fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(300))))
		s.until(batch, func(map[string]any) bool {
			var waits int
			assert.NoError(t, s.owner.QueryRow(t.Context(), "SELECT count(*) FROM flow.wait WHERE batch_id = $1", batch).
				Scan(&waits))
			return waits > 0
		})
	}
	wait(`{"id":"t","action_id":"core__flow__delay","params":{"seconds":7200}}`)
	assert.Less(t, eta(10), alone+10, "in two hours")
	assert.Greater(t, eta(130*60), long+200)
	wait(`{"id":"t","action_id":"core__flow__wait_for_event",
		"params":{"event_kind":"batch.failed","timeout_seconds":7200}}`)
	assert.Greater(t, eta(10), alone+200)
}

// TestEstimate_LargeRecords: how many records fit into a call is told by their size, too.
func TestEstimate_LargeRecords(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	rows := make([]string, 40)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":"%d","text":%q}`, i, strings.Repeat("x", 60_000))
	}
	flow := s.define(strings.NewReplacer("__upload", "__upload_async", `"key_field":"id",`, "").Replace(uploadSteps))
	set := s.upload(rows)
	e := s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/estimate",
		fmt.Sprintf(`{"action_id":"dialer__api__upload_async","record_set_id":%q}`, set)).Want(http.StatusOK).JSON()
	assert.Equal(t, 1.0, e["estimated_calls"], "up to 100 records go in a call")
	assert.Contains(t, e["warning"], "up to 3 calls", "and up to a MiB")
	answer := s.Do(http.MethodPost, "/flows/definitions/"+flow+"/trigger", fmt.Sprintf(`{"record_set_id":%q}`, set)).
		Want(http.StatusOK).JSON()
	assert.Contains(t, answer["estimate"].(map[string]any)["warning"], "up to 3 calls")
	_, queue := s.queue("upload_async")
	assert.Equal(t, 3.0, queue["estimated_calls"])
}

// TestEstimate_Pages: bulk calls behind single ones take what comes to them, a page at a time at least.
func TestEstimate_Pages(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{"upload": {86400: 10}}})
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK)
	single := strings.TrimSuffix(fmt.Sprintf(changeSteps, s.credential), "]")
	bulk := strings.TrimPrefix(strings.Replace(uploadSteps, `"id":"s"`, `"id":"then"`, 1), "[")
	body := fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(1000)))
	answer := s.Do(http.MethodPost, "/flows/definitions/"+s.define(single+","+bulk)+"/trigger", body).
		Want(http.StatusOK).JSON()["estimate"].(map[string]any)
	assert.Equal(t, "upload", answer["bucket"])
	assert.Contains(t, answer["warning"], "up to 4 calls")
}

// TestEstimate_Latency: how long calls take is told by those of the same action, not of others that are faster.
func TestEstimate_Latency(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK) // wide ones
	s.answersIn(nil)
	settled := func(action string, calls int, seconds float64) {
		_, err := s.owner.Exec(t.Context(), `INSERT INTO flow.call (id, org_id, domain, bucket, lane, action_id, state, owner,
				records, digest, params, outcome_check, claimed_at, send_before, answered_at, counts_in)
			SELECT gen_random_uuid(), $1, $2, 'dial', 'bulk', $3, 'settled', 'p', 1, '', '', 'lookup', at, at + interval '30 s',
				at + make_interval(secs => $5), '{}'
			FROM (SELECT flow.clock() - n * interval '1 min' AS at FROM generate_series(2, 1 + $4::int) n) c`, s.orgID(s.Key),
			s.tenancy, action, calls, seconds)
		assert.NoError(t, err)
	}
	eta := func() float64 { return s.completion("dialer__api__dial", 10_000)["eta_seconds"].(float64) }
	settled("dialer__api__dial", 20, 10)
	slow := eta()
	assert.Greater(t, slow, 300.0)
	settled("dialer__api__other", 150, 0.1)
	assert.InDelta(t, slow, eta(), 5, "another action is faster")
	_, err := s.owner.Exec(t.Context(), `UPDATE flow.call SET answered_at = claimed_at + CASE WHEN n % 10 = 0
			THEN interval '25 s' ELSE interval '1 s' END
		FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM flow.call WHERE action_id = 'dialer__api__dial') o
		WHERE o.id = call.id`)
	assert.NoError(t, err)
	assert.Greater(t, eta(), slow/10*3, "each tenth takes 25 seconds, and so a call takes 3.4 on average")
}

package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/usage"
	"flowlane/test/pgtest"
)

// figures are what dashboards and usage say.
func (s *stack) figures() (out []any) {
	s.t.Helper()
	for _, period := range []string{"24h", "7d", "30d"} {
		d := s.dashboard("?period=" + period)
		d.From, d.To, d.Holds = time.Time{}, time.Time{}, nil
		out = append(out, d)
	}
	for _, by := range []string{"day", "definition", "credential", "action"} {
		u := s.usage("group_by=" + by)
		out = append(out, []any{by, u.Totals, u.byKey()})
	}
	return out
}

// rollUp rolls up all that can be.
func (s *stack) rollUp() {
	s.t.Helper()
	more, err := usage.RollUp(s.t.Context(), s.app.Pool, time.Minute)
	require.NoError(s.t, err)
	require.False(s.t, more)
}

// age makes batches older, by hours.
func (s *stack) age(hours int, batches ...string) {
	s.t.Helper()
	for _, batch := range batches {
		_, err := s.owner.Exec(s.t.Context(),
			"UPDATE flow.batch SET created_at = created_at - make_interval(hours => $2) WHERE id = $1", batch, hours)
		require.NoError(s.t, err)
	}
}

// TestRollup: dashboards and usage say the same whether batches are rolled up or not: what had ended by then, what ends
// later, what changes after its end, and what is deleted.
func TestRollup(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	bad := dialersim.Rule{Kind: "equals", Field: "bad", Value: []byte(`"yes"`)}
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{bad}})
	uploads := s.define(uploadSteps)
	records := fmt.Sprintf(`{"record_set_id":%q}`, s.upload(append(rowsOf(150), `{"id":"x","bad":"yes"}`)))
	mixed := s.trigger(uploads, records)
	s.await(mixed)
	_, again := s.retry(mixed, `{"job_statuses":["rejected"]}`)
	s.await(again)
	transforms := s.trigger(s.define(transformSteps), `{"input_data":{"n":1}}`)
	s.await(transforms)
	waits := s.trigger(s.define(`[{"id":"s","tasks":[`+delayTask("d", `{"seconds":3600}`, "")+`]}]`), oneRecord)
	s.waiting(waits, 1)
	s.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "dial", Count: 1})
	lost := s.trigger(s.define(`[{"id":"s","tasks":[{"id":"dial","action_id":"dialer__api__dial","credential_id":"CRED",
		"params":{"number":"+420111111111","campaign":"c"}}]}]`), oneRecord)
	s.until(lost, func(b map[string]any) bool { return counted(b)["unresolved"] == 1 })
	s.Do(http.MethodPost, "/flows/batches/"+lost+"/cancel", `{}`).Want(http.StatusOK)
	young := s.trigger(s.define(transformSteps), `{"input_data":{"n":2}}`)
	s.await(young)
	s.age(3, transforms, waits)
	s.age(50, mixed, lost)
	s.age(49, again)

	before := s.figures()
	s.rollUp()
	assert.Equal(t, 4, s.count("(SELECT FROM flow.rollup GROUP BY definition_id, hour, version, status) r"))
	assert.Equal(t, 1, s.count("flow.rollup_open WHERE batch_id::text = $1", waits))
	assert.Equal(t, before, s.figures())

	pgtest.MoveClock(t, s.owner, time.Hour)
	s.await(waits)
	s.resolve(lost, 0, `{"outcome":"rejected"}`)
	changed := s.figures()
	job := func(name string) int64 { return s.dashboard("?period=30d").JobCounts[name] }
	assert.Equal(t, []int64{2, 1, 0, 0}, []int64{job("rejected"), job("failed"), job("unresolved"), job("queued")})
	s.rollUp()
	assert.Equal(t, 0, s.count("flow.rollup_open"))
	assert.Equal(t, changed, s.figures())
	assert.Equal(t, 5, s.count("flow.rollup"), "a row for each hour, definition, version and status")

	for _, batch := range []string{mixed, young, waits} {
		s.Do(http.MethodDelete, "/flows/batches/"+batch, nil).Want(http.StatusNoContent)
	}
	assert.Equal(t, changed, s.figures(), "what was done stays")
	s.rollUp()
	pgtest.MoveClock(t, s.owner, 2*time.Hour)
	later := s.figures()
	s.rollUp()
	assert.Equal(t, later, s.figures())
	assert.Equal(t, 0, s.count("flow.batch b JOIN flow.organization o ON o.id = b.org_id "+
		"WHERE b.created_at >= o.rolled_up_to"))

	pgtest.MoveClock(t, s.owner, -2*time.Hour)
	s.await(s.trigger(s.define(transformSteps), `{"input_data":{"n":3}}`))
	s.rollUp()
	assert.Equal(t, 0, s.count("flow.organization WHERE rolled_up_to > flow.clock()"), "the clock went back")
	assert.Equal(t, s.dashboard("?period=1h").BatchCounts["completed"], int64(1))
	assert.GreaterOrEqual(t, s.dashboard("?period=24h").BatchCounts["completed"], int64(3))
}

// TestRollup_Retention: old batches are not deleted before they are rolled up, and their figures stay as long as usage
// does.
func TestRollup_Retention(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	batch := s.trigger(s.define(transformSteps), `{"records":[{"n":1},{"n":2}]}`)
	s.await(batch)
	s.Do(http.MethodPut, "/account/retention", `{"batches":1,"usage":40}`).Want(http.StatusOK)
	s.aDayLater(3)
	s.Do(http.MethodGet, "/flows/batches/"+batch, nil).Want(http.StatusNotFound)
	d := s.dashboard("?period=30d")
	assert.Equal(t, []int64{1, 2}, []int64{d.BatchCounts["completed"], d.JobCounts["completed"]})
	assert.Equal(t, usageFigures{Batches: 1, Jobs: 2}, s.usage("").Totals)
	s.aDayLater(50)
	s.aDayLater(1)
	assert.Equal(t, 0, s.count("flow.rollup"))
}

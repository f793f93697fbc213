package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/pgtest"
)

const pacedSteps = `[{"id":"s","tasks":[{"id":"t","action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"l","key":"{{ input.id }}","fields":{"n":1}}}]}]`

// paced is a body with one pacing policy, of which changes replace parts: "period_minutes", "0".
func paced(change ...string) string {
	parts := map[string]string{"records_per_period": "10", "period_minutes": "5"}
	for i := 0; i < len(change); i += 2 {
		parts[change[i]] = change[i+1]
	}
	var members []string
	for name, value := range parts {
		if value != "" {
			members = append(members, fmt.Sprintf("%q:%s", name, value))
		}
	}
	return `{"pacing":{` + strings.Join(members, ",") + `}}`
}

// windowed is a body whose policy has a delivery window of these members.
func windowed(members string) string { return paced("window", "{"+members+"}") }

func TestBatch_UpdateRefusesBadBodies(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := "/flows/batches/" + s.trigger(s.define(transformSteps), "{}")
	before := s.get(path)
	const minutes = `"start_minute_of_day":540,"end_minute_of_day":1020`
	for _, tt := range []struct {
		body  string
		wrong []string
	}{
		{`{"priority":null}`, []string{"body.priority null_not_allowed"}},
		{`{"pacing":null}`, []string{"body.pacing null_not_allowed"}},
		{`{"remove_pacing":null}`, []string{"body.remove_pacing null_not_allowed"}},
		{`{"priority":null,"pacing":null,"remove_pacing":null}`, []string{"body.pacing null_not_allowed",
			"body.priority null_not_allowed", "body.remove_pacing null_not_allowed"}},
		{`{"priority":"urgent"}`, []string{"body.priority enum"}},
		{`{"priority":"HIGH"}`, []string{"body.priority enum"}},
		{`{"remove_pacing":"yes"}`, []string{"body.remove_pacing bool_type"}},
		{`{"status":"paused"}`, []string{"body.status extra_forbidden"}},
		{strings.Replace(paced(), "{", `{"remove_pacing":true,`, 1), []string{"body.pacing value_error",
			"body.remove_pacing value_error"}},
		{paced("records_per_period", ""), []string{"body.pacing.records_per_period missing"}},
		{paced("period_minutes", ""), []string{"body.pacing.period_minutes missing"}},
		{paced("records_per_period", "0", "period_minutes", "0"),
			[]string{"body.pacing.period_minutes greater_than_equal",
				"body.pacing.records_per_period greater_than_equal"}},
		{paced("records_per_period", "1000001", "period_minutes", "1441"),
			[]string{"body.pacing.period_minutes less_than_equal", "body.pacing.records_per_period less_than_equal"}},
		{paced("records_per_period", "1.5"), []string{"body.pacing.records_per_period int_type"}},
		{paced("records_per_period", "null"), []string{"body.pacing.records_per_period null_not_allowed"}},
		{paced("per_second", "1"), []string{"body.pacing.per_second extra_forbidden"}},
		{paced("window", "null"), []string{"body.pacing.window null_not_allowed"}},
		{windowed(minutes), []string{"body.pacing.window.timezone missing"}},
		{windowed(`"timezone":null,` + minutes), []string{"body.pacing.window.timezone null_not_allowed"}},
		{windowed(`"timezone":"UTC","start_minute_of_day":-1,"end_minute_of_day":0`),
			[]string{"body.pacing.window.end_minute_of_day greater_than_equal",
				"body.pacing.window.start_minute_of_day greater_than_equal"}},
		{windowed(`"timezone":"UTC","start_minute_of_day":1440,"end_minute_of_day":1441`),
			[]string{"body.pacing.window.end_minute_of_day less_than_equal",
				"body.pacing.window.start_minute_of_day less_than_equal"}},
		{windowed(`"timezone":"UTC","start_minute_of_day":600,"end_minute_of_day":600`),
			[]string{"body.pacing.window.end_minute_of_day value_error"}},
		{windowed(`"timezone":"UTC","start_minute_of_day":1320,"end_minute_of_day":360`),
			[]string{"body.pacing.window.end_minute_of_day value_error"}},
		{windowed(`"timezone":"UTC","days":[],` + minutes), []string{"body.pacing.window.days too_short"}},
		{windowed(`"timezone":"UTC","days":["Monday","tuesday"],` + minutes),
			[]string{"body.pacing.window.days.0 enum"}},
		{windowed(`"timezone":"+02:00","start_minute_of_day":2,"end_minute_of_day":1`),
			[]string{"body.pacing.window.timezone value_error", "body.pacing.window.end_minute_of_day value_error"}},
		{`[]`, []string{"body object_type"}},
	} {
		s.Do(http.MethodPatch, path, tt.body).Invalid(tt.wrong...)
		if strings.Contains(tt.body, `"pacing"`) && !strings.Contains(tt.body, "remove_pacing") {
			s.Do(http.MethodPost, "/flows/definitions/"+before["definition_id"].(string)+"/trigger",
				tt.body).Invalid(tt.wrong...)
		}
	}
	for _, zone := range []string{"", "Local", "+02:00", "UTC+2", "GMT-1", "Etc/GMT+3", "EST", "Mars/Olympus",
		"europe/berlin", "../UTC"} {
		s.Do(http.MethodPatch, path, windowed(fmt.Sprintf(`"timezone":%q,`, zone)+minutes)).Invalid(
			"body.pacing.window.timezone value_error")
	}
	assert.Equal(t, before, s.get(path), "nothing of it was done")
}

func TestBatch_Update(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	path := "/flows/batches/" + s.trigger(s.define(transformSteps), "{}")
	before := s.get(path)
	assert.Nil(t, before["priority"])
	assert.Nil(t, before["pacing"])
	patch := func(body string) map[string]any {
		t.Helper()
		pgtest.MoveClock(t, s.owner, time.Minute)
		return s.Do(http.MethodPatch, path, body).Want(http.StatusOK).JSON()
	}
	for _, nothing := range []string{`{}`, `{"remove_pacing":false}`, `{"remove_pacing":true}`} {
		assert.Equal(t, before, patch(nothing), nothing)
	}
	full := `{"priority":"high","pacing":{"records_per_period":1000000,"period_minutes":1440,"window":{"timezone":"America/Argentina/Buenos_Aires","start_minute_of_day":0,"end_minute_of_day":1440,"days":["sunday","monday"]}}}`
	after := patch(full)
	assert.JSONEq(t, full, mustJSON(t, map[string]any{"priority": after["priority"], "pacing": after["pacing"]}))
	assert.NotEqual(t, before["updated_at"], after["updated_at"])
	for name, value := range before {
		if name != "priority" && name != "pacing" && name != "updated_at" {
			assert.Equal(t, value, after[name], name)
		}
	}
	assert.Equal(t, after, s.get(path))
	for _, same := range []string{full, `{"priority":"high"}`, `{}`} {
		assert.Equal(t, after, patch(same), "it is so already: %s", same)
	}

	after = patch(paced())
	assert.Equal(t, "high", after["priority"], "what is absent stays")
	assert.Equal(t, map[string]any{"records_per_period": 10.0, "period_minutes": 5.0}, after["pacing"])
	after = patch(`{"priority":"normal","remove_pacing":true}`)
	assert.Equal(t, "normal", after["priority"])
	assert.Nil(t, after["pacing"])

	_, err := s.owner.Exec(t.Context(), "UPDATE flow.batch_count SET status = 'paused'")
	require.NoError(t, err)
	after = patch(paced())
	assert.Equal(t, "paused", after["status"])
	assert.NotNil(t, after["pacing"])
	s.other.Do(http.MethodPatch, path, `{"priority":"high"}`).Detail(http.StatusNotFound, "Batch not found")
	s.Do(http.MethodPatch, "/flows/batches/none", `{}`).Detail(http.StatusNotFound, "Batch not found")

	s.Do(http.MethodPost, path+"/cancel", nil).Want(http.StatusOK)
	for _, body := range []string{`{}`, `{"priority":"high"}`, `{"remove_pacing":true}`, paced()} {
		s.Do(http.MethodPatch, path, body).Detail(http.StatusConflict, "Batch is already cancelled")
	}
	assert.NotNil(t, s.get(path)["pacing"], "a batch that is over says how it was paced")
}

// A policy is slower than the batch without it, measured at the tightest window of the tightest budget.
func TestBatch_PacingIsSlower(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Limits: map[string]map[int]int64{
		"modify": {60: 100, 3600: 3000, 86400: 100_000}, "upload": {60: 100, 3600: 1000, 86400: 3},
	}})
	s.Do(http.MethodPost, "/platforms/dialer/domains/"+s.tenancy+"/refresh-limits", nil).Want(http.StatusOK)
	twice := strings.Replace(pacedSteps, `[{"id":"t",`,
		`[{"id":"u","action_id":"dialer__api__modify","credential_id":"CRED","params":{"list":"m","key":"a","fields":{}}},{"id":"t",`, 1)
	both := strings.Replace(uploadSteps, "[{", strings.TrimSuffix(pacedSteps, "]")+",{", 1)
	for _, tt := range []struct {
		what, steps, fast, slow, policy, effective string
	}{
		{"3000 an hour", pacedSteps, paced("records_per_period", "50", "period_minutes", "1"),
			paced("records_per_period", "49", "period_minutes", "1"), "50", "50"},
		{"the same rate in other words", pacedSteps, paced("records_per_period", "3000", "period_minutes", "60"),
			paced("records_per_period", "2999", "period_minutes", "60"), "50", "50"},
		{"two tasks share a budget", twice, paced("records_per_period", "25", "period_minutes", "1"),
			paced("records_per_period", "24", "period_minutes", "1"), "25", "25"},
		{"3 calls of 50000 a day", uploadSteps, paced("records_per_period", "150000", "period_minutes", "1440"),
			paced("records_per_period", "149999", "period_minutes", "1440"), "104.17", "104.17"},
		{"the slower of two budgets", both, paced("records_per_period", "51", "period_minutes", "1"),
			paced("records_per_period", "49", "period_minutes", "1"), "51", "50"},
	} {
		definition := s.define(tt.steps)
		path := "/flows/batches/" + s.trigger(definition, "{}")
		answer := s.Do(http.MethodPatch, path, tt.fast).Invalid("body.pacing value_error").JSON()
		msg := answer["detail"].([]any)[0].(map[string]any)["msg"]
		assert.Equal(t, fmt.Sprintf("The policy releases %s records per minute, and the effective rate of the batch "+
			"is %s records per minute: give a policy that is slower",
			tt.policy, tt.effective), msg, tt.what)
		assert.Nil(t, s.get(path)["pacing"], tt.what)
		s.Do(http.MethodPatch, path, tt.slow).Want(http.StatusOK)

		trigger, batches := "/flows/definitions/"+definition+"/trigger", s.get("/flows/batches")["total"]
		s.Do(http.MethodPost, trigger, tt.fast).Invalid("body.pacing value_error")
		assert.Equal(t, batches, s.get("/flows/batches")["total"], "nothing is left of a start that is refused")
		s.Do(http.MethodPost, trigger, tt.slow).Want(http.StatusOK)
	}
	for what, steps := range map[string]string{
		"no calls at all":          transformSteps,
		"calls that nobody meters": `[{"id":"s","tasks":[{"id":"t","action_id":"core__http__request","params":{"url":"SIM/echo"}}]}]`,
	} {
		path := "/flows/batches/" + s.trigger(s.define(strings.ReplaceAll(steps, "SIM", s.simURL)), "{}")
		answer := s.Do(http.MethodPatch, path, paced("records_per_period", "1000000", "period_minutes", "1")).Want(
			http.StatusOK)
		assert.NotNil(t, answer.JSON()["pacing"], what)
	}
}

// A trigger takes both from the start, and a retry goes on as its batch did.
func TestBatch_TriggerAndRetryAreSteered(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	definition := s.define(pacedSteps)
	steering := strings.Replace(windowed(`"timezone":"Europe/Berlin","start_minute_of_day":0,"end_minute_of_day":1440`),
		"{", `{"priority":"high",`, 1)
	batch := s.trigger(definition, strings.Replace(steering, "{", `{"records":[`+strings.Join(rowsOf(25), ",")+`],`, 1))
	b := s.until(batch, func(b map[string]any) bool { return b["job_counts"].(map[string]any)["completed"] == 10.0 })
	assert.JSONEq(t, steering, mustJSON(t, map[string]any{"priority": b["priority"], "pacing": b["pacing"]}))
	pgtest.MoveClock(t, s.owner, 5*time.Minute)
	s.until(batch, func(b map[string]any) bool { return b["job_counts"].(map[string]any)["completed"] == 20.0 })
	assert.Equal(t, 5.0, s.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel",
		nil).Want(http.StatusOK).JSON()["job_counts"].(map[string]any)["unprocessed"])

	again := s.Do(http.MethodPost, "/flows/batches/"+batch+"/retry", nil).Want(http.StatusOK).
		JSON()["batch_id"].(string)
	b = s.get("/flows/batches/" + again)
	assert.JSONEq(t, steering, mustJSON(t, map[string]any{"priority": b["priority"], "pacing": b["pacing"]}))
	assert.Equal(t, 5.0, b["job_counts"].(map[string]any)["queued"],
		"the next release is five minutes after the last one of the batch")
	pgtest.MoveClock(t, s.owner, 5*time.Minute)
	assert.Equal(t, "completed", s.await(again)["status"])

	later := s.trigger(definition, `{"scheduled_at":"2100-01-01T00:00:00Z",`+steering[1:])
	assert.Equal(t, 1.0, s.get("/flows/batches/" + later)["job_counts"].(map[string]any)["staged"])
	s.Do(http.MethodPatch, "/flows/batches/"+later, paced("period_minutes", "7")).Want(http.StatusOK)
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

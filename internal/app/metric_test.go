package app_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/apitest"
)

// TestMetrics_Documented: the table of metrics has all that there are, and no other.
func TestMetrics_Documented(t *testing.T) {
	t.Parallel()
	p := start(t)
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "## Metrics\n")
	table, _, _ = strings.Cut(table, "## Traces\n")
	told := regexp.MustCompile("flowlane_[a-z_]+").FindAllString(table, -1)
	have := p.Metrics()
	slices.Sort(told)
	slices.Sort(have)
	assert.Equal(t, slices.Compact(have), slices.Compact(told))
}

// TestMetrics_Work: what waits, what is tried again, how long calls and commits take can be seen.
func TestMetrics_Work(t *testing.T) {
	t.Parallel()
	var calls int
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch calls++; calls {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 3:
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(receiver.Close)
	p := startWith(t, func(cfg *app.Config) {
		cfg.AllowHosts = []string{strings.TrimPrefix(receiver.URL, "http://")}
	})
	api := apitest.NewClient(t, p.URL(), p.key)
	var flow struct{ ID string }
	api.Do("POST", "/flows/definitions", fmt.Sprintf(`{"name":"get","status":"active","steps":[{"id":"s","tasks":[
		{"id":"t","action_id":"core__http__request","params":{"url":"%s"},
			"retry":{"max_attempts":3,"initial_seconds":1}}]}]}`, receiver.URL)).Want(201).Into(&flow)
	trigger := func(n int) {
		records := strings.Repeat(`,{}`, n)[1:]
		api.Do("POST", "/flows/definitions/"+flow.ID+"/trigger", `{"records":[`+records+`],"lane":"compliance"}`).Want(200)
	}
	trigger(1)
	require.Eventually(t, func() bool {
		lines := metricsOf(t, p)
		return slices.Contains(lines, `flowlane_call_retries_total{action="core__http__request"} 1`) &&
			slices.Contains(lines, `flowlane_call_seconds_count{action="core__http__request",outcome="success"} 1`)
	}, 20*time.Second, 50*time.Millisecond)
	assert.Contains(t, strings.Join(metricsOf(t, p), "\n"), "flowlane_commit_seconds_count ")

	succeeded := 1
	require.Eventually(t, func() bool { // the first of them is refused, those that follow wait for it
		trigger(1)
		succeeded++
		return strings.Contains(strings.Join(metricsOf(t, p), "\n"), `flowlane_call_delays_total{reason="backoff"} `)
	}, 20*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		return slices.Contains(metricsOf(t, p), fmt.Sprintf(
			`flowlane_call_seconds_count{action="core__http__request",outcome="success"} %d`, succeeded))
	}, 20*time.Second, 50*time.Millisecond)

	api.Do("POST", "/admin/dispatch/pause", `{"reason":"a look"}`).Want(201)
	trigger(7)
	require.Eventually(t, func() bool { // numbers of all processes are read now and then
		lines := metricsOf(t, p)
		return slices.Contains(lines, `flowlane_queue_records{lane="compliance"} 7`) &&
			slices.Contains(lines, `flowlane_queue_paused_records{lane="compliance"} 7`)
	}, 30*time.Second, 250*time.Millisecond)
	text := strings.Join(metricsOf(t, p), "\n")
	for _, want := range []string{`flowlane_unknown_outcomes{age="1m",state="unresolved"} 0`, "flowlane_snapshot_age_seconds ",
		"flowlane_lease_losses_total 0", "flowlane_queue_oldest_seconds{lane=",
		`flowlane_due_overdue_seconds{kind="housekeeping"} `} {
		assert.Contains(t, text, want)
	}
}

// TestMetrics_Busy: a process whose connections are all in use is ready, and its database is not away.
func TestMetrics_Busy(t *testing.T) {
	t.Parallel()
	p := start(t)
	for p.Pool.Stat().AcquiredConns() < p.Pool.Stat().MaxConns() {
		conn, err := p.Pool.Acquire(t.Context())
		require.NoError(t, err)
		t.Cleanup(conn.Release)
	}
	res, err := http.Get(p.OperatorURL() + "/readyz")
	require.NoError(t, err)
	defer res.Body.Close()
	assert.Equal(t, http.StatusOK, res.StatusCode)
	lines := metricsOf(t, p)
	assert.Contains(t, lines, "flowlane_database_up 1")
	assert.Contains(t, lines, `flowlane_process{role="requests"} 1`)
	assert.Contains(t, lines, `flowlane_process{role="work"} 1`)
}

// TestMetrics_Failing: work that fails again and again is counted, though none of it is ever late.
func TestMetrics_Failing(t *testing.T) {
	t.Parallel()
	p := start(t)
	_, err := p.Pool.Exec(t.Context(), `INSERT INTO flow.due (kind, key, due_at, lease_seconds, failures)
		SELECT 'schedule', 'of nothing ' || n, flow.clock() + interval '1 minute', 10, n FROM generate_series(3, 5) n`)
	require.NoError(t, err)
	assert.Contains(t, metricsOf(t, p), `flowlane_due_failing{kind="schedule"} 2`)
}

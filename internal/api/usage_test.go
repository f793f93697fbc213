package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/dialersim"
)

type usageFigures struct{ Batches, Jobs, Calls, Records int64 }

type usageItem struct {
	Key, Name *string
	usageFigures
}

func (i usageItem) key() string {
	if i.Key == nil {
		return ""
	}
	return *i.Key
}

type usageAnswer struct {
	From, To string
	Totals   usageFigures
	Items    []usageItem
	Omitted  int
}

func (s *stack) usage(query string) (u usageAnswer) {
	s.t.Helper()
	s.Do(http.MethodGet, "/flows/usage?"+query, nil).Want(http.StatusOK).Into(&u)
	return u
}

// byKey are the items that are not all zero.
func (u usageAnswer) byKey() map[string]usageFigures {
	out := map[string]usageFigures{}
	for _, i := range u.Items {
		if i.usageFigures != (usageFigures{}) {
			out[i.key()] = i.usageFigures
		}
	}
	return out
}

// sums are the calls and records of the organization's raw call rows, by an expression over them.
func (s *stack) sums(org, key string) map[string]usageFigures {
	s.t.Helper()
	rows, err := s.owner.Query(s.t.Context(), `SELECT coalesce((`+key+
		`)::text, ''), count(*), sum(records) FROM flow.call WHERE org_id = $1 GROUP BY 1`, org)
	require.NoError(s.t, err)
	out := map[string]usageFigures{}
	for rows.Next() {
		var k string
		var f usageFigures
		require.NoError(s.t, rows.Scan(&k, &f.Calls, &f.Records))
		out[k] = f
	}
	require.NoError(s.t, rows.Err())
	return out
}

// worked is an organization that did many things: uploads with rejected rows, an upload with an unclear outcome that
// was looked up, changes by another credential, requests that fail, work without calls, and a batch that was cancelled.
type worked struct {
	*stack
	second  string
	batches map[string][]string // by definition
}

func work(t *testing.T) worked {
	t.Helper()
	s := serveStack(t, true)
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{{Kind: "equals", Field: "n",
		Value: []byte("3")}}})
	w := worked{stack: s, batches: map[string][]string{}}
	w.second = s.made("/credentials",
		`{"name":"second","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"beta","password":"x"}}`)
	s.sim.SetAccount("beta", dialersim.AccountSettings{Limits: wide})
	up := s.define(uploadSteps)
	two := s.define(`[{"id":"a","tasks":[{"id":"m","action_id":"dialer__api__modify","credential_id":"` + w.second +
		`","params":{"list":"l","key":"{{ input.id }}","fields":{"n":1}}}]},
		{"id":"b","tasks":[{"id":"t","action_id":"core__flow__transform","params":{"value":1}},{"id":"g","action_id":"core__http__request","params":{"url":"SIM/nowhere"}}]}]`)
	still := s.define(transformSteps)
	start := func(def, body string) string {
		b := s.trigger(def, body)
		w.batches[def] = append(w.batches[def], b)
		return b
	}
	s.sim.AddFault(dialersim.Fault{Kind: "cut_after_accept", Operation: "upload", Count: 1})
	s.await(start(up, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(30)))))
	for _, b := range []string{
		start(up, fmt.Sprintf(`{"record_set_id":%q}`, s.upload(rowsOf(7)))),
		start(two, `{"records":[{"id":"x"},{"id":"y"}]}`), start(two, `{"records":[{"id":"z"}]}`),
		start(still, `{"records":[{"n":1},{"n":2}]}`),
	} {
		s.await(b)
	}
	gone := start(up, `{"records":[{"id":"1"},{"id":"2"}],"scheduled_at":"2100-01-01T00:00:00Z"}`)
	s.Do(http.MethodPost, "/flows/batches/"+gone+"/cancel", nil).Want(http.StatusOK)
	return w
}

// started are the batches and jobs of each definition, as the list of batches has them.
func (w worked) started(t *testing.T) (byDefinition map[string]usageFigures, total usageFigures) {
	t.Helper()
	byDefinition = map[string]usageFigures{}
	for _, item := range w.pages("/flows/batches", 2) {
		def := field[string](t, item, "definition_id")
		f := byDefinition[def]
		n := int64(field[float64](t, item, "record_count"))
		byDefinition[def] = usageFigures{Batches: f.Batches + 1, Jobs: f.Jobs + n}
		total.Batches++
		total.Jobs += n
	}
	return byDefinition, total
}

// TestUsage_OfRawRows compares usage with the rows that it is the sum of.
func TestUsage_OfRawRows(t *testing.T) {
	t.Parallel()
	w := work(t)
	org := w.orgID(w.Key)
	byDefinition, total := w.started(t)
	for _, f := range w.sums(org, "0") {
		total.Calls, total.Records = f.Calls, f.Records
	}
	require.Greater(t, total.Calls, int64(6))

	today := w.usage("")
	assert.Equal(t, total, today.Totals)
	assert.Len(t, today.Items, 30)
	assert.Equal(t, map[string]usageFigures{today.To: total}, today.byKey())
	assert.Equal(t, today.To, today.Items[29].key())

	// A definition has the calls of its actions, but for lookups, which have none.
	byAction := w.sums(org, "action_id")
	up, two, still := w.definitionOf("dialer__api__upload"), w.definitionOf("dialer__api__modify"),
		w.definitionOf("core__flow__transform")
	want := map[string]usageFigures{}
	for id, f := range byDefinition {
		want[id] = f
	}
	add := func(id string, actions ...string) {
		f := want[id]
		for _, a := range actions {
			f.Calls += byAction[a].Calls
			f.Records += byAction[a].Records
		}
		want[id] = f
	}
	add(up, "dialer__api__upload")
	add(two, "dialer__api__modify", "core__http__request")
	add("", "dialer__api__list_imports", "dialer__api__get_import")
	require.Positive(t, want[""].Calls, "the unclear upload was not looked up")
	require.Zero(t, want[still].Calls)
	assert.Equal(t, want, w.usage("group_by=definition").byKey())

	with := func(f usageFigures, definitions ...string) usageFigures {
		for _, d := range definitions {
			f.Batches += byDefinition[d].Batches
			f.Jobs += byDefinition[d].Jobs
		}
		return f
	}
	want = byAction
	want["dialer__api__upload"] = with(want["dialer__api__upload"], up)
	want["dialer__api__modify"] = with(want["dialer__api__modify"], two)
	want["core__http__request"] = with(want["core__http__request"], two)
	want["core__flow__transform"] = with(want["core__flow__transform"], two, still)
	assert.Equal(t, want, w.usage("group_by=action").byKey())

	want = w.sums(org, "credential_id")
	want[w.credential] = with(want[w.credential], up)
	want[w.second] = with(want[w.second], two)
	want[""] = with(want[""], two, still)
	assert.Equal(t, want, w.usage("group_by=credential").byKey())

	for _, by := range []string{"day", "definition", "credential", "action"} {
		assert.Equal(t, total, w.usage("group_by="+by).Totals, by)
		var other usageAnswer
		w.other.Do(http.MethodGet, "/flows/usage?group_by="+by, nil).Want(http.StatusOK).Into(&other)
		assert.Zero(t, other.Totals, by)
		assert.Empty(t, other.byKey(), by)
	}
	// Calls are only kept for a while.
	before := w.usage("group_by=action")
	_, err := w.owner.Exec(t.Context(), "DELETE FROM flow.call")
	require.NoError(t, err)
	assert.Equal(t, before, w.usage("group_by=action"))
}

// definitionOf is the newest definition whose first task calls an action.
func (w worked) definitionOf(action string) (id string) {
	w.t.Helper()
	for _, item := range w.pages("/flows/definitions", 50) {
		var d struct {
			ID    string
			Steps []struct {
				Tasks []struct {
					ActionID string `json:"action_id"`
				}
			}
		}
		require.NoError(w.t, json.Unmarshal(item, &d))
		if d.Steps[0].Tasks[0].ActionID == action {
			id = d.ID
		}
	}
	return id
}

func TestUsage_Names(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	def := s.define(uploadSteps)
	s.await(s.trigger(def, `{"input_data":{"id":"1"}}`))
	name := func(by string) any {
		item := s.get("/flows/usage?group_by=" + by)["items"].([]any)[0].(map[string]any)
		return item["name"]
	}
	assert.Equal(t, "flow", name("definition"))
	assert.Equal(t, "sim", name("credential"))
	assert.Equal(t, "Upload records to a list", name("action"))
	assert.Nil(t, name("day"))
	s.Do(http.MethodDelete, "/flows/definitions/"+def, nil).Want(http.StatusNoContent)
	s.Do(http.MethodDelete, "/credentials/"+s.credential, nil).Want(http.StatusNoContent)
	assert.Nil(t, name("definition"))
	assert.Nil(t, name("credential"))
}

// TestUsage_Days: what is of another day stays there.
func TestUsage_Days(t *testing.T) {
	t.Parallel()
	s := serveStack(t, true)
	def := s.define(uploadSteps)
	for range 3 {
		s.await(s.trigger(def, `{"input_data":{"id":"1"}}`))
	}
	org := s.orgID(s.Key)
	// One batch begins at the first instant of a day, one at the last of it, one at the first of the next.
	for i, at := range []string{"2026-03-01T00:00:00Z", "2026-03-01T23:59:59.999999Z", "2026-03-02T00:00:00Z"} {
		_, err := s.owner.Exec(t.Context(),
			`UPDATE flow.batch SET created_at = $1 WHERE id = (SELECT id FROM flow.batch WHERE org_id = $2 ORDER BY id OFFSET $3 LIMIT 1)`, at, org, i)
		require.NoError(t, err)
	}
	_, err := s.owner.Exec(t.Context(), `UPDATE flow.usage SET day = '2026-03-01' WHERE org_id = $1`, org)
	require.NoError(t, err)
	u := s.usage("from=2026-02-28&to=2026-03-03")
	assert.Equal(t, usageFigures{Batches: 3, Jobs: 3, Calls: 3, Records: 3}, u.Totals)
	assert.Equal(t, map[string]usageFigures{"2026-03-01": {Batches: 2, Jobs: 2, Calls: 3, Records: 3},
		"2026-03-02": {Batches: 1, Jobs: 1}}, u.byKey())
	assert.Len(t, u.Items, 4)
	assert.Equal(t, usageFigures{Batches: 1, Jobs: 1}, s.usage("from=2026-03-02&to=2026-03-02").Totals)
	assert.Zero(t, s.usage("to=2026-02-28").Totals)
	assert.Equal(t, "2026-01-30", s.usage("to=2026-02-28").From)
	assert.Len(t, s.usage("from=2025-03-01&to=2026-03-01").Items, 366)
	assert.Zero(t, s.usage("from=0001-01-01&to=0001-01-02").Totals)
	assert.Zero(t, s.usage("from=9999-01-01&to=9999-12-31").Totals)

	path := "/flows/usage"
	s.Do(http.MethodGet, path+"?from=2025-02-28&to=2026-03-01", nil).Invalid("query.from value_error")
	s.Do(http.MethodGet, path+"?from=2026-03-02&to=2026-03-01", nil).Invalid("query.from value_error")
	s.Do(http.MethodGet, path+"?from=9999-12-31", nil).Invalid("query.from value_error")
	s.Do(http.MethodGet, path+"?from=2026-02-30&to=yesterday&group_by=hour", nil).Invalid("query.from date_parsing",
		"query.group_by enum", "query.to date_parsing")
	s.Do(http.MethodGet, path+"?from=2026-03-01T00:00:00Z", nil).Invalid("query.from date_parsing")
}

type dashboardAnswer struct {
	From, To    time.Time
	Interval    int              `json:"interval_seconds"`
	BatchCounts map[string]int64 `json:"batch_counts"`
	JobCounts   map[string]int64 `json:"job_counts"`
	SuccessRate *float64         `json:"success_rate"`
	Series      []struct {
		StartsAt                         time.Time `json:"starts_at"`
		Batches, Jobs, Succeeded, Failed int64
	}
	Slowest []dashboardDefinition `json:"slowest_definitions"`
	Failing []dashboardDefinition `json:"failing_definitions"`
	Holds   []map[string]any      `json:"active_holds"`
	HoldsN  int                   `json:"active_hold_count"`
}

type dashboardDefinition struct {
	ID                    string `json:"definition_id"`
	Name                  *string
	Batches, Jobs, Failed int64
	SuccessRate           *float64 `json:"success_rate"`
	Average               float64  `json:"average_seconds"`
	Longest               float64  `json:"max_seconds"`
}

func (s *stack) dashboard(query string) (d dashboardAnswer) {
	s.t.Helper()
	s.Do(http.MethodGet, "/flows/dashboard"+query, nil).Want(http.StatusOK).Into(&d)
	return d
}

// TestDashboard_OfRawRows compares the dashboard with every batch and every job.
func TestDashboard_OfRawRows(t *testing.T) {
	t.Parallel()
	w := work(t)
	batches, jobs := map[string]int64{}, map[string]int64{}
	type sum struct {
		batches, jobs, good, bad int64
		times                    []float64
	}
	byDefinition := map[string]*sum{}
	for _, item := range w.pages("/flows/batches", 50) {
		var b struct {
			ID, Status   string
			DefinitionID string `json:"definition_id"`
		}
		require.NoError(t, json.Unmarshal(item, &b))
		batches[b.Status]++
		if byDefinition[b.DefinitionID] == nil {
			byDefinition[b.DefinitionID] = &sum{}
		}
		s := byDefinition[b.DefinitionID]
		s.batches++
		var began, ended *time.Time // to the microsecond
		require.NoError(t, w.owner.QueryRow(t.Context(),
			"SELECT started_at, completed_at FROM flow.batch_count WHERE batch_id = $1", b.ID).Scan(&began, &ended))
		if began != nil && ended != nil {
			s.times = append(s.times, ended.Sub(*began).Seconds())
		}
	}
	for _, item := range w.pages("/flows/jobs", 50) {
		status := field[string](t, item, "status")
		jobs[status]++
		s := byDefinition[field[string](t, item, "definition_id")]
		s.jobs++
		switch status {
		case "completed", "accepted":
			s.good++
		case "failed", "rejected":
			s.bad++
		}
	}
	good, bad := jobs["completed"]+jobs["accepted"], jobs["failed"]+jobs["rejected"]
	require.Positive(t, good)
	require.Positive(t, jobs["failed"])
	require.Positive(t, jobs["rejected"])
	require.Positive(t, jobs["unprocessed"])

	d := w.dashboard("?period=1h")
	nonzero := func(m map[string]int64) map[string]int64 {
		out := map[string]int64{}
		for k, n := range m {
			if n != 0 {
				out[k] = n
			}
		}
		return out
	}
	assert.Equal(t, batches, nonzero(d.BatchCounts))
	assert.Equal(t, jobs, nonzero(d.JobCounts))
	assert.InDelta(t, float64(good)/float64(good+bad), *d.SuccessRate, 1e-9)
	var series sum
	for _, p := range d.Series {
		series.batches += p.Batches
		series.jobs += p.Jobs
		series.good += p.Succeeded
		series.bad += p.Failed
	}
	all := int64(len(w.pages("/flows/jobs", 50)))
	assert.Equal(t, sum{batches: 6, jobs: all, good: good, bad: bad}, series)
	for _, list := range [][]dashboardDefinition{d.Slowest, d.Failing} {
		require.NotEmpty(t, list)
		for _, got := range list {
			s := byDefinition[got.ID]
			assert.Equal(t, []int64{s.batches, s.jobs, s.bad}, []int64{got.Batches, got.Jobs, got.Failed})
			average, longest := 0.0, 0.0
			for _, x := range s.times {
				average += x / float64(len(s.times))
				longest = max(longest, x)
			}
			assert.InDelta(t, average, got.Average, 2e-6)
			assert.InDelta(t, longest, got.Longest, 2e-6)
			assert.Equal(t, "flow", *got.Name)
		}
	}
	assert.Len(t, d.Slowest, 3)
	assert.GreaterOrEqual(t, d.Slowest[0].Average, d.Slowest[1].Average)
	assert.Len(t, d.Failing, 2)
	assert.GreaterOrEqual(t, d.Failing[0].Failed, d.Failing[1].Failed)

	var other dashboardAnswer
	w.other.Do(http.MethodGet, "/flows/dashboard", nil).Want(http.StatusOK).Into(&other)
	assert.Nil(t, other.SuccessRate)
	assert.Empty(t, nonzero(other.BatchCounts))
	assert.Empty(t, other.Slowest)
}

// TestDashboard_Periods: a batch is in a period if it was started in it, or in the interval that the period begins in.
func TestDashboard_Periods(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	def := s.define(transformSteps)
	ages := []time.Duration{0, 50 * time.Minute, 23 * time.Hour, 6 * 24 * time.Hour, 29 * 24 * time.Hour,
		32 * 24 * time.Hour}
	for _, age := range ages {
		b := s.trigger(def, `{"records":[{"n":1},{"n":2}]}`)
		_, err := s.owner.Exec(t.Context(),
			`UPDATE flow.batch SET created_at = created_at - make_interval(secs => $2) WHERE id = $1`, b, age.Seconds())
		require.NoError(t, err)
	}
	for i, tt := range []struct {
		period           string
		length, interval time.Duration
		batches          int64
	}{
		{"1h", time.Hour, time.Minute, 2},
		{"24h", 24 * time.Hour, time.Hour, 3},
		{"7d", 7 * 24 * time.Hour, 2 * time.Hour, 4},
		{"30d", 30 * 24 * time.Hour, 6 * time.Hour, 5},
	} {
		d := s.dashboard("?period=" + tt.period)
		assert.Equal(t, map[string]int64{"queued": tt.batches}, map[string]int64{"queued": d.BatchCounts["queued"]},
			tt.period)
		assert.Equal(t, 2*tt.batches, d.JobCounts["queued"], tt.period)
		assert.Nil(t, d.SuccessRate, tt.period)
		assert.Equal(t, int(tt.interval/time.Second), d.Interval, tt.period)
		assert.Len(t, d.Series, int(tt.length/tt.interval)+1, tt.period)
		assert.Equal(t, d.From, d.Series[0].StartsAt, tt.period)
		assert.LessOrEqual(t, d.To.Sub(d.From), tt.length+tt.interval, tt.period)
		assert.GreaterOrEqual(t, d.To.Sub(d.From), tt.length, tt.period)
		at := int(d.To.Add(-ages[i+1]).Sub(d.From) / tt.interval)
		if i+1 < len(ages) && tt.batches > int64(i+1) {
			near := d.Series[max(0, at-1)].Batches + d.Series[at].Batches + d.Series[min(at+1, len(d.Series)-1)].Batches
			assert.Positive(t, near, "%s: the batch is not where it belongs", tt.period)
		}
	}
	assert.Equal(t, s.dashboard("?period=24h").BatchCounts, s.dashboard("").BatchCounts)
	s.Do(http.MethodGet, "/flows/dashboard?period=2h", nil).Invalid("query.period enum")
}

func TestDashboard_Holds(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	org, foreign := s.orgID(s.Key), s.orgID(s.other.Key)
	hold := func(org any, scope, domain, status, expires string) string {
		id := uuid.Must(uuid.NewV7()).String()
		_, err := s.owner.Exec(t.Context(),
			`INSERT INTO flow.pause (id, org_id, scope, domain, bucket, status, cause, created_at, expires_at)
			VALUES ($1, $2, $3, nullif($4, ''), CASE $3 WHEN 'bucket' THEN 'upload' END, $5, 'admin_request', flow.clock(), flow.clock() + nullif($6, '')::interval)`,
			id, org, scope, domain, status, expires)
		require.NoError(t, err)
		return id
	}
	want := []any{hold(org, "global", "", "active", ""), hold(org, "domain", s.tenancy, "active", "1 hour"),
		hold(nil, "bucket", s.tenancy, "active", "1 minute")}
	hold(org, "global", "", "released", "")
	hold(org, "global", "", "active", "-1 second")
	hold(foreign, "global", "", "active", "")
	hold(nil, "bucket", "dialer-0000000000000000", "active", "1 minute")
	d := s.dashboard("")
	var got []any
	for _, h := range d.Holds {
		got = append([]any{h["id"]}, got...)
	}
	assert.Equal(t, want, got, "newest first")
	assert.Equal(t, 3, d.HoldsN)
	assert.Equal(t, "upload", d.Holds[0]["bucket"])
	assert.Equal(t, s.tenancy, d.Holds[1]["tenancy_id"])
	assert.Nil(t, d.Holds[2]["expires_at"])
}

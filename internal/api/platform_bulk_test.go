package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/dispatch"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/provider/platformsim"
)

const (
	bulkOpen, bulkUpload, bulkClose = "salesforce__rest__open_job", "salesforce__rest__bulk_upsert",
		"salesforce__rest__close_job"
	bulkAbort = "salesforce__rest__abort_job"

	bulkUpsert = `"params":{"object":"Contact","external_id_field":"Ext__c","record":"{{ input }}"}`
	bulkInsert = `"params":{"object":"Contact","key_field":"LastName","record":"{{ input }}"}`
)

// bulkFlow defines a flow of one task that has Salesforce do a job.
func bulkFlow(p platforms, credential, action, params string) string {
	p.t.Helper()
	return p.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"salesforce__rest__%s","credential_id":%q,%s,
		"retry":{"max_attempts":5,"initial_seconds":0.1}}]}]`, action, credential, params))
}

func recordsOf(records []string) string { return `{"records":[` + strings.Join(records, ",") + `]}` }

// hurry has jobs asked about as soon as their last question was answered, until the test is over.
func (p platforms) hurry() {
	p.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(p.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, sql := range []string{
				"UPDATE flow.call SET next_check_at = flow.clock() WHERE state IN ('unknown', 'awaiting')",
				"UPDATE flow.due SET due_at = flow.clock() WHERE kind = 'reconcile' AND NOT leased",
			} {
				if _, err := p.owner.Exec(ctx, sql); err != nil {
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	p.t.Cleanup(func() { stop(); <-done })
}

// pass has the time be over in which calls that are not over could arrive.
func (p platforms) pass() {
	p.t.Helper()
	_, err := p.owner.Exec(p.t.Context(), `UPDATE flow.call SET send_before = claimed_at - interval '1 hour'
		WHERE action_id LIKE 'salesforce__rest__bulk_%' AND state IN ('intent', 'unknown')`)
	require.NoError(p.t, err)
}

// once fails the test unless each of these records was done once.
func (p platforms) once(records int, prefix string) {
	p.t.Helper()
	arrived := p.sims["salesforce"].Arrivals(bulkUpload)
	maps.DeleteFunc(arrived, func(key string, _ int) bool { return !strings.HasPrefix(key, prefix) })
	assert.Len(p.t, arrived, records)
	for key, n := range arrived {
		assert.Equal(p.t, 1, n, key)
	}
}

// TestPlatform_SalesforceBulk: records go as jobs of Bulk API 2.0, and each has its own outcome: those that were
// rejected have Salesforce's reason, the others their Ids. What a job did not come to goes again in another one.
func TestPlatform_SalesforceBulk(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	p.hurry()
	sim, credential := p.sims["salesforce"], p.signIn("salesforce")
	upsert := bulkFlow(p, credential, "bulk_upsert", bulkUpsert)

	require.NoError(t, sim.AddFault(platformsim.Fault{Kind: "job_failed", Accept: true, Action: bulkClose}))
	half := p.trigger(upsert, recordsOf(numbered(10, `{"Ext__c":"half-%d"}`)))
	assert.Equal(t, map[string]int{"accepted": 10}, counted(p.await(half)))
	assert.Equal(t, 1, sim.Totals().Struck["job_failed"])
	p.once(10, "half-")
	require.NoError(t, sim.AddFault(platformsim.Fault{Kind: "job_failed", Action: bulkClose}))
	lost := p.trigger(upsert, recordsOf(numbered(3, `{"Ext__c":"lost-%d"}`)))
	assert.Equal(t, map[string]int{"failed": 3}, counted(p.await(lost)),
		"nobody knows that another job would do better")
	assert.Equal(t, "InternalServerError : the job was given up", p.get("/flows/jobs/" + lost +
		".0")["error"].(map[string]any)["provider_message"])
	opened := sim.Totals().Accepted[bulkOpen]

	rejected := map[string]string{}
	for i := range 20 {
		key, why := fmt.Sprintf("K-%d", i*97), fmt.Sprintf("Required \"field\", no. %d", i)
		require.NoError(t, sim.Reject(platformsim.Rule{Action: bulkUpload, Field: "Ext__c", Equals: key,
			Code: "REQUIRED_FIELD_MISSING", Message: why}))
		rejected[key] = "REQUIRED_FIELD_MISSING:" + why + ":--"
	}
	records := append(numbered(2000, `{"Ext__c":"K-%d","LastName":"Name, \"quoted\"\nand more","Phone":null}`),
		`{"LastName":"nobody"}`)
	wide := []string{`{"Ext__c":"wide-0"`, `{"Ext__c":"wide-1"`}
	for i := range wide {
		wide[i] += strings.Join(numbered(300, `,"f`+wide[i][len(wide[i])-2:len(wide[i])-1]+`_%d":1`), "") + "}"
	}
	many := p.trigger(upsert, fmt.Sprintf(`{"record_set_id":%q}`, p.upload(records)))
	two := p.trigger(upsert, recordsOf(wide))
	assert.Equal(t, map[string]int{"accepted": 1980, "rejected": 20, "failed": 1}, counted(p.await(many)))
	p.once(2000, "K-")
	got := map[string]string{}
	for _, line := range p.lines("/flows/batches/" + many + "/results?format=ndjson") {
		var row struct {
			Position int    `json:"position"`
			Status   string `json:"status"`
			Output   struct {
				ID string `json:"sf__Id"`
			} `json:"output"`
			Error struct {
				Message string `json:"provider_message"`
			} `json:"error"`
		}
		require.NoError(t, json.Unmarshal(line, &row), "%s", line)
		switch row.Status {
		case "rejected":
			got[fmt.Sprintf("K-%d", row.Position)] = row.Error.Message
		case "accepted":
			assert.Len(t, row.Output.ID, 18)
		}
	}
	assert.Equal(t, rejected, got)
	assert.Contains(t, p.get("/flows/jobs/" + many + ".2000")["error"].(map[string]any)["message"],
		`The row has no "Ext__c"`)
	assert.Equal(t, map[string]int{"accepted": 2}, counted(p.await(two)))
	totals := sim.Totals()
	assert.Equal(t, opened+3, totals.Accepted[bulkOpen],
		"2,000 records are one job, and no table has more than 500 columns")
	assert.Equal(t, totals.Accepted[bulkOpen], totals.Accepted[bulkClose])
	assert.Empty(t, totals.Mistakes)
	assert.Zero(t, p.number("SELECT count(*) FROM flow.call WHERE key_sums IS NOT NULL"), "nothing is kept of keys")
}

// TestPlatform_SalesforceBulk_Lost: whichever request of a job gets no answer, and wherever the process that sends them
// is lost, new records are created once. A job that was committed is found by its reference; one that was not is begun
// anew once its commit cannot arrive any more.
func TestPlatform_SalesforceBulk_Lost(t *testing.T) {
	t.Parallel()
	var withheld atomic.Int32
	p := servePlatforms(t, func(c *app.Config) {
		c.Dispatch.Observed = func(r dispatch.RoundTrip) {
			if r.Outcome == provider.NotArrived {
				withheld.Add(1)
			}
		}
	})
	p.hurry()
	sim, credential := p.sims["salesforce"], p.signIn("salesforce")
	insert := bulkFlow(p, credential, "bulk_insert", bulkInsert)
	begin := func(name string) string {
		return p.trigger(insert, recordsOf(numbered(5, `{"LastName":"`+name+`-%d"}`)))
	}
	ends := func(batch, name string, jobs, commits int) {
		t.Helper()
		assert.Equal(t, map[string]int{"accepted": 5}, counted(p.await(batch)), name)
		p.once(5, name+"-")
		totals := sim.Totals()
		assert.Equal(t, []int{jobs, commits}, []int{totals.Accepted[bulkOpen], totals.Accepted[bulkClose]},
			"jobs and commits, once %s is over", name)
	}
	// No answer to each of the requests, or none that can be read: of six batches at once, whichever it strikes.
	for _, fault := range []platformsim.Fault{
		{Kind: "cut", Accept: true, Action: bulkOpen}, {Kind: "cut", Accept: true, Action: bulkUpload},
		{Kind: "status", Action: bulkUpload},
		{Kind: "cut", Accept: true, Action: bulkClose}, {Kind: "garbage", Action: bulkClose},
	} {
		require.NoError(t, sim.AddFault(fault))
	}
	batches := map[string]string{}
	for i := range 6 {
		name := fmt.Sprintf("cut-%d", i)
		batches[name] = begin(name)
	}
	for name, batch := range batches {
		assert.Equal(t, map[string]int{"accepted": 5}, counted(p.await(batch)), name)
	}
	// Batches whose records went in one call were struck as one, and left a fault over.
	for i := len(batches); sim.Totals().Struck["garbage"] == 0; i++ {
		name := fmt.Sprintf("cut-%d", i)
		batches[name] = begin(name)
		assert.Equal(t, map[string]int{"accepted": 5}, counted(p.await(batches[name])), name)
	}
	p.once(5*len(batches), "cut-")
	jobs, commits := sim.Totals().Accepted[bulkOpen], sim.Totals().Accepted[bulkClose]
	assert.Equal(t, 3, jobs-commits, "those that were struck before their commit")
	assert.Equal(t, 2, sim.Totals().Accepted[bulkAbort], "of those, all whose reference was known")
	for kind, n := range map[string]int{"cut": 3, "status": 1, "garbage": 1} {
		assert.Equal(t, n, sim.Totals().Struck[kind], kind)
	}

	// The commit did not arrive, and may do so for some time.
	require.NoError(t, sim.AddFault(platformsim.Fault{Kind: "cut", Action: bulkClose}))
	batch, asked := begin("absent"), sim.Totals().Accepted["salesforce__rest__get_job"]
	p.until(batch, func(b map[string]any) bool { return counted(b)["needs_reconcile"] == 5 })
	p.eventually(func() bool { return sim.Totals().Accepted["salesforce__rest__get_job"] > asked+1 })
	jobs, commits = jobs+1, commits+1
	assert.Equal(t, jobs, sim.Totals().Accepted[bulkOpen], "it waits")
	p.pass()
	jobs++
	ends(batch, "absent", jobs, commits)

	// Nobody hears of the commit, because whoever sent it is lost.
	require.NoError(t, sim.AddFault(platformsim.Fault{Kind: "hang", Accept: true, Action: bulkClose}))
	batch = begin("unheard")
	jobs, commits = jobs+1, commits+1
	p.eventually(func() bool { return sim.Totals().Struck["hang"] == 1 })
	p.pass()
	ends(batch, "unheard", jobs, commits)
	assert.Equal(t, 2, sim.Totals().Accepted[bulkAbort], "none that may have been committed")

	// A process that was taken for lost at its upload goes on afterwards: it commits nothing.
	release, uploads := p.holdAnswer(http.MethodPut), sim.Totals().Accepted[bulkUpload]
	batch = begin("late")
	p.eventually(func() bool { return sim.Totals().Accepted[bulkUpload] > uploads })
	p.pass()
	jobs, commits = jobs+2, commits+1
	ends(batch, "late", jobs, commits)
	before := withheld.Load()
	release()
	p.eventually(func() bool { return withheld.Load() > before })
	ends(batch, "late", jobs, commits)
	assert.Empty(t, sim.Totals().Mistakes)
}

// TestPlatform_SalesforceBulk_Cancelled: a job whose batch is cancelled during its upload is not committed, and not
// left open.
func TestPlatform_SalesforceBulk_Cancelled(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	sim := p.sims["salesforce"]
	release := p.holdAnswer(http.MethodPut)
	batch := p.trigger(bulkFlow(p, p.signIn("salesforce"), "bulk_insert", bulkInsert),
		recordsOf([]string{`{"LastName":"Lovelace"}`}))
	p.eventually(func() bool { return sim.Totals().Accepted[bulkUpload] == 1 })
	p.Do(http.MethodPost, "/flows/batches/"+batch+"/cancel", nil).Want(http.StatusOK)
	cancelled := time.Now()
	// until then a call may still go out that was begun
	p.eventually(func() bool { return time.Since(cancelled) > time.Second })
	release()
	p.eventually(func() bool { return p.number("SELECT count(*) FROM flow.call WHERE state = 'intent'") == 0 })
	assert.Equal(t, "cancelled", p.await(batch)["status"])
	totals := sim.Totals()
	assert.Equal(t, []int{1, 1, 0}, []int{totals.Accepted[bulkOpen], totals.Accepted[bulkAbort],
		totals.Accepted[bulkClose]})
	assert.Empty(t, totals.Mistakes)
}

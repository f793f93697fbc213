package api_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/platformsim"
)

// TestPlatform_OpenJobs: Zendesk has at most 30 jobs open, however fast it takes them and whichever of two processes
// hands them over. A job has its place until its result is known.
func TestPlatform_OpenJobs(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	p.process()
	sim, credential := p.sims["zendesk"], p.signIn("zendesk")
	flow := p.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"zendesk__support__import_users","credential_id":%q,
		"params":{"user":{"email":"{{ input.email }}"}}}]}]`, credential))
	var batches []string
	for i := range 2 {
		set := p.upload(numbered(1700, fmt.Sprintf(`{"email":"%d-%%d@x"}`, i)))
		batches = append(batches, p.trigger(flow, fmt.Sprintf(`{"record_set_id":%q}`, set)))
	}
	for _, batch := range batches {
		assert.Equal(t, map[string]any{"accepted": 1700.0}, ended(p.await(batch)))
	}
	assert.Equal(t, 30, sim.Most()["open jobs"])
	totals := sim.Totals()
	assert.Equal(t, 34, totals.Accepted["zendesk__support__import_users"])
	assert.Empty(t, totals.Limited)
	assert.Empty(t, totals.Mistakes)
}

// TestPlatform_Five9_Processes: of a Five9 user's calls no two are under way at once where two processes make them,
// those for results and counters included.
func TestPlatform_Five9_Processes(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	p.process()
	sim, credential := p.sims["five9"], p.signIn("five9")
	require.NoError(t, sim.AddFault(platformsim.Fault{Kind: "slow", MS: 10, Probability: 1}))
	imports := five9Flow(p, credential, "add_records_async", five9Row("Leads", ""))
	singles := five9Flow(p, credential, "add_record",
		`{"list":"Others","record":{"number1":"{{ input.phone }}"},"keys":["number1"]}`)
	changes := five9Flow(p, credential, "update_contact",
		`{"record":{"number1":"{{ input.phone }}"},"keys":["number1"]}`)
	both := func() bool { return p.number(`SELECT count(DISTINCT owner) FROM flow.call WHERE records > 0`) == 2 }
	for round := 0; round < 2 || !both() && round < 10; round++ {
		var batches []string
		for i, flow := range []string{imports, singles, changes} {
			batches = append(batches, p.trigger(flow, five9Records(round*1000+i*100, 4)))
		}
		for i, batch := range batches {
			status := []string{"accepted", "completed", "completed"}[i]
			assert.Equal(t, map[string]int{status: 4}, counted(p.await(batch)))
		}
	}
	assert.True(t, both(), "both processes made calls")
	assert.Equal(t, 1, sim.Most()["one call of a user"])
	assert.Empty(t, sim.Totals().Limited)
}

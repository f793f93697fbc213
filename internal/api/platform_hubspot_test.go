package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/platformsim"
)

// TestPlatform_HubSpot: of 2,000 contacts that go to a simulated HubSpot by the template that ships, every tenth is
// rejected inside an answer of 207. Each has its own outcome and reason, no interval of ten seconds has more calls than
// the account may make, and what answers tell of the account's plan replaces the cap of the catalog. A margin leaves 15
// of the 190 calls, so that these windows bind.
func TestPlatform_HubSpot(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	sim := p.sims["hubspot"]
	require.NoError(t, sim.Reject(platformsim.Rule{EveryNth: 10, Code: "VALIDATION_ERROR",
		Message: "The email is not valid."}))
	var shown struct {
		Slots []struct{ Name string }
	}
	p.Do(http.MethodGet, "/flows/templates/hubspot-upsert-contacts", nil).Want(http.StatusOK).Into(&shown)
	credential := p.signIn("hubspot")
	p.Do(http.MethodPut, "/platforms/hubspot/domains/"+p.get("/credentials/" + credential)["tenancy_id"].(string)+
		"/margins/crm", `{"margin_percent":8}`).Want(http.StatusOK)
	made := p.Do(http.MethodPost, "/flows/definitions", map[string]any{"name": "contacts", "status": "active",
		"template_id": "hubspot-upsert-contacts",
		"bindings":    map[string]string{shown.Slots[0].Name: credential}}).Want(http.StatusCreated).JSON()
	rows := make([]string, 2000)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"email":"p%d@example.com"}`, i)
	}
	batch := p.trigger(made["id"].(string), fmt.Sprintf(`{"record_set_id":%q}`, p.upload(rows)))
	assert.Equal(t, map[string]int{"accepted": 1800, "rejected": 200}, counted(p.await(batch)))
	reasons := map[string]int{}
	for _, line := range p.lines("/flows/batches/" + batch + "/results?format=ndjson") {
		if text := string(line); strings.Contains(text, `"rejected"`) {
			assert.Contains(t, text, "The email is not valid.")
			reasons["VALIDATION_ERROR"] += strings.Count(text, `"provider_code":"VALIDATION_ERROR"`)
		}
	}
	assert.Equal(t, map[string]int{"VALIDATION_ERROR": 200}, reasons)
	for email, n := range sim.Arrivals("hubspot__crm__upsert") {
		assert.Equal(t, 1, n, email)
	}
	assert.Empty(t, sim.Totals().Limited)
	most := sim.Most()["ten seconds"]
	assert.Greater(t, most, 1)
	assert.LessOrEqual(t, most, 15)
	assert.EqualValues(t, 190, p.number(
		`SELECT coalesce(max(cap), 0) FROM flow.domain_limit WHERE bucket = 'crm' AND window_seconds = 10`))
}

// TestPlatform_SignInCounts: whose account a credential belongs to is asked in a call that the platform counts, and so
// do we.
func TestPlatform_SignInCounts(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	for platform, limit := range map[string]struct{ bucket, name string }{
		"hubspot": {"crm", "ten seconds"}, "stripe": {"api", "per second"},
	} {
		account := p.get("/credentials/" + p.signIn(platform))["tenancy_id"]
		counted := p.sims[platform].Most()[limit.name]
		assert.Positive(t, counted, platform)
		for _, debited := range []string{"count(*) FROM flow.call", "coalesce(sum(own), 0) FROM flow.rolling"} {
			ours := p.number("SELECT "+debited+" WHERE domain = $1 AND bucket = $2", account, limit.bucket)
			assert.Equal(t, counted, ours, "%s: %s", platform, debited)
		}
	}
}

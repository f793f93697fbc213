package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/platformsim"
)

// five9Flow defines a flow of one task that calls Five9.
func five9Flow(p platforms, credential, action, params string) string {
	p.t.Helper()
	return p.define(fmt.Sprintf(`[{"id":"s","tasks":[{"id":"t","action_id":"five9__config__%s","credential_id":%q,"params":%s}]}]`, action, credential, params))
}

// five9Row is the parameters of an import into a list, with further settings.
func five9Row(list, more string) string {
	return `{"list":"` + list +
		`","fields":["number1","first_name"],"keys":["number1"],"row":{"item":["{{ input.phone }}","{{ input.name }}"]}` + more + `}`
}

func five9Records(first, n int) string {
	var rows []string
	for i := first; i < first+n; i++ {
		rows = append(rows, fmt.Sprintf(`{"phone":"555120%04d","name":"N%d"}`, i, i))
	}
	return `{"records":[` + strings.Join(rows, ",") + `]}`
}

// TestPlatform_Five9: contacts go to a simulated Five9 by asynchronous imports, while others go one by one. Those that
// an import rejects end with its reasons, the others are accepted, each arrives once, no call is made while another one
// of the user is under way, and what Five9 counted is read.
func TestPlatform_Five9(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	sim := p.sims["five9"]
	// Answers take their time, so that calls that go together would meet.
	require.NoError(t, sim.AddFault(platformsim.Fault{Kind: "slow", MS: 20, Probability: 1}))
	for _, i := range []int{0, 7, 99, 100, 149} {
		require.NoError(t, sim.Reject(platformsim.Rule{
			Field: "item.0", Equals: fmt.Sprintf("555120%04d", i), Code: "ParseError",
			Message: fmt.Sprintf("Number %d is not valid", i),
		}))
	}
	credential := p.signIn("five9")
	imports := p.trigger(five9Flow(p, credential, "add_records_async", five9Row("Leads", "")), five9Records(0, 150))
	singles := p.trigger(five9Flow(p, credential, "add_record",
		`{"list":"Others","record":{"number1":"{{ input.phone }}"},"keys":["number1"]}`), five9Records(1000, 20))
	tenancy := p.get("/credentials/" + credential)["tenancy_id"].(string)
	assert.Equal(t, map[string]int{"completed": 20}, counted(p.await(singles)))
	assert.Equal(t, map[string]int{"accepted": 145, "rejected": 5}, counted(p.await(imports)))

	rejected := map[string]string{}
	for _, line := range p.lines("/flows/batches/" + imports + "/results?format=ndjson") {
		var row struct {
			Position int    `json:"position"`
			Status   string `json:"status"`
			Error    struct {
				Code    string `json:"provider_code"`
				Message string `json:"provider_message"`
			} `json:"error"`
		}
		require.NoError(t, json.Unmarshal(line, &row), "%s", line)
		if row.Status == "rejected" {
			rejected[row.Error.Message] = row.Error.Code
		}
	}
	assert.Equal(t, map[string]string{"Number 0 is not valid": "ParseError", "Number 7 is not valid": "ParseError",
		"Number 99 is not valid":  "ParseError",
		"Number 100 is not valid": "ParseError", "Number 149 is not valid": "ParseError"}, rejected)
	arrived := sim.Arrivals("five9__config__add_records_async")
	assert.Len(t, arrived, 150)
	for phone, n := range arrived {
		assert.Equal(t, 1, n, phone)
	}
	assert.Len(t, sim.Arrivals("five9__config__add_record"), 20)

	// The service may be asking for itself, and only one call of a user is made at once.
	p.eventually(func() bool {
		answer := p.Do(http.MethodPost, "/platforms/five9/domains/"+tenancy+"/refresh-limits", nil)
		return answer.Status != http.StatusServiceUnavailable && assert.Equal(t, http.StatusOK, answer.Status)
	})
	totals := sim.Totals()
	assert.Positive(t, totals.Accepted["five9__config__get_counters"])
	assert.EqualValues(t, 1000, p.number(
		`SELECT max(cap) FROM flow.domain_limit WHERE bucket = 'upload_async' AND window_seconds = 3600`))
	assert.EqualValues(t, 20, p.number( // what may be missing in the reading counts until the next one
		`SELECT sum(own + foreign_spend - unsure) FROM flow.ledger WHERE bucket = 'single_upload'
			AND window_seconds = 86400`))
	assert.Equal(t, 1, sim.Most()["one call of a user"], "no call is made while another one is under way")
	assert.Empty(t, totals.Limited)
	assert.Empty(t, totals.Mistakes)
}

// TestPlatform_Five9_Unclear: an import of which nobody knows whether it arrived goes again where contacts are found by
// a key, and never where it calls people or empties the list.
func TestPlatform_Five9_Unclear(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	sim, credential := p.sims["five9"], p.signIn("five9")
	cut := func() {
		require.NoError(t, sim.AddFault(platformsim.Fault{Kind: "cut", Accept: true,
			Action: "five9__config__add_to_list"}))
	}
	for n, c := range map[int]struct {
		more, want string
		arrivals   int
	}{
		1: {"", "accepted", 2},
		2: {`,"call_now_mode":"ANY"`, "unresolved", 1},
		3: {`,"clean_list_before_update":true`, "unresolved", 1},
		4: {`,"keys":["number2"]`, "unresolved", 1},
	} {
		params := five9Row(fmt.Sprintf("List%d", n), c.more)
		if n == 4 {
			params = strings.Replace(params, `"keys":["number1"],`, "", 1)
		}
		cut()
		batch := p.trigger(five9Flow(p, credential, "add_to_list", params), five9Records(n*100, 2))
		p.until(batch, func(b map[string]any) bool { return counted(b)[c.want] == 2 })
		assert.Equal(t, c.arrivals, sim.Arrivals("five9__config__add_to_list")[fmt.Sprintf("555120%04d", n*100)],
			params)
	}
	assert.Empty(t, sim.Totals().Limited)
}

// TestPlatform_Five9_Users: while a call of a user is under way no other one of that user goes, be it by another
// credential, and another user of the domain calls meanwhile.
func TestPlatform_Five9_Users(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	sim := p.sims["five9"]
	one, again, other := p.signInAs("five9", "acme"), p.signInAs("five9", "acme"), p.signInAs("five9", "beta")
	account := p.get("/credentials/" + one)["tenancy_id"]
	require.Equal(t, account, p.get("/credentials/" + again)["tenancy_id"])
	require.Equal(t, account, p.get("/credentials/" + other)["tenancy_id"], "they are users of one domain")
	add := func(credential string, phone int) (batch string) {
		flow := five9Flow(p, credential, "add_record",
			`{"list":"Leads","record":{"number1":"{{ input.phone }}"},"keys":["number1"]}`)
		return p.trigger(flow, five9Records(phone, 1))
	}
	require.Equal(t, map[string]int{"completed": 1}, counted(p.await(add(one, 1))), "the counters are read by now")
	require.NoError(t, sim.AddFault(platformsim.Fault{Kind: "hang", Action: "five9__config__add_record"}))
	hanging := add(one, 2)
	p.until(hanging, func(b map[string]any) bool { return counted(b)["started"] == 1 })
	waiting := add(again, 3)
	require.Equal(t, map[string]int{"completed": 1}, counted(p.await(add(other, 4))),
		"a later call of another user has passed it")
	assert.Equal(t, map[string]int{"queued": 1}, counted(p.get("/flows/batches/"+waiting)))
	assert.Equal(t, map[string]int{"started": 1}, counted(p.get("/flows/batches/"+hanging)))
	assert.Equal(t, 2, p.number(`SELECT count(DISTINCT k) FROM flow.call, jsonb_object_keys(costs) k WHERE k LIKE 'session#%'`))
	assert.Zero(t, p.number(`SELECT count(*) FROM flow.rolling WHERE bucket LIKE 'session#%'`))
	assert.Equal(t, 1, sim.Most()["one call of a user"])
	assert.Empty(t, sim.Totals().Limited)
	sim.Close()
}

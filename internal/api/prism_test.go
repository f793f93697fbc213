package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"flowlane/internal/app"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider/platformsim"
	"flowlane/test/servers"
)

// prismCalls are calls of shipped actions what they ask the vendor for, and where their output has what the vendor's
// document shows in its answer.
var prismCalls = []struct{ action, operation, params, output, value string }{
	{
		"klaviyo__api__upsert_profile", "POST /api/profile-import",
		`{"attributes":{"email":"{{ input.email }}"}}`, "id", "01GDDKASAP8TKDDA2GRZDSVP4H",
	},
	{
		"sendgrid__marketing__upsert_contacts", "PUT /v3/marketing/contacts",
		`{"contact":{"email":"{{ input.email }}"}}`, "job_id", "string",
	},
	{
		"sendgrid__marketing__get_import", "GET /v3/marketing/contacts/imports/{id}",
		`{"job_id":"{{ input.id }}"}`, "status", "string",
	},
	{
		"slack__web__post_message", "POST /api/chat.postMessage",
		`{"channel":"C1H9RESGL","text":"{{ input.text }}"}`, "ts", "1503435956.000247",
	},
	{
		"slack__web__find_user", "GET /api/users.lookupByEmail",
		`{"email":"{{ input.email }}"}`, "user.id", "W012A3CDE",
	},
	{
		"stripe__api__create_customer", "POST /v1/customers",
		`{"email":"{{ input.email }}","metadata":{"ours":"{{ input.id }}"}}`, "id", "string",
	},
	{
		"stripe__api__create_refund", "POST /v1/refunds",
		`{"payment_intent":"{{ input.id }}","reason":"duplicate"}`, "id", "string",
	},
	{
		"twilio__messaging__send", "POST /2010-04-01/Accounts/{sid}/Messages.json",
		`{"to":"+15550100","messaging_service_sid":"{{ input.service }}","body":"{{ input.text }}"}`, "sid",
		"SMaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	},
}

// prismQuestions are what is asked when a credential is tested.
var prismQuestions = []string{
	"GET /api/accounts", "GET /v3/marketing/contacts/count", "GET /api/auth.test", "GET /v1/account",
	"GET /2010-04-01/Accounts/{sid}/Balance.json",
}

// servePrism serves the platforms of prismCalls, played by Prism by the documents of their vendors, with a credential
// for each.
func servePrism(t *testing.T) (p platforms, credentials map[string]string) {
	t.Helper()
	cat, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	documents := map[string]string{}
	operations := slices.Clone(prismQuestions)
	for _, c := range prismCalls {
		platformID, _, _ := strings.Cut(c.action, "__")
		documents[platformID] = servers.Document(t, platformsim.DocumentName(platformID))
		operations = append(operations, c.operation)
	}
	host := servers.Prism(t, slices.Collect(maps.Values(documents)), "", operations...)
	p.stack = serveStack(t, true, func(c *app.Config) {
		c.AllowHosts = append(c.AllowHosts, host)
		for platformID := range documents {
			base, err := url.Parse(cat.Services(platformID)[0].BaseURL)
			require.NoError(t, err)
			c.BaseURLs[platformID] = "http://" + host + base.Path
		}
	})
	credentials = map[string]string{}
	for platformID := range documents {
		credentials[platformID] = p.signIn(platformID)
		tested := p.Do(http.MethodPost, "/credentials/"+credentials[platformID]+"/test", nil).Want(http.StatusOK).JSON()
		assert.Equal(t, true, tested["success"], "%s: %v", platformID, tested)
	}
	return p, credentials
}

// TestPrism: what the service sends for shipped actions is what Prism takes by the documents of five vendors, and what
// Prism answers by them is read: an execution is completed with it, and what Prism refuses says why.
func TestPrism(t *testing.T) {
	t.Parallel()
	p, credentials := servePrism(t)
	tasks, want := []string{}, map[string]string{}
	for _, c := range prismCalls {
		platformID, _, _ := strings.Cut(c.action, "__")
		task, err := json.Marshal(object{
			"id": c.action, "action_id": c.action, "credential_id": credentials[platformID],
			"params": json.RawMessage(c.params),
		})
		require.NoError(t, err)
		tasks, want[c.action] = append(tasks, string(task)), c.value
	}
	flow := func(tasks ...string) string {
		return p.define(`[{"id":"s","tasks":[` + strings.Join(tasks, ",") + `]}]`)
	}
	batch := p.trigger(flow(tasks...), `{"records":[
		{"id":"o-1","email":"ada@example.com","text":"hello","service":"MG0123456789abcdef0123456789abcdef"}]}`)
	p.await(batch)
	execution := p.Do(http.MethodGet, "/flows/executions/"+batch+".0.1", nil).Want(http.StatusOK).Body
	assert.Equal(t, "completed", gjson.GetBytes(execution, "status").String(), "%s", execution)
	got := map[string]string{}
	for i, c := range prismCalls {
		got[c.action] = gjson.GetBytes(execution, fmt.Sprintf("steps.0.tasks.%d.output.%s", i, c.output)).String()
	}
	assert.Equal(t, want, got, "%s", execution)

	// SendGrid's document has an answer for what is invalid; for what Twilio's has none, Prism speaks for itself.
	for i, refused := range map[int]struct{ record, status, code, said string }{
		1: {`{"email":7}`, "failed", "provider_refused", "field_name: error message"},
		7: {
			`{"text":"hello","service":"MG-2"}`, "unresolved", "outcome_unknown",
			"Request body property MessagingServiceSid must NOT have fewer than 34 characters",
		},
	} {
		batch := p.trigger(flow(tasks[i]), `{"records":[`+refused.record+`]}`)
		p.until(batch, func(b map[string]any) bool { return counted(b)[refused.status] == 1 })
		failed := p.get("/flows/jobs/" + batch + ".0")["error"].(object)
		assert.Equal(t, []any{refused.code, refused.said}, []any{failed["code"], failed["provider_message"]}, "%v",
			failed)
	}
}

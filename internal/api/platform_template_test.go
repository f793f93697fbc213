package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"flowlane/internal/app"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider/platformsim"
)

// platformRun is how the template of a platform is run against the simulated platform.
type platformRun struct {
	// rejects are the fields by which the platform rejects records whose value is "bad".
	rejects string
	// records are those of the start; without them the example of the template is started.
	metadata string
	records  []string
	// want are the counts of jobs, action and arrivals what arrived at the platform.
	want     map[string]any
	action   string
	arrivals map[string]int
}

// platformRuns are the runs of all templates of third-party platforms, by their ids.
var platformRuns = map[string]platformRun{
	"slack-notify": {
		metadata: `{"channel":"C1H9RESGL"}`, records: []string{`{"text":"one"}`,
			`{"text":"two","channel":"C2H9RESGL"}`},
		want: map[string]any{"completed": 2.0}, action: "slack__web__post_message",
		arrivals: map[string]int{"C1H9RESGL one": 1, "C2H9RESGL two": 1},
	},
	"sendgrid-sync-contacts": {
		metadata: `{}`, records: []string{`{"email":"ada@example.com"}`, `{"email":"grace@example.com"}`},
		want: map[string]any{"accepted": 2.0}, action: "sendgrid__marketing__upsert_contacts",
		arrivals: map[string]int{"ada@example.com": 1, "grace@example.com": 1},
	},
	"braze-set-attributes": {
		metadata: `{}`, records: []string{`{"external_id":"1","a":1}`, `{"external_id":"2","a":2}`},
		want: map[string]any{"completed": 2.0}, action: "braze__users__set_attributes", arrivals: map[string]int{"1": 1,
			"2": 1},
	},
	"airtable-upsert-records": {
		metadata: `{"base":"app1","table":"People","merge_on":"Email"}`, records: []string{`{"Email":"a@x"}`,
			`{"Email":"b@x"}`},
		want: map[string]any{"accepted": 2.0}, action: "airtable__records__upsert", arrivals: map[string]int{"a@x": 1,
			"b@x": 1},
	},
	"mailchimp-sync-members": {
		metadata: `{"list_id":"l1"}`, records: []string{`{"email":"A@x"}`, `{"email":"bad"}`, `{"email":"b@x"}`},
		rejects: "email_address",
		want:    map[string]any{"accepted": 2.0, "rejected": 1.0}, action: "mailchimp__audience__upsert_members",
		arrivals: map[string]int{"A@x": 1, "bad": 1, "b@x": 1},
	},
	"genesys-add-contacts": {
		metadata: `{"contact_list_id":"l1"}`, records: []string{`{"id":"1","data":{"phone":"1"}}`,
			`{"id":"2","data":{"phone":"2"}}`},
		want: map[string]any{"accepted": 2.0}, action: "genesys__outbound__add_contacts",
		arrivals: map[string]int{"1": 1, "2": 1},
	},
	"hubspot-upsert-contacts": {
		metadata: `{}`, records: []string{`{"email":"a@x"}`, `{"email":"bad"}`, `{"email":"b@x"}`}, rejects: "id",
		want: map[string]any{"accepted": 2.0, "rejected": 1.0}, action: "hubspot__crm__upsert",
		arrivals: map[string]int{"a@x": 1, "bad": 1, "b@x": 1},
	},
	"five9-add-contacts": {
		metadata: `{"list":"Leads"}`, records: []string{`{"phone":"5551208111"}`, `{"phone":"bad"}`,
			`{"phone":"5551208113"}`}, rejects: "item.0",
		want: map[string]any{"accepted": 2.0, "rejected": 1.0}, action: "five9__config__add_to_list",
		arrivals: map[string]int{"5551208111": 1, "bad": 1, "5551208113": 1},
	},
	"klaviyo-sync-profiles": {
		metadata: `{}`, records: []string{`{"email":"a@x"}`, `{"email":"bad"}`}, rejects: "data.attributes.email",
		want: map[string]any{"completed": 1.0, "failed": 1.0}, action: "klaviyo__api__upsert_profile",
		arrivals: map[string]int{"a@x": 1},
	},
	"salesforce-upsert-records": {
		metadata: `{"object":"Contact","external_id_field":"Ext__c"}`, rejects: "Ext__c",
		records: []string{`{"Ext__c":"1","LastName":"A"}`, `{"Ext__c":"bad","LastName":"B"}`,
			`{"Ext__c":"2","LastName":"C"}`},
		want: map[string]any{"accepted": 2.0, "rejected": 1.0}, action: "salesforce__rest__upsert",
		arrivals: map[string]int{"1": 1, "bad": 1, "2": 1},
	},
	"shopify-sync-customers": {
		metadata: `{}`, records: []string{`{"email":"a@x"}`, `{"email":"bad"}`}, rejects: "variables.identifier.email",
		want: map[string]any{"completed": 1.0, "failed": 1.0}, action: "shopify__admin__set_customer",
		arrivals: map[string]int{"a@x": 1},
	},
	"klaviyo-import-profiles": { // the errors of a job are on two pages
		metadata: `{}`, rejects: "attributes.first_name",
		records: append(numbered(120, `{"external_id":"bad-%d","first_name":"bad"}`),
			numbered(40, `{"external_id":"good-%d","first_name":"Ada"}`)...),
		want: map[string]any{"accepted": 40.0, "rejected": 120.0}, action: "klaviyo__api__import_profiles",
	},
	"salesforce-bulk-upsert": {
		metadata: `{"object":"Contact","external_id_field":"Ext__c"}`, rejects: "Ext__c",
		records: []string{`{"Ext__c":"1","LastName":"A"}`, `{"Ext__c":"bad","Email":"b@x"}`,
			`{"Ext__c":"2","Phone":null}`},
		want: map[string]any{"accepted": 2.0, "rejected": 1.0}, action: "salesforce__rest__bulk_upsert",
		arrivals: map[string]int{"1": 1, "bad": 1, "2": 1},
	},
	"zendesk-import-users": {
		metadata: `{}`, records: []string{`{"email":"a@x"}`, `{"email":"bad"}`, `{"email":"b@x"}`}, rejects: "email",
		want: map[string]any{"accepted": 2.0, "rejected": 1.0}, action: "zendesk__support__import_users",
		arrivals: map[string]int{"a@x": 1, "bad": 1, "b@x": 1},
	},
	"twilio-send-messages": {
		metadata: `{"from":"+15550100"}`, records: []string{`{"phone":"+15550101","text":"hi"}`,
			`{"phone":"bad","text":"hi"}`}, rejects: "To",
		want: map[string]any{"completed": 1.0, "failed": 1.0}, action: "twilio__messaging__send",
		arrivals: map[string]int{"+15550101": 1},
	},
	"zendesk-upsert-users": {
		metadata: `{}`, records: []string{`{"email":"a@x"}`, `{"email":"bad"}`}, rejects: "user.email",
		want: map[string]any{"completed": 1.0, "failed": 1.0}, action: "zendesk__support__upsert_user",
		arrivals: map[string]int{"a@x": 1},
	},
	"stripe-create-customers": {
		metadata: `{}`, records: []string{`{"email":"a@x"}`, `{"email":"bad"}`}, rejects: "email",
		want: map[string]any{"completed": 1.0, "failed": 1.0}, action: "stripe__api__create_customer",
		arrivals: map[string]int{"a@x": 1},
	},
}

// numbered makes records of a text with a number.
func numbered(count int, text string) []string {
	out := make([]string, count)
	for i := range out {
		out[i] = fmt.Sprintf(text, i)
	}
	return out
}

// sampleFields are fields of credentials that must look in a certain way.
var sampleFields = map[string]string{"mailchimp.api_key": "acme-us6",
	"twilio.account_sid": "AC0123456789abcdef0123456789abcdef"}

// platforms is a stack that reaches every simulated platform.
type platforms struct {
	*stack
	sims map[string]*platformsim.Sim
	// held is what an answer waits for, by the request; nil for nothing.
	held *atomic.Pointer[func(*http.Request)]
}

// holdAnswer keeps the next answer to a request of this method, whose work is done, until release is called.
func (p platforms) holdAnswer(method string) (release func()) {
	open, once := make(chan struct{}), new(sync.Once)
	wait := func(r *http.Request) {
		if r.Method == method {
			once.Do(func() { p.held.Store(nil); <-open })
		}
	}
	p.held.Store(&wait)
	release = sync.OnceFunc(func() { close(open) })
	p.t.Cleanup(release)
	return release
}

func servePlatforms(t *testing.T, options ...func(c *app.Config)) platforms {
	t.Helper()
	cat, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	p := platforms{sims: map[string]*platformsim.Sim{}, held: new(atomic.Pointer[func(*http.Request)])}
	urls, hosts := map[string]string{}, []string{}
	for _, shown := range cat.Platforms() {
		if shown.ID == "core" || shown.ID == "dialer" || shown.ID == "aws" {
			continue
		}
		sim, err := platformsim.New(cat, shown.ID, platformsim.Options{Seed: 1})
		require.NoError(t, err)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sim.ServeHTTP(w, r)
			if wait := p.held.Load(); wait != nil {
				(*wait)(r)
			}
		}))
		t.Cleanup(server.Close)
		t.Cleanup(sim.Close)
		p.sims[shown.ID] = sim
		urls[shown.ID] = sim.BaseURL(server.URL)
		hosts = append(hosts, strings.TrimPrefix(server.URL, "http://"))
	}
	p.stack = serveStack(t, true, func(c *app.Config) {
		for id, url := range urls {
			c.BaseURLs[id] = url
		}
		c.AllowHosts = append(c.AllowHosts, hosts...)
		for _, o := range options {
			o(c)
		}
	})
	return p
}

// signIn stores a credential of a platform, as its service asks for one.
func (p platforms) signIn(platformID string) (credentialID string) {
	p.t.Helper()
	return p.signInAs(platformID, "acme")
}

// signInAs makes a credential whose fields are this text.
func (p platforms) signInAs(platformID, text string) (credentialID string) {
	p.t.Helper()
	cat, err := catalog.Load(catalog.Options{})
	require.NoError(p.t, err)
	svc := cat.Services(platformID)[0]
	fields := map[string]string{}
	for _, f := range svc.CredentialFields {
		if fields[f.Name] = sampleFields[platformID+"."+f.Name]; fields[f.Name] == "" {
			fields[f.Name] = text
		}
	}
	for _, l := range svc.Labels {
		if len(l.Values) > 0 && l.Field != "" {
			fields[l.Field] = l.Values[0]
		}
	}
	body := map[string]any{"name": platformID, "platform_id": platformID, "auth_method": svc.AuthMethod,
		"credentials": fields}
	raw, err := json.Marshal(body)
	require.NoError(p.t, err)
	return p.made("/credentials", string(raw))
}

// TestPlatform_Templates makes a definition of every platform's template and runs it through the service against the
// simulated platform: each record arrives once, and ends as the platform said.
func TestPlatform_Templates(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	for id, run := range platformRuns {
		t.Run(id, func(t *testing.T) {
			t.Parallel() // some wait for jobs of the platform
			platformID, _, _ := strings.Cut(run.action, "__")
			sim := p.sims[platformID]
			require.NotNil(t, sim)
			if run.rejects != "" {
				require.NoError(t, sim.Reject(platformsim.Rule{Action: run.action, Field: run.rejects, Equals: "bad"}))
			}
			var shown struct {
				Slots []struct{ Name string }
			}
			p.Do(http.MethodGet, "/flows/templates/"+id, nil).Want(http.StatusOK).Into(&shown)
			require.Len(t, shown.Slots, 1)
			made := p.Do(http.MethodPost, "/flows/definitions", map[string]any{
				"name": id, "status": "active", "template_id": id,
				"bindings": map[string]string{shown.Slots[0].Name: p.signIn(platformID)},
			}).Want(http.StatusCreated).JSON()
			batch := p.await(p.trigger(made["id"].(string), `{"metadata":`+run.metadata+`,"records":[`+
				strings.Join(run.records, ",")+`]}`))
			assert.Equal(t, run.want, ended(batch))
			if run.arrivals == nil {
				run.arrivals = map[string]int{}
				for i := range run.records {
					run.arrivals[gjson.Get(run.records[i], "external_id").String()] = 1
				}
			}
			assert.Equal(t, run.arrivals, sim.Arrivals(run.action))
			assert.Empty(t, sim.Totals().Mistakes)
		})
	}
}

// TestPlatform_Documented: every platform that ships has a template, and a run of it.
func TestPlatform_Documented(t *testing.T) {
	t.Parallel()
	cat, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	for _, shown := range cat.Platforms() {
		if shown.ID == "core" || shown.ID == "dialer" || shown.ID == "aws" {
			continue
		}
		found := false
		for _, run := range platformRuns {
			found = found || strings.HasPrefix(run.action, shown.ID+"__")
		}
		assert.True(t, found, "platform %s has no template that is run", shown.ID)
		assert.FileExists(t, "../../docs/platforms/"+shown.ID+".md")
	}
}

package api_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/platform/provider/platformsim"
)

// TestPlatform_Faults: what a platform carried out before the connection broke is not done twice, is found, or is left
// to a person; what it put off goes again.
func TestPlatform_Faults(t *testing.T) {
	t.Parallel()
	p := servePlatforms(t)
	for name, tc := range map[string]struct {
		fault          platformsim.Fault
		action, params string
		want           map[string]int
		arrivals       map[string]int // under the action of the fault
	}{
		"looked up by its id": {
			platformsim.Fault{Kind: "cut", Accept: true, Action: "genesys__outbound__add_contacts"},
			"genesys__outbound__add_contact",
			`{"contact_list_id":"l1","contact":{"id":"{{ input.id }}","data":{"n":1}}}`,
			map[string]int{"completed": 1}, map[string]int{"k1": 1},
		},
		"sent again": {
			platformsim.Fault{Kind: "cut", Accept: true, Action: "salesforce__rest__upsert"},
			"salesforce__rest__upsert",
			`{"object":"Contact","external_id_field":"Ext__c","record":{"attributes":{"type":"Contact"},"Ext__c":"{{ input.id }}"}}`,
			map[string]int{"accepted": 1}, map[string]int{"k1": 2},
		},
		"left to a person": {
			platformsim.Fault{Kind: "cut", Accept: true, Action: "salesforce__rest__create"},
			"salesforce__rest__create", `{"record":{"attributes":{"type":"Contact"},"LastName":"{{ input.id }}"}}`,
			map[string]int{"unresolved": 1}, map[string]int{"k1": 1},
		},
		"asked again": {
			platformsim.Fault{Kind: "status", Action: "zendesk__support__get_job"},
			"zendesk__support__import_users", `{"user":{"email":"{{ input.id }}"}}`,
			map[string]int{"accepted": 1}, map[string]int{},
		},
		"throttled": {
			platformsim.Fault{Kind: "over_limit", Action: "shopify__admin__set_customer"},
			"shopify__admin__set_customer",
			`{"identifier":{"email":"{{ input.id }}"},"input":{"email":"{{ input.id }}"}}`,
			map[string]int{"completed": 1}, map[string]int{"k1": 1},
		},
	} {
		platformID, _, _ := strings.Cut(tc.action, "__")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := p.sims[platformID]
			require.NoError(t, sim.AddFault(tc.fault))
			definition := p.define(`[{"id":"s","tasks":[{"id":"t","action_id":"` + tc.action + `","credential_id":"` +
				p.signIn(platformID) + `","params":` + tc.params + `}]}]`)
			batch := p.trigger(definition, `{"records":[{"id":"k1"}]}`)
			p.until(batch, func(b map[string]any) bool { return maps.Equal(tc.want, counted(b)) })
			if len(tc.arrivals) > 0 {
				assert.Equal(t, tc.arrivals, sim.Arrivals(tc.fault.Action))
			}
			assert.Positive(t, sim.Totals().Struck[tc.fault.Kind], "the fault struck")
		})
	}
}

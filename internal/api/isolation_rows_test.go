package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"flowlane/internal/trigger/event"
)

// The rows of the isolation matrix. An operation that changes something has its row in auditedCalls (audit_test.go);
// what the others need stands here.

// party is an organization, and something of each kind that it has. The client is one of its admins.
type party struct {
	*stack
	// ids are its things by the name of the parameter, of a path or of a list, that names them.
	ids map[string]string
}

// newParty makes an organization whose credential is of this account of the platform.
func newParty(s *stack, account string) *party {
	own := *s
	own.Client = s.As(s.tenant(account))
	own.identify(account)
	p := &party{stack: &own}
	flow := p.define(transformSteps)
	started := p.Do(http.MethodPost, "/flows/definitions/"+flow+"/trigger", `{"input_data":{"n":1}}`).Want(
		http.StatusOK).JSON()
	batch := started["batch_id"].(string)
	who := readMe(p.Client)
	p.ids = map[string]string{
		"account_id":    who.Account.ID,
		"batch_id":      batch,
		"credential_id": p.credential,
		"definition_id": flow,
		"execution_id":  batch + ".0.1",
		"import_id":     p.imported(),
		"job_id":        batch + ".0",
		"key_id":        *who.APIKeyID,
		"pause_id":      p.openPause(p.domainPath(), `{"lane":"backfill","duration_seconds":604800}`)["id"].(string),
		"record_set_id": p.upload(rowsOf(3)),
		"resource_id":   flow,
		"tenancy_id":    p.tenancy,
		"trigger_id":    started["trigger_id"].(string),
		"variable_set_id": p.made("/flows/variables", `{"name":"`+p.unique()+
			`","keys":[],"versions":[{"name":"one","values":{}}]}`),
		"version": "1",
		"store":   p.filledStore(), "key": "k",
		"schedule_id":     p.ranSchedule(),
		"slug":            "standard",
		"subscription_id": p.subscribe(listening(flow, event.RecordSetExpired)),
		// The catalog and the templates belong to nobody.
		"action_id": "core__flow__transform", "bucket": "upload", "lane": "bulk", "platform": "dialer",
		"platform_id": "core", "service_id": "core__flow", "template_id": "http-copy",
	}
	p.ids["call_id"] = p.exchanged(batch)
	p.schedule(scheduleOf(flow, "0 0 29 2 *"))
	h := p.webhook(hookOf(flow))
	p.ids["webhook_id"], p.ids["delivery_id"] = h.id,
		p.send(h, "m", "{}").Want(http.StatusAccepted).JSON()["delivery_id"].(string)
	return p
}

// exchanged is a call that carried the first record of a batch.
func (s *stack) exchanged(batch string) (id string) {
	s.t.Helper()
	id = uuid.Must(uuid.NewV7()).String()
	_, err := s.owner.Exec(s.t.Context(), `
		INSERT INTO flow.exchange (org_id, id, domain, action_id, credential_id, lane, attempt, records, batch_id, step_no, task_no, positions, outcome, claimed_at, detail)
		SELECT org_id, $1, $2, 'core__flow__transform', $4, 'bulk', 1, 1, id, 0, 0, '{[0,1)}', 'success', flow.clock(), '' FROM flow.batch WHERE id = $3`,
		id, s.tenancy, batch, s.credential)
	require.NoError(s.t, err)
	return id
}

// in is the same party in a subtest, which alone fails.
func (p *party) in(t *testing.T) *party {
	t.Helper()
	own := *p.stack
	own.t, own.Client = t, p.In(t)
	return &party{stack: &own, ids: p.ids}
}

// missing is the text of the answer to an id that is unknown, by the parameter of the path.
var missing = map[string]string{
	"action_id":       "Action not found",
	"batch_id":        "Batch not found",
	"bucket":          "Bucket not found",
	"call_id":         "Call not found",
	"credential_id":   "Credential not found",
	"definition_id":   "Definition not found",
	"delivery_id":     "Delivery not found",
	"execution_id":    "Execution not found",
	"import_id":       "Platform not found",
	"job_id":          "Job not found",
	"key":             "Record not found",
	"key_id":          "API key not found",
	"lane":            "Lane not found",
	"layer":           "Layer not found",
	"pause_id":        "Pause not found",
	"platform":        "Platform not found",
	"platform_id":     "Platform not found",
	"record_set_id":   "Record set not found",
	"schedule_id":     "Schedule not found",
	"service_id":      "Service not found",
	"slug":            "Webhook not found",
	"store":           "Store not found",
	"subscription_id": "Event subscription not found",
	"template_id":     "Template not found",
	"tenancy_id":      "Domain not found",
	"trigger_id":      "Trigger not found",
	"variable_set_id": "VariableSet not found",
	"version":         "Version not found",
	"webhook_id":      "Webhook not found",
}

// unauditedCalls prepares one call of every operation that takes a body and changes nothing.
var unauditedCalls = map[string]func(s *stack) auditedCall{
	"dryRunDefinition": func(s *stack) auditedCall {
		return auditedCall{method: "POST", path: "/flows/definitions/" + s.define(transformSteps) + "/dry-run",
			body: `{"input_data":{"n":1}}`, status: 200}
	},
	"dryRunNewDefinition": func(*stack) auditedCall {
		return auditedCall{method: "POST", path: "/flows/definitions/dry-run", body: `{"name":"d","steps":` +
			transformSteps + `}`, status: 200}
	},
	"previewSchedule": func(*stack) auditedCall {
		return auditedCall{method: "POST", path: "/flows/schedules/preview", body: `{"cron_expression":"0 9 * * *"}`,
			status: 200}
	},
	"estimateUpload": func(s *stack) auditedCall {
		return auditedCall{method: "POST", path: "/platforms/dialer/domains/" + s.tenancy + "/estimate",
			body: `{"record_count":5,"action_id":"dialer__api__upload"}`, status: 200}
	},
	"receiveWebhook": func(s *stack) auditedCall { // nobody is asked for a key, and whoever does not sign is sent away
		return auditedCall{method: "POST", path: s.webhook(s.webhookBody()).url, body: `{}`, status: 401}
	},
	// nobody is asked for a key, and whoever brings no good state is sent away
	"returnAuthorization": func(*stack) auditedCall {
		return auditedCall{method: "GET", path: "/credentials/callback?code=c&state=s", status: 400}
	},
	"testNewCredential": func(*stack) auditedCall {
		return auditedCall{method: "POST", path: "/credentials/test", body: auditedCredential, status: 200}
	},
	"endSession": func(*stack) auditedCall {
		return auditedCall{method: "DELETE", path: sessions, status: 204}
	},
	"validateDefinition": func(*stack) auditedCall {
		return auditedCall{method: "POST", path: "/flows/definitions/validate", body: `{"name":"d","steps":` +
			transformSteps + `}`, status: 200}
	},
}

// These say by the contract, not by the document, who may do what: reads are for members and changes for admins, but
// for those named here.
var (
	memberChanges = []string{"cancelBatch", "createSession", "createSessionLink", "createStreamToken",
		"dryRunDefinition", "dryRunNewDefinition", "endSession", "estimateUpload", "previewSchedule", "refreshLimits",
		"updateBatch", "validateDefinition"}
	adminReads  = []string{"listAuditLog"}
	streamReads = []string{"streamBatch", "streamExecution"}
	publicReads = []string{"/catalog/actions", "/catalog/platforms", "/catalog/services", "/flows/templates"}
	signedCalls = []string{"receiveWebhook", "returnAuthorization"}
	readsByPost = []string{"createStreamToken", "dryRunDefinition", "dryRunNewDefinition", "estimateUpload",
		"previewSchedule", "validateDefinition"}
	// groupsOfTheirOwn are the groups of the scopes of operations that stand under another tag; empty for no scope.
	groupsOfTheirOwn = map[string]string{
		"getMe": "", "createSession": "", "createSessionLink": "", "endSession": "", "createStreamToken": "executions",
		"triggerDefinition": "batches", "pauseBatch": "batches", "resumeBatch": "batches",
		"resolveBatch": "jobs", "listCalls": "executions", "getCall": "executions",
		"listCatalogImports": "definitions", "getCatalogImport": "definitions", "importPlatform": "definitions",
		"deleteCatalogImport": "definitions",
	}
)

// reference is a field of a body that names something of an organization: make returns the id of such a thing, and call
// names one.
type reference struct {
	make func(p *party) (id string)
	call func(p *party, id string) auditedCall
}

// nobodys are fields, by the end of their names, and parameters that name what belongs to no organization, or that are
// read back and ignored; and filters, which find nothing of others (TestBulk_Filter).
var nobodys = map[string]bool{
	"action_id": true, "org_id": true, "platform": true, "platform_id": true, "template_id": true,
	"replaceCredential tenancy_id":       true,
	"changeBatches filter.definition_id": true, "changeBatches filter.schedule_id": true,
}

// references has a row for every other field of a body that ends in _id, and for bindings: "operation field".
var references = map[string]reference{
	"createCredential tenancy_id":  {(*party).named, binding("/credentials", 201)},
	"testNewCredential tenancy_id": {(*party).named, binding("/credentials/test", 200)},
	"createDefinition bindings":    {(*party).ownCredential, fillingSlot("", 201)},
	"createDefinition steps.tasks.credential_id": {(*party).ownCredential, defining("POST", "", 201,
		"credential_id")},
	"createDefinition variable_set_id": {(*party).ownVariableSet, defining("POST", "", 201,
		"variable_set_id")},
	"createStreamToken execution_id": {(*party).ownExecution, streaming},
	"estimateUpload record_set_id":   {(*party).sealedSet, estimating},
	"replaceDefinition steps.tasks.credential_id": {(*party).ownCredential, defining("PUT", "/own", 200,
		"credential_id")},
	"replaceDefinition variable_set_id": {(*party).ownVariableSet, defining("PUT", "/own", 200,
		"variable_set_id")},
	"createSchedule definition_id":          {(*party).ownDefinition, scheduling("POST", "", 201)},
	"replaceSchedule definition_id":         {(*party).ownDefinition, scheduling("PUT", "/own", 200)},
	"updateSchedule definition_id":          {(*party).ownDefinition, scheduling("PATCH", "/own", 200)},
	"createWebhook definition_id":           {(*party).ownDefinition, hooking("POST", "", 201)},
	"updateWebhook definition_id":           {(*party).ownDefinition, hooking("PATCH", "/own", 200)},
	"createEventSubscription definition_id": {(*party).ownDefinition, subscribing("POST", "", 201)},
	"updateEventSubscription definition_id": {(*party).ownDefinition, subscribing("PATCH", "/own", 200)},
	"triggerDefinition record_set_id":       {(*party).sealedSet, triggering},
	"dryRunNewDefinition steps.tasks.credential_id": {(*party).ownCredential, defining("POST", "/dry-run", 200,
		"credential_id")},
	"dryRunNewDefinition variable_set_id": {(*party).ownVariableSet, defining("POST", "/dry-run", 200,
		"variable_set_id")},
	"validateDefinition bindings": {(*party).ownCredential, fillingSlot("/validate", 200)},
	"validateDefinition steps.tasks.credential_id": {(*party).ownCredential, defining("POST", "/validate", 200,
		"credential_id")},
	"validateDefinition variable_set_id": {(*party).ownVariableSet, defining("POST", "/validate", 200,
		"variable_set_id")},
}

func (p *party) named() string          { return p.namedTenant() }
func (p *party) ownCredential() string  { return p.credential }
func (p *party) ownDefinition() string  { return p.define(transformSteps) }
func (p *party) ownVariableSet() string { return p.ids["variable_set_id"] }
func (p *party) sealedSet() string      { return p.upload(rowsOf(1)) }
func (p *party) ownExecution() string   { return p.ids["execution_id"] }

func triggering(p *party, id string) auditedCall {
	return auditedCall{method: "POST", path: "/flows/definitions/" + p.ids["definition_id"] + "/trigger",
		body: fmt.Sprintf(`{"record_set_id":%q}`, id), status: 200}
}

func streaming(_ *party, id string) auditedCall {
	return auditedCall{method: "POST", path: streamTokens, body: fmt.Sprintf(`{"execution_id":%q}`, id), status: 201}
}

// binding sends a credential that is to be bound to a tenant.
func binding(path string, status int) func(p *party, id string) auditedCall {
	return func(p *party, id string) auditedCall {
		return auditedCall{method: "POST", path: path, body: dialerCredential(p.unique(), "tenancy_id", id),
			status: status}
	}
}

// fillingSlot sends a definition made from a template, whose one slot takes a credential.
func fillingSlot(path string, status int) func(p *party, id string) auditedCall {
	return func(_ *party, id string) auditedCall {
		body := fmt.Sprintf(`{"name":"d","template_id":"dialer-bulk-upload","bindings":{"dialer":%q}}`, id)
		return auditedCall{method: "POST", path: "/flows/definitions" + path, body: body, status: status}
	}
}

func estimating(p *party, id string) auditedCall {
	return auditedCall{method: "POST", path: "/platforms/dialer/domains/" + p.tenancy + "/estimate",
		body: fmt.Sprintf(`{"action_id":"dialer__api__upload","record_set_id":%q}`, id), status: 200}
}

// ranSchedule is a schedule that has started a batch.
func (p *party) ranSchedule() string {
	id := p.schedule(p.yearly())
	p.Do("POST", "/flows/schedules/"+id+"/run", nil).Want(200)
	return id
}

// scheduling sends a schedule of a definition.
func scheduling(method, path string, status int) func(p *party, id string) auditedCall {
	return func(p *party, id string) auditedCall {
		path := strings.Replace(path, "/own", "/"+p.ids["schedule_id"], 1)
		return auditedCall{method: method, path: "/flows/schedules" + path, body: scheduleOf(id, "0 0 29 2 *"),
			status: status}
	}
}

// hooking sends a webhook of a definition.
func hooking(method, path string, status int) func(p *party, id string) auditedCall {
	return func(p *party, id string) auditedCall {
		path := strings.Replace(path, "/own", "/"+p.ids["webhook_id"], 1)
		return auditedCall{method: method, path: "/flows/webhooks" + path, body: `{"definition_id":"` + id +
			`","description":"d"}`, status: status}
	}
}

// subscribing sends an event subscription of a definition.
func subscribing(method, path string, status int) func(p *party, id string) auditedCall {
	return func(p *party, id string) auditedCall {
		path := strings.Replace(path, "/own", "/"+p.ids["subscription_id"], 1)
		return auditedCall{method: method, path: "/flows/event-subscriptions" + path,
			body: listening(id, "batch.cancelled"), status: status}
	}
}

// defining sends a definition that names something in one field.
func defining(method, path string, status int, field string) func(p *party, id string) auditedCall {
	return func(p *party, id string) auditedCall {
		body := `{"name":"d","steps":` + transformSteps + `,"variable_version":"one","variable_set_id":"` + id + `"}`
		if field == "credential_id" {
			body = `{"name":"d","steps":` + strings.ReplaceAll(uploadSteps, "CRED", id) + `}`
		}
		path := strings.Replace(path, "/own", "/"+p.ids["definition_id"], 1)
		return auditedCall{method: method, path: "/flows/definitions" + path, body: body, status: status}
	}
}

// call prepares a call of an operation by the organization, with things of its own.
func (p *party) call(t *testing.T, op operation) auditedCall {
	t.Helper()
	if prepare, ok := auditedCalls[op.id]; ok {
		return prepare(p.stack)
	}
	if prepare, ok := unauditedCalls[op.id]; ok {
		return prepare(p.stack)
	}
	require.Equal(t, http.MethodGet, op.method,
		"%s has no row: add it to auditedCalls, or to unauditedCalls if it changes nothing", op.id)
	return auditedCall{method: op.method, path: p.fill(t, op), status: http.StatusOK}
}

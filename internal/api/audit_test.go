package api_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/api/violation"
)

type auditEntry struct {
	ID, Action, Outcome string
	CreatedAt           time.Time `json:"created_at"`
	ResourceType        string    `json:"resource_type"`
	ResourceID          string    `json:"resource_id"`
	AccountID           string    `json:"account_id"`
	AccountName         string    `json:"account_name"`
	AuthMethod          string    `json:"auth_method"`
	APIKeyID            string    `json:"api_key_id"`
	RequestID           string    `json:"request_id"`
}

type auditLog struct {
	Items      []auditEntry
	Limit      int
	Skip       int
	Total      int
	NextCursor *string `json:"next_cursor"`
}

// auditedCall is a call that changes something: its request, its status, and what it changes. Without an id the
// resource is the one that the answer names in idField.
type auditedCall struct {
	method, path string
	body         any
	status       int
	kind, id     string
	idField      string
}

// auditedCalls prepares one call of every operation that changes something. The isolation matrix takes its calls from
// here too, each several times and as two organizations: what must be unique is named by unique.
var auditedCalls = map[string]func(s *stack) auditedCall{
	"createApiKey": func(*stack) auditedCall {
		return auditedCall{"POST", "/account/api-keys", `{"name":"` + needle + `","scopes":["account:read"]}`, 201,
			"api_key", "", "id"}
	},
	"revokeApiKey": func(s *stack) auditedCall {
		id := s.made("/account/api-keys", `{"name":"x"}`)
		return auditedCall{"DELETE", "/account/api-keys/" + id, nil, 204, "api_key", id, ""}
	},
	"createStreamToken": func(s *stack) auditedCall {
		return auditedCall{"POST", "/account/auth/stream-token", nil, 201, "organization", s.orgID(s.Key), ""}
	},
	"createSession": func(*stack) auditedCall {
		return auditedCall{"POST", sessions, nil, 201, "session", "", "session_id"}
	},
	"createSessionLink": func(*stack) auditedCall {
		return auditedCall{"POST", sessions + "/link", nil, 201, "session", "", "session_id"}
	},
	"createCredential": func(*stack) auditedCall {
		return auditedCall{"POST", "/credentials", auditedCredential, 201, "credential", "", "id"}
	},
	"replaceCredential": func(s *stack) auditedCall {
		return auditedCall{"PUT", "/credentials/" + s.credential, auditedCredential, 200, "credential", s.credential,
			""}
	},
	"testCredential": func(s *stack) auditedCall {
		return auditedCall{"POST", "/credentials/" + s.credential + "/test", nil, 200, "credential", s.credential, ""}
	},
	"authorizeCredential": func(s *stack) auditedCall {
		id := s.made("/credentials", codeCredential)
		return auditedCall{"POST", "/credentials/" + id + "/authorize", nil, 200, "credential", id, ""}
	},
	"setRetention": func(s *stack) auditedCall {
		return auditedCall{"PUT", "/account/retention", `{"batches":30}`, 200, "organization", s.orgID(s.Key), ""}
	},
	"setCredentialLimits": func(s *stack) auditedCall {
		id := s.made("/credentials", codeCredential)
		return auditedCall{"PUT", "/credentials/" + id + "/limits", `{"windows":[],"max_in_flight":3}`, 200,
			"credential", id, ""}
	},
	"deleteCredential": func(s *stack) auditedCall {
		id := s.made("/credentials", auditedCredential)
		return auditedCall{"DELETE", "/credentials/" + id, nil, 204, "credential", id, ""}
	},
	"createTenant": func(s *stack) auditedCall {
		return auditedCall{"POST", "/tenants", `{"platform_id":"dialer","label":"` + s.unique() + `"}`, 201, "tenant",
			"", "id"}
	},
	"updateTenant": func(s *stack) auditedCall {
		id := s.namedTenant()
		return auditedCall{"PATCH", "/tenants/" + id, `{"label":"other"}`, 200, "tenant", id, ""}
	},
	"deleteTenant": func(s *stack) auditedCall {
		id := s.namedTenant()
		return auditedCall{"DELETE", "/tenants/" + id, nil, 204, "tenant", id, ""}
	},
	"createDefinition": func(*stack) auditedCall {
		return auditedCall{"POST", "/flows/definitions", `{"name":"d","steps":` + transformSteps + `}`, 201,
			"definition", "", "id"}
	},
	"updateDefinition": func(s *stack) auditedCall {
		id := s.define(transformSteps)
		return auditedCall{"PATCH", "/flows/definitions/" + id, `{"name":"other"}`, 200, "definition", id, ""}
	},
	"replaceDefinition": func(s *stack) auditedCall {
		id := s.define(transformSteps)
		return auditedCall{"PUT", "/flows/definitions/" + id, `{"name":"other","steps":` + transformSteps + `}`, 200,
			"definition", id, ""}
	},
	"deleteDefinition": func(s *stack) auditedCall {
		id := s.define(transformSteps)
		return auditedCall{"DELETE", "/flows/definitions/" + id, nil, 204, "definition", id, ""}
	},
	"createVariableSet": func(s *stack) auditedCall {
		return auditedCall{"POST", "/flows/variables", `{"name":"` + s.unique() + `","keys":[{"name":"a","default":"` +
			needle + `"}]}`, 201, "variable_set", "", "id"}
	},
	"replaceVariableSet": func(s *stack) auditedCall {
		id := s.made("/flows/variables", `{"name":"`+s.unique()+`","keys":[]}`)
		return auditedCall{"PUT", "/flows/variables/" + id, `{"name":"` + s.unique() + `","keys":[]}`, 200,
			"variable_set", id, ""}
	},
	"deleteVariableSet": func(s *stack) auditedCall {
		id := s.made("/flows/variables", `{"name":"`+s.unique()+`","keys":[]}`)
		return auditedCall{"DELETE", "/flows/variables/" + id, nil, 204, "variable_set", id, ""}
	},
	"createSchedule": func(s *stack) auditedCall {
		return auditedCall{"POST", "/flows/schedules", s.yearly(), 201, "schedule", "", "id"}
	},
	"replaceSchedule": func(s *stack) auditedCall {
		id := s.schedule(s.yearly())
		return auditedCall{"PUT", "/flows/schedules/" + id, s.yearly(), 200, "schedule", id, ""}
	},
	"updateSchedule": func(s *stack) auditedCall {
		id := s.schedule(s.yearly())
		return auditedCall{"PATCH", "/flows/schedules/" + id, `{"enabled":false}`, 200, "schedule", id, ""}
	},
	"deleteSchedule": func(s *stack) auditedCall {
		id := s.schedule(s.yearly())
		return auditedCall{"DELETE", "/flows/schedules/" + id, nil, 204, "schedule", id, ""}
	},
	"runSchedule": func(s *stack) auditedCall {
		return auditedCall{"POST", "/flows/schedules/" + s.schedule(s.yearly()) + "/run", nil, 200, "batch", "",
			"batch_id"}
	},
	"createEventSubscription": func(s *stack) auditedCall {
		return auditedCall{"POST", "/flows/event-subscriptions", s.deaf(), 201, "event_subscription", "", "id"}
	},
	"updateEventSubscription": func(s *stack) auditedCall {
		id := s.subscribe(s.deaf())
		return auditedCall{"PATCH", "/flows/event-subscriptions/" + id, `{"enabled":false}`, 200, "event_subscription",
			id, ""}
	},
	"deleteEventSubscription": func(s *stack) auditedCall {
		id := s.subscribe(s.deaf())
		return auditedCall{"DELETE", "/flows/event-subscriptions/" + id, nil, 204, "event_subscription", id, ""}
	},
	"createWebhook": func(s *stack) auditedCall {
		return auditedCall{"POST", "/flows/webhooks", s.webhookBody(), 201, "webhook", "", "id"}
	},
	"updateWebhook": func(s *stack) auditedCall {
		id := s.webhook(s.webhookBody()).id
		return auditedCall{"PATCH", "/flows/webhooks/" + id, `{"enabled":false}`, 200, "webhook", id, ""}
	},
	"rotateWebhookSecret": func(s *stack) auditedCall {
		id := s.webhook(s.webhookBody()).id
		return auditedCall{"POST", "/flows/webhooks/" + id + "/rotate-secret", nil, 200, "webhook", id, ""}
	},
	"replayWebhookDelivery": func(s *stack) auditedCall {
		h := s.webhook(s.webhookBody())
		id := s.deadDelivery(h)
		return auditedCall{"POST", "/flows/webhooks/" + h.id + "/deliveries/" + id + "/replay", nil, 200,
			"webhook_delivery", id, ""}
	},
	"deleteWebhook": func(s *stack) auditedCall {
		id := s.webhook(s.webhookBody()).id
		return auditedCall{"DELETE", "/flows/webhooks/" + id, nil, 204, "webhook", id, ""}
	},
	"importPlatform": func(s *stack) auditedCall {
		id := s.slug()
		return auditedCall{"POST", "/catalog/imports", s.importBody(id), 201, "catalog_import", id, ""}
	},
	"deleteCatalogImport": func(s *stack) auditedCall {
		id := s.imported()
		return auditedCall{"DELETE", "/catalog/imports/" + id, nil, 204, "catalog_import", id, ""}
	},
	"createStore": func(s *stack) auditedCall {
		name := s.unique()
		return auditedCall{"POST", "/data/stores", `{"name":"` + name +
			`","fields":[{"name":"a","type":"string"}],"layers":["l"]}`, 201, "store", name, ""}
	},
	"replaceStore": func(s *stack) auditedCall {
		name := s.filledStore()
		return auditedCall{"PUT", "/data/stores/" + name, `{"fields":[{"name":"b","type":"string"}],"layers":["l"]}`,
			200, "store", name, ""}
	},
	"deleteStore": func(s *stack) auditedCall {
		name := s.filledStore()
		return auditedCall{"DELETE", "/data/stores/" + name, nil, 204, "store", name, ""}
	},
	"upsertStoreRecords": func(s *stack) auditedCall {
		name := s.filledStore()
		return auditedCall{"POST", "/data/stores/" + name + "/records", writes(`k l {"a":"`+needle+`"}`, `j l {}`), 200,
			"store", name, ""}
	},
	"putStoreLayer": func(s *stack) auditedCall {
		name := s.filledStore()
		return auditedCall{"PUT", "/data/stores/" + name + "/records/new/layers/l", `{"values":{"a":"` + needle + `"}}`,
			200, "store_record", name + "/new", ""}
	},
	"deleteStoreLayer": func(s *stack) auditedCall {
		name := s.filledStore()
		return auditedCall{"DELETE", "/data/stores/" + name + "/records/k/layers/l", nil, 204, "store_record", name +
			"/k", ""}
	},
	"triggerDefinition": func(s *stack) auditedCall {
		return auditedCall{"POST", "/flows/definitions/" + s.define(transformSteps) + "/trigger", nil, 200, "batch", "",
			"batch_id"}
	},
	"updateBatch": func(s *stack) auditedCall {
		id := s.trigger(s.define(transformSteps), "{}")
		return auditedCall{"PATCH", "/flows/batches/" + id, `{"priority":"high"}`, 200, "batch", id, ""}
	},
	"cancelBatch": func(s *stack) auditedCall {
		id := s.Do("POST", "/flows/definitions/"+s.define(transformSteps)+"/trigger",
			nil).Want(200).JSON()["batch_id"].(string)
		return auditedCall{"POST", "/flows/batches/" + id + "/cancel", nil, 200, "batch", id, ""}
	},
	"resolveJob": func(s *stack) auditedCall {
		batch := s.trigger(s.define(uploadSteps), `{"input_data":{"id":"a"}}`)
		s.doubt(batch, "unknown")
		return auditedCall{"POST", "/flows/jobs/" + batch + ".0/resolve", `{"outcome":"accepted","note":"` + needle +
			`"}`, 200, "job", batch + ".0", ""}
	},
	"resolveBatch": func(s *stack) auditedCall {
		batch := s.trigger(s.define(uploadSteps), `{"input_data":{"id":"a"}}`)
		s.doubt(batch, "unknown")
		body := `{"outcome":"accepted","note":"` + needle + `"}`
		return auditedCall{"POST", "/flows/batches/" + batch + "/resolve", body, 200, "batch", batch, ""}
	},
	"changeBatches": func(s *stack) auditedCall {
		id := s.trigger(s.define(transformSteps), "{}")
		body := `{"action":"cancel","filter":{"ids":["` + id + `"]},"expected_count":1,"reason":"` + needle + `"}`
		return auditedCall{"POST", "/flows/batches/bulk", body, 200, "batch", id, ""}
	},
	"retryBatch": func(s *stack) auditedCall {
		id := s.trigger(s.define(transformSteps), "{}")
		s.Do("POST", "/flows/batches/"+id+"/cancel", nil).Want(200)
		return auditedCall{"POST", "/flows/batches/" + id + "/retry", nil, 200, "batch", "", "batch_id"}
	},
	"deleteBatch": func(s *stack) auditedCall {
		id := s.trigger(s.define(transformSteps), oneRecord)
		s.Do(http.MethodPost, "/flows/batches/"+id+"/cancel", `{}`).Want(http.StatusOK)
		return auditedCall{"DELETE", "/flows/batches/" + id, nil, 204, "batch", id, ""}
	},
	"createRecordSet": func(*stack) auditedCall {
		return auditedCall{"POST", "/data/record-sets", nil, 201, "record_set", "", "id"}
	},
	"appendRecords": func(s *stack) auditedCall {
		id := s.made("/data/record-sets", nil)
		return auditedCall{"POST", "/data/record-sets/" + id + "/records", `{"chunk_index":0,"records":[{"a":"` +
			needle + `"}]}`, 200, "record_set", id, ""}
	},
	"sealRecordSet": func(s *stack) auditedCall {
		id := s.made("/data/record-sets", nil)
		return auditedCall{"POST", "/data/record-sets/" + id + "/seal", `{"expected_count":0}`, 200, "record_set", id,
			""}
	},
	"deleteRecordSet": func(s *stack) auditedCall {
		id := s.made("/data/record-sets", nil)
		return auditedCall{"DELETE", "/data/record-sets/" + id, nil, 204, "record_set", id, ""}
	},
	"setMargin": func(s *stack) auditedCall {
		return auditedCall{"PUT", "/platforms/dialer/domains/" + s.tenancy + "/margins/upload", `{"margin_percent":90}`,
			200, "margin", s.tenancy + "/upload", ""}
	},
	"setLane": func(s *stack) auditedCall {
		return auditedCall{"PUT", "/platforms/dialer/domains/" + s.tenancy + "/lanes/bulk", `{"weight":7}`, 200, "lane",
			s.tenancy + "/bulk", ""}
	},
	"pauseBatch": func(s *stack) auditedCall {
		id := s.trigger(s.define(transformSteps), "{}")
		return auditedCall{"POST", "/flows/batches/" + id + "/pause", `{"reason":"` + needle + `"}`, 201, "pause", "",
			"id"}
	},
	"resumeBatch": func(s *stack) auditedCall {
		id := s.trigger(s.define(transformSteps), "{}")
		s.Do("POST", "/flows/batches/"+id+"/pause", nil).Want(201)
		return auditedCall{"POST", "/flows/batches/" + id + "/resume", nil, 200, "batch", id, ""}
	},
	"pauseDomain": func(s *stack) auditedCall {
		return auditedCall{"POST", s.domainPath() + "/pause", `{"reason":"` + needle + `","duration_seconds":60}`, 201,
			"pause", "", "id"}
	},
	"resumeDomain": func(s *stack) auditedCall {
		s.openPause(s.domainPath(), `{}`)
		return auditedCall{"POST", s.domainPath() + "/resume", nil, 200, "domain", s.tenancy, ""}
	},
	"pauseDispatch": func(*stack) auditedCall {
		return auditedCall{"POST", "/admin/dispatch/pause", `{"reason":"` + needle + `"}`, 201, "pause", "", "id"}
	},
	"resumeDispatch": func(s *stack) auditedCall {
		s.openPause("/admin/dispatch", `{}`)
		return auditedCall{"POST", "/admin/dispatch/resume", nil, 200, "organization", s.orgID(s.Key), ""}
	},
	"extendPause": func(s *stack) auditedCall {
		id := s.openPause(s.domainPath(), `{"lane":"backfill","duration_seconds":60}`)["id"].(string)
		return auditedCall{"PATCH", s.domainPath() + "/pauses/" + id, `{"duration_seconds":120}`, 200, "pause", id, ""}
	},
	"refreshLimits": func(s *stack) auditedCall {
		return auditedCall{"POST", "/platforms/dialer/domains/" + s.tenancy + "/refresh-limits", nil, 200, "domain",
			s.tenancy, ""}
	},
}

const auditedCredential = `{"name":"c","platform_id":"dialer","auth_method":"basic_auth","credentials":{"username":"acme","password":"` + needle + `"}}`

const codeCredential = `{"name":"c","platform_id":"core","auth_method":"oauth2","grant_type":"authorization_code",
	"token_url":"https://issuer.example/token","authorize_url":"https://issuer.example/authorize",
	"allowed_origins":["https://api.example"],"credentials":{"client_id":"app"}}`

// unaudited are the operations that only look as if they changed something, and endSession, which ends what keys do not
// have.
var unaudited = []string{"dryRunDefinition", "dryRunNewDefinition", "endSession", "estimateUpload", "previewSchedule",
	"receiveWebhook", "testNewCredential", "validateDefinition"}

// ownTransaction are the operations that make a call to a provider between transactions.
var ownTransaction = []string{"refreshLimits"}

// filledStore makes a store with one record, "k", and returns its name.
func (s *stack) filledStore() (name string) {
	s.t.Helper()
	name = s.unique()
	path := s.store(`{"name":"` + name + `","fields":[{"name":"a","type":"string"}],"layers":["l"]}`)
	s.write(path, `k l {"a":"x"}`)
	return name
}

func (s *stack) made(path string, body any) (id string) {
	s.t.Helper()
	return s.Do("POST", path, body).Want(http.StatusCreated).JSON()["id"].(string)
}

// TestAuditLog_EveryChange fails for an operation of the document that has no row in the tables above.
func TestAuditLog_EveryChange(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	me := s.get("/account/me")
	for _, operation := range changingOperations(t) {
		if slices.Contains(unaudited, operation) {
			continue
		}
		prepare, ok := auditedCalls[operation]
		if !ok {
			t.Errorf("%s changes something, and no test says what it leaves in the audit log", operation)
			continue
		}
		t.Run(operation, func(t *testing.T) {
			call := prepare(s)
			if !slices.Contains(ownTransaction, operation) {
				s.wantUnchangedWithoutAudit(t, call)
			}
			request := "audit-" + operation
			res := s.Do(call.method, call.path, call.body, "X-Request-Id", request).Want(call.status)
			if call.id == "" {
				call.id = res.JSON()[call.idField].(string)
			}
			var log auditLog
			s.Do("GET", "/account/audit-log?limit=1&resource_id="+url.QueryEscape(call.id), nil).Want(200).Into(&log)
			require.Len(t, log.Items, 1)
			got := log.Items[0]
			assert.WithinDuration(t, time.Now(), got.CreatedAt, time.Minute)
			got.ID, got.CreatedAt = "", time.Time{}
			account := me["account"].(map[string]any)
			assert.Equal(t, auditEntry{
				Action: operation, Outcome: "succeeded", ResourceType: call.kind, ResourceID: call.id,
				AccountID:   account["id"].(string),
				AccountName: account["name"].(string), AuthMethod: "api_key", APIKeyID: me["api_key_id"].(string),
				RequestID: request,
			}, got)
			rows := 0
			require.NoError(t, s.owner.QueryRow(t.Context(),
				`SELECT count(*) FROM flow.audit_log WHERE request_id = $1`, request).Scan(&rows))
			assert.Equal(t, 1, rows, "rows of one call")
		})
	}
	dump := ""
	require.NoError(t, s.owner.QueryRow(t.Context(), `SELECT string_agg(l::text, ' ') FROM flow.audit_log l`).Scan(
		&dump))
	assert.NotContains(t, dump, needle)
}

// changingOperations are those of the document whose method may change something.
func changingOperations(t *testing.T) (ids []string) {
	t.Helper()
	doc, err := violation.Document()
	require.NoError(t, err)
	for _, item := range doc["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			if o, ok := operation.(map[string]any); ok && method != "get" {
				ids = append(ids, o["operationId"].(string))
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// wantUnchangedWithoutAudit makes the call while no audit row can be written, and compares all that is stored.
func (s *stack) wantUnchangedWithoutAudit(t *testing.T, call auditedCall) {
	t.Helper()
	exec := func(sql string) {
		_, err := s.owner.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	before := s.stored(t)
	exec(`ALTER TABLE flow.audit_log ADD CONSTRAINT nothing CHECK (false) NOT VALID`)
	res := s.Do(call.method, call.path, call.body)
	exec(`ALTER TABLE flow.audit_log DROP CONSTRAINT nothing`)
	assert.GreaterOrEqual(t, res.Status, 500, "the answer while no audit row can be written")
	for table, text := range s.stored(t) {
		assert.Equal(t, before[table], text, "%s after a call that left no audit row", table)
	}
}

// stored is everything in the database but when keys were used last.
func (s *stack) stored(t *testing.T) map[string]string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	rows, err := s.owner.Query(ctx, `SELECT schemaname || '.' || tablename FROM pg_tables
		WHERE schemaname IN ('flow', 'river') AND tablename <> 'request_count'`) // requests count, whatever becomes of them
	require.NoError(t, err)
	out := map[string]string{}
	for rows.Next() {
		var table string
		require.NoError(t, rows.Scan(&table))
		out[table] = ""
	}
	require.NoError(t, rows.Err())
	for table := range out {
		var text *string
		err := s.owner.QueryRow(ctx,
			`SELECT string_agg(line, E'\n' ORDER BY line) FROM (SELECT (to_jsonb(r) - 'last_used_at')::text AS line FROM `+table+` r) x`).Scan(&text)
		require.NoError(t, err)
		if text != nil {
			out[table] = *text
		}
	}
	return out
}

package main

import (
	"context"
	"net/http"
)

// values are what stands for the stand-ins of a request, by name: for `{batch_id}` in the path it is "batch_id".
type values map[string]string

// fixture makes the values for one request. Operations that use up or change what they work on get something new each
// time; reads share one.
type fixture func(ctx context.Context, w *world) (values, error)

// platformAccount is the account of the simulated platform to which the fixtures' credential belongs.
const platformAccount = "contract"

// fixtures has a row for every operation with an id in its path, and for those whose bodies name ids.
var fixtures = map[string]fixture{
	"revokeApiKey": fresh("key_id", "/account/api-keys", `{"name":"contract"}`),

	"createStreamToken": shared(finished),

	"getPlatform":        fixed("platform_id", "dialer"),
	"getService":         fixed("service_id", "dialer__api"),
	"listServiceActions": fixed("service_id", "dialer__api"),
	"getAction":          fixed("action_id", "dialer__api__upload"),

	"getCatalogImport":    shared(imported),
	"deleteCatalogImport": imported,

	"createCredential":  shared(credential),
	"testNewCredential": shared(credential),
	"getCredential":     shared(credential),
	"replaceCredential": credential,
	"deleteCredential":  credential,
	"testCredential":    shared(credential),

	"setCredentialLimits": shared(fresh("credential_id", "/credentials",
		`{"name":"limited","platform_id":"core","auth_method":"basic_auth",
		"allowed_origins":["https://api.example"],"credentials":{"username":"u","password":"p"}}`)),
	"authorizeCredential": shared(fresh("credential_id", "/credentials",
		`{"name":"code","platform_id":"core","auth_method":"oauth2",
		"grant_type":"authorization_code","token_url":"https://issuer.example/token","authorize_url":"https://issuer.example/authorize",
		"allowed_origins":["https://api.example"],"credentials":{"client_id":"app"}}`)),

	"createDefinition":       shared(all(variableSet, credential)),
	"validateDefinition":     shared(all(variableSet, credential)),
	"dryRunNewDefinition":    shared(all(variableSet, credential)),
	"getDefinition":          shared(definition("active")),
	"replaceDefinition":      all(definition("draft"), shared(variableSet)),
	"updateDefinition":       definition("draft"),
	"deleteDefinition":       definition("active"),
	"listDefinitionVersions": shared(definition("active")),
	"getDefinitionVersion":   all(shared(definition("active")), fixed("version", "1")),
	"triggerDefinition":      all(shared(definition("active")), sealedSet),
	"dryRunDefinition":       shared(definition("active")),

	"getTemplate": fixed("template_id", "dialer-bulk-upload"),

	"getVariableSet":     shared(variableSet),
	"replaceVariableSet": shared(variableSet),
	"deleteVariableSet":  variableSet,

	"createSchedule":    shared(definition("active")),
	"getSchedule":       shared(schedule),
	"replaceSchedule":   all(schedule, shared(definition("active"))),
	"updateSchedule":    all(schedule, shared(definition("active"))),
	"deleteSchedule":    schedule,
	"runSchedule":       shared(schedule),
	"listScheduleFires": shared(schedule),

	"createWebhook":       shared(definition("active")),
	"getWebhook":          shared(hook),
	"updateWebhook":       all(hook, shared(definition("active"))),
	"rotateWebhookSecret": shared(hook),
	"deleteWebhook":       hook,

	"listWebhookDeliveries": shared(deadDelivery),
	"replayWebhookDelivery": shared(deadDelivery),
	"getWebhookDelivery":    shared(deadDelivery),

	"createEventSubscription": shared(definition("active")),
	"getEventSubscription":    shared(subscription),
	"updateEventSubscription": all(subscription, shared(definition("active"))),
	"deleteEventSubscription": subscription,

	"getBatch":         shared(finished),
	"updateBatch":      shared(waiting),
	"cancelBatch":      waiting,
	"deleteBatch":      finished,
	"retryBatch":       failed,
	"resolveJob":       unresolved,
	"resolveBatch":     unresolved,
	"listBatchResults": shared(finished),
	"listBatchErrors":  shared(finished),
	"getBatchTimeline": shared(finished),
	"streamBatch":      streamedBatch,
	"getTrigger":       shared(finished),
	"getJob":           shared(finished),
	"getExecution":     shared(finished),
	"streamExecution":  streamed,
	"getCall":          shared(call),

	"getRecordSet":    shared(openSet),
	"deleteRecordSet": openSet,
	"appendRecords":   openSet,
	"sealRecordSet":   filledSet,
	"peekRecordSet":   shared(filledSet),

	"getStore":           shared(store),
	"replaceStore":       shared(store),
	"deleteStore":        store,
	"listStoreRecords":   shared(records),
	"upsertStoreRecords": shared(store),
	"getStoreRecord":     shared(record),
	"putStoreLayer":      shared(record),
	"deleteStoreLayer":   record,

	"getTenant":    shared(tenant),
	"updateTenant": shared(tenant),
	"deleteTenant": tenant,

	"pauseBatch":       waiting,
	"resumeBatch":      shared(waiting),
	"pauseDomain":      shared(credential),
	"resumeDomain":     shared(credential),
	"listDomainPauses": shared(credential),
	"extendPause":      pause,
	"getPause":         shared(pause),

	"listDomains":      fixed("platform", "dialer"),
	"getDomain":        shared(credential),
	"getHeadroom":      shared(credential),
	"getAttribution":   shared(credential),
	"getQueue":         shared(credential),
	"listUsageHistory": shared(credential),
	"estimateUpload":   all(shared(credential), shared(sealedSet)),
	"refreshLimits":    shared(credential),
	"getMargins":       shared(credential),
	"setMargin":        all(shared(credential), fixed("bucket", "upload")),
	"getLanes":         shared(credential),
	"setLane":          all(shared(credential), fixed("lane", "bulk")),
}

// anyValue names parameters in paths that take any value, by operation.
var anyValue = map[string]string{
	"listPlatformServices": "platform_id", // an unknown platform has no services
	"putStoreLayer":        "key",         // a record that is not there is made
}

// elsewhere are operations that Specmatic cannot ask for, by the reason.
var elsewhere = map[string]string{
	"returnAuthorization": "each state is good once, and comes from an issuer; package api sends them, good and bad",

	"receiveWebhook": "each request is signed; package api sends them, good and bad",
}

// cleanup is the request that undoes what an operation has done; its path ends with a field of the answer, where one is
// named.
type cleanup struct{ method, path, field string }

// cleanups are for what has a name of its own, may not be made without end, or is in the way of others.
var cleanups = map[string]cleanup{
	"createVariableSet":       {http.MethodDelete, "/flows/variables/", "id"},
	"createSchedule":          {http.MethodDelete, "/flows/schedules/", "id"},
	"createWebhook":           {http.MethodDelete, "/flows/webhooks/", "id"},
	"createEventSubscription": {http.MethodDelete, "/flows/event-subscriptions/", "id"},
	"importPlatform":          {http.MethodDelete, "/catalog/imports/", "platform_id"},
	"createStore":             {http.MethodDelete, "/data/stores/", "name"},
	"createTenant":            {http.MethodDelete, "/tenants/", "id"},
	"pauseDispatch":           {http.MethodPost, "/admin/dispatch/resume", ""},
}

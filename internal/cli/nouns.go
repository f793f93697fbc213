package cli

import "github.com/alecthomas/kong"

// groupWork is the group of everything that speaks to the API; tags name it, too.
const groupWork = "work"

// groups are those of the help.
var groups = []kong.Group{
	{Key: groupWork, Title: "Every day:"},
	{Key: "operate", Title: "To run it:"},
	{Key: "print", Title: "Output:"},
	{Key: "server", Title: "Server:"},
}

// nouns is what the command line can do over the API.
func nouns() []noun {
	return append(workNouns(), setupNouns()...)
}

// pauseColumns are those of every list of holds.
const pauseColumns = "id scope tenancy_id lane batch_id status cause reason created_at expires_at"

// workNouns are flows and what becomes of them.
func workNouns() []noun { //nolint:funlen // a table
	return []noun{
		{name: "flows", help: "What is done with records: flow definitions.", verbs: []verb{
			{name: "list", operation: "listDefinitions", columns: "id name status version updated_at"},
			{name: "get", operation: "getDefinition"},
			{name: "create", operation: "createDefinition"},
			{name: "replace", operation: "replaceDefinition"},
			{name: "update", operation: "updateDefinition"},
			{name: "delete", operation: "deleteDefinition"},
			{name: "apply", command: &flowsApply{},
				help: "Make flows those of files: create, change, and with --prune delete"},
			{name: "diff", command: &flowsDiff{}, help: "Show what flows apply would do"},
			{name: "export", command: &flowsExport{}, help: "Write flows as files that flows apply takes"},
			{name: "validate", operation: "validateDefinition", command: &flowsValidate{},
				help: "Check flows of files without storing them"},
			{name: "dry-run", operation: "dryRunDefinition"},
			{name: "dry-run-new", operation: "dryRunNewDefinition"},
			{name: "trigger", operation: "triggerDefinition"},
			{name: "versions", operation: "listDefinitionVersions", columns: "version lane created_by created_at"},
			{name: "version", operation: "getDefinitionVersion"},
		}},
		{name: "batches", help: "Runs of a flow over records.", verbs: []verb{
			{name: "list", operation: "listBatches", newest: true,
				columns: "id status progress_percent record_count created_at trigger_type completed_at"},
			{name: "get", operation: "getBatch"},
			{name: "update", operation: "updateBatch"},
			{name: "cancel", operation: "cancelBatch"},
			{name: "delete", operation: "deleteBatch"},
			{name: "pause", operation: "pauseBatch"},
			{name: "resume", operation: "resumeBatch", columns: pauseColumns, nothing: "The batch was not paused."},
			{name: "retry", operation: "retryBatch"},
			{name: "change", operation: "changeBatches"},
			{name: "watch", command: &batchesWatch{}, help: "Show how far a batch is until it is over"},
			{name: "stream", operation: "streamBatch", command: &batchesStream{},
				help: "Print where a batch stands, whenever that changes, until it is over"},
			{name: "errors", operation: "listBatchErrors", columns: "id status count error.code error.message"},
			{name: "timeline", operation: "getBatchTimeline"},
			{name: "resolve", operation: "resolveBatch"},
			{name: "results", operation: "listBatchResults",
				columns: "position status job_id error.code error.message output"},
		}},
		{name: "jobs", help: "Single records of batches.", verbs: []verb{
			{name: "list", operation: "listJobs",
				columns: "id batch_id position status attempts error.code updated_at"},
			{name: "get", operation: "getJob"},
			{name: "resolve", operation: "resolveJob"},
		}},
		{name: "executions", help: "How single records went through their flows.", verbs: []verb{
			{name: "list", operation: "listExecutions", columns: "id status run batch_id started_at completed_at"},
			{name: "get", operation: "getExecution"},
			{name: "follow", operation: "streamExecution", command: &executionsFollow{},
				help: "Print what happens to an execution until it is over"},
		}},
		{name: "calls", help: "Calls to platforms: what was sent and answered.", verbs: []verb{
			{name: "list", operation: "listCalls",
				columns: "id purpose action_id tenancy_id outcome state attempt record_count response.status sent_at"},
			{name: "get", operation: "getCall"},
		}},
		{name: "triggers", help: "What started batches.", verbs: []verb{
			{name: "list", operation: "listTriggers", newest: true,
				columns: "id trigger_type batch_id batch_status record_count error created_at"},
			{name: "get", operation: "getTrigger"},
		}},
		{name: "records", help: "Records for flows: record sets.", verbs: []verb{
			{name: "upload", command: &recordsUpload{},
				help: "Upload a CSV or NDJSON file as a sealed record set. " +
					"The same command again goes on where it stopped."},
			{name: "list", operation: "listRecordSets", newest: true,
				columns: "id status received_count expected_count batch_id created_at"},
			{name: "get", operation: "getRecordSet"},
			{name: "create", operation: "createRecordSet"},
			{name: "append", operation: "appendRecords"},
			{name: "seal", operation: "sealRecordSet"},
			{name: "peek", operation: "peekRecordSet", columns: "position data"},
			{name: "delete", operation: "deleteRecordSet"},
		}},
		{name: "schedules", help: "Flows that start by the clock.", verbs: []verb{
			{name: "list", operation: "listSchedules",
				columns: "id description cron_expression enabled next_fire_at last_fire_status"},
			{name: "get", operation: "getSchedule"},
			{name: "create", operation: "createSchedule"},
			{name: "replace", operation: "replaceSchedule"},
			{name: "update", operation: "updateSchedule"},
			{name: "delete", operation: "deleteSchedule"},
			{name: "fires", operation: "listScheduleFires", newest: true,
				columns: "id slot_at manual status reason batch_id"},
			{name: "run", operation: "runSchedule"},
			{name: "preview", operation: "previewSchedule"},
		}},
		{name: "webhooks", alias: "webhook", help: "Flows that start by messages of other systems.", verbs: []verb{
			{name: "list", operation: "listWebhooks",
				columns: "id description provider enabled definition_id created_at"},
			{name: "get", operation: "getWebhook"},
			{name: "create", operation: "createWebhook"},
			{name: "update", operation: "updateWebhook"},
			{name: "delete", operation: "deleteWebhook"},
			{name: "rotate-secret", operation: "rotateWebhookSecret"},
			{name: "deliveries", operation: "listWebhookDeliveries",
				columns: "id status received_at attempts batch_id last_error"},
			{name: "delivery", operation: "getWebhookDelivery"},
			{name: "replay", operation: "replayWebhookDelivery"},
			{name: "send", operation: "receiveWebhook", command: &webhookSend{},
				help: "Sign a file and post it to a webhook. The same --id again starts nothing more."},
		}},
		{name: "subscriptions", help: "Flows that start by events of other flows.", verbs: []verb{
			{name: "list", operation: "listEventSubscriptions",
				columns: "id description event_kind enabled started_count failed_count last_error"},
			{name: "get", operation: "getEventSubscription"},
			{name: "create", operation: "createEventSubscription"},
			{name: "update", operation: "updateEventSubscription"},
			{name: "delete", operation: "deleteEventSubscription"},
			{name: "kinds", operation: "listEventKinds", columns: "kind description"},
		}},
	}
}

// setupNouns are what flows use, and how much of it.
func setupNouns() []noun { //nolint:funlen // a table
	return []noun{
		{name: "stores", help: "Records that flows keep and look up.", verbs: []verb{
			{name: "list", operation: "listStores", columns: "name layers record_count config_version updated_at"},
			{name: "get", operation: "getStore"},
			{name: "create", operation: "createStore"},
			{name: "replace", operation: "replaceStore"},
			{name: "delete", operation: "deleteStore"},
			{name: "records", operation: "listStoreRecords", columns: "key resolved updated_at"},
			{name: "record", operation: "getStoreRecord"},
			{name: "upsert", operation: "upsertStoreRecords"},
			{name: "set-layer", operation: "putStoreLayer"},
			{name: "delete-layer", operation: "deleteStoreLayer"},
		}},
		{name: "variables", help: "Sets of values that flows use.", verbs: []verb{
			{name: "list", operation: "listVariableSets", columns: "id name updated_at"},
			{name: "get", operation: "getVariableSet"},
			{name: "create", operation: "createVariableSet"},
			{name: "replace", operation: "replaceVariableSet"},
			{name: "delete", operation: "deleteVariableSet"},
		}},
		{name: "credentials", help: "How flows sign in at platforms.", verbs: []verb{
			{name: "list", operation: "listCredentials",
				columns: "id name platform_id auth_method status tenancy_id last_verified"},
			{name: "get", operation: "getCredential"},
			{name: "create", operation: "createCredential"},
			{name: "replace", operation: "replaceCredential"},
			{name: "rotate", command: &credentialsRotate{},
				help: "Replace the secret of a credential, and nothing else of it"},
			{name: "delete", operation: "deleteCredential"},
			{name: "test", operation: "testCredential"},
			{name: "test-new", operation: "testNewCredential"},
			{name: "authorize", operation: "authorizeCredential"},
			{name: "set-limits", operation: "setCredentialLimits"},
		}},
		{name: "accounts", help: "Accounts at platforms: budgets, queues, holds.", verbs: []verb{
			{name: "list", operation: "listDomains",
				columns: "tenancy_id label platform_id account_number time_zone limits_refreshed_at"},
			{name: "get", operation: "getDomain"},
			{name: "headroom", operation: "getHeadroom"},
			{name: "queue", operation: "getQueue"},
			{name: "attribution", operation: "getAttribution"},
			{name: "history", operation: "listUsageHistory",
				columns: "bucket window window_start used cap observed drift"},
			{name: "margins", operation: "getMargins"},
			{name: "set-margin", operation: "setMargin"},
			{name: "lanes", operation: "getLanes"},
			{name: "set-lane", operation: "setLane"},
			{name: "estimate", operation: "estimateUpload"},
			{name: "refresh-limits", operation: "refreshLimits"},
			{name: "hold", operation: "pauseDomain"},
			{name: "resume", operation: "resumeDomain", columns: pauseColumns, nothing: "Nothing was held."},
			{name: "holds", operation: "listDomainPauses", columns: pauseColumns},
			{name: "extend-hold", operation: "extendPause"},
		}},
		{name: "tenants", help: "Accounts at platforms as they were named, also by hand.", verbs: []verb{
			{name: "list", operation: "listTenants",
				columns: "id platform_id label account_number is_manual created_at"},
			{name: "get", operation: "getTenant"},
			{name: "create", operation: "createTenant"},
			{name: "update", operation: "updateTenant"},
			{name: "delete", operation: "deleteTenant"},
		}},
		{name: "catalog", help: "Platforms and what can be called there.", verbs: []verb{
			{name: "platforms", operation: "listPlatforms", columns: "id name status description"},
			{name: "platform", operation: "getPlatform"},
			{name: "services", operation: "listServices", columns: "id name auth_method status base_url"},
			{name: "platform-services", operation: "listPlatformServices",
				columns: "id name auth_method status base_url"},
			{name: "service", operation: "getService"},
			{name: "actions", operation: "listActions", columns: "id name bulk description"},
			{name: "service-actions", operation: "listServiceActions", columns: "id name bulk description"},
			{name: "search", command: &catalogSearch{}, help: "Find actions by words"},
			{name: "show", operation: "getAction"},
			{name: "imports", operation: "listCatalogImports",
				columns: "platform_id name version actions stored created_at"},
			{name: "get-import", operation: "getCatalogImport"},
			{name: "add-import", operation: "importPlatform"},
			{name: "delete-import", operation: "deleteCatalogImport"},
			{name: "validate", command: &catalogValidate{},
				help: "Check catalog files as a server does when it starts, and name every mistake."},
			{name: "import", command: &catalogImport{}, help: "Make a catalog file of another description."},
		}},
		{name: "templates", help: "Flows to begin with.", verbs: []verb{
			{name: "list", operation: "listTemplates", columns: "id name status description"},
			{name: "get", operation: "getTemplate"},
		}},
		{name: "dispatch", help: "Hold and resume all calls of the organization.", verbs: []verb{
			{name: "hold", operation: "pauseDispatch"},
			{name: "resume", operation: "resumeDispatch", columns: pauseColumns, nothing: "Nothing was held."},
			{name: "holds", operation: "listPauses", columns: pauseColumns},
			{name: "get-hold", operation: "getPause"},
		}},
		{name: "keys", help: "API keys.", verbs: []verb{
			{name: "list", operation: "listApiKeys",
				columns: "id name prefix last_four role status created_at last_used_at expires_at"},
			{name: "create", operation: "createApiKey"},
			{name: "revoke", operation: "revokeApiKey"},
		}},
		{name: "me", help: "Whose key this is, and what was used.", verbs: []verb{
			{name: "show", operation: "getMe"},
			{name: "quotas", operation: "getQuotas"},
			{name: "retention", operation: "getRetention"},
			{name: "set-retention", operation: "setRetention"},
			{name: "usage", operation: "getUsage", columns: "key name batches jobs calls records"},
			{name: "dashboard", operation: "getDashboard"},
			{name: "audit-log", operation: "listAuditLog",
				columns: "created_at action outcome account_name resource_type resource_id"},
			{name: "stream-token", operation: "createStreamToken"},
		}},
	}
}

package event

import (
	"encoding/json"
	"fmt"
	"strings"
)

// The kinds of events. Those of batches are "batch." and the status in which one ended.
const (
	BatchCompleted       = "batch.completed"
	BatchPartiallyFailed = "batch.partially_failed"
	BatchFailed          = "batch.failed"
	BatchCancelled       = "batch.cancelled"
	RecordSetSealed      = "record_set.sealed"
	RecordSetExpired     = "record_set.expired"
	CredentialRotated    = "credential.rotated"
	CredentialStatus     = "credential.status_changed"
	CredentialTestFailed = "credential.test_failed"
	PauseOpened          = "pause.opened"
	PauseReleased        = "pause.released"
	FlowEvent            = "flow.event"
	JobUnresolved        = "job.unresolved"
	StoreRecordChanged   = "store.record.changed"
)

// Kind is what can happen.
type Kind struct {
	Name, Description string
	// Payload is the JSON Schema of the payloads.
	Payload json.RawMessage
}

// Kinds lists every kind.
var Kinds = []Kind{
	{BatchCompleted, "Every job of a batch ended well. A batch without records is completed when it is started.",
		batch},
	{BatchPartiallyFailed, "A batch is over, and some of its jobs ended well.", batch},
	{BatchFailed, "A batch is over, and none of its jobs ended well, or its failure threshold stopped it.", batch},
	{BatchCancelled, "A batch was cancelled. Calls that were under way settle later; " +
		"the payload has the jobs as they stood then.", batch},
	{RecordSetSealed, "The upload of a record set was finished.", recordSet},
	{RecordSetExpired, "A record set that no trigger used was deleted, because its staging time was over.", recordSet},
	{CredentialRotated, "A credential got a new secret.", credential()},
	{CredentialStatus, "The status of a credential was changed.", credential("previous_status", text)},
	{CredentialTestFailed, "A test of a stored credential asked the platform, and failed.", credential("failure_class",
		text, "details", text, "tested_at", moment)},
	{PauseOpened, "A person paused work: of the organization, of a provider account, of one of its lanes, or a batch.",
		pause},
	{PauseReleased, "A pause of a person ended: by a person, at its time, or because its batch was cancelled.", pause},
	{FlowEvent, "A task of a flow emitted it, with a name and a payload of the author's choice.", object(
		"name", text, "payload", `{}`, "batch_id", text, "definition_id", text, "job_id", text, "step_id", text,
		"task_id", text)},
	{JobUnresolved, "Nobody but a person can find out what a call did for jobs of a batch. " +
		"One event tells of all those that a task came to leave so at once, and names the first 100. " +
		"No more is told of a batch while 1000 of its jobs stand so.", object(
		"batch_id", text, "definition_id", text, "definition_version", count, "step_id", text, "task_id", text,
		"job_count", count,
		"job_ids", `{"type":"array","items":{"type":"string"}}`, "unresolved_count", count)},
	{StoreRecordChanged, "Something was written to a record of a store, or a layer of it was deleted: " +
		"by a caller or by a task.", object(
		"store", text, "key", text, "layers", `{"type":"array","items":{"type":"string"}}`, "change",
		`{"type":"string","enum":["created","updated","deleted"]}`,
		"changed_by", text, "changed_at", moment)},
}

// The payloads. text, count and the like are the schemas of their fields.
var (
	batch = object(
		"batch_id", text, "definition_id", text, "definition_version", count, "status", text, "record_count", count,
		"job_counts", jobCounts,
		"trigger_type", text, "trigger_source", textOrNull, "retry_of", textOrNull, "metadata", anything,
	)
	jobCounts = string(object("staged", count, "queued", count, "pending", count, "started", count, "needs_reconcile",
		count, "completed", count,
		"failed", count, "cancelled", count, "accepted", count, "rejected", count, "unprocessed", count, "unresolved",
		count))
	pause = object("pause_id", text, "scope", text, "tenancy_id", textOrNull, "lane", textOrNull, "batch_id",
		textOrNull, "reason", textOrNull,
		"created_by", textOrNull, "created_at", moment, "expires_at", momentOrNull, "released_by", textOrNull,
		"released_at", momentOrNull)
	recordSet = object("record_set_id", text, "status", text, "record_count", count, "content_hash", textOrNull,
		"metadata", anything)
)

const (
	text       = `{"type":"string"}`
	textOrNull = `{"type":["string","null"]}`
	count      = `{"type":"integer"}`
	anything   = `{"type":"object"}`

	moment       = `{"type":"string","format":"date-time"}`
	momentOrNull = `{"type":["string","null"],"format":"date-time"}`
)

// credential is the schema of an event of a credential, with further fields.
func credential(more ...string) json.RawMessage {
	return object(append([]string{"credential_id", text, "name", text, "platform_id", text, "status", text},
		more...)...)
}

// object is the schema of an object that has these fields, each a name followed by its schema.
func object(fields ...string) json.RawMessage {
	var names, properties []string
	for i := 0; i < len(fields); i += 2 {
		names = append(names, fmt.Sprintf("%q", fields[i]))
		properties = append(properties, fmt.Sprintf("%q:%s", fields[i], fields[i+1]))
	}
	return json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]}`, strings.Join(properties,
		","), strings.Join(names, ",")))
}

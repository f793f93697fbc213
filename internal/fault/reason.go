package fault

// Reasons that callers branch on. Package api says of each what to do.
const (
	// RecordSetConsumed is a record set that a batch has used.
	RecordSetConsumed = "record_set_consumed"
	// RecordSetNotSealed is one that may still take records.
	RecordSetNotSealed = "record_set_not_sealed"
	// RecordSetNotOpen is one that takes no more records.
	RecordSetNotOpen = "record_set_not_open"
	// DefinitionNotActive is a definition that is a draft or archived, where only an active one can be started.
	DefinitionNotActive = "definition_not_active"
	// CredentialNotIdentified is a credential of which nobody knows to which provider account it belongs.
	CredentialNotIdentified = "credential_not_identified"
	// BatchOver is a batch in a terminal state.
	BatchOver = "batch_over"
	// IdempotencyKeyReused is a key that came before with another request.
	IdempotencyKeyReused = "idempotency_key_reused"
	// CursorInvalid is a cursor that no list has given out, or one of another list, filter or order.
	CursorInvalid = "invalid_cursor"
	// ScopeMissing is an API key without the scope of the operation.
	ScopeMissing = "scope_missing"
	// SignatureInvalid is a message to a webhook that its sender did not sign as it must.
	SignatureInvalid = "invalid_signature"
	// StreamsExhausted means that no more streams can be open at once.
	StreamsExhausted = "too_many_streams"
	// DatabaseUnavailable means that nothing was done, because the database takes no requests.
	DatabaseUnavailable = "database_unavailable"
	// Busy means that nothing was done, because the service has too much to do.
	Busy = "busy"
	// OutcomeUnknown means that nobody knows whether the request was carried out.
	OutcomeUnknown = "outcome_unknown"
)

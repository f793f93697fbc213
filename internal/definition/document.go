package definition

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Document is what an author writes: the steps of a flow, kept as they came. Fields that were left out stay out, so
// that what is read can be sent back; defaults are the Plan's business.
type Document struct {
	// Lane is the lane of the flow's calls: interactive, compliance, bulk or backfill; empty takes each action's own.
	Lane string `json:"lane,omitempty"`
	// VariableSetID is the text that was sent; empty for no variables. VariableVersion is a version of the set; empty
	// for the defaults of its keys.
	VariableSetID   string `json:"variable_set_id,omitempty"`
	VariableVersion string `json:"variable_version,omitempty"`
	// InputSchema is the JSON Schema that every record must fit, digit for digit; nil for none.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
	// FailureThreshold is nil where a batch goes on however many of its jobs fail.
	FailureThreshold *Threshold `json:"failure_threshold,omitempty"`
	// Key is a text with expressions that tells records apart; empty for none.
	Key string `json:"key,omitempty"`

	Steps []DocumentStep `json:"steps"`
}

// DocumentStep is one step; steps run in order, the tasks of a step side by side.
type DocumentStep struct {
	ID    string         `json:"id"`
	Name  string         `json:"name,omitempty"`
	Tasks []DocumentTask `json:"tasks"`
}

// DocumentTask is one task as authored.
type DocumentTask struct {
	ID       string `json:"id"`
	ActionID string `json:"action_id"`
	// CredentialID is the text that was sent: anything that names no credential of the organization is not found.
	CredentialID *string `json:"credential_id,omitempty"`
	// Params is a JSON object, digit for digit; nil for none.
	Params json.RawMessage `json:"params,omitempty"`
	When   *string         `json:"when,omitempty"`
	// ForEach is an expression that gives an array: the task runs once for each of its elements.
	ForEach *string `json:"for_each,omitempty"`
	// TimeoutSeconds bounds one call.
	TimeoutSeconds *int           `json:"timeout_seconds,omitempty"`
	Retry          *DocumentRetry `json:"retry,omitempty"`
	// OnError is fail (the default) or continue.
	OnError string `json:"on_error,omitempty"`
	// Delivery is at_most_once (the default) or at_least_once.
	Delivery string `json:"delivery,omitempty"`
}

// DocumentRetry is a retry policy as authored; times in seconds.
type DocumentRetry struct {
	MaxAttempts    *int     `json:"max_attempts,omitempty"`
	InitialSeconds *float64 `json:"initial_seconds,omitempty"`
	Factor         *float64 `json:"factor,omitempty"`
	MaxSeconds     *float64 `json:"max_seconds,omitempty"`
}

// Encode returns the document as JSON text in which every number of the params keeps its digits.
func (d Document) Encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(d); err != nil {
		return nil, fmt.Errorf("encode a definition's document: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// Decode reads what Encode wrote.
func Decode(text []byte) (Document, error) {
	var d Document
	if err := json.Unmarshal(text, &d); err != nil {
		return Document{}, fmt.Errorf("decode a definition's document: %w", err)
	}
	return d, nil
}

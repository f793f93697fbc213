package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	"flowlane/internal/api/violation"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/trigger/schedule"
	"flowlane/internal/trigger/subscription"
	"flowlane/internal/trigger/webhook"
)

// bodyRule is a rule on one field of a body that the schema cannot state. It is for the domain to enforce, and is asked
// here only of what gets no further, so that the answer names every bad field and not just those of one kind.
type bodyRule struct {
	field string
	check func(value json.RawMessage) error
}

var (
	scheduleRules = []bodyRule{{"cron_expression", ofString(schedule.CheckCron)},
		{"timezone", ofString(schedule.CheckZone)}}
	subscriptionRules = []bodyRule{{"filter", ofString(subscription.CheckFilter)},
		{"input_template", ofObject(subscription.CheckTemplate)}}
	definitionRules = []bodyRule{{"steps", definition.CheckExpressions}}
	webhookRules    = []bodyRule{{"input_template", ofObject(webhook.CheckTemplate)}}
)

// bodyRules are the rules by operation.
var bodyRules = map[string][]bodyRule{
	"createSchedule": scheduleRules, "replaceSchedule": scheduleRules, "updateSchedule": scheduleRules,
	"previewSchedule":         scheduleRules,
	"createEventSubscription": subscriptionRules, "updateEventSubscription": subscriptionRules,
	"createDefinition": definitionRules, "replaceDefinition": definitionRules, "validateDefinition": definitionRules,
	"dryRunNewDefinition": definitionRules,
	"createWebhook":       webhookRules, "updateWebhook": webhookRules,
}

// fixedFields are those that a resource keeps from its creation on, by the operation that changes it. To call them
// unknown would puzzle who has just read them.
var fixedFields = map[string][]string{"updateWebhook": {"mode", "provider"}}

func ofString(check func(string) error) func(json.RawMessage) error {
	return func(value json.RawMessage) error {
		var text *string
		if json.Unmarshal(value, &text) == nil && text != nil {
			return check(*text)
		}
		return nil // the schema's matter
	}
}

func ofObject(check func(json.RawMessage) error) func(json.RawMessage) error {
	return func(value json.RawMessage) error {
		if value[0] != '{' {
			return nil
		}
		return check(value)
	}
}

// badBody returns what is wrong with a JSON body, by the schema and by the rules.
func badBody(ctx context.Context, operationID string, body []byte) []fault.Field {
	fields := violation.Body(ctx, operationID, body)
	for i, f := range fields {
		if f.Type == "extra_forbidden" && len(f.Loc) == 2 && slices.Contains(fixedFields[operationID], f.Loc[1]) {
			fields[i].Msg = "Cannot be changed; leave it out, or create another one"
		}
	}
	rules := bodyRules[operationID]
	var object map[string]json.RawMessage
	if len(rules) == 0 || json.Unmarshal(body, &object) != nil {
		return fields
	}
	for _, r := range rules {
		value, ok := object[r.field]
		if f := (*fault.Error)(nil); ok && errors.As(r.check(value), &f) {
			fields = violation.Merge(fields, f.Fields)
		}
	}
	return fields
}

// badUnread is badBody for a request that was refused before its body was read.
func badUnread(operationID string, r *http.Request) []fault.Field {
	if r.Body == nil || !isJSON(r) {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return f.Fields
	}
	if err != nil {
		return nil
	}
	return badBody(r.Context(), operationID, body)
}

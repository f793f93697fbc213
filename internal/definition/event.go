package definition

import (
	"encoding/json"
	"slices"

	"flowlane/internal/trigger/event"
)

// WaitForEvent is what the catalog calls the utility whose tasks wait for an event.
const WaitForEvent = "wait_for_event"

// StartFlow is what it calls the one whose tasks start flows.
const StartFlow = "start_flow"

// event checks the parameters of a task that waits for an event, as far as the schema of its action does not.
func (c *checker) event(at place, t DocumentTask) {
	var p struct {
		Kind  *string `json:"event_kind"`
		Match *string `json:"match"`
	}
	if err := json.Unmarshal(t.params(), &p); err != nil {
		return // the schema has said so
	}
	known := func(k event.Kind) bool { return p.Kind != nil && k.Name == *p.Kind }
	if p.Kind != nil && !slices.ContainsFunc(event.Kinds, known) {
		c.add(at.below("event_kind"), "value_error", *p.Kind,
			"There is no such kind of event, and it cannot be an expression; GET /v1/flows/event-kinds lists them")
	}
	if p.Match != nil && *p.Match == "" {
		c.add(at.below("match"), "value_error", "", "Must be a condition; leave it out to take any event of the kind")
	}
}

// cutMatch takes the condition out of the parameters: it is asked when an event comes, and sees that.
func cutMatch(params json.RawMessage) (rest json.RawMessage, match string) {
	var p map[string]json.RawMessage
	if json.Unmarshal(params, &p) != nil || p["match"] == nil || json.Unmarshal(p["match"], &match) != nil {
		return params, ""
	}
	delete(p, "match")
	rest, err := json.Marshal(p)
	if err != nil {
		return params, ""
	}
	return rest, match
}

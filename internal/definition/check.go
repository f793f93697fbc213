package definition

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"flowlane/internal/fault"
	"flowlane/internal/platform/catalog"
)

// Bounds of a document.
const (
	maxSteps = 50
	maxTasks = 20
	maxName  = 200
	// maxEcho is the longest offending text, in bytes, that is sent back.
	maxEcho = 200
)

// slug is what step and task ids look like. One with a dash, or with a digit in front, is reached by brackets in
// expressions: steps["first-look"].
var slug = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

var lanes = []string{"backfill", "bulk", "compliance", "interactive"}

// place is where a field stands, for example ["body", "steps", "0"].
type place []string

// below returns the place of a name or an index inside this one.
func (p place) below(names ...any) place {
	out := slices.Clone(p)
	for _, n := range names {
		switch n := n.(type) {
		case int:
			out = append(out, strconv.Itoa(n))
		default:
			out = append(out, fmt.Sprint(n))
		}
	}
	return out
}

// checker collects every broken rule of one document.
type checker struct {
	catalog      *catalog.Catalog
	steps, tasks map[string]bool
	fields       []fault.Field
}

func check(doc Document, cat *catalog.Catalog) []fault.Field {
	c := checker{catalog: cat, steps: map[string]bool{}, tasks: map[string]bool{}}
	body := place{"body"}
	if doc.Lane != "" {
		c.oneOf(body.below("lane"), doc.Lane, lanes...)
	}
	c.input(body.below("input_schema"), doc.InputSchema)
	c.threshold(body.below("failure_threshold"), doc.FailureThreshold)
	c.length(body.below("steps"), len(doc.Steps), maxSteps, "step")
	for i, s := range doc.Steps {
		c.step(body.below("steps", i), s)
	}
	return c.fields
}

func (c *checker) add(at place, kind string, input any, format string, args ...any) {
	if text, ok := input.(string); ok {
		input = shortened(text)
	}
	c.fields = append(c.fields, fault.Field{Loc: at, Type: kind, Input: input, Msg: fmt.Sprintf(format, args...)})
}

// shortened is a text that is sent back; nil for one that is too long.
func shortened(text string) any {
	if len(text) > maxEcho {
		return nil
	}
	return text
}

func (c *checker) step(at place, s DocumentStep) {
	c.id(at.below("id"), s.ID, c.steps, "step")
	if n := utf8.RuneCountInString(s.Name); n > maxName {
		c.add(at.below("name"), "string_too_long", nil, "Must have at most %d characters, not %d", maxName, n)
	}
	c.length(at.below("tasks"), len(s.Tasks), maxTasks, "task")
	for i, t := range s.Tasks {
		c.task(at.below("tasks", i), t)
	}
}

func (c *checker) task(at place, t DocumentTask) {
	c.id(at.below("id"), t.ID, c.tasks, "task")
	if t.OnError != "" {
		c.oneOf(at.below("on_error"), t.OnError, onErrorFail, OnErrorContinue)
	}
	if t.Delivery != "" {
		c.oneOf(at.below("delivery"), t.Delivery, DeliveryAtMostOnce, DeliveryAtLeastOnce)
	}
	bounded(c, at.below("timeout_seconds"), t.TimeoutSeconds, 1, maxTimeoutSeconds)
	if r := t.Retry; r != nil {
		bounded(c, at.below("retry", "max_attempts"), r.MaxAttempts, 1, maxAttempts)
		bounded(c, at.below("retry", "initial_seconds"), r.InitialSeconds, 0, maxInitialSeconds)
		bounded(c, at.below("retry", "factor"), r.Factor, 1, maxFactor)
		bounded(c, at.below("retry", "max_seconds"), r.MaxSeconds, 0, maxMaxSeconds)
	}
	action, known := c.catalog.Action(t.ActionID)
	if !known {
		near := c.catalog.NearAction(t.ActionID)
		if near == "" {
			near = ";"
		}
		c.add(at.below("action_id"), "value_error", t.ActionID,
			"There is no such action in the catalog%s GET /v1/catalog/actions lists them", near)
		return
	}
	c.action(at, t, action)
}

// action checks what depends on the action.
func (c *checker) action(at place, t DocumentTask, a *catalog.Action) {
	service, ok := c.catalog.Service(a.ServiceID)
	if !ok || (a.Call == nil && a.Utility == "") {
		c.add(at.below("action_id"), "value_error", t.ActionID,
			"This action only describes the product and cannot be run; choose another action")
		return
	}
	if service.RequiresConnection && t.CredentialID == nil {
		c.add(at.below("credential_id"), "missing", nil, "Is required: %s calls %s with a credential of platform %q",
			a.ID, service.Name, a.PlatformID)
	}
	if t.ForEach != nil && a.Bulk {
		c.add(at.below("for_each"), "value_error", nil,
			"%s takes many records in one call, and cannot run for the elements of one: "+
				"use an action that takes a single record", a.ID)
	}
	if t.ForEach != nil && a.Utility != "" && a.Utility != "transform" && a.Utility != "fail" {
		c.add(at.below("for_each"), "value_error", nil,
			"%s does one thing for a record, and cannot run for the elements of one", a.ID)
	}
	c.params(at.below("params"), t, a)
	if a.Utility == WaitForEvent {
		c.event(at.below("params"), t)
	}
}

// params checks parameters as far as that is possible before a record is known.
func (c *checker) params(at place, t DocumentTask, a *catalog.Action) {
	var names map[string]json.RawMessage
	if err := json.Unmarshal(t.params(), &names); err != nil || names == nil {
		c.add(at, "object_type", nil, "Must be an object")
		return
	}
	noted := false
	records := ""
	if a.Bulk && a.Call != nil && a.Call.Records != nil {
		records = a.Call.Records.Param
	}
	for _, p := range a.ValidateParams(t.params(), true) {
		noted = noted || len(p.Path) == 1 && p.Path[0] == records
		below := append(slices.Clone(at), p.Path...)
		c.add(below, p.Type, nil, "%s%s", strings.ToUpper(p.Message[:1]), p.Message[1:])
	}
	if _, there := names[records]; records != "" && !there && !noted {
		c.add(at.below(records), "missing", nil, "Is required: it is what is sent for each record")
	}
}

func (c *checker) id(at place, id string, seen map[string]bool, what string) {
	switch {
	case !slug.MatchString(id):
		c.add(at, "string_pattern_mismatch", id,
			"Must be 1 to 64 lowercase letters, digits, _ or -, and start with a letter or digit")
	case seen[id]:
		c.add(at, "value_error", id, "Must be unique: another %s has the same id", what)
	}
	seen[id] = true
}

func (c *checker) oneOf(at place, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		c.add(at, "enum", value, "Must be one of %s", strings.Join(allowed, ", "))
	}
}

func (c *checker) length(at place, n, most int, what string) {
	switch {
	case n == 0:
		c.add(at, "too_short", nil, "Must have at least one %s", what)
	case n > most:
		c.add(at, "too_long", nil, "Must have at most %d %ss, not %d", most, what, n)
	}
}

func bounded[T int | int64 | float64](c *checker, at place, value *T, least, most T) {
	switch {
	case value == nil:
	case !(*value >= least): // also NaN
		c.add(at, "greater_than_equal", *value, "Must be at least %v", least)
	case *value > most:
		c.add(at, "less_than_equal", *value, "Must be at most %v", most)
	}
}

package dialersim

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Rule rejects rows of an upload. Kinds: missing_key (the row has no key), not_e164 (Field is no phone number in E.164
// form), every_nth (each Nth row of the call), equals (Field equals Value, compared as text).
type Rule struct {
	Kind  string          `json:"kind"`
	Field string          `json:"field,omitempty"`
	N     int             `json:"n,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
	// Code and Reason are what the row result says; each kind has its own default.
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// rejection is a row that a rule rejected: its place in the call, and the rule.
type rejection struct {
	row  int32
	rule *Rule
}

// prepared checks a rule and fills in its defaults.
func (r Rule) prepared() (Rule, error) {
	code, reason := "", ""
	switch r.Kind {
	case "missing_key":
		code, reason = "missing_key", "The row has no value in the key field."
	case "not_e164":
		code, reason = "invalid_number", fmt.Sprintf("The field %s is not a number in E.164 form.", r.Field)
	case "every_nth":
		code, reason = "row_refused", "The row was refused."
	case "equals":
		code, reason = "value_refused", fmt.Sprintf("The value of the field %s is not allowed.", r.Field)
	default:
		return r, fmt.Errorf("rule kind %q is not one of missing_key, not_e164, every_nth, equals", r.Kind)
	}
	switch {
	case r.needsField() && r.Field == "":
		return r, fmt.Errorf("rule %s needs a field", r.Kind)
	case r.Kind == "every_nth" && r.N < 1:
		return r, fmt.Errorf("rule every_nth needs n of at least 1")
	case r.Kind == "equals" && textOf(r.Value) == nil:
		return r, fmt.Errorf("rule equals needs a value that is a string, a number or a boolean")
	}
	if r.Code == "" {
		r.Code = code
	}
	if r.Reason == "" {
		r.Reason = reason
	}
	return r, nil
}

func (r *Rule) needsField() bool { return r.Kind == "not_e164" || r.Kind == "equals" }

// ruleFields are the fields that the rules look at, each once.
func ruleFields(rules []Rule) []string {
	var fields []string
	for i := range rules {
		if rules[i].needsField() && !slices.Contains(fields, rules[i].Field) {
			fields = append(fields, rules[i].Field)
		}
	}
	return fields
}

// judge returns the rejected rows in order; the first rule that fits a row gives its reason.
func judge(p *payload, rules []Rule) []rejection {
	if len(rules) == 0 {
		return nil
	}
	var rejected []rejection
	for row := range p.count {
		for i := range rules {
			if rules[i].fits(p, row) {
				rejected = append(rejected, rejection{row: int32(row), rule: &rules[i]})
				break
			}
		}
	}
	return rejected
}

func (r *Rule) fits(p *payload, row int) bool {
	switch r.Kind {
	case "missing_key":
		return len(p.key(row)) == 0
	case "every_nth":
		return (row+1)%r.N == 0
	}
	value := textOf(p.value(row, slices.Index(p.wanted, r.Field)))
	if r.Kind == "not_e164" {
		return !isE164(value)
	}
	return value != nil && string(value) == string(textOf(r.Value))
}

// isE164 says whether text is a plus sign and 2 to 15 digits of which the first is not zero.
func isE164(text []byte) bool {
	if len(text) < 3 || len(text) > 16 || text[0] != '+' || text[1] == '0' {
		return false
	}
	return skipDigits(text, 1) == len(text)
}

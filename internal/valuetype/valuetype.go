// Package valuetype owns the types that values of variable keys and of store fields can have: what each is called, and
// which JSON is of it. It knows nothing of what the values are for.
package valuetype

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"
)

// The types.
const (
	String   = "string"
	Number   = "number"
	Integer  = "integer"
	Boolean  = "boolean"
	Datetime = "datetime"
	Object   = "object"
	Array    = "array"
)

// Names lists the types.
var Names = []string{String, Number, Integer, Boolean, Datetime, Object, Array}

// Rule says what the values of a type are.
type Rule struct {
	// Kind and Msg describe a value that is of another type, as a validation entry does.
	Kind, Msg string
	holds     func(raw []byte) bool
}

// Holds reports whether raw, which is valid JSON without space around it, is of the type. Null is of none.
func (r Rule) Holds(raw []byte) bool { return len(raw) > 0 && r.holds(raw) }

var rules = map[string]Rule{
	String:   {"string_type", "Must be a string", starts(`"`)},
	Number:   {"number_type", "Must be a number", starts("-0123456789")},
	Integer:  {"int_type", "Must be a whole number, written without fraction and exponent", whole.Match},
	Boolean:  {"bool_type", "Must be true or false", starts("tf")},
	Datetime: {"datetime_parsing", "Must be a date-time such as 2026-01-31T12:00:00Z", isTime},
	Object:   {"object_type", "Must be an object", starts("{")},
	Array:    {"array_type", "Must be an array", starts("[")},
}

// Of returns the rule of a type; false where there is no such type.
func Of(name string) (Rule, bool) {
	r, ok := rules[name]
	return r, ok
}

var whole = regexp.MustCompile(`^-?[0-9]+$`)

func starts(with string) func([]byte) bool {
	return func(raw []byte) bool { return strings.IndexByte(with, raw[0]) >= 0 }
}

func isTime(raw []byte) bool {
	_, ok := Time(raw)
	return ok
}

// Time reads a value of the type datetime.
func Time(raw []byte) (time.Time, bool) {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

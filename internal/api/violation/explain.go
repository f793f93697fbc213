package violation

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"flowlane/internal/fault"
	"flowlane/internal/jsonraw"
	"flowlane/internal/suggest"
)

// echoMax is the longest string that is echoed.
const echoMax = 200

// explain validates value and returns an entry for each place that is bad, below the place base.
func explain(schema *jsonschema.Schema, value any, base []string, secret bool) []fault.Field {
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(value); !errors.As(err, &invalid) {
		return nil
	}
	var fields []fault.Field
	for _, leaf := range leaves(invalid) {
		for _, f := range entries(leaf) {
			if f.Type != "missing" && !secret {
				f.Input = echo(jsonraw.At(value, f.Loc))
			}
			f.Loc = append(slices.Clone(base), f.Loc...)
			fields = append(fields, f)
		}
	}
	sortFields(fields)
	fields = onePerPlace(fields)
	explainNulls(schema, value, fields, base)
	return fields
}

// explainNulls says of fields that must not be null whether they may be left out instead.
func explainNulls(schema *jsonschema.Schema, value any, fields []fault.Field, base []string) {
	isNull := func(f fault.Field) bool { return f.Type == "null_not_allowed" }
	if !slices.ContainsFunc(fields, isNull) {
		return
	}
	required := map[string]bool{}
	var invalid *jsonschema.ValidationError
	if errors.As(schema.Validate(withoutNulls(value)), &invalid) {
		for _, leaf := range leaves(invalid) {
			if k, ok := leaf.ErrorKind.(*kind.Required); ok {
				for _, f := range below(leaf.InstanceLocation, k.Missing, fault.Field{}) {
					required[strings.Join(f.Loc, "\x00")] = true
				}
			}
		}
	}
	for i, f := range fields {
		at := f.Loc[len(base):]
		if isNull(f) && isMember(value, at) && !required[strings.Join(at, "\x00")] {
			fields[i].Msg += "; leave the field out instead"
		}
	}
}

// isMember tells whether a place is that of a field of an object.
func isMember(value any, loc []string) bool {
	if len(loc) == 0 {
		return false
	}
	_, ok := jsonraw.At(value, loc[:len(loc)-1]).(map[string]any)
	return ok
}

// withoutNulls returns the value without the fields that are null.
func withoutNulls(value any) any {
	switch v := value.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			if e != nil {
				m[k] = withoutNulls(e)
			}
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = withoutNulls(e)
		}
		return list
	}
	return value
}

// leaves returns the errors at the bottom. Of a choice only those of one schema are told: who sends a wrong object does
// not want to read that null was possible.
func leaves(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	causes := e.Causes
	if _, choice := e.ErrorKind.(*kind.OneOf); choice {
		causes = meant(causes)
	}
	var out []*jsonschema.ValidationError
	for _, cause := range causes {
		out = append(out, leaves(cause)...)
	}
	return out
}

// meant returns, of what is wrong by each schema of a choice, what is wrong by the one that was meant: not null, and of
// several objects the first whose fields are most nearly those that were sent.
func meant(choice []*jsonschema.ValidationError) []*jsonschema.ValidationError {
	if len(choice) < 2 {
		return choice
	}
	var best *jsonschema.ValidationError
	least := 0
	for _, cause := range choice {
		if wantsNull(cause) {
			continue
		}
		if n := misplaced(cause, len(cause.InstanceLocation)); best == nil || n < least {
			best, least = cause, n
		}
	}
	if best == nil {
		return choice
	}
	return []*jsonschema.ValidationError{best}
}

// misplaced counts the fields that the object at this depth lacks or should not have.
func misplaced(e *jsonschema.ValidationError, depth int) (n int) {
	if len(e.InstanceLocation) > depth {
		return 0
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		n = len(k.Missing)
	case *kind.AdditionalProperties:
		n = len(k.Properties)
	}
	for _, cause := range e.Causes {
		n += misplaced(cause, depth)
	}
	return n
}

func wantsNull(e *jsonschema.ValidationError) bool {
	t, ok := e.ErrorKind.(*kind.Type)
	return ok && slices.Equal(t.Want, []string{"null"})
}

// onePerPlace keeps one entry per place and type, and of a value of the wrong type only that. The fields are sorted.
func onePerPlace(fields []fault.Field) []fault.Field {
	var out []fault.Field
	i := 0 // the first entry of a place
	for _, f := range fields {
		switch {
		case len(out) == 0 || !slices.Equal(out[i].Loc, f.Loc):
			i, out = len(out), append(out, f)
		case wrongType(f) && !wrongType(out[i]):
			out[i] = f
		case !wrongType(out[i]) && out[i].Type != f.Type:
			out = append(out, f)
		}
	}
	return out
}

func wrongType(f fault.Field) bool {
	return f.Type == "null_not_allowed" || strings.HasSuffix(f.Type, "_type")
}

// entries words one error; the place is relative to the value.
func entries(e *jsonschema.ValidationError) []fault.Field {
	loc := e.InstanceLocation
	one := func(slug, msg string, ctx map[string]any) []fault.Field {
		return []fault.Field{{Loc: loc, Msg: msg, Type: slug, Ctx: ctx}}
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		return below(loc, k.Missing, Missing())
	case *kind.AdditionalProperties:
		return extra(loc, k.Properties, propertiesAt(e.SchemaURL))
	case *kind.Type:
		slug, msg := typeEntry(k)
		return one(slug, msg, nil)
	case *kind.Enum:
		return one("enum", "Must be one of "+list(k.Want)+meantWord(k), map[string]any{"expected": k.Want})
	case *kind.Format:
		if k.Want == "date" {
			return one("date_parsing", "Must be a day like 2026-01-31", nil)
		}
		return one("datetime_parsing", "Must be a date and time like 2026-01-31T12:00:00Z", nil)
	case *kind.Pattern:
		return one("string_pattern_mismatch", patternText(k.Want), map[string]any{"pattern": k.Want})
	case *kind.MinLength:
		return one("string_too_short", fmt.Sprintf("Must have at least %d characters", k.Want),
			map[string]any{"min_length": k.Want})
	case *kind.MaxLength:
		return one("string_too_long", fmt.Sprintf("Must have at most %d characters", k.Want),
			map[string]any{"max_length": k.Want})
	case *kind.MinItems:
		return one("too_short", fmt.Sprintf("Must have at least %d items", k.Want),
			map[string]any{"min_length": k.Want})
	case *kind.MaxItems:
		return one("too_long", fmt.Sprintf("Must have at most %d items", k.Want), map[string]any{"max_length": k.Want})
	case *kind.MinProperties:
		return one("too_short", fmt.Sprintf("Must have at least %d of its fields", k.Want),
			map[string]any{"min_length": k.Want})
	case *kind.Minimum:
		return one("greater_than_equal", "Must be at least "+number(k.Want), map[string]any{"ge": bound(k.Want)})
	case *kind.Maximum:
		return one("less_than_equal", "Must be at most "+number(k.Want), map[string]any{"le": bound(k.Want)})
	}
	return one("value_error", "Is not valid", nil)
}

// below returns an entry like f for each name under loc.
func below(loc, names []string, f fault.Field) []fault.Field {
	out := make([]fault.Field, len(names))
	for i, name := range names {
		out[i] = f
		out[i].Loc = append(slices.Clone(loc), name)
	}
	return out
}

// slug is the pattern of the document for ids that authors choose.
const slug = "^[a-z0-9][a-z0-9_-]{0,63}$"

func patternText(pattern string) string {
	if pattern == slug {
		return "Must be 1 to 64 lowercase letters, digits, _ or -, and start with a letter or digit"
	}
	return "Must match " + pattern
}

// extra names fields that are not known, each with the known one that may have been meant.
func extra(loc, names, known []string) []fault.Field {
	out := make([]fault.Field, len(names))
	for i, name := range names {
		out[i] = fault.Field{Loc: append(slices.Clone(loc), name), Type: "extra_forbidden",
			Msg: "This field is not known here" + suggest.DidYouMean(name, known)}
	}
	return out
}

// meantWord asks for the word that may have been meant by one that is none of those wanted.
func meantWord(k *kind.Enum) string {
	got, ok := k.Got.(string)
	if !ok {
		return ""
	}
	var words []string
	for _, want := range k.Want {
		if word, ok := want.(string); ok {
			words = append(words, word)
		}
	}
	return suggest.DidYouMean(got, words)
}

// typeEntry names the type that was wanted.
func typeEntry(k *kind.Type) (slug, msg string) {
	if k.Got == "null" {
		return "null_not_allowed", "Must not be null"
	}
	switch strings.TrimSuffix(strings.Join(slices.DeleteFunc(slices.Clone(k.Want),
		func(s string) bool { return s == "null" }), ","), ",") {
	case "string":
		return "string_type", "Must be a string"
	case "integer":
		return "int_type", "Must be a whole number"
	case "number":
		return "number_type", "Must be a number"
	case "boolean":
		return "bool_type", "Must be true or false"
	case "array":
		return "array_type", "Must be an array"
	case "object":
		return "object_type", "Must be an object"
	}
	return "value_error", "Must be " + strings.Join(k.Want, " or ")
}

// has tells whether there is a field at a place, whatever its value.
func has(value any, loc []string) bool {
	if len(loc) == 0 {
		return false
	}
	fields, _ := jsonraw.At(value, loc[:len(loc)-1]).(map[string]any)
	_, ok := fields[loc[len(loc)-1]]
	return ok
}

// echo returns a value as it may be repeated: scalars of modest length.
func echo(value any) any {
	switch v := value.(type) {
	case string:
		if len(v) <= echoMax {
			return v
		}
	case fmt.Stringer: // json.Number
		if len(v.String()) <= echoMax {
			return v
		}
	case bool:
		return v
	}
	return nil
}

func list(values []any) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, ", ")
}

func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	return r.FloatString(3)
}

func bound(r *big.Rat) any {
	if r.IsInt() && r.Num().IsInt64() {
		return r.Num().Int64()
	}
	f, _ := r.Float64()
	return f
}

package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// collect lists the problems at the ends of a tree of failures, in the order of their places: the first that are found,
// where there are very many.
func collect(failed *jsonschema.ValidationError) []Problem {
	var out []Problem
	walk(failed, &out)
	slices.SortStableFunc(out, func(a, b Problem) int { return slices.Compare(a.Path, b.Path) })
	return out
}

func walk(e *jsonschema.ValidationError, out *[]Problem) {
	if len(*out) >= MaxProblems {
		return
	}
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf, *kind.Not, *kind.Contains, *kind.PropertyNames:
		// The branches contradict each other; the choice as a whole is what failed.
	default:
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				walk(cause, out)
			}
			return
		}
	}
	add := func(typ, format string, args ...any) {
		*out = append(*out, Problem{Path: e.InstanceLocation, Type: typ, Message: fmt.Sprintf(format, args...)})
	}
	below := func(name string) []string { return append(slices.Clone(e.InstanceLocation), name) }
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing[:min(len(k.Missing), MaxProblems)] {
			*out = append(*out, Problem{Path: below(name), Type: "missing", Message: "is required"})
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties[:min(len(k.Properties), MaxProblems)] {
			*out = append(*out, Problem{Path: below(name), Type: "extra_forbidden", Message: "is not allowed"})
		}
	case *kind.Type:
		add("type_error", "must be %s, not %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.MinLength:
		add("string_too_short", "must have at least %d characters", k.Want)
	case *kind.MaxLength:
		add("string_too_long", "must have at most %d characters", k.Want)
	case *kind.Format:
		add("value_error", "must be a valid %s", k.Want)
	case *kind.Pattern:
		add("string_pattern_mismatch", "must match %q", k.Want)
	case *kind.Enum, *kind.Const:
		add("enum", "must be one of the allowed values")
	case *kind.Minimum:
		add("greater_than_equal", "must be at least %s", k.Want.RatString())
	case *kind.Maximum:
		add("less_than_equal", "must be at most %s", k.Want.RatString())
	case *kind.AnyOf, *kind.OneOf:
		add("value_error", "must fit the allowed forms")
	default:
		add("value_error", "must keep to %s", strings.Join(e.ErrorKind.KeywordPath(), "/"))
	}
}

package schema

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// What checking one part of a value costs, in units of some 10 ns.
const (
	costPart     = 20
	costName     = 4   // one name that is required
	costEqual    = 1   // comparing two values, ...
	costNumbers  = 130 // ... and two numbers, which are fractions of any size
	costDistinct = 100 // the items of an array that must differ
)

// measure counts the subschemas of a compiled schema, and what they cost, as if its references were written out.
type measure struct {
	// seen holds what was measured; no parts while it is being measured.
	seen map[*jsonschema.Schema]extent
	// circular is the place of a schema that leads back to itself; nil where there is none.
	circular []string
}

// extent is how many subschemas there are, and what they cost for each part of a value.
type extent struct{ parts, cost int }

func (m *measure) of(s *jsonschema.Schema) extent {
	if e, seen := m.seen[s]; seen {
		if e.parts == 0 {
			_, pointer, _ := strings.Cut(s.Location, "#")
			m.circular = place(pointer)
		}
		return e
	}
	m.seen[s] = extent{}
	e := extent{1, costOf(s)}
	for _, below := range subschemas(s) {
		of := m.of(below)
		e.parts, e.cost = min(e.parts+of.parts, maxParts+1), min(e.cost+of.cost, maxCost)
	}
	m.seen[s] = e
	return e
}

// costOf is what a schema costs without those below it.
func costOf(s *jsonschema.Schema) int {
	cost := costPart + costName*len(s.Required)
	for _, names := range s.DependentRequired {
		cost += costName * (1 + len(names))
	}
	for _, x := range s.Dependencies {
		if names, ok := x.([]string); ok {
			cost += costName * (1 + len(names))
		}
	}
	if s.Enum != nil {
		for _, v := range s.Enum.Values {
			cost += costToEqual(v)
		}
	}
	if s.Const != nil {
		cost += costToEqual(*s.Const)
	}
	if s.UniqueItems {
		cost += costDistinct
	}
	return cost
}

func costToEqual(v any) int {
	cost := costEqual
	switch v := v.(type) {
	case json.Number:
		cost = costNumbers
	case map[string]any:
		for _, x := range v {
			cost += costToEqual(x)
		}
	case []any:
		for _, x := range v {
			cost += costToEqual(x)
		}
	}
	return cost
}

func place(pointer string) []string {
	out := []string{}
	if pointer == "" {
		return out
	}
	for _, name := range strings.Split(pointer, "/")[1:] {
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
		out = append(out, strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~"))
	}
	return out
}

func subschemas(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames,
		s.UnevaluatedProperties, s.Contains,
		s.Items2020, s.UnevaluatedItems, s.ContentSchema}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		out = append(out, list...)
	}
	for _, x := range s.Properties {
		out = append(out, x)
	}
	for _, x := range s.PatternProperties {
		out = append(out, x)
	}
	for _, x := range s.DependentSchemas {
		out = append(out, x)
	}
	for _, x := range s.Dependencies {
		if x, ok := x.(*jsonschema.Schema); ok {
			out = append(out, x)
		}
	}
	for _, x := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch x := x.(type) {
		case *jsonschema.Schema:
			out = append(out, x)
		case []*jsonschema.Schema:
			out = append(out, x...)
		}
	}
	return slices.DeleteFunc(out, func(x *jsonschema.Schema) bool { return x == nil })
}

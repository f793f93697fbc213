package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const dialect = "https://json-schema.org/draft/2020-12/schema"

// look finds what must not stand in a schema, before it is compiled.
type look struct {
	doc      any
	anchors  map[string]bool
	problems []Problem
}

func newLook(doc any) *look {
	l := &look{doc: doc, anchors: map[string]bool{}}
	l.collectAnchors(doc, 0)
	return l
}

func (l *look) collectAnchors(v any, depth int) {
	if depth > maxDepth {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		if name, ok := v["$anchor"].(string); ok {
			l.anchors[name] = true
		}
		for _, x := range v {
			l.collectAnchors(x, depth+1)
		}
	case []any:
		for _, x := range v {
			l.collectAnchors(x, depth+1)
		}
	}
}

func (l *look) add(at []string, format string, args ...any) {
	l.problems = append(l.problems, Problem{Path: slices.Clone(at), Type: "value_error", Message: fmt.Sprintf(format, args...)})
}

// plain are the keywords whose values are data, not schemas.
var plain = []string{"const", "default", "enum", "examples"}

// named are the keywords whose members are named by the author.
var named = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}

// schema looks through a value that stands where a schema does.
func (l *look) schema(v any, at []string) {
	if len(at) > maxDepth {
		l.add(at, "Must not nest deeper than %d levels", maxDepth)
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			l.member(name, v[name], append(at[:len(at):len(at)], name))
		}
	case []any:
		for i, x := range v {
			l.schema(x, append(at[:len(at):len(at)], strconv.Itoa(i)))
		}
	case json.Number:
		if tooLarge(v) {
			l.add(at, "Must be a number nearer to zero, or with fewer digits")
		}
	}
}

func (l *look) member(name string, v any, at []string) {
	text, isText := v.(string)
	members, isObject := v.(map[string]any)
	switch {
	case slices.Contains(plain, name):
		l.data(v, at)
	case slices.Contains(named, name) && isObject:
		for _, m := range slices.Sorted(maps.Keys(members)) {
			below := append(slices.Clone(at), m)
			if name == "patternProperties" {
				l.pattern(m, below)
			}
			l.schema(members[m], below)
		}
	case name == "$ref" && isText:
		l.reference(text, at)
	case name == "$schema" && isText && strings.TrimSuffix(text, "#") != dialect:
		l.add(at, "Must be %s, or left out", dialect)
	case name == "$id", name == "$dynamicRef", name == "$dynamicAnchor", name == "$vocabulary":
		l.add(at, "Is not supported; leave %s out", name)
	case name == "pattern" && isText:
		l.pattern(text, at)
	default:
		l.schema(v, at)
	}
}

// data looks through values that are compared with those of records.
func (l *look) data(v any, at []string) {
	size := sizing{left: MaxBytes}
	size.of(v, at)
	if size.number != nil {
		l.add(size.number, "Must be a number nearer to zero, or with fewer digits")
	}
}

func (l *look) pattern(text string, at []string) {
	if _, err := regexp.Compile(text); err != nil {
		l.add(at, "Is no regular expression that can be used here: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
}

func (l *look) reference(text string, at []string) {
	fragment, local := strings.CutPrefix(text, "#")
	switch {
	case !local:
		l.add(at, `Must refer to a place in this schema, as in "#/$defs/name"; nothing else is read`)
	case fragment != "" && fragment[0] != '/':
		if !l.anchors[fragment] {
			l.add(at, "The schema has no $anchor of this name")
		}
	default:
		if !l.resolves(fragment) {
			l.add(at, "There is no such place in the schema")
		}
	}
}

func (l *look) resolves(pointer string) bool {
	pointer, err := url.PathUnescape(pointer)
	if err != nil {
		return false
	}
	v := l.doc
	for _, name := range strings.Split(pointer, "/")[1:] {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		switch x := v.(type) {
		case map[string]any:
			if v = x[name]; v == nil {
				return false
			}
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(x) {
				return false
			}
			v = x[i]
		default:
			return false
		}
	}
	return true
}

// measure counts the subschemas of a compiled schema as if its references were written out.
type measure struct {
	// parts holds what was counted; 0 while it is being counted.
	parts map[*jsonschema.Schema]int
	// circular is the place of a schema that leads back to itself; nil where there is none.
	circular []string
}

func (m *measure) of(s *jsonschema.Schema) int {
	if n, seen := m.parts[s]; seen {
		if n == 0 {
			_, pointer, _ := strings.Cut(s.Location, "#")
			m.circular = place(pointer)
		}
		return n
	}
	m.parts[s] = 0
	n := 1
	for _, below := range subschemas(s) {
		n = min(n+m.of(below), maxParts+1)
	}
	m.parts[s] = n
	return n
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
	out := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains,
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

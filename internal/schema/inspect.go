package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"flowlane/internal/regex"
)

const dialect = "https://json-schema.org/draft/2020-12/schema"

// inspection finds what must not stand in a schema, before it is compiled.
type inspection struct {
	doc      any
	anchors  map[string]bool
	problems []Problem
	// patterns is how large its regular expressions are together.
	patterns int
}

func newInspection(doc any) *inspection {
	l := &inspection{doc: doc, anchors: map[string]bool{}}
	l.collectAnchors(doc, 0)
	return l
}

func (l *inspection) collectAnchors(v any, depth int) {
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

func (l *inspection) add(at []string, format string, args ...any) {
	l.problems = append(l.problems, Problem{Path: slices.Clone(at), Type: "value_error", Message: fmt.Sprintf(format,
		args...)})
}

// plain are the keywords whose values are data, not schemas.
var plain = []string{"const", "default", "enum", "examples"}

// named are the keywords whose members are named by the author.
var named = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}

// schema looks through a value that stands where a schema does.
func (l *inspection) schema(v any, at []string) {
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

func (l *inspection) member(name string, v any, at []string) {
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
func (l *inspection) data(v any, at []string) {
	size := sizing{left: MaxBytes}
	size.of(v, at)
	if size.number != nil {
		l.add(size.number, "Must be a number nearer to zero, or with fewer digits")
	}
}

func (l *inspection) pattern(text string, at []string) {
	re, err := regex.Compile(text, maxPatterns-l.patterns)
	switch {
	case errors.Is(err, regex.ErrTooComplex):
		l.add(at, "Is too complex, or the patterns of the schema are too complex together; make them shorter")
	case err != nil:
		l.add(at, "Cannot be used: %v", err)
	default:
		l.patterns += re.Size
	}
}

func (l *inspection) reference(text string, at []string) {
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

func (l *inspection) resolves(pointer string) bool {
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

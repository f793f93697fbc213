package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

type generator struct {
	root, schemas node
	out           bytes.Buffer
	// later are objects within objects, which need a name and a type of their own.
	later []field
	// changes are the schemas of PATCH bodies: there, a field that is null says something else than one that is absent.
	changes map[string]bool
}

func (g *generator) printf(format string, args ...any) { fmt.Fprintf(&g.out, format, args...) }

// comment prints a description as a comment.
func (g *generator) comment(name, text string) {
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	if name != "" {
		text = name + ": " + text
	}
	for line := range strings.SplitSeq(text, "\n") {
		g.printf("%s\n", strings.TrimRight("// "+line, " "))
	}
}

func (g *generator) models() {
	g.printf("import \"time\"\n\n")
	g.changes = map[string]bool{}
	for _, path := range g.root.at("paths").fields() {
		body := path.value.at("patch").at("requestBody").at("content").at("application/json").at("schema")
		g.changes[exported(schemaName(body))] = true
	}
	for _, s := range g.schemas.fields() {
		g.later = []field{s}
		for len(g.later) > 0 {
			next := g.later[0]
			g.later = g.later[1:]
			g.model(next.name, next.value)
		}
	}
}

func (g *generator) model(name string, schema node) {
	name = exported(name)
	g.comment(name, schema.at("description").text())
	switch {
	case schema.at("properties").exists():
		g.object(name, schema)
	case schema.at("enum").exists():
		g.printf("type %s string\n\nconst (\n", name)
		for _, v := range schema.at("enum").items() {
			g.printf("%s%s %s = %q\n", name, exported(v.text()), name, v.text())
		}
		g.printf(")\n\n")
	default:
		g.printf("type %s = %s\n\n", name, g.typeOf(name+"Item", schema))
	}
}

func (g *generator) object(name string, schema node) {
	g.printf("type %s struct {\n", name)
	for _, p := range schema.at("properties").fields() {
		g.comment("", p.value.at("description").text())
		kind, tag := g.typeOf(name+exported(p.name), p.value), p.name
		if !schema.at("required").has(p.name) {
			tag += ",omitzero"
			if kind = optional(kind); g.changes[name] && nullable(p.value) {
				kind = "Nullable[" + strings.TrimPrefix(kind, "*") + "]"
			}
		}
		g.printf("%s %s `json:%q`\n", exported(p.name), kind, tag)
	}
	g.printf("}\n\n")
}

// optional is the type of what may be absent.
func optional(kind string) string {
	if strings.HasPrefix(kind, "*") || strings.HasPrefix(kind, "[]") || strings.HasPrefix(kind, "map[") ||
		kind == "any" ||
		kind == "FreeObject" {
		return kind
	}
	return "*" + kind
}

// schemaName is the name that a schema refers to, or nothing.
func schemaName(schema node) string {
	ref := schema.at("$ref").text()
	return ref[strings.LastIndex(ref, "/")+1:]
}

// nullable tells whether a schema allows null beside a value.
func nullable(schema node) bool {
	return schema.at("type").has("null") ||
		slices.ContainsFunc(schema.at("oneOf").items(), func(s node) bool { return s.at("type").text() == "null" })
}

// anything tells whether a schema allows values of several types.
func (g *generator) anything(schema node) bool {
	return !schema.at("type").exists() && !schema.at("properties").exists() && g.typeOf("", schema) == "any"
}

// typeOf is the Go type of a schema; an object without a name of its own gets the one given.
func (g *generator) typeOf(name string, schema node) string {
	if to := schemaName(schema); to != "" {
		name = to
		if g.anything(g.schemas.at(name)) {
			return "any"
		}
		return exported(name)
	}
	if one := schema.at("allOf").items(); len(one) == 1 {
		return g.typeOf(name, one[0])
	}
	if alternatives := schema.at("oneOf").items(); len(alternatives) > 0 {
		if len(alternatives) == 2 && alternatives[1].at("type").text() == "null" {
			return optional(g.typeOf(name, alternatives[0]))
		}
		return "any"
	}
	kind := g.plain(name, schema)
	if schema.at("type").has("null") {
		return optional(kind)
	}
	return kind
}

func (g *generator) plain(name string, schema node) string {
	kind := schema.at("type")
	switch {
	case schema.at("properties").exists():
		g.later = append(g.later, field{name, schema})
		return name
	case kind.has("array"):
		return "[]" + g.typeOf(name+"Item", schema.at("items"))
	case kind.has("object"):
		if values := schema.at("additionalProperties"); len(values.fields()) > 0 {
			return "map[string]" + g.typeOf(name+"Value", values)
		}
		return "map[string]any"
	case kind.has("string") && schema.at("format").text() == "date-time":
		return "time.Time"
	case kind.has("string"):
		return "string"
	case kind.has("integer"):
		return "int64"
	case kind.has("number"):
		return "float64"
	case kind.has("boolean"):
		return "bool"
	default:
		return "any"
	}
}

var initialisms = map[string]string{"id": "ID", "ids": "IDs", "url": "URL", "api": "API", "json": "JSON", "eta": "ETA",
	"aws": "AWS", "ms": "MS"}

// exported is a name in Go for one of the document.
func exported(name string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return !strings.ContainsRune(letters, r) }) {
		if upper, ok := initialisms[word]; ok {
			b.WriteString(upper)
			continue
		}
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	if out := b.String(); out != "" && out[0] > '9' {
		return out
	}
	return "N" + b.String()
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

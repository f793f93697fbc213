package main

import (
	"fmt"
	"slices"
	"strings"
)

// pythonGenerator writes the Python client: a TypedDict for each object, which is the JSON as it is, and a method for
// each operation.
type pythonGenerator struct {
	*generator
	// prefix stands before the names of models, where these are in another module.
	prefix string
}

const pythonIndent = "    "

func (p *pythonGenerator) models() {
	p.printf("\"\"\"What the API takes and returns: objects are the dicts of their JSON.\"\"\"\n\n" +
		"from __future__ import annotations\n\n")
	p.printf("from typing import Any, Literal, NotRequired, TypeAlias, TypedDict\n")
	p.prefix = ""
	for _, s := range p.schemas.fields() {
		p.model(s)
	}
	for _, o := range p.list() {
		p.later = nil
		o.types(p.typeOf)
		for _, nested := range slices.Clone(p.later) {
			p.model(nested)
		}
	}
}

// model writes a model, and those of the objects within it.
func (p *pythonGenerator) model(schema field) {
	p.later = []field{schema}
	for len(p.later) > 0 {
		next := p.later[0]
		p.later = p.later[1:]
		name := exported(next.name)
		switch {
		case next.value.at("properties").exists():
			p.object(name, next.value)
		default:
			p.printf("\n%s: TypeAlias = %q\n", name, p.typeOf(name+"Item", next.value))
			p.docstring("", next.value.at("description").text())
		}
	}
}

// object writes a TypedDict: as a class, or as a call where a name of a field is a word of Python.
func (p *pythonGenerator) object(name string, schema node) {
	fields := schema.at("properties").fields()
	if slices.ContainsFunc(fields, func(f field) bool { return pythonName(f.name) != f.name }) {
		p.printf("\n%s = TypedDict(%q, {\n", name, name)
		for _, f := range fields {
			p.printf("%s%q: %q,\n", pythonIndent, f.name, p.fieldType(name, schema, f))
		}
		p.printf("})\n")
		p.docstring("", schema.at("description").text())
		return
	}
	p.printf("\n\nclass %s(TypedDict):\n", name)
	p.docstring(pythonIndent, schema.at("description").text())
	for _, f := range fields {
		p.printf("%s%s: %s\n", pythonIndent, f.name, p.fieldType(name, schema, f))
		p.docstring(pythonIndent, f.value.at("description").text())
	}
	p.printf("\n")
}

func (p *pythonGenerator) fieldType(name string, schema node, f field) string {
	kind := p.typeOf(name+exported(f.name), f.value)
	if !schema.at("required").has(f.name) {
		return "NotRequired[" + kind + "]"
	}
	return kind
}

// docstring writes a description, if there is one.
func (p *pythonGenerator) docstring(indent, text string) {
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	text = strings.NewReplacer(`\`, `\\`, `"""`, `\"\"\"`).Replace(text)
	if strings.HasSuffix(text, `"`) {
		text += " "
	}
	lines := strings.Split(text, "\n")
	if len(lines) == 1 {
		p.printf("%s\"\"\"%s\"\"\"\n", indent, text)
		return
	}
	p.printf("%s\"\"\"%s\n", indent, lines[0])
	for _, line := range lines[1:] {
		p.printf("%s\n", strings.TrimRight(indent+line, " "))
	}
	p.printf("%s\"\"\"\n", indent)
}

// typeOf is the Python type of a schema; an object without a name of its own gets the one given.
func (p *pythonGenerator) typeOf(name string, schema node) string {
	if ref := schema.at("$ref").text(); ref != "" {
		return p.prefix + exported(ref[strings.LastIndex(ref, "/")+1:])
	}
	if one := schema.at("allOf").items(); len(one) == 1 {
		return p.typeOf(name, one[0])
	}
	var kinds []string
	if alternatives := schema.at("oneOf").items(); len(alternatives) > 0 {
		for _, a := range alternatives {
			kinds = append(kinds, p.typeOf(name, a))
		}
	} else {
		kinds = append(kinds, p.plain(name, schema))
		if schema.at("type").has("null") {
			kinds = append(kinds, "None")
		}
	}
	if slices.Contains(kinds, "Any") {
		return "Any"
	}
	slices.Sort(kinds)
	return strings.Join(slices.Compact(kinds), " | ")
}

func (p *pythonGenerator) plain(name string, schema node) string {
	kind := schema.at("type")
	switch {
	case schema.at("properties").exists():
		p.later = append(p.later, field{name, schema})
		return p.prefix + exported(name)
	case schema.at("enum").exists():
		var words []string
		for _, v := range schema.at("enum").items() {
			if v.Tag == "!!str" {
				words = append(words, "'"+v.text()+"'")
			} else if v.Tag != "!!null" {
				words = append(words, v.text())
			}
		}
		return "Literal[" + strings.Join(words, ", ") + "]"
	case kind.has("array"):
		return "list[" + p.typeOf(name+"Item", schema.at("items")) + "]"
	case kind.has("object"):
		if values := schema.at("additionalProperties"); len(values.fields()) > 0 {
			return "dict[str, " + p.typeOf(name+"Value", values) + "]"
		}
		return "dict[str, Any]"
	}
	for _, k := range []struct{ word, kind string }{
		{"string", "str"}, {"integer", "int"}, {"number", "float"}, {"boolean", "bool"}, {"null", "None"},
	} {
		if kind.has(k.word) {
			return k.kind
		}
	}
	return "Any"
}

func (p *pythonGenerator) operations() {
	p.printf("\"\"\"The operations of the API.\"\"\"\n\nfrom __future__ import annotations\n\n" +
		"from typing import Any, Iterator, Literal\n\n")
	p.printf("from . import models\nfrom ._transport import Transport, segment\n\n\nclass Operations(Transport):\n")
	p.printf("%s\"\"\"A method for each operation; each raises ApiError where the service refuses.\"\"\"\n",
		pythonIndent)
	p.prefix = "models."
	for _, o := range p.list() {
		o.types(p.typeOf)
		p.method(o)
	}
}

func (p *pythonGenerator) method(o operation) {
	name := snake(o.id)
	arguments, path, call := []string{"self"}, fmt.Sprintf("%q", o.path), ""
	if len(o.arguments) > 0 {
		path = "f" + path
	}
	for _, a := range o.arguments {
		arguments = append(arguments, pythonName(a)+": str")
		path = strings.ReplaceAll(path, "{"+a+"}", "{segment("+pythonName(a)+")}")
	}
	if o.body != "" {
		kind, fallback := o.body, ""
		if o.request.at("required").text() != "true" {
			kind, fallback = kind+" | None", " = None"
		}
		arguments, call = append(arguments, "body: "+kind+fallback), call+", body=body"
	}
	if o.keyed || len(o.query) > 0 {
		arguments = append(arguments, "*")
	}
	query, narrowed := p.query(o, "")
	arguments = append(arguments, narrowed...)
	if query != "" {
		call += ", query=" + query
	}
	if o.keyed {
		arguments, call = append(arguments, "idempotency_key: str | None = None"), call+
			", key=idempotency_key or self._new_key()"
	}
	answer := o.answer
	if answer == "" {
		answer = "None"
	}
	p.head(name, arguments, answer)
	p.docstring(pythonIndent+pythonIndent, o.description)
	p.printf("%sreturn self._call(%q, %q, %s%s)\n", strings.Repeat(pythonIndent, 2), name, o.method, path, call)
	if item := p.item(o); item != "" {
		p.pages(o, item, path)
	}
}

// head writes the first line of a method, an argument a line where there are many.
func (p *pythonGenerator) head(name string, arguments []string, answer string) {
	line := fmt.Sprintf("%sdef %s(%s) -> %s:", pythonIndent, name, strings.Join(arguments, ", "), answer)
	if len(line) > 120 {
		between := ",\n" + pythonIndent + pythonIndent
		line = fmt.Sprintf("%sdef %s(%s,\n%s) -> %s:", pythonIndent, name, between[1:]+strings.Join(arguments, between),
			pythonIndent, answer)
	}
	p.printf("\n%s\n", line)
}

// query is the dict of an operation's query, and its arguments, without the one that is left out.
func (p *pythonGenerator) query(o operation, without string) (dict string, arguments []string) {
	var pairs []string
	for _, q := range o.query {
		name := q.at("name").text()
		if name == without {
			continue
		}
		kind := strings.TrimSuffix(p.typeOf("", q.at("schema")), " | None") + " | None"
		arguments = append(arguments, pythonName(name)+": "+kind+" = None")
		pairs = append(pairs, fmt.Sprintf("%q: %s", name, pythonName(name)))
	}
	if len(pairs) == 0 {
		return "", nil
	}
	return "{" + strings.Join(pairs, ", ") + "}", arguments
}

// pages writes the iterator over all pages of a list.
func (p *pythonGenerator) pages(o operation, item, path string) {
	arguments := []string{"self"}
	for _, a := range o.arguments {
		arguments = append(arguments, pythonName(a)+": str")
	}
	query, narrowed := p.query(o, "cursor")
	if len(narrowed) > 0 {
		arguments = append(append(arguments, "*"), narrowed...)
	} else {
		query = "{}"
	}
	name := snake(o.id)
	p.head("all_"+strings.TrimPrefix(name, "list_"), arguments, "Iterator["+item+"]")
	p.docstring(pythonIndent+pythonIndent, "Goes through all pages of "+name+".")
	p.printf("%sreturn self._pages(%q, %s, %s)\n", strings.Repeat(pythonIndent, 2), name, path, query)
}

// item is the type of the items of a list that has pages, or nothing.
func (p *pythonGenerator) item(o operation) string {
	list := p.schemas.at(strings.TrimPrefix(o.answer, p.prefix)).at("properties")
	if !o.cursor || o.method != "GET" || !list.at("next_cursor").exists() {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(p.typeOf("", list.at("items")), "list["), "]")
}

// pythonWords are the words of Python that the document uses as names, too.
var pythonWords = []string{"from", "class", "import", "in", "is", "not", "and", "or", "if", "else", "for", "while",
	"with", "as", "pass", "global"}

// pythonName is a name in Python for one of the document.
func pythonName(name string) string {
	if slices.Contains(pythonWords, name) {
		return name + "_"
	}
	return strings.Map(func(r rune) rune {
		if r == '_' || strings.ContainsRune(letters, r) {
			return r
		}
		return '_'
	}, name)
}

// snake writes CreateAPIKey as create_api_key.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' && i > 0 && (name[i-1] > 'Z' || i+1 < len(name) && name[i+1] > 'Z') {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToLower(string(r)))
	}
	return b.String()
}

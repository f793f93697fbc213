package openapi

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"flowlane/internal/platform/catalog"
)

// requestBody takes the body that calls can send: JSON of some kind, else a form, with files or without, else bytes.
func (c *call) requestBody(method string, op place) (schema *node, why string) {
	at := op.at("requestBody")
	if at.node == nil {
		return nil, ""
	}
	at, ok := c.im.follow(at)
	if !ok {
		return nil, "its body cannot be read"
	}
	content := at.at("content")
	chosen, media := chooseBody(content)
	if chosen.node != nil && formOf(media) == catalog.BodyMultipart && len(c.im.fieldsOf(chosen.at("schema"))) == 0 {
		chosen = place{}
	}
	if chosen.node == nil {
		names := make([]string, 0, len(content.children()))
		for _, m := range content.children() {
			names = append(names, lastStep(content, m))
		}
		problem := "calls send JSON, forms, multipart with named fields, text and bytes, not " +
			clip(strings.Join(names, ", "), 200)
		if at.get("required").isTrue() || (method != "get" && method != "head" && !sayNothing(content)) {
			return nil, problem
		}
		c.im.report.add(Dropped, at, problem)
		return nil, ""
	}
	for _, m := range content.children() {
		if m.pointer != chosen.pointer {
			c.im.report.add(Dropped, m, "the body is sent as "+clip(media, 100))
		}
	}
	c.im.rest(chosen, "schema", "example", "examples", "encoding")
	c.body, c.bodyNeeded, c.template = true, at.get("required").isTrue(), text("{{ params.body }}")
	form := formOf(media)
	if c.form = form; form == catalog.BodyJSON {
		c.form = ""
	}
	switch {
	case form == catalog.BodyMultipart:
		return c.multipart(chosen)
	case form == catalog.BodyForm:
		c.numberedFields(chosen)
	case form == catalog.BodyBytes || form == catalog.BodyText:
		c.headers.set("Content-Type", text(clip(media, maxName)))
		return plainBody(form), ""
	case !isPlainJSON(media) && !strings.Contains(media, "*"):
		c.headers.set("Content-Type", text(clip(media, maxName)))
	}
	if s := chosen.at("schema"); s.node != nil {
		return c.builder.part(s), ""
	}
	return &node{kind: isObject}, ""
}

// bodyForms are the forms of bodies, the best first.
var bodyForms = []string{catalog.BodyJSON, catalog.BodyForm, catalog.BodyMultipart, catalog.BodyText, catalog.BodyBytes}

// chooseBody takes one of the bodies that an operation takes.
func chooseBody(content place) (chosen place, media string) {
	rank := func(media string) int {
		at := 2 * slices.Index(bodyForms, formOf(media))
		if at == 0 && !isPlainJSON(media) {
			at++
		}
		return at
	}
	for _, m := range content.children() {
		name := lastStep(content, m)
		if formOf(name) != "" && (chosen.node == nil || rank(name) < rank(media)) {
			chosen, media = m, name
		}
	}
	return chosen, media
}

// formOf is the form in which a body of a media type is written; empty where there is none.
func formOf(media string) string {
	name, _, _ := strings.Cut(strings.ToLower(media), ";")
	kind, _, _ := strings.Cut(name, "/")
	switch name = strings.TrimSpace(name); {
	case isJSON(media):
		return catalog.BodyJSON
	case name == "application/x-www-form-urlencoded":
		return catalog.BodyForm
	case name == "multipart/form-data":
		return catalog.BodyMultipart
	case strings.Contains(name, "*") || strings.HasSuffix(name, "xml"):
		return ""
	case kind == "text":
		return catalog.BodyText
	case name == "application/octet-stream" || kind == "image" || kind == "audio" || kind == "video" ||
		name == "application/pdf" || name == "application/zip":
		return catalog.BodyBytes
	}
	return ""
}

func plainBody(form string) *node {
	if form == catalog.BodyText {
		return object("type", text("string"))
	}
	return object("type", text("string"), "contentEncoding", text("base64"), "description",
		text("The content in base64."))
}

// numberedFields has arrays of plain values that a form wants as deep objects written so: expand[0]=a&expand[1]=b.
// Arrays of objects are written like that anyway.
func (c *call) numberedFields(media place) {
	var numbered []string
	for _, f := range c.im.fieldsOf(media.at("schema")) {
		name := lastName(f.at)
		if media.at("encoding").at(name).get("style").str() == "deepObject" && c.im.typesAt(f.at)["array"] {
			numbered = append(numbered, exprText(name)+": "+numbersOf("params.body["+exprText(name)+"]"))
		}
	}
	if len(numbered) > 0 {
		c.template = text("{{ params.body == nil ? nil : merge(params.body, {" + strings.Join(numbered, ", ") + "}) }}")
	}
}

// numbersOf turns an array into an object that has its numbers for names, which is written as name[0]=...&name[1]=...
func numbersOf(value string) string {
	return "type(" + value + `) == "array" ? fromPairs(map(` + value + ", [string(#index), #])) : " + value
}

// multipart makes a body of fields and files: each field is a template of its own, in the order of the document,
// because some receivers want what tells of a file before it.
func (c *call) multipart(media place) (schema *node, why string) {
	fields := c.im.fieldsOf(media.at("schema"))
	c.template = &node{kind: isObject}
	properties, required := &node{kind: isObject}, list()
	for _, f := range fields {
		name := lastName(f.at)
		value := "params.body[" + exprText(name) + "]"
		style := media.at("encoding").at(name).get("style").str()
		types := c.im.typesAt(f.at)
		kind := c.im.fileKind(f.at)
		switch {
		case kind != nil:
			properties.set(name, kind)
		case style != "" && style != "form" && (types["array"] || types["object"]):
			problem := "a field of a multipart body cannot be written in style " + clip(style, 60)
			if f.required {
				return nil, problem
			}
			c.im.report.add(Dropped, f.at, problem)
			continue
		default:
			properties.set(name, c.builder.part(f.at))
			value = c.im.jsonParts(f.at, types, value)
		}
		if strings.Contains(name, "{{") {
			return nil, "the name of a field holds braces, which stand for an expression"
		}
		c.template.set(name, text("{{ "+value+" }}"))
		if f.required {
			required.set("", text(name))
		}
	}
	schema = object("type", text("object"), "additionalProperties", boolean(false))
	if len(required.fields) > 0 {
		schema.set("required", required)
		c.bodyNeeded = true
	}
	schema.set("properties", properties)
	return schema, ""
}

// jsonParts is what a field of objects becomes: a part of JSON, of an array one for each item.
func (im *importer) jsonParts(at place, types map[string]bool, value string) string {
	const part = `{"content_type": "application/json", "text": toJSON(`
	items := false
	im.eachInPlace(at, func(n *node) {
		items = items || im.typesAt(place{n.get("items"), ""})["object"]
	})
	switch {
	case types["array"] && items:
		return nullSafe("map", value, ", "+part+"#)}")
	case types["object"]:
		return "type(" + value + `) == "object" ? ` + part + value + ")} : " + value
	}
	return value
}

// fileKind is the schema of a field that is a file, or of one that is several; nil for any other.
func (im *importer) fileKind(at place) *node {
	file, files := false, false
	isFile := func(n *node) bool {
		return n.get("format").str() == "binary" || n.get("contentEncoding").str() == "binary" ||
			n.get("contentMediaType").str() == "application/octet-stream"
	}
	im.eachInPlace(at, func(n *node) {
		file = file || isFile(n)
		if items := n.get("items"); items != nil {
			im.eachInPlace(place{items, ""}, func(n *node) { files = files || isFile(n) })
		}
	})
	about := object("type", text("object"), "additionalProperties", boolean(false),
		"description", text(clip(cmp.Or(at.get("description").str(), "A file."), maxText)),
		"oneOf", list(object("required", list(text("text"))), object("required", list(text("base64")))),
		"properties", object("filename", object("type", text("string")), "content_type", object("type", text("string"),
			"pattern", text(`^[a-z]+/[A-Za-z0-9.+-]+$`), "examples", list(text("image/png"))),
			"text", object("type", text("string")), "base64", object("type", text("string"), "contentEncoding",
				text("base64"))))
	switch {
	case file:
		return about
	case files:
		return object("type", text("array"), "items", about)
	}
	return nil
}

// bodyField is a field of a body.
type bodyField struct {
	at       place
	required bool
}

// fieldsOf are the fields that a schema names, in its order, those of what it refers to and of allOf included.
func (im *importer) fieldsOf(schema place) []bodyField {
	var out []bodyField
	required, seen, named := map[string]bool{}, map[*node]bool{}, map[string]bool{}
	var walk func(at place)
	walk = func(at place) {
		if !at.is(isObject) || seen[at.node] || len(seen) > 1000 || !im.visitable(at.node) {
			return
		}
		seen[at.node] = true
		if at.get("$ref") != nil {
			if target, ok := im.follow(at); ok {
				walk(target)
			}
		}
		for _, name := range at.at("required").children() {
			required[name.str()] = true
		}
		for _, f := range at.at("properties").children() {
			if name := lastName(f); !named[name] {
				named[name] = true
				out = append(out, bodyField{at: f})
			}
		}
		for _, part := range at.at("allOf").children() {
			walk(part)
		}
	}
	walk(schema)
	for i := range out {
		out[i].required = required[lastName(out[i].at)]
	}
	return out
}

// lastName is the name under which something stands.
func lastName(at place) string {
	return lastStep(place{nil, at.pointer[:strings.LastIndexByte(at.pointer, '/')]}, at)
}

// sayNothing tells whether bodies have no fields, so that nothing is lost without them.
func sayNothing(content place) bool {
	for _, m := range content.children() {
		properties := m.at("schema").at("properties")
		if !properties.is(isObject) || len(properties.fields) > 0 {
			return false
		}
	}
	return true
}

var jsonMedia = regexp.MustCompile(
	`^(application/json|text/json|application/[A-Za-z0-9!#$&^_.+-]+\+json|\*/\*|application/\*)\s*(;.*)?$`)

func isJSON(media string) bool { return jsonMedia.MatchString(strings.ToLower(media)) }

func isPlainJSON(media string) bool {
	return strings.HasPrefix(strings.ToLower(media), "application/json")
}

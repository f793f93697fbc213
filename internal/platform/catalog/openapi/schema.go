package openapi

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// unit is one schema with a place of its own: a component, or the schema of a parameter, body or answer. References
// inside lead to other units.
type unit struct {
	schema *node
	// refs are the pointers of the units that it refers to, in order.
	refs []string
	size int
	// loose is set where the result accepts more than the original.
	loose bool
}

// maxUnit is how many values one unit may have; with aliases a short document can describe endless ones.
const maxUnit = 200_000

// unitOf converts the schema at a place. request tells schemas of parameters from those of answers: read-only
// properties are not required of a request, write-only ones not of an answer.
func (im *importer) unitOf(at place, request bool) *unit {
	key := unitKey{at.pointer, request}
	if u, ok := im.units[key]; ok {
		return u
	}
	u := &unit{}
	im.units[key] = u
	c := converter{im: im, unit: u, request: request, root: at.pointer}
	u.schema = c.schema(at, true)
	u.size = sizeOf(u.schema)
	return u
}

type unitKey struct {
	pointer string
	request bool
}

type converter struct {
	im      *importer
	unit    *unit
	request bool
	root    string
	values  int
}

var anything = &node{kind: isBool, text: "true"}

func (c *converter) drop(at place, message string) {
	c.unit.loose = true
	c.im.report.add(Dropped, at, message)
}

// spend counts one more value of the unit.
func (c *converter) spend(at place) bool {
	c.values++
	c.im.work++
	if c.values <= maxUnit && c.im.work <= maxWork {
		return true
	}
	if c.values == maxUnit+1 || c.im.work == maxWork+1 {
		c.drop(at, "the schema is too large; from here on anything is accepted")
	}
	return false
}

// schema converts one schema. inPlace is set while the schema speaks of the same value as the unit itself.
func (c *converter) schema(at place, inPlace bool) *node {
	switch {
	case !c.spend(at):
		return anything
	case at.is(isBool):
		return at.node
	case !at.is(isObject):
		c.drop(at, "a schema must be an object; anything is accepted instead")
		return anything
	}
	out := &node{kind: isObject}
	ref := at.get("$ref")
	for _, f := range at.children() {
		name := lastStep(at, f)
		if ref != nil && c.im.old && !besideRef[name] {
			c.im.report.add(Changed, f, "OpenAPI 3.0 ignores what stands beside $ref")
			continue
		}
		c.keyword(out, name, f, at, inPlace)
	}
	c.types(out, at)
	return c.nullable(out, at)
}

// besideRef are the keywords beside a reference that OpenAPI 3.0 ignores, but that authors mean.
var besideRef = map[string]bool{"$ref": true, "description": true, "title": true, "nullable": true, "deprecated": true,
	"readOnly": true, "writeOnly": true}

func lastStep(parent, child place) string {
	return strings.ReplaceAll(strings.ReplaceAll(child.pointer[len(parent.pointer)+1:], "~1", "/"), "~0", "~")
}

func (n *node) set(name string, value *node) {
	n.fields = append(n.fields, field{name, value})
	n.index = nil
}

type keywordKind uint8

const (
	wantSchema keywordKind = iota + 1
	wantPlaceSchema
	wantSchemas
	wantPlaceSchemas
	wantSchemaMap
	wantPlaceSchemaMap
	wantText
	wantNumber
	wantCount
	wantBool
	wantAny
	wantList
	wantNames
	wantNothing
)

// keywords says what each keyword of a schema holds; those of a wantPlace... speak of the same value as their schema.
var keywords = map[string]keywordKind{
	"not": wantPlaceSchema, "if": wantPlaceSchema, "then": wantPlaceSchema, "else": wantPlaceSchema,
	"items": wantSchema, "contains": wantSchema, "propertyNames": wantSchema, "additionalProperties": wantSchema,
	"unevaluatedItems": wantSchema, "unevaluatedProperties": wantSchema,
	"allOf": wantPlaceSchemas, "anyOf": wantPlaceSchemas, "oneOf": wantPlaceSchemas, "prefixItems": wantSchemas,
	"properties": wantSchemaMap, "patternProperties": wantSchemaMap, "dependentSchemas": wantPlaceSchemaMap,
	"title": wantText, "description": wantText, "format": wantText, "contentEncoding": wantText,
	"contentMediaType": wantText,
	"$comment":         wantText, "multipleOf": wantNumber, "maximum": wantNumber, "minimum": wantNumber,
	"maxLength": wantCount, "minLength": wantCount, "maxItems": wantCount, "minItems": wantCount,
	"maxContains": wantCount,
	"minContains": wantCount, "maxProperties": wantCount, "minProperties": wantCount,
	"uniqueItems": wantBool, "deprecated": wantBool, "readOnly": wantBool, "writeOnly": wantBool,
	"default": wantAny, "const": wantAny, "enum": wantList, "examples": wantList, "required": wantNames,
	// Those below are read elsewhere, or lead to schemas that are found when something refers to them.
	"type": wantNothing, "nullable": wantNothing, "$defs": wantNothing, "definitions": wantNothing,
}

func (c *converter) keyword(out *node, name string, f, parent place, inPlace bool) {
	switch name {
	case "$ref":
		c.ref(out, f, inPlace)
		return
	case "example":
		c.value(out, "examples", place{&node{kind: isArray, fields: []field{{"", f.node}}, line: f.line}, f.pointer})
		return
	case "exclusiveMaximum", "exclusiveMinimum":
		c.exclusive(out, name, f, parent)
		return
	case "pattern":
		c.pattern(out, name, f)
		return
	case "dependentRequired":
		c.dependent(out, f)
		return
	case "maximum", "minimum":
		if parent.get("exclusive" + strings.ToUpper(name[:1]) + name[1:]).isTrue() {
			return
		}
	}
	want := keywords[name]
	switch {
	case want == 0:
		c.drop(f, "a schema of the catalog has no "+clip(name, 60))
	case want != wantNothing && !c.fits(want, f):
		c.drop(f, clip(name, 60)+" has no valid form")
	case want <= wantPlaceSchemaMap:
		c.nested(out, name, want, f, inPlace)
	case want == wantNames:
		c.required(out, f, parent)
	case want != wantNothing:
		c.value(out, name, f)
	}
}

// fits tells whether a keyword has the kind of value that it needs.
func (c *converter) fits(want keywordKind, f place) bool {
	switch want {
	case wantSchema, wantPlaceSchema:
		return f.is(isObject) || f.is(isBool)
	case wantSchemas, wantPlaceSchemas:
		return f.is(isArray) && len(f.fields) > 0
	case wantSchemaMap, wantPlaceSchemaMap:
		return f.is(isObject)
	case wantText:
		return f.is(isString)
	case wantBool:
		return f.is(isBool)
	case wantNumber:
		return f.is(isNumber) && (!strings.HasSuffix(f.pointer, "/multipleOf") || positive(f.text))
	case wantCount:
		return f.is(isNumber) && isCount(f.text)
	case wantList:
		return f.is(isArray)
	case wantNames:
		return f.is(isArray) && distinctNames(f.node)
	default:
		return true
	}
}

var countForm = regexp.MustCompile(`^[0-9]{1,15}$`)

func isCount(text string) bool { return countForm.MatchString(text) }

func positive(text string) bool {
	v, err := json.Number(text).Float64()
	return err == nil && v > 0
}

func distinctNames(n *node) bool {
	seen := map[string]bool{}
	for _, f := range n.fields {
		if !f.value.is(isString) || seen[f.value.text] {
			return false
		}
		seen[f.value.text] = true
	}
	return true
}

// nested converts the schemas inside a keyword.
func (c *converter) nested(out *node, name string, want keywordKind, f place, inPlace bool) {
	deeper := inPlace && (want == wantPlaceSchema || want == wantPlaceSchemas || want == wantPlaceSchemaMap)
	if want == wantSchema || want == wantPlaceSchema {
		out.set(name, c.schema(f, deeper))
		return
	}
	list := &node{kind: f.kind}
	for i, child := range f.children() {
		key := f.fields[i].name
		if name == "patternProperties" && !c.goodPattern(child, key) {
			continue
		}
		if len(key) > maxName {
			c.drop(child, "the name is too long")
			continue
		}
		list.set(key, c.schema(child, deeper))
	}
	out.set(name, list)
}

// maxName is the longest name of a field that YAML can hold without ado.
const maxName = 256

func (c *converter) ref(out *node, f place, inPlace bool) {
	target, ok := c.im.find(f.str())
	switch {
	case !f.is(isString):
		c.drop(f, "$ref has no valid form")
	case !ok:
		c.drop(f, badRef(f.text)+"; anything is accepted instead")
	case inPlace && c.im.loops(c.root, target.pointer):
		c.drop(f, "the schema contains itself without a value in between; anything is accepted here")
	default:
		c.im.touch(target.pointer)
		c.unit.refs = append(c.unit.refs, target.pointer)
		out.set("$ref", &node{kind: isString, text: "#/$defs/" + c.im.nameOf(target.pointer)})
	}
}

func (c *converter) exclusive(out *node, name string, f, parent place) {
	bound := parent.get(strings.ToLower(strings.TrimPrefix(name, "exclusive")))
	switch {
	case f.is(isNumber):
		out.set(name, f.node)
	case f.isTrue() && bound.is(isNumber):
		out.set(name, bound)
	case !f.is(isBool):
		c.drop(f, name+" has no valid form")
	}
}

func (c *converter) pattern(out *node, name string, f place) {
	if !f.is(isString) {
		c.drop(f, name+" has no valid form")
	} else if c.goodPattern(f, f.text) {
		out.set(name, f.node)
	}
}

// goodPattern tells whether an expression can be checked: without look-ahead and references back, in linear time.
func (c *converter) goodPattern(at place, text string) bool {
	if _, err := regexp.Compile(text); err != nil {
		c.drop(at, "the pattern is not checked: "+err.Error())
		return false
	}
	return true
}

func (c *converter) dependent(out *node, f place) {
	list := &node{kind: isObject}
	for i, child := range f.children() {
		if !child.is(isArray) || !distinctNames(child.node) || len(f.fields[i].name) > maxName {
			c.drop(child, "dependentRequired has no valid form")
			continue
		}
		list.set(f.fields[i].name, child.node)
	}
	out.set("dependentRequired", list)
}

// required leaves out the names that the direction does not carry.
func (c *converter) required(out *node, f, parent place) {
	other := "writeOnly"
	if c.request {
		other = "readOnly"
	}
	list := &node{kind: isArray}
	for _, name := range f.children() {
		property := parent.at("properties").at(name.text)
		if ref := property.get("$ref"); ref != nil && !property.get(other).isTrue() {
			property, _ = c.im.find(ref.str())
		}
		if property.get(other).isTrue() {
			c.unit.loose = true
			continue
		}
		list.set("", name.node)
	}
	if len(list.fields) > 0 {
		out.set("required", list)
	}
}

// value copies a literal value.
func (c *converter) value(out *node, name string, f place) {
	if n := c.copied(f); n != nil {
		out.set(name, n)
	}
}

// copied returns nil where the value is too large, or has a name that is too long.
func (c *converter) copied(f place) *node {
	if !c.spend(f) {
		return nil
	}
	for _, child := range f.children() {
		if c.copied(child) == nil {
			return nil
		}
	}
	for _, field := range f.fields {
		if len(field.name) > maxName {
			c.drop(f, "the value has a name that is too long")
			return nil
		}
	}
	return f.node
}

var schemaTypes = []string{"string", "number", "integer", "boolean", "object", "array", "null"}

func typesOf(n *node) []string {
	t := n.get("type")
	var out []string
	switch {
	case t.is(isString):
		out = []string{t.text}
	case t.is(isArray):
		for _, f := range t.fields {
			out = append(out, f.value.str())
		}
	}
	return out
}

// types writes the types first: they are what a reader looks for.
func (c *converter) types(out *node, at place) {
	if at.get("type") == nil || (c.im.old && at.get("$ref") != nil) {
		return
	}
	var good []*node
	seen := map[string]bool{}
	types := typesOf(at.node)
	if at.get("nullable").isTrue() {
		types = append(types, "null")
	}
	for _, t := range types {
		if !slices.Contains(schemaTypes, t) {
			c.drop(at.at("type"), "JSON Schema has no type "+clip(strconvQuote(t), 60))
			good = nil
			break
		}
		if !seen[t] {
			good = append(good, &node{kind: isString, text: t})
		}
		seen[t] = true
	}
	if len(good) == 0 {
		return
	}
	value := good[0]
	if len(good) > 1 {
		value = &node{kind: isArray}
		for _, t := range good {
			value.set("", t)
		}
	}
	out.fields = slices.Insert(out.fields, 0, field{"type", value})
}

var nothing = &node{kind: isNull}

// nullable lets null in where OpenAPI 3.0 says so.
func (c *converter) nullable(out *node, at place) *node {
	if !at.get("nullable").isTrue() {
		return out
	}
	for i, f := range out.fields {
		if f.name == "enum" && !slices.ContainsFunc(f.value.fields,
			func(v field) bool { return v.value.kind == isNull }) {
			list := &node{kind: isArray, fields: slices.Clone(f.value.fields)}
			list.set("", nothing)
			out.fields[i].value = list
		}
	}
	if !slices.ContainsFunc(out.fields, func(f field) bool {
		return strings.HasSuffix(f.name, "Of") ||
			f.name == "$ref"
	}) {
		return out
	}
	null := object("type", text("null"))
	return object("anyOf", &node{kind: isArray, fields: []field{{"", out}, {"", null}}})
}

func text(s string) *node { return &node{kind: isString, text: s} }

// object builds an object of names and values in turn.
func object(pairs ...any) *node {
	out := &node{kind: isObject}
	for i := 0; i < len(pairs); i += 2 {
		out.set(pairs[i].(string), pairs[i+1].(*node)) //nolint:forcetypeassert // written so, a few lines away
	}
	return out
}

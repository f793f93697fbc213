package openapi

import (
	"net/textproto"
	"regexp"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// call gathers what an operation needs: the schema of its parameters, by the place in the request that they go to, and
// the templates that put them there.
type call struct {
	im      *importer
	auth    auth
	builder *schemaBuilder
	// groups are the objects path, query and header of the parameters.
	groups map[string]*group
	// path is the template of the path, query and headers are those of the query's parameters and the headers.
	path           string
	query, headers *node
	// body: there is one, template makes it, form is its form where that is not JSON.
	body, bodyNeeded bool
	template         *node
	form             string
	key              string // the idempotency header
}

type group struct {
	properties, required *node
}

var groupNames = []string{"path", "query", "header"}

// parameters reads the parameters of a path and of its operation; the latter win. why is set where the operation cannot
// be carried over.
func (c *call) parameters(method string, operation, item place) (why string) {
	type key struct{ in, name string }
	byKey := map[key]int{}
	var all []place
	for _, from := range []place{item.at("parameters"), operation.at("parameters")} {
		for _, p := range from.children() {
			p, ok := c.im.follow(p)
			if !ok {
				continue
			}
			k := key{p.get("in").str(), p.get("name").str()}
			if i, twice := byKey[k]; twice {
				all[i] = p
				continue
			}
			byKey[k] = len(all)
			all = append(all, p)
		}
	}
	for _, p := range all {
		if problem := c.parameter(p); problem != "" {
			switch {
			case p.get("required").isTrue():
				return "a required parameter cannot be sent: " + problem
			case method == "delete":
				// It may be what narrows down what is deleted.
				return "parameter " + strconvQuote(clip(p.get("name").str(), 100)) +
					" cannot be sent, without which it may delete too much: " + problem
			}
			c.im.report.add(Dropped, p, problem)
		}
	}
	return ""
}

var parameterKeys = map[string]bool{
	"name": true, "in": true, "description": true, "required": true, "deprecated": true, "schema": true, "style": true,
	"explode":         true,
	"allowEmptyValue": true, "content": true, "allowReserved": true, "$ref": true,
}

// parameter takes one parameter; the answer says why it cannot be sent.
func (c *call) parameter(p place) string {
	name, in := p.get("name").str(), p.get("in").str()
	switch {
	case name == "" || len(name) > maxName:
		return "its name is missing or too long"
	case in == c.auth.in && strings.EqualFold(name, c.auth.name):
		c.im.report.add(Changed, p, "the credential fills in this parameter")
		return ""
	}
	for _, f := range p.children() {
		if key := lastStep(p, f); !parameterKeys[key] {
			c.im.report.add(Dropped, f, "a parameter of the catalog has no "+clip(key, 60))
		}
	}
	value, schema, problem := c.expression(p, in, name)
	if problem != "" {
		return problem
	}
	switch in {
	case "path":
		if !strings.Contains(c.path, "{"+name+"}") {
			c.im.report.add(Dropped, p, "the path does not hold this parameter")
			return ""
		}
		c.path = strings.ReplaceAll(c.path, "{"+name+"}", "\x00"+value+"\x01")
	case "query":
		if strings.Contains(name, "{{") {
			return "its name holds braces, which stand for an expression"
		}
		c.query.set(name, text("{{ "+value+" }}"))
	case "header":
		if taken, problem := c.header(p, name, value); taken || problem != "" {
			return problem
		}
	}
	c.add(p, in, name, schema)
	return ""
}

// expression returns what reads the parameter's value, without braces, and the place of its schema.
func (c *call) expression(p place, in, name string) (value string, schema place, problem string) {
	value = "params." + in + "[" + exprText(name) + "]"
	if in != "path" && in != "query" && in != "header" {
		return "", schema, "calls carry no parameters in " + clip(strconvQuote(in), 60)
	}
	if content := p.at("content").children(); len(content) > 0 {
		if !isJSON(lastStep(p.at("content"), content[0])) {
			return "", schema, "its value is neither plain nor JSON"
		}
		return nullSafe("toJSON", value, ""), content[0].at("schema"), ""
	}
	schema = p.at("schema")
	types := c.im.typesAt(schema)
	style, usual := p.get("style").str(), "simple"
	if in == "query" {
		usual = "form"
	}
	plain := types["string"] || types["number"] || types["integer"] || types["boolean"]
	if types["array"] && plain && in != "query" {
		c.im.report.add(Changed, p, "only a plain value can be sent, no array")
		return value, schema, ""
	}
	switch {
	case style == "deepObject" && in == "query":
		return numbersOf(value), schema, ""
	case types["object"]:
		return "", schema, "a parameter in " + in + " cannot be an object"
	case between[style] != "" && in == "query" && types["array"]:
		return "type(" + value + `) == "array" ? join(` + value + `, "` + between[style] + `") : ` + value, schema, ""
	case style != "" && style != usual:
		return "", schema, "style " + clip(style, 60) + " cannot be written"
	case types["array"] && in == "query" && (p.get("explode") == nil || p.get("explode").isTrue()):
		return value, schema, "" // repeated for each item
	case types["array"] && plain:
		return nullSafe("type", value, "") + ` == "array" ? join(` + value + `, ",") : ` + value, schema, ""
	case types["array"]:
		return nullSafe("join", value, `, ","`), schema, ""
	}
	return value, schema, ""
}

// between stands between the values of an array, by its style.
var between = map[string]string{"spaceDelimited": " ", "pipeDelimited": "|"}

func nullSafe(function, value, rest string) string {
	return value + " == nil ? nil : " + function + "(" + value + rest + ")"
}

// header puts a parameter into a header. taken is set for those that Flowlane fills in.
func (c *call) header(p place, name, value string) (taken bool, problem string) {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case canonical == "Accept" || canonical == "Content-Type" || canonical == "Authorization" || sentByUs[canonical]:
		c.im.report.add(Changed, p, "this header is filled in when a call is sent")
		return true, ""
	case !httpguts.ValidHeaderFieldName(name):
		return false, "it is no name of a header"
	case strings.Contains(strings.ToLower(name), "idempot") && c.key == "":
		c.key = name
		c.im.report.add(Changed, p,
			"Flowlane fills in this header, with a key that stays the same when a call is sent again")
		return true, ""
	}
	c.headers.set(name, text("{{ "+value+" }}"))
	return false, ""
}

// sentByUs are headers that belong to the connection.
var sentByUs = map[string]bool{
	"Accept-Encoding": true, "Connection": true, "Content-Length": true, "Expect": true, "Host": true,
	"Http2-Settings": true, "Keep-Alive": true,
	"Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true,
	"Upgrade":           true, "User-Agent": true,
}

// add describes a parameter in its group.
func (c *call) add(p place, in, name string, at place) {
	schema := &node{kind: isObject}
	if at.node != nil {
		schema = c.builder.part(at)
	}
	if description := p.get("description").str(); description != "" && schema.kind == isObject &&
		schema.get("description") == nil {
		schema = &node{kind: isObject, fields: append(append([]field{}, schema.fields...),
			field{"description", text(clip(strings.TrimSpace(description), maxText))})}
	}
	g := c.groups[in]
	if g == nil {
		g = &group{&node{kind: isObject}, list()}
		c.groups[in] = g
	}
	g.properties.set(name, schema)
	if p.get("required").isTrue() || in == "path" {
		g.required.set("", text(name))
	}
}

var inBraces = regexp.MustCompile(`\{([^{}]*)\}`)

// address completes the path: parameters that nobody described are strings.
func (c *call) address(at place) (path, why string) {
	for _, m := range inBraces.FindAllStringSubmatch(c.path, -1) {
		if !strings.Contains(c.path, m[0]) {
			continue // stood twice
		}
		c.im.report.add(Changed, at, "the path parameter "+strconvQuote(clip(m[1], 100))+
			" is not described; it is taken to be a string")
		if m[1] == "" || len(m[1]) > maxName {
			return "", "the path holds a parameter without a usable name"
		}
		c.path = strings.ReplaceAll(c.path, m[0], "\x00params.path["+exprText(m[1])+"]\x01")
		c.add(place{&node{kind: isObject}, ""}, "path", m[1], place{object("type", text("string")), at.pointer + "#" +
			m[1]})
	}
	var b strings.Builder
	for rest := c.path; rest != ""; {
		literal, after, found := strings.Cut(rest, "\x00")
		if strings.ContainsAny(literal, "{}#\x01") || strings.ContainsFunc(literal,
			func(r rune) bool { return r < ' ' }) {
			return "", "the path holds braces or a fragment that have no place in a request"
		}
		b.WriteString(escapeLiteral(literal))
		if !found {
			break
		}
		value, next, _ := strings.Cut(after, "\x01")
		b.WriteString("{{ " + value + " }}")
		rest = next
	}
	return b.String(), ""
}

const plainInPath = "-._~!$&'()*+,;=:@/%?"

// escapeLiteral percent-encodes what may not stand in an address.
func escapeLiteral(s string) string { return percent(s, plainInPath) }

func percent(s, keep string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		ch := s[i]
		alnum := ch >= '0' && ch <= '9' || ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z'
		bad := ch == '%' && (i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]))
		if (alnum || strings.IndexByte(keep, ch) >= 0) && !bad {
			b.WriteByte(ch)
		} else {
			b.WriteString("%" + string(hex[ch>>4]) + string(hex[ch&15]))
		}
	}
	return b.String()
}

func isHex(ch byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", ch) >= 0 }

// typesAt returns the types that a schema allows, looking through references and allOf.
func (im *importer) typesAt(at place) map[string]bool {
	out := map[string]bool{}
	im.eachInPlace(at, func(n *node) {
		for _, t := range typesOf(n) {
			out[t] = true
		}
		if n.get("properties") != nil {
			out["object"] = true
		}
	})
	return out
}

// eachInPlace visits a schema and those that speak of the same value.
func (im *importer) eachInPlace(at place, visit func(*node)) {
	seen := map[*node]bool{}
	var walk func(n *node)
	walk = func(n *node) {
		if !n.is(isObject) || seen[n] || len(seen) > 1000 || !im.visitable(n) {
			return
		}
		seen[n] = true
		visit(n)
		if ref := n.get("$ref"); ref.is(isString) {
			if target, ok := im.find(ref.text); ok {
				walk(target.node)
			}
		}
		for _, name := range []string{"allOf", "anyOf", "oneOf"} {
			if list := n.get(name); list != nil {
				for _, f := range list.fields {
					walk(f.value)
				}
			}
		}
	}
	walk(at.node)
}

// visitable counts a schema, and what it holds, among those that are looked at besides those that are converted; false
// once they are too many.
func (im *importer) visitable(n *node) bool {
	im.visited += 1 + len(n.fields)
	for _, name := range []string{"properties", "required", "allOf", "anyOf", "oneOf"} {
		if held := n.get(name); held != nil {
			im.visited += len(held.fields)
		}
	}
	return im.visited <= maxVisits
}

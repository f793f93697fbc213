package openapi

import (
	"slices"
	"strings"
)

var methods = []string{"get", "put", "post", "delete", "patch", "head", "options", "trace"}

// operationKeys are the parts of an operation that are read. Callbacks and the like are reported.
var operationKeys = []string{"tags", "summary", "description", "operationId", "parameters", "requestBody", "responses",
	"deprecated", "security", "servers"}

var pathItemKeys = append([]string{"parameters", "servers", "summary", "description", "$ref"}, methods...)

// paths reads every operation.
func (im *importer) paths() {
	for _, item := range im.root.at("paths").children() {
		path := lastStep(im.root.at("paths"), item)
		if strings.HasPrefix(path, "x-") {
			im.report.add(Dropped, item, "the catalog has no place for it")
			continue
		}
		item, ok := im.follow(item)
		if !ok {
			continue
		}
		for _, f := range item.children() {
			method := lastStep(item, f)
			switch {
			case slices.Contains(methods, method):
				im.result.Operations++
				wanted := im.only.wants(method, path, f)
				im.report.muted = !wanted
				why := im.operation(method, path, f, item, wanted)
				switch {
				case !wanted:
					im.result.Skipped++
				case why != "":
					im.result.LeftOut++
					im.report.add(LeftOut, f, why)
				}
				im.report.muted = false
			case !slices.Contains(pathItemKeys, method):
				im.report.add(Dropped, f, "the catalog has no place for it")
			}
		}
	}
}

// operation makes an action; the answer says why it cannot be one. One that is not wanted takes its name and nothing
// else, so that an action is called the same whatever else is imported.
func (im *importer) operation(method, path string, op, item place, wanted bool) (why string) {
	switch {
	case !op.is(isObject):
		return "an operation must be an object"
	case !strings.HasPrefix(path, "/"):
		return "a path must start with /"
	case method == "trace":
		return "calls are not made with TRACE"
	}
	if whole, fragment, found := strings.Cut(path, "#"); found && whole != "" {
		// Some tell operations of one address apart like this.
		im.report.add(Changed, op, "calls are sent without the fragment #"+clip(fragment, 100))
		path = whole
	}
	base, why := im.baseURL(op, item)
	if why != "" {
		return why
	}
	way, why := im.authOf(op)
	if why != "" {
		return why
	}
	c := &call{im: im, auth: way, builder: im.builder(op, true), groups: map[string]*group{}, path: path,
		query: &node{kind: isObject}, headers: &node{kind: isObject}}
	if why := c.parameters(method, op, item); why != "" {
		return why
	}
	body, why := c.requestBody(method, op)
	if why != "" {
		return why
	}
	address, why := c.address(op)
	if why != "" {
		return why
	}
	answer := im.answer(method, op, c)
	bucket, limits := im.limits(op)
	for _, f := range op.children() {
		if name := lastStep(op, f); name != limits && !slices.Contains(operationKeys, name) {
			im.report.add(Dropped, f, "an action has no "+clip(name, 60))
		}
	}
	s := im.serviceOf(op, base, way)
	id := im.actionID(s, method, path, op)
	if wanted {
		im.add(s, id, method, address, path, op, c, body, answer, bucket)
	}
	return ""
}

// paramsSchema is the schema of all parameters, by the part of the request that they go to.
func (c *call) paramsSchema(body *node) *node {
	properties, required := &node{kind: isObject}, list()
	for _, name := range groupNames {
		g := c.groups[name]
		if g == nil {
			continue
		}
		one := object("type", text("object"), "additionalProperties", boolean(false))
		if len(g.required.fields) > 0 {
			one.set("required", g.required)
			required.set("", text(name))
		}
		one.set("properties", g.properties)
		properties.set(name, one)
	}
	if c.body {
		properties.set("body", body)
		if c.bodyNeeded {
			required.set("", text("body"))
		}
	}
	root := object("type", text("object"), "additionalProperties", boolean(false))
	if len(required.fields) > 0 {
		root.set("required", required)
	}
	if len(properties.fields) > 0 {
		root.set("properties", properties)
	}
	return c.builder.finish(root)
}

// outcome says what may be done after an unclear outcome. PUT and DELETE mean the same when they are repeated, as HTTP
// has it; anything else needs a key by which the receiver knows a repeat.
func (c *call) outcome(method string) string {
	switch {
	case method == "get" || method == "head" || method == "put" || method == "delete":
		return "safe"
	case c.key != "":
		return "keyed"
	}
	return "none"
}

// add writes the action down.
func (im *importer) add(s *service, id, method, address, path string, op place, c *call, body *node, answer answer,
	bucket *node) {
	title := strings.ToUpper(method) + " " + path
	name := firstText(op.get("summary").str(), op.get("operationId").str(), title)
	description := firstText(op.get("description").str(), name)
	if len([]rune(description)) > maxText {
		im.report.add(Changed, op.at("description"), "the text is cut to "+itoa(maxText)+" characters")
	}
	action := object("id", text(id), "name", text(clip(name, 200)), "description", text(clip(description, maxText)))
	if op.get("deprecated").isTrue() {
		action.set("deprecated", boolean(true))
	}
	if bucket != nil {
		im.spend(s, id, name, bucket, action)
	}
	action.set("default_lane", text("interactive"))
	action.set("max_records_per_request", number(1))
	action.set("outcome_check", text(c.outcome(method)))
	action.set("params_schema", c.paramsSchema(body))
	action.set("output_schema", answer.schema)
	call := object("method", text(strings.ToUpper(method)), "path", text(address))
	if len(c.query.fields) > 0 {
		call.set("query", c.query)
	}
	if len(c.headers.fields) > 0 {
		call.set("headers", c.headers)
	}
	if c.body {
		call.set("body", c.template)
	}
	if c.form != "" {
		call.set("body_form", text(c.form))
	}
	if c.key != "" {
		call.set("idempotency_header", text(c.key))
	}
	call.set("answer", answer.block)
	action.set("call", call)
	s.actions.set("", action)
	im.result.Actions++
}

func firstText(texts ...string) string {
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" {
			return t
		}
	}
	return ""
}

func number(n int) *node { return &node{kind: isNumber, text: itoa(n)} }

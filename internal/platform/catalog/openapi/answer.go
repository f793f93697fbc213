package openapi

import (
	"slices"
	"strconv"
	"strings"
)

type answer struct{ schema, block *node }

// anySuccess are the statuses that stand for 2XX; refused those that prove that nothing was done, as in core__http.
var (
	anySuccess = []int{200, 201, 202, 203, 204, 205, 206}
	refused    = []int{
		307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422,
		423, 424, 426, 428, 431, 451, 501, 505,
	}
)

// refusals are the statuses that say that nothing was done: those that always do, and of those that a document names
// the other 4xx. 408 and 499 leave it open, 425 and 429 mean later; where a call has a key, 409 may say that the first
// one with it is still under way.
func refusals(named []int, keyed bool) []int {
	out := slices.Clone(refused)
	for _, status := range named {
		if status >= 400 && status <= 498 && status != 408 && status != 425 && status != 429 {
			out = append(out, status)
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(status int) bool { return status == 409 && keyed })
}

// answer reads what an operation answers.
func (im *importer) answer(method string, op place, c *call) answer {
	responses := op.at("responses")
	r := im.described(responses)
	out := answer{block: object("success", numbers(r.success), "refused", numbers(refusals(r.named, c.key != "")),
		"retry_later", list(object("status", number(429), "wait_seconds", number(30))))}
	b := im.builder(responses, false)
	whole := method == "head" || (len(r.media) > 0 && len(r.schemas) == 0)
	im.unreadable(r.media, r.schemas, whole)
	body := joined(b, r.schemas)
	if whole {
		out.block.set("envelope", boolean(true))
		if len(r.media) > 0 && method != "head" {
			c.headers.set("Accept", text("*/*"))
		}
		out.schema = object("type", text("object"), "properties", object(
			"status", object("type", text("integer")), "headers", object("type", text("object")), "body",
			&node{kind: isObject}))
		return out
	}
	if accept := im.accept(r.media); accept != "" {
		c.headers.set("Accept", text(accept))
	}
	out.schema = b.finish(body)
	return out
}

// described is what a document says of the answers of an operation: the statuses of success and the others that it
// names, and what the bodies of success are.
type described struct {
	success, named []int
	media, schemas []place
}

func (im *importer) described(responses place) (out described) {
	ranged := false
	for _, r := range responses.children() {
		code := strings.ToUpper(lastStep(responses, r))
		status, err := strconv.Atoi(code)
		good := err == nil && status >= 200 && status <= 299
		if !good && code != "2XX" {
			out.named = append(out.named, status)
			continue // a refusal is told by its status
		}
		if good {
			out.success = append(out.success, status)
		} else {
			ranged = true
		}
		r, ok := im.follow(r)
		if !ok {
			continue
		}
		im.rest(r, "description", "content")
		for _, m := range r.at("content").children() {
			out.media = append(out.media, m)
			if isJSON(lastStep(r.at("content"), m)) {
				im.rest(m, "schema", "example", "examples")
				out.schemas = append(out.schemas, m.at("schema"))
			}
		}
	}
	if ranged || len(out.success) == 0 {
		if !ranged {
			im.report.add(Changed, responses, "no success status is described; any from 200 to 206 is taken")
		}
		out.success = append(out.success, anySuccess...)
	}
	slices.Sort(out.success)
	out.success = slices.Compact(out.success)
	return out
}

// unreadable reports the forms of an answer that no flow gets to see as data.
func (im *importer) unreadable(media, schemas []place, whole bool) {
	for _, m := range media {
		switch name := lastStep(place{nil, m.pointer[:strings.LastIndexByte(m.pointer, '/')]}, m); {
		case whole:
			im.report.add(Changed, m, "the answer is no JSON; the output holds status, headers and body as a string")
		case !isJSON(name) && len(schemas) > 0:
			im.report.add(Dropped, m, "the answer is asked for as JSON")
		}
	}
}

// accept names the kind of JSON to ask for where it is not the plain one.
func (im *importer) accept(media []place) string {
	first := ""
	for _, m := range media {
		name := lastStep(place{nil, m.pointer[:strings.LastIndexByte(m.pointer, '/')]}, m)
		if isPlainJSON(name) || strings.Contains(name, "*") {
			return ""
		}
		if isJSON(name) && first == "" {
			first = clip(name, maxName)
		}
	}
	return first
}

// joined is the schema of an answer that may have several forms.
func joined(b *schemaBuilder, schemas []place) *node {
	var parts []*node
	seen := map[*node]bool{}
	for _, at := range schemas {
		if at.node == nil {
			return &node{kind: isObject}
		}
		if !seen[at.node] {
			parts = append(parts, b.part(at))
		}
		seen[at.node] = true
	}
	switch len(parts) {
	case 0:
		return &node{kind: isObject}
	case 1:
		return parts[0]
	}
	return object("anyOf", list(parts...))
}

func numbers(all []int) *node {
	out := list()
	for _, n := range all {
		out.set("", number(n))
	}
	return out
}

package main

import (
	"fmt"
	"strings"
)

// operation is what a method is made of.
type operation struct {
	id, method, path string
	description      string
	arguments        []string // of the path
	query            []node
	request          node
	responses        []node // of 2xx
	body, answer     string // types
	keyed, cursor    bool
}

// byHand are the operations that are no single exchange of JSON.
var byHand = map[string]bool{"streamBatch": true, "streamExecution": true, "receiveWebhook": true,
	"returnAuthorization": true}

// list is every operation, in the document's order; types are left to the writer of a language.
func (g *generator) list() (out []operation) {
	for _, path := range g.root.at("paths").fields() {
		for _, m := range path.value.fields() {
			id := m.value.at("operationId").text()
			if id == "" || byHand[id] {
				continue
			}
			o := operation{
				id: exported(id), method: strings.ToUpper(m.name), path: path.name, request: m.value.at("requestBody"),
				description: m.value.at("summary").text() + ".\n" + m.value.at("description").text(),
			}
			g.parameters(&o, append(path.value.at("parameters").items(), m.value.at("parameters").items()...))
			for _, r := range m.value.at("responses").fields() {
				if strings.HasPrefix(r.name, "2") {
					o.responses = append(o.responses, r.value)
				}
			}
			out = append(out, o)
		}
	}
	return out
}

// types sets those of the body and of the answer: of the first response that has one.
func (o *operation) types(typeOf func(name string, schema node) string) {
	o.body = content(o.id+"Request", o.request, typeOf)
	for _, r := range o.responses {
		if o.answer == "" {
			o.answer = content(o.id+"Answer", r, typeOf)
		}
	}
}

func (g *generator) operations() {
	g.later = nil
	methods := g.list()
	for _, o := range methods {
		o.types(g.typeOf)
		g.operation(o)
	}
	for len(g.later) > 0 {
		next := g.later[0]
		g.later = g.later[1:]
		g.model(next.name, next.value)
	}
	head := g.out.String()
	g.out.Reset()
	const clause = "package flowlane\n\n"
	at := strings.Index(head, clause) + len(clause)
	imports := "import (\n\"context\"\n\"iter\"\n\"net/url\"\n\"time\"\n)\n\n"
	g.printf("%s%s%s", head[:at], imports, head[at:])
	g.printf("// keyed are the operations that take an Idempotency-Key.\nvar keyed = map[string]bool{\n")
	for _, o := range methods {
		if o.keyed {
			g.printf("%q: true,\n", o.id)
		}
	}
	g.printf("}\n")
}

func (g *generator) parameters(o *operation, list []node) {
	for _, p := range list {
		if ref := p.at("$ref").text(); ref != "" {
			p = g.root.at("components").at("parameters").at(ref[strings.LastIndex(ref, "/")+1:])
		}
		name := p.at("name").text()
		switch p.at("in").text() {
		case "path":
			o.arguments = append(o.arguments, name)
		case "query":
			o.query = append(o.query, p)
			o.cursor = o.cursor || name == "cursor"
		default:
			o.keyed = o.keyed || name == "Idempotency-Key"
		}
	}
}

// content is the type of a JSON body.
func content(name string, body node, typeOf func(name string, schema node) string) string {
	schema := body.at("content").at("application/json").at("schema")
	if !schema.exists() {
		return ""
	}
	return typeOf(name, schema)
}

func (g *generator) operation(o operation) {
	params := o.id + "Params"
	if len(o.query) > 0 {
		g.printf("// %s narrows what %s does; what is zero is left out.\ntype %s struct {\n", params, o.id, params)
		for _, p := range o.query {
			g.comment("", p.at("description").text())
			g.printf("%s %s `json:%q`\n", exported(p.at("name").text()),
				optional(g.typeOf(params+"Item", p.at("schema"))), p.at("name").text()+",omitzero")
		}
		g.printf("}\n\n")
	}
	arguments, values, query, body := []string{"ctx context.Context"}, []string{"ctx"}, "nil", "nil"
	address := fmt.Sprintf("%q", o.path)
	for _, a := range o.arguments {
		name := strings.ToLower(exported(a)[:1]) + exported(a)[1:]
		arguments, values = append(arguments, name+" string"), append(values, name)
		address = strings.ReplaceAll(address, "{"+a+"}", `" + url.PathEscape(`+name+`) + "`)
	}
	address = strings.TrimSuffix(address, ` + ""`)
	if o.body != "" {
		arguments, values, body = append(arguments, "body "+optional(o.body)), append(values, "body"), "body"
	}
	if len(o.query) > 0 {
		arguments, values, query = append(arguments, "params *"+params), append(values, "params"), "queryOf(params)"
	}
	call := fmt.Sprintf("c.do(ctx, call{%q, %q, %s, %s, %s}", o.id, o.method, address, query, body)
	g.comment(o.id, o.description)
	if o.answer == "" {
		g.printf("func (c *Client) %s(%s) error {\nreturn %s, nil)\n}\n\n", o.id, strings.Join(arguments, ", "), call)
		return
	}
	g.printf("func (c *Client) %s(%s) (answer %s, err error) {\nerr = %s, &answer)\nreturn answer, err\n}\n\n",
		o.id, strings.Join(arguments, ", "), o.answer, call)
	if item := g.item(o); item != "" {
		g.printf("// All%s goes through all pages of %s.\nfunc (c *Client) All%s(%s) iter.Seq2[%s, error] {\n",
			strings.TrimPrefix(o.id, "List"), o.id,
			strings.TrimPrefix(o.id, "List"), strings.Join(arguments, ", "), item)
		g.printf("p := %s{}\nif params != nil {\np = *params\n}\nparams = &p\n"+
			"return pages(func(cursor *string) ([]%s, *string, error) {\n", params, item)
		g.printf("if cursor != nil {\np.Cursor, p.Skip = cursor, nil\n}\npage, err := c.%s(%s)\n"+
			"return page.Items, page.NextCursor, err\n})\n}\n\n",
			o.id, strings.Join(values, ", "))
	}
}

// item is the type of the items of a list that has pages, or nothing.
func (g *generator) item(o operation) string {
	list := g.schemas.at(o.answer).at("properties")
	skip := false
	for _, p := range o.query {
		skip = skip || p.at("name").text() == "skip"
	}
	if !o.cursor || !skip || !list.at("next_cursor").exists() {
		return ""
	}
	return strings.TrimPrefix(g.typeOf("", list.at("items")), "[]")
}

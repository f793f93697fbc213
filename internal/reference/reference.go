// Package reference turns the API document into one HTML page that needs no network and no script. It promises that
// each operation, schema and code of errors stands at an address of its own, which is made of its name. It knows no
// operation by name.
package reference

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Code is a code of errors and what it says to do.
type Code struct{ Code, Hint string }

//go:embed page.html
var pageText string

//go:embed page.css
var style string

var page = template.Must(template.New("page").Parse(pageText))

// Policy is the Content-Security-Policy of the page: it takes nothing from anywhere but its own style.
func Policy() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}

// Page is the page for a document in YAML. Each operation stands at #its operationId, each schema at #schema-Name, each
// code at #error-code.
func Page(document []byte, codes []Code) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	if len(root.Content) == 0 {
		return nil, fmt.Errorf("reference: the document is empty")
	}
	d := doc{node{root.Content[0]}}
	info := d.get("info")
	data := struct {
		Title, Version string
		Intro          template.HTML
		Style          template.CSS
		Tags           []tag
		Codes          []Code
		Schemas        []schema
	}{
		Title: info.get("title").text(), Version: info.get("version").text(),
		Intro: markdown(info.get("description").text()),
		Style: template.CSS(style), Tags: d.tags(), Codes: codes, //nolint:gosec // our own style
	}
	for _, s := range d.get("components", "schemas").pairs() {
		data.Schemas = append(data.Schemas, d.schema(s.name, s.node))
	}
	var out bytes.Buffer
	if err := page.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	return out.Bytes(), nil
}

// tag is a group of operations.
type tag struct {
	Name       string
	About      template.HTML
	Operations []operation
}

type operation struct {
	ID, Method, Path, Summary string
	About                     template.HTML
	// Access says who may call it, Limit how often.
	Access, Limit string
	Parameters    []parameter
	Body          *content
	Responses     []response
}

type parameter struct {
	Name, In string
	Required bool
	Type     template.HTML
	About    template.HTML
}

// content is a body: its media types and its schema.
type content struct {
	Media   string
	Type    template.HTML
	Fields  []field
	Example string
}

type response struct {
	Status string
	About  template.HTML
	Body   *content
}

type schema struct {
	Name   string
	Type   template.HTML
	About  template.HTML
	Fields []field
}

type field struct {
	Name     string
	Required bool
	Type     template.HTML
	About    template.HTML
}

// doc reads the document.
type doc struct{ node }

var methods = []string{"get", "post", "put", "patch", "delete"}

// tags are all tags in the order of the document, each with its operations.
func (d doc) tags() []tag {
	var out []tag
	at := map[string]int{}
	for _, t := range d.get("tags").items() {
		name := t.get("name").text()
		at[name] = len(out)
		out = append(out, tag{Name: name, About: markdown(t.get("description").text())})
	}
	for _, path := range d.get("paths").pairs() {
		for _, method := range methods {
			o := path.node.get(method)
			if !o.there() {
				continue
			}
			for _, t := range o.get("tags").items() {
				if i, ok := at[t.text()]; ok {
					out[i].Operations = append(out[i].Operations, d.operation(path.name, method, path.node, o))
				}
			}
		}
	}
	return out
}

func (d doc) operation(path, method string, item, o node) operation {
	out := operation{
		ID: o.get("operationId").text(), Method: strings.ToUpper(method), Path: path, Summary: o.get("summary").text(),
		About: markdown(o.get("description").text()), Access: access(o), Limit: o.get("x-rate-limit").text(),
	}
	for _, p := range append(item.get("parameters").items(), o.get("parameters").items()...) {
		p = d.follow(p)
		out.Parameters = append(out.Parameters, parameter{
			Name: p.get("name").text(), In: p.get("in").text(), Required: p.get("required").text() == "true",
			Type: d.typeOf(p.get("schema")), About: markdown(p.get("description").text()),
		})
	}
	out.Body = d.content(d.follow(o.get("requestBody")))
	for _, r := range o.get("responses").pairs() {
		to := d.follow(r.node)
		out.Responses = append(out.Responses, response{r.name, markdown(to.get("description").text()), d.content(to)})
	}
	return out
}

// access says who may call an operation.
func access(o node) string {
	security := o.get("security")
	switch scope := o.get("x-scope").text(); {
	case security.there() && len(security.items()) == 0:
		return "anybody"
	case strings.Contains(security.flat(), "admin"):
		return strings.TrimSuffix("administrators; scope "+scope, "; scope ")
	case scope != "" && scope != "none":
		return "members; scope " + scope
	}
	return "members"
}

func (d doc) content(holder node) *content {
	all := holder.get("content").pairs()
	if len(all) == 0 {
		return nil
	}
	var media []string
	for _, m := range all {
		media = append(media, m.name)
	}
	s := all[0].node.get("schema")
	out := &content{Media: strings.Join(media, ", "), Type: d.typeOf(s)}
	to := d.follow(s)
	if !s.get("$ref").there() {
		out.Fields = d.fields(to)
	}
	for _, e := range to.get("examples").items() {
		out.Example = e.json()
		break
	}
	return out
}

func (d doc) schema(name string, s node) schema {
	return schema{Name: name, Type: d.typeOf(s), About: markdown(s.get("description").text()), Fields: d.fields(s)}
}

func (d doc) fields(s node) []field {
	var out []field
	required := s.get("required").flat() + " "
	for _, p := range s.get("properties").pairs() {
		about := p.node.get("description").text()
		if about == "" {
			about = d.follow(p.node).get("description").text()
		}
		out = append(out, field{
			Name: p.name, Required: strings.Contains(" "+required, " "+p.name+" "), Type: d.typeOf(p.node),
			About: markdown(about),
		})
	}
	return out
}

// Package apidoc reads the API's document as far as a command line needs it: operations, their parameters and bodies,
// and the shapes of their answers, in the order in which they are written. It knows no command and makes no request.
package apidoc

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Document is what the API can do.
type Document struct {
	operations map[string]*Operation
	raw        document
}

// Operation is one of its operations.
type Operation struct {
	ID, Method, Summary string
	// Path is below /v1, with {names} of parameters.
	Path   string
	Params []Param
	// Body is the schema of a JSON body; nil where there is none.
	Body         *Schema
	BodyRequired bool
	// Media are the types of its first answer that is a success.
	Media []string
	// Answer is the schema of that answer in JSON; nil where there is none.
	Answer *Schema
}

// Param is one parameter of an operation.
type Param struct {
	Ref         string  `yaml:"$ref"`
	Name        string  `yaml:"name"`
	In          string  `yaml:"in"`
	Description string  `yaml:"description"`
	Required    bool    `yaml:"required"`
	Schema      *Schema `yaml:"schema"`
}

// Schema is the shape of a value.
type Schema struct {
	Ref         string     `yaml:"$ref"`
	Type        types      `yaml:"type"`
	Description string     `yaml:"description"`
	Enum        []any      `yaml:"enum"`
	Properties  properties `yaml:"properties"`
	Required    []string   `yaml:"required"`
	Items       *Schema    `yaml:"items"`
	OneOf       []*Schema  `yaml:"oneOf"`
	AllOf       []*Schema  `yaml:"allOf"`
	Maximum     int        `yaml:"maximum"`
	Default     any        `yaml:"default"`
}

// Property is one field of an object.
type Property struct {
	Name   string
	Schema *Schema
}

// Kind says how a value is written in one argument.
type Kind int

// The kinds of values.
const (
	Text    Kind = iota
	Number       // an integer or a number
	Boolean      // true or false
	List         // a list of texts or numbers
	JSON         // anything else
)

// ignored is the schema of what a client may send back although it is not taken.
const ignored = "Ignored"

type document struct {
	Paths      map[string]yaml.Node `yaml:"paths"`
	Components struct {
		Parameters map[string]Param   `yaml:"parameters"`
		Schemas    map[string]*Schema `yaml:"schemas"`
	} `yaml:"components"`
}

type operation struct {
	ID      string  `yaml:"operationId"`
	Summary string  `yaml:"summary"`
	Params  []Param `yaml:"parameters"`
	Body    *struct {
		Required bool             `yaml:"required"`
		Content  map[string]media `yaml:"content"`
	} `yaml:"requestBody"`
	Responses map[string]struct {
		Content map[string]media `yaml:"content"`
	} `yaml:"responses"`
}

type media struct {
	Schema *Schema `yaml:"schema"`
}

// types is a type, or a list of them; null is left out.
type types []string

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *types) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*t = types{n.Value}
		return nil
	}
	for _, item := range n.Content {
		if item.Value != "null" {
			*t = append(*t, item.Value)
		}
	}
	return nil
}

// properties keeps the order in which fields are written.
type properties []Property

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *properties) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		s := &Schema{}
		if err := n.Content[i+1].Decode(s); err != nil {
			return err //nolint:wrapcheck // says the line
		}
		*p = append(*p, Property{Name: n.Content[i].Value, Schema: s})
	}
	return nil
}

// Read reads a document. It fails where the document is not YAML of that shape.
func Read(text []byte) (*Document, error) {
	d := &Document{operations: map[string]*Operation{}}
	if err := yaml.Unmarshal(text, &d.raw); err != nil {
		return nil, fmt.Errorf("read the document of the API: %w", err)
	}
	for path, node := range d.raw.Paths {
		if err := d.path(path, &node); err != nil {
			return nil, fmt.Errorf("read the document of the API: %s: %w", path, err)
		}
	}
	return d, nil
}

// path adds the operations of a path.
func (d *Document) path(path string, node *yaml.Node) error {
	var common []Param
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i].Value, node.Content[i+1]
		switch key {
		case "parameters":
			if err := value.Decode(&common); err != nil {
				return err //nolint:wrapcheck // says the line
			}
		case "get", "post", "put", "patch", "delete":
			var o operation
			if err := value.Decode(&o); err != nil {
				return err //nolint:wrapcheck // says the line
			}
			made := d.operation(o, common)
			made.Method, made.Path = strings.ToUpper(key), path
			d.operations[o.ID] = made
		}
	}
	return nil
}

func (d *Document) operation(o operation, common []Param) *Operation {
	out := &Operation{ID: o.ID, Summary: o.Summary}
	for _, p := range slices.Concat(common, o.Params) {
		if p.Ref != "" {
			p = d.raw.Components.Parameters[last(p.Ref)]
		}
		p.Schema = d.Resolve(p.Schema)
		out.Params = append(out.Params, p)
	}
	if o.Body != nil {
		out.BodyRequired = o.Body.Required
		if m, ok := o.Body.Content["application/json"]; ok {
			out.Body = d.Resolve(m.Schema)
		}
	}
	for _, status := range []string{"200", "201", "202", "204"} {
		r, ok := o.Responses[status]
		if !ok {
			continue
		}
		for name, m := range r.Content {
			out.Media = append(out.Media, name)
			if name == "application/json" {
				out.Answer = d.Resolve(m.Schema)
			}
		}
		slices.Sort(out.Media)
		break
	}
	return out
}

// Operation returns an operation by its operationId, nil if there is none.
func (d *Document) Operation(id string) *Operation { return d.operations[id] }

// Operations returns the ids of all operations, sorted.
func (d *Document) Operations() []string {
	ids := make([]string, 0, len(d.operations))
	for id := range d.operations {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Resolve follows references, also one that stands in an allOf, and a choice between one schema and null.
func (d *Document) Resolve(s *Schema) *Schema {
	for s != nil {
		switch {
		case s.Ref != "":
			at := d.raw.Components.Schemas[last(s.Ref)]
			if s.Description != "" && at != nil && at.Description == "" {
				described := *at
				described.Description = s.Description
				at = &described
			}
			s = at
		case len(s.OneOf) == 2 && slices.Equal(s.OneOf[1].Type, types{"null"}):
			s = s.OneOf[0]
		case len(s.AllOf) == 1:
			s = s.AllOf[0]
		default:
			return s
		}
	}
	return s
}

// Fields returns the fields that a client may send in a body, with their schemas resolved.
func (d *Document) Fields(body *Schema) []Property {
	if body == nil {
		return nil
	}
	var out []Property
	for _, p := range body.Properties {
		if last(p.Schema.Ref) == ignored {
			continue
		}
		s := d.Resolve(p.Schema)
		if p.Schema.Description != "" && s.Description != p.Schema.Description {
			described := *s
			described.Description = p.Schema.Description
			s = &described
		}
		out = append(out, Property{Name: p.Name, Schema: s})
	}
	return out
}

// Items returns the schema of one item where an answer is a list, or a page of one; nil where it is none.
func (d *Document) Items(o *Operation) *Schema {
	if o.Answer == nil {
		return nil
	}
	if o.Answer.Items != nil {
		return d.Resolve(o.Answer.Items)
	}
	for _, p := range o.Answer.Properties {
		if p.Name == "items" && p.Schema.Items != nil {
			return d.Resolve(p.Schema.Items)
		}
	}
	return nil
}

// Kind says how a value of a schema, resolved, is written.
func (d *Document) Kind(s *Schema) Kind {
	if s == nil || len(s.Type) != 1 {
		return Text
	}
	switch s.Type[0] {
	case "string":
		return Text
	case "integer", "number":
		return Number
	case "boolean":
		return Boolean
	case "array":
		if k := d.Kind(d.Resolve(s.Items)); k == Text || k == Number {
			return List
		}
	}
	return JSON
}

// Choices returns the values that a schema allows, or its items; none where it names none.
func (d *Document) Choices(s *Schema) []string {
	if s == nil {
		return nil
	}
	if s.Items != nil {
		return d.Choices(d.Resolve(s.Items))
	}
	var out []string
	for _, v := range s.Enum {
		if v != nil {
			out = append(out, fmt.Sprint(v))
		}
	}
	return out
}

func last(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

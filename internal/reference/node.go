package reference

import (
	"encoding/json"
	"html/template"
	"strings"

	"go.yaml.in/yaml/v3"
)

// node is a place of the document; the zero node is one that is not there.
type node struct{ yaml *yaml.Node }

type pair struct {
	name string
	node node
}

func (n node) there() bool { return n.yaml != nil }

// get goes down by names.
func (n node) get(names ...string) node {
	for _, name := range names {
		found := node{}
		for _, p := range n.pairs() {
			if p.name == name {
				found = p.node
			}
		}
		n = found
	}
	return n
}

func (n node) target() *yaml.Node {
	if n.yaml != nil && n.yaml.Kind == yaml.AliasNode {
		return n.yaml.Alias
	}
	return n.yaml
}

// pairs are the members of a mapping, in order.
func (n node) pairs() (out []pair) {
	at := n.target()
	if at == nil || at.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(at.Content); i += 2 {
		out = append(out, pair{at.Content[i].Value, node{at.Content[i+1]}})
	}
	return out
}

// items are those of a list.
func (n node) items() (out []node) {
	at := n.target()
	if at == nil || at.Kind != yaml.SequenceNode {
		return nil
	}
	for _, c := range at.Content {
		out = append(out, node{c})
	}
	return out
}

// text is a scalar; empty for anything else.
func (n node) text() string {
	if at := n.target(); at != nil && at.Kind == yaml.ScalarNode {
		return at.Value
	}
	return ""
}

// flat are all scalars below, with spaces between them.
func (n node) flat() string {
	at := n.target()
	if at == nil {
		return ""
	}
	words := []string{}
	if at.Kind == yaml.ScalarNode {
		words = append(words, at.Value)
	}
	for _, c := range at.Content {
		words = append(words, (node{c}).flat())
	}
	return strings.Join(words, " ")
}

// json is the value as indented JSON.
func (n node) json() string {
	var value any
	if n.yaml == nil || n.yaml.Decode(&value) != nil {
		return ""
	}
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return ""
	}
	return string(text)
}

// follow returns what a node that is a reference names.
func (d doc) follow(n node) node {
	for range 10 {
		ref := n.get("$ref").text()
		if ref == "" {
			return n
		}
		n = d.get(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return n
}

// typeOf says what values a schema takes, with links to the schemas that it names.
func (d doc) typeOf(s node) template.HTML {
	if ref := s.get("$ref").text(); ref != "" {
		name := ref[strings.LastIndexByte(ref, '/')+1:]
		name = template.HTMLEscapeString(name)
		return template.HTML(`<a href="#schema-` + name + `">` + name + `</a>`) //nolint:gosec // escaped
	}
	var parts []string
	for _, key := range []string{"oneOf", "anyOf", "allOf"} {
		for _, one := range s.get(key).items() {
			parts = append(parts, string(d.typeOf(one)))
		}
	}
	if len(parts) > 0 {
		return template.HTML(strings.Join(parts, " or ")) //nolint:gosec // made of escaped parts
	}
	text := template.HTMLEscapeString(strings.ReplaceAll(s.get("type").flat(), " ", " or "))
	if items := s.get("items"); items.there() {
		text = "list of " + string(d.typeOf(items))
	}
	if words := s.get("enum").flat(); words != "" {
		text = "one of <code>" + strings.ReplaceAll(template.HTMLEscapeString(words), " ", "</code> <code>") + "</code>"
	}
	text += bounds(s)
	return template.HTML(text) //nolint:gosec // escaped
}

// bounds are the limits of a schema.
func bounds(s node) (out string) {
	for _, b := range []struct{ key, says string }{
		{"format", ""}, {"minimum", "at least "}, {"maximum", "at most "}, {"minLength", "characters at least "},
		{"maxLength", "characters at most "}, {"minItems", "items at least "}, {"maxItems", "items at most "},
		{"default", "default "},
	} {
		if text := s.get(b.key).text(); text != "" {
			out += ", " + template.HTMLEscapeString(b.says+text)
		}
	}
	return out
}

package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// JSON is a value written in YAML and kept as JSON text, keys in the order in which they were written; nil when absent.
type JSON json.RawMessage

// MarshalJSON returns the text as it is, and null for an absent value.
func (j JSON) MarshalJSON() ([]byte, error) { return json.RawMessage(j).MarshalJSON() }

// UnmarshalYAML converts a YAML value; merge keys and aliases are resolved.
func (j *JSON) UnmarshalYAML(n *yaml.Node) error {
	var buf bytes.Buffer
	if err := writeJSON(&buf, n); err != nil {
		return err
	}
	*j = buf.Bytes()
	return nil
}

func writeJSON(buf *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.AliasNode:
		return writeJSON(buf, n.Alias)
	case yaml.MappingNode:
		return writeObject(buf, n)
	case yaml.SequenceNode:
		buf.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				buf.WriteByte(',')
			}
			if err := writeJSON(buf, item); err != nil {
				return err
			}
		}
		buf.WriteByte(']')
		return nil
	default:
		return writeScalar(buf, n)
	}
}

func writeObject(buf *bytes.Buffer, n *yaml.Node) error {
	buf.WriteByte('{')
	for i, f := range fieldsOf(n) {
		if i > 0 {
			buf.WriteByte(',')
		}
		name, err := json.Marshal(f.key.Value)
		if err != nil {
			return fmt.Errorf("line %d: %w", f.key.Line, err)
		}
		buf.Write(name)
		buf.WriteByte(':')
		if err := writeJSON(buf, f.value); err != nil {
			return err
		}
	}
	buf.WriteByte('}')
	return nil
}

func writeScalar(buf *bytes.Buffer, n *yaml.Node) error {
	var value any
	if n.ShortTag() == "!!str" {
		value = n.Value
	} else if err := n.Decode(&value); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	text, err := marshalPlain(value)
	if err != nil {
		return fmt.Errorf("line %d: value has no form in JSON: %w", n.Line, err)
	}
	buf.Write(text)
	return nil
}

// marshalPlain is json.Marshal without the escapes for HTML: templates hold < and >.
func marshalPlain(value any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

type field struct{ key, value *yaml.Node }

// fieldsOf lists the fields of a mapping, its own before those that it merges in; the first of a name wins.
func fieldsOf(n *yaml.Node) []field {
	var out []field
	seen := map[string]bool{}
	add := func(f field) {
		if !seen[f.key.Value] {
			seen[f.key.Value] = true
			out = append(out, f)
		}
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].ShortTag() == "!!merge" {
			merged = append(merged, n.Content[i+1])
			continue
		}
		add(field{n.Content[i], n.Content[i+1]})
	}
	for _, m := range merged {
		m = resolve(m)
		sources := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			sources = m.Content
		}
		for _, source := range sources {
			for _, f := range fieldsOf(resolve(source)) {
				add(f)
			}
		}
	}
	return out
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// lineOf returns the line of the value at path (field names and indexes), or of the deepest part of it that exists.
func lineOf(root *yaml.Node, path []any) int {
	n := resolve(root)
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = resolve(n.Content[0])
	}
	line := n.Line
	for _, step := range path {
		next := child(n, step)
		if next == nil {
			return line
		}
		line = next.Line
		n = resolve(next)
	}
	return line
}

func child(n *yaml.Node, step any) *yaml.Node {
	switch step := step.(type) {
	case int:
		if n.Kind == yaml.SequenceNode && step < len(n.Content) {
			return n.Content[step]
		}
	case string:
		if n.Kind != yaml.MappingNode {
			return nil
		}
		for _, f := range fieldsOf(n) {
			if f.key.Value == step {
				// A block value starts below its key; the key is what a reader looks for.
				if f.value.Line > f.key.Line {
					v := *resolve(f.value)
					v.Line = f.key.Line
					return &v
				}
				return f.value
			}
		}
	}
	return nil
}

package main

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// node is a place in the document, or nothing.
type node struct{ *yaml.Node }

type field struct {
	name  string
	value node
}

// resolved follows a YAML alias.
func (n node) resolved() node {
	if n.Node != nil && n.Kind == yaml.AliasNode {
		return node{n.Alias}
	}
	return n
}

// fields are those of an object, in the document's order.
func (n node) fields() (out []field) {
	n = n.resolved()
	if n.Node == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		out = append(out, field{n.Content[i].Value, node{n.Content[i+1]}.resolved()})
	}
	return out
}

// at is the value of a field, or nothing.
func (n node) at(name string) node {
	for _, f := range n.fields() {
		if f.name == name {
			return f.value
		}
	}
	return node{}
}

func (n node) items() (out []node) {
	n = n.resolved()
	if n.Node == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	for _, c := range n.Content {
		out = append(out, node{c}.resolved())
	}
	return out
}

func (n node) text() string {
	n = n.resolved()
	if n.Node == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// has tells whether a list of texts, or one text, is or holds a word.
func (n node) has(word string) bool {
	return n.text() == word || slices.ContainsFunc(n.items(), func(i node) bool { return i.text() == word })
}

func (n node) exists() bool { return n.Node != nil }

// Package render writes answers of the API for people and for programs: tables, fields, JSON, NDJSON, YAML and CSV.
// Fields keep the order in which the answer has them. It knows no command and no operation.
package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Decode reads one JSON value as a tree that keeps the order of fields and the text of numbers.
func Decode(text []byte) (*yaml.Node, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	n, err := value(d)
	if err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the answer is not one JSON value")
	}
	return n, nil
}

func value(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err //nolint:wrapcheck // Decode says what it is about
	}
	switch t := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if t == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for d.More() {
			child, err := value(d) // in an object, names and values take turns
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err := d.Token()
		return n, err //nolint:wrapcheck // as above
	case nil:
		return scalar("!!null", "null"), nil
	case bool:
		return scalar("!!bool", fmt.Sprint(t)), nil
	case json.Number:
		if strings.ContainsAny(t.String(), ".eE") {
			return scalar("!!float", t.String()), nil
		}
		return scalar("!!int", t.String()), nil
	default:
		return scalar("!!str", fmt.Sprint(t)), nil
	}
}

func scalar(tag, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
}

// Field returns a field of an object by its path, parts joined by dots; nil if it is not there.
func Field(n *yaml.Node, path string) *yaml.Node {
	for part := range strings.SplitSeq(path, ".") {
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		var found *yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == part {
				found = n.Content[i+1]
			}
		}
		n = found
	}
	return n
}

// Text writes a value into one cell: texts as they are, nothing for null, anything with parts as JSON.
func Text(n *yaml.Node) string {
	switch {
	case n == nil || n.Tag == "!!null":
		return ""
	case n.Kind == yaml.ScalarNode:
		return n.Value
	}
	return string(appendJSON(nil, n))
}

// appendJSON writes a tree of Decode as JSON.
func appendJSON(to []byte, n *yaml.Node) []byte {
	switch n.Kind {
	case yaml.MappingNode:
		to = append(to, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				to = append(to, ',')
			}
			to = append(appendJSON(to, n.Content[i]), ':')
			to = appendJSON(to, n.Content[i+1])
		}
		return append(to, '}')
	case yaml.SequenceNode:
		to = append(to, '[')
		for i, item := range n.Content {
			if i > 0 {
				to = append(to, ',')
			}
			to = appendJSON(to, item)
		}
		return append(to, ']')
	}
	if n.Tag != "!!str" {
		return append(to, n.Value...)
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(n.Value) // a string cannot fail
	return append(to, bytes.TrimRight(text.Bytes(), "\n")...)
}

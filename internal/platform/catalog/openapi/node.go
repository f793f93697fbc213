package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

type kind uint8

const (
	isNull kind = iota
	isBool
	isNumber
	isString
	isArray
	isObject
)

// node is one value of a document. Arrays keep their items in fields without names. With YAML aliases several parents
// may share a node; it never contains itself.
type node struct {
	kind   kind
	line   int
	text   string // of a string; of a number or boolean as JSON
	fields []field
	index  map[string]*node
}

type field struct {
	name  string
	value *node
}

// manyFields is how many fields an object has before looking one up deserves an index.
const manyFields = 16

// get returns a field of an object; nil for what is no object or has no such field.
func (n *node) get(name string) *node {
	if n == nil || n.kind != isObject {
		return nil
	}
	if len(n.fields) <= manyFields {
		for i := range n.fields {
			if n.fields[i].name == name {
				return n.fields[i].value
			}
		}
		return nil
	}
	if n.index == nil {
		n.index = make(map[string]*node, len(n.fields))
		for _, f := range n.fields {
			n.index[f.name] = f.value
		}
	}
	return n.index[name]
}

func (n *node) is(k kind) bool { return n != nil && n.kind == k }

// str returns the text of a string, else "".
func (n *node) str() string {
	if n.is(isString) {
		return n.text
	}
	return ""
}

func (n *node) isTrue() bool { return n.is(isBool) && n.text == "true" }

// Bounds of a document.
const (
	maxDocument = 64 << 20
	maxValues   = 6_000_000
	maxDepth    = 1000
)

// parse reads a JSON or YAML document. JSON has a reader of its own: YAML refuses the surrogate pairs of JSON strings,
// and takes ten times the memory.
func parse(text []byte, twice func(pointer string, line int)) (*node, error) {
	if len(text) > maxDocument {
		return nil, fmt.Errorf("the document has %d bytes; at most %d are read", len(text), maxDocument)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	r := reader{text: text, line: 1, twice: twice}
	if start := bytes.TrimLeft(text, " \t\r\n"); len(start) > 0 && start[0] == '{' {
		n, err := r.json()
		if err == nil {
			return n, nil
		}
		if json.Valid(text) {
			return nil, err
		}
		// YAML in flow style begins with a brace too; what is neither is reported as JSON, which it looks like.
		if n, yamlErr := newReader(text, twice).yaml(); yamlErr == nil {
			return n, nil
		}
		return nil, err
	}
	return r.yaml()
}

func newReader(text []byte, twice func(string, int)) *reader {
	return &reader{text: text, line: 1, twice: twice}
}

type reader struct {
	text   []byte
	dec    *json.Decoder
	line   int
	seen   int // bytes whose line breaks are counted
	values int
	twice  func(pointer string, line int)
	// done maps YAML nodes to theirs; nil while a node is being read, so that one that contains itself is found.
	done map[*yaml.Node]*node
}

func (r *reader) count(depth int) error {
	r.values++
	switch {
	case r.values > maxValues:
		return fmt.Errorf("line %d: the document has more than %d values", r.line, maxValues)
	case depth > maxDepth:
		return fmt.Errorf("line %d: values stand more than %d levels deep", r.line, maxDepth)
	}
	return nil
}

func (r *reader) json() (*node, error) {
	r.dec = json.NewDecoder(bytes.NewReader(r.text))
	r.dec.UseNumber()
	n, err := r.jsonValue("", 0)
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: something follows the document", r.line)
	}
	return n, nil
}

func (r *reader) token() (json.Token, error) {
	t, err := r.dec.Token()
	if end := int(r.dec.InputOffset()); end > r.seen {
		r.line += bytes.Count(r.text[r.seen:end], []byte("\n"))
		r.seen = end
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", r.line, err)
	}
	return t, nil
}

func (r *reader) jsonValue(at string, depth int) (*node, error) {
	if err := r.count(depth); err != nil {
		return nil, err
	}
	t, err := r.token()
	if err != nil {
		return nil, err
	}
	n := &node{line: r.line}
	switch t := t.(type) {
	case nil:
	case bool:
		n.kind, n.text = isBool, strconv.FormatBool(t)
	case json.Number:
		n.kind, n.text = isNumber, t.String()
	case string:
		n.kind, n.text = isString, t
	case json.Delim:
		n.kind = isArray
		if t == '{' {
			n.kind = isObject
		}
		if err := r.jsonFields(n, at, depth); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (r *reader) jsonFields(n *node, at string, depth int) error {
	names := map[string]bool{}
	for r.dec.More() {
		var name string
		line := r.line
		if n.kind == isObject {
			t, err := r.token()
			if err != nil {
				return err
			}
			name, _ = t.(string)
			line = r.line
		}
		here := at + "/" + r.step(n, name)
		value, err := r.jsonValue(here, depth+1)
		if err != nil {
			return err
		}
		value.line = line
		if n.kind == isObject {
			value.line = line
			if r.duplicate(names, name, here, line) {
				continue
			}
		}
		n.fields = append(n.fields, field{name, value})
	}
	_, err := r.token()
	return err
}

func (r *reader) step(n *node, name string) string {
	if n.kind == isArray {
		return strconv.Itoa(len(n.fields))
	}
	return escape(name)
}

func (r *reader) duplicate(names map[string]bool, name, at string, line int) bool {
	if names[name] {
		r.twice(at, line)
		return true
	}
	names[name] = true
	return false
}

func (r *reader) yaml() (*node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(r.text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the document is empty")
		}
		return nil, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file holds more than one YAML document, or something follows the first")
	}
	r.done = map[*yaml.Node]*node{}
	return r.yamlValue(doc.Content[0], "", 0)
}

func (r *reader) yamlValue(y *yaml.Node, at string, depth int) (*node, error) {
	r.line = y.Line
	if err := r.count(depth); err != nil {
		return nil, err
	}
	if y.Kind == yaml.AliasNode {
		y = y.Alias
	}
	if y.Anchor != "" {
		if n, ok := r.done[y]; ok && n != nil {
			return n, nil
		} else if ok {
			return nil, fmt.Errorf("line %d: anchor %q contains itself", y.Line, y.Anchor)
		}
		r.done[y] = nil
	}
	n := &node{line: y.Line}
	var err error
	switch y.Kind {
	case yaml.MappingNode:
		n.kind = isObject
		err = r.yamlFields(n, y, at, depth)
	case yaml.SequenceNode:
		n.kind = isArray
		n.fields = make([]field, len(y.Content))
		for i, item := range y.Content {
			if n.fields[i].value, err = r.yamlValue(item, at+"/"+strconv.Itoa(i), depth+1); err != nil {
				return nil, err
			}
		}
	default:
		scalarOf(n, y)
	}
	if err != nil {
		return nil, err
	}
	if y.Anchor != "" {
		r.done[y] = n
	}
	return n, nil
}

// yamlFields reads a mapping; fields of its own win over those that it merges in.
func (r *reader) yamlFields(n *node, y *yaml.Node, at string, depth int) error {
	names := map[string]bool{}
	var merged []*node
	for i := 0; i+1 < len(y.Content); i += 2 {
		key, line := y.Content[i], y.Content[i].Line
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: a name must be a plain value", line)
		}
		here := at + "/" + escape(key.Value)
		value, err := r.yamlValue(y.Content[i+1], here, depth+1)
		if err != nil {
			return err
		}
		if key.ShortTag() == "!!merge" {
			merged = append(merged, value)
			continue
		}
		if r.duplicate(names, key.Value, here, line) {
			continue
		}
		if y.Content[i+1].Kind != yaml.AliasNode && y.Content[i+1].Anchor == "" {
			value.line = line
		}
		n.fields = append(n.fields, field{key.Value, value})
	}
	for len(merged) > 0 {
		m := merged[0]
		merged = merged[1:]
		if m.kind == isArray {
			for _, f := range m.fields {
				if f.value.kind == isObject {
					merged = append(merged, f.value)
				}
			}
			continue
		}
		for _, f := range m.fields {
			if err := r.count(depth); err != nil {
				return err
			}
			if m.kind == isObject && !names[f.name] {
				names[f.name] = true
				n.fields = append(n.fields, f)
			}
		}
	}
	return nil
}

func scalarOf(n *node, y *yaml.Node) {
	n.kind, n.text = isString, y.Value
	switch y.ShortTag() {
	case "!!null":
		n.kind, n.text = isNull, ""
	case "!!bool":
		var v bool
		if y.Decode(&v) == nil {
			n.kind, n.text = isBool, strconv.FormatBool(v)
		}
	case "!!int", "!!float":
		if v := json.Number(y.Value); json.Valid([]byte(v)) {
			n.kind, n.text = isNumber, y.Value
			return
		}
		var v any
		if y.Decode(&v) == nil {
			if raw, err := json.Marshal(v); err == nil { // .inf and .nan stay strings
				n.kind, n.text = isNumber, string(raw)
			}
		}
	}
}

// escape writes a name as a step of a JSON pointer.
func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"flowlane/internal/api/violation"
)

// standIn is what the working copy has in the place of a value that only the running service knows, such as an id. The
// adapter puts the value there.
const standIn = "fixture."

// document is openapi.yaml as Specmatic gets it.
type document struct {
	tree       map[string]any
	operations []*operation
	// parts are what some operations are tested in, by the number in /as/NUMBER/...
	parts []part
}

// part is a part of an operation's tests: with some of its parameters, for one media type of the answer.
type part struct {
	// parameter must have value; empty for none.
	parameter, value string
}

// together is how many parameters of a query are tested with each other: Specmatic goes through all sets of them.
const together = 4

// operation is one operation of the document.
type operation struct {
	id, method, path string
	segments         []string
	// inputs are its parameters outside of the path and the properties of its body: each must be tested.
	inputs int
}

// narrowing says where the working copy is stricter than the document, and why.
type narrowing struct {
	// At is a JSON pointer to what Set replaces, or where the node at Copy goes too.
	At, Copy string
	Why      string
	Set      any
	// Remove takes the node away.
	Remove bool
}

// choice is a parameter that chooses the media type of the answer: Specmatic cannot know the tie.
type choice struct {
	Operation, Parameter string
	Why                  string
	Values               map[string]string // of the parameter, by media type
}

//go:embed narrow.yaml
var narrowText []byte

var methods = []string{"get", "put", "post", "delete", "patch"}

// load makes the working copy of the chosen operations.
func load(only *regexp.Regexp) (*document, error) {
	tree, err := violation.Document()
	if err != nil {
		return nil, err
	}
	d := &document{tree: tree}
	var rules struct {
		Narrow  []narrowing
		Choices []choice
	}
	if err := yaml.Unmarshal(narrowText, &rules); err != nil {
		return nil, fmt.Errorf("narrow.yaml: %w", err)
	}
	if err := d.list(); err != nil {
		return nil, err
	}
	for _, n := range rules.Narrow {
		if err := d.narrow(n); err != nil {
			return nil, fmt.Errorf("narrow.yaml: %s: %w", n.At, err)
		}
	}
	fullLength(tree)
	delete(tree, "servers")
	paths := object(tree["paths"])
	all := d.operations
	d.operations = nil
	for _, op := range all {
		item := object(paths[op.path])
		if !only.MatchString(op.id) || elsewhere[op.id] != "" {
			delete(item, op.method)
			continue
		}
		d.operations = append(d.operations, op)
		d.oneKey(object(item[op.method]))
		if err := d.standIns(op); err != nil {
			return nil, err
		}
		at := slices.IndexFunc(rules.Choices, func(c choice) bool { return c.Operation == op.id })
		if at < 0 {
			rules.Choices = append(rules.Choices, choice{})
			at = len(rules.Choices) - 1
		}
		if err := d.split(op, rules.Choices[at]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// list finds the operations, and gives each all of its parameters.
func (d *document) list() error {
	paths := object(d.tree["paths"])
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item := object(paths[path])
		for _, method := range methods {
			o := object(item[method])
			if o == nil {
				continue
			}
			id, _ := o["operationId"].(string)
			op := &operation{id: id, method: method, path: path, segments: strings.Split(path, "/")[1:]}
			var all []any
			for _, list := range []any{item["parameters"], o["parameters"]} {
				entries, _ := list.([]any)
				for _, p := range entries {
					all = append(all, object(d.resolve(p)))
				}
			}
			o["parameters"] = all
			for _, p := range parameters(o) {
				if p["in"] != "path" {
					op.inputs++
				}
			}
			if body := object(d.resolve(o["requestBody"])); body != nil {
				media := object(object(body["content"])["application/json"])
				op.inputs += len(object(object(d.resolve(media["schema"]))["properties"]))
			}
			d.operations = append(d.operations, op)
		}
		delete(item, "parameters")
	}
	if len(d.operations) == 0 {
		return errors.New("the document has no operations")
	}
	return nil
}

// names is the form of the patterns of names: a first character, and up to so many more.
var names = regexp.MustCompile(`^\^\[[^]]+\]\[[^]]+\]\{0,(\d+)\}\$$`)

// fullLength has names be as long as they may. Specmatic breaks a pattern by putting a `_` before its end; at full
// length alone that gives what ours refuse.
func fullLength(node any) {
	switch v := node.(type) {
	case []any:
		for _, item := range v {
			fullLength(item)
		}
	case map[string]any:
		pattern, _ := v["pattern"].(string)
		if m := names.FindStringSubmatch(pattern); m != nil {
			n, _ := strconv.Atoi(m[1]) // digits
			v["pattern"] = fmt.Sprintf("^[a-z]{%d}$", n+1)
		}
		for _, child := range v {
			fullLength(child)
		}
	}
}

// oneKey leaves the API key as the only way to authenticate: both would double the tests, and what tokens may do is
// tried on every operation in package api.
func (d *document) oneKey(o map[string]any) {
	if s, named := o["security"].([]any); named && (len(s) == 0 || object(s[0])["StreamAuth"] != nil) {
		return
	}
	o["security"] = []any{map[string]any{"ApiKeyAuth": []any{}}}
}

// standIns lets the parameters in the path of an operation be stand-ins, but for those that take any value.
func (d *document) standIns(op *operation) error {
	o := object(object(object(d.tree["paths"])[op.path])[op.method])
	for i, p := range parameters(o) {
		name, _ := p["name"].(string)
		if p["in"] != "path" || anyValue[op.id] == name {
			continue
		}
		if fixtures[op.id] == nil {
			return fmt.Errorf("%s has no fixture: say in fixture.go what {%s} of its path can be", op.id, name)
		}
		o["parameters"].([]any)[i] = map[string]any{"name": name, "in": "path", "required": true,
			"schema": map[string]any{
				"type": "string", "enum": []any{standIn + name},
			}}
	}
	return nil
}

// split gives each part of an operation's tests a path of its own, which the adapter takes back. An operation with one
// part stays as it is.
func (d *document) split(op *operation, c choice) error {
	paths := object(d.tree["paths"])
	original := object(paths[op.path])
	var query []string
	for _, p := range parameters(object(original[op.method])) {
		if p["in"] == "query" && p["name"] != c.Parameter {
			query = append(query, p["name"].(string))
		}
	}
	groups := slices.Collect(slices.Chunk(query, together))
	if len(groups) < 2 && c.Values == nil {
		return nil
	}
	if len(c.Values) == 0 {
		c.Values = map[string]string{"": ""}
	}
	for media, value := range c.Values {
		for _, group := range groups {
			o, err := clone(object(original[op.method]))
			if err != nil {
				return err
			}
			o["parameters"] = partly(o, c, value, group)
			if media != "" {
				content := object(object(object(o["responses"])["200"])["content"])
				maps.DeleteFunc(content, func(name string, _ any) bool { return name != media })
			}
			paths[fmt.Sprintf("/as/%d%s", len(d.parts), op.path)] = map[string]any{op.method: o}
			d.parts = append(d.parts, part{c.Parameter, value})
		}
	}
	delete(original, op.method)
	return nil
}

// partly lists the parameters of a part: of those of the query only a group, and the one that must have a value.
func partly(o map[string]any, c choice, value string, group []string) (list []any) {
	for _, p := range parameters(o) {
		switch {
		case p["in"] != "query" || slices.Contains(group, p["name"].(string)):
			list = append(list, p)
		case p["name"] == c.Parameter:
			list = append(list, map[string]any{"name": p["name"], "in": "query",
				"schema": map[string]any{"type": "string", "enum": []any{value}}})
		}
	}
	return list
}

func clone(v map[string]any) (out map[string]any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return out, decoder.Decode(&out)
}

// parameters are those of an operation.
func parameters(o map[string]any) (all []map[string]any) {
	entries, _ := o["parameters"].([]any)
	for _, p := range entries {
		all = append(all, object(p))
	}
	return all
}

// resolve follows a reference.
func (d *document) resolve(node any) any {
	ref, ok := object(node)["$ref"].(string)
	if !ok {
		return node
	}
	at, err := d.find(strings.TrimPrefix(ref, "#"))
	if err != nil {
		panic(err) // the document is compiled into the service
	}
	return at
}

// find returns the node at a JSON pointer.
func (d *document) find(pointer string) (any, error) {
	var at any = d.tree
	for _, name := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		next, ok := object(at)[unescape(name)]
		if list, isList := at.([]any); isList {
			if i, err := strconv.Atoi(name); err == nil && i < len(list) {
				next, ok = list[i], true
			}
		}
		if !ok {
			return nil, fmt.Errorf("the document has no %s", pointer)
		}
		at = next
	}
	return at, nil
}

// narrow replaces a node that is there, or copies one to where none is.
func (d *document) narrow(n narrowing) error {
	if n.Why == "" {
		return errors.New("say why")
	}
	cut := strings.LastIndex(n.At, "/")
	found, err := d.find(n.At[:cut])
	if err != nil {
		return err
	}
	parent, name := object(found), unescape(n.At[cut+1:])
	if n.Copy == "" {
		if parent[name] == nil {
			return errors.New("the document has no such place")
		}
		parent[name] = n.Set
		if n.Remove {
			delete(parent, name)
		}
		return nil
	}
	from, err := d.find(n.Copy)
	if err != nil {
		return err
	}
	parent[name], err = clone(object(from))
	return err
}

func unescape(name string) string { return strings.NewReplacer("~1", "/", "~0", "~").Replace(name) }

// object is v as an object; nil where it is none.
func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// Package flowfile is definitions of flows as files: read from YAML or JSON, written as YAML without what says nothing,
// compared in that form. Credentials and variable sets stand in it by whatever name or id the file has. It makes no
// request.
package flowfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"go.yaml.in/yaml/v3"
)

// Flow is a definition as the API takes it, without what stands for itself.
type Flow map[string]any

// File is a flow and where it stands.
type File struct {
	Path string
	Flow Flow

	node *yaml.Node
}

// maxFile bounds one file.
const maxFile = 16 << 20

// TestSuffix is how the names of files end that hold tests of flows.
const TestSuffix = ".test.yaml"

// ErrNone is that there is no flow where some are looked for.
var ErrNone = errors.New("there is no flow")

// Read reads the flows of files, and those of folders that List names. A YAML file may hold several. The errors name
// every file that has a mistake, with the line.
func Read(paths []string) ([]File, error) {
	var out []File
	var mistakes []error
	seen := map[string]File{}
	for _, path := range paths {
		files, err := List(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			flows, err := readFile(file)
			if err != nil {
				mistakes = append(mistakes, err)
			}
			for _, f := range flows {
				name := f.Flow.Name()
				if other, ok := seen[name]; ok {
					mistakes = append(mistakes, fmt.Errorf("%s: the flow %q stands in %s, too", f.Place("name"), name,
						other.Place("name")))
					continue
				}
				seen[name] = f
				out = append(out, f)
			}
		}
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w in %s", ErrNone, strings.Join(paths, ", "))
	}
	return out, nil
}

// Stdin is the path of standard input.
const Stdin = "-"

// List returns a file as it is, and of a folder the *.yaml, *.yml and *.json files in it and below, but for tests of
// flows and what is hidden.
func List(path string) ([]string, error) {
	if path == Stdin {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var out []string
	err = filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case at != path && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return filepath.SkipDir
			}
		case entry.Type().IsRegular() && !strings.HasSuffix(at, TestSuffix) &&
			slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(at)):
			out = append(out, at)
		}
		return nil
	})
	return out, err //nolint:wrapcheck // names the file
}

// syntaxLine is where the decoder says that a mistake is.
var syntaxLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// readFile returns what could be read before the first mistake, too.
func readFile(path string) ([]File, error) {
	file := os.Stdin
	if path == Stdin {
		path = "standard input"
	} else {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, err //nolint:wrapcheck // names the file
		}
		defer file.Close()
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	var out []File
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var node yaml.Node
		if err := d.Decode(&node); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, syntaxError(path, err)
		}
		v, err := Decode(&node)
		if err == nil && v == nil {
			continue // an empty document
		}
		object, ok := v.(map[string]any)
		if err != nil || !ok {
			return out, fmt.Errorf("%s:%d: a flow is an object with name and steps: %w", path, node.Line,
				cmp.Or(err, errNoObject))
		}
		f := Flow(object)
		if f.Name() == "" {
			return out, fmt.Errorf("%s:%d: a flow needs a name", path, node.Line)
		}
		out = append(out, File{Path: path, Flow: Bare(f), node: &node})
	}
}

var errNoObject = errors.New("this is none")

// syntaxError puts the line where compilers put it.
func syntaxError(path string, err error) error {
	text := err.Error()
	if at := syntaxLine.FindStringSubmatch(text); at != nil {
		//nolint:errorlint // the text of YAML is all that it has
		return fmt.Errorf("%s:%s: %s", path, at[1], strings.TrimPrefix(text, at[0]))
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Decode returns what a node stands for, as JSON has it: times are texts, and numbers that Go would write in another
// way are a json.Number with the digits that stand there.
func Decode(n *yaml.Node) (any, error) {
	restore := map[*yaml.Node]string{}
	mark(n, false, restore)
	var v any
	err := n.Decode(&v)
	for number, tag := range restore {
		number.Value, number.Tag = strings.TrimPrefix(number.Value, numberMark), tag
	}
	return unmark(v), err //nolint:wrapcheck // has the line
}

// numberMark begins the texts that stand for numbers while YAML is decoded, which has no such character.
const numberMark = "\x00"

// mark marks the numbers of a node, and notes their tags. Names stay as they are, but for times.
func mark(n *yaml.Node, isName bool, tags map[*yaml.Node]string) {
	switch {
	case n.Kind != yaml.ScalarNode:
	case n.ShortTag() == "!!timestamp":
		n.Tag = "!!str"
	case !isName && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float") && json.Valid([]byte(n.Value)):
		var v any
		if n.Decode(&v) != nil {
			break
		}
		if text, err := json.Marshal(v); err != nil || string(text) != n.Value {
			tags[n] = n.Tag
			n.Value, n.Tag = numberMark+n.Value, "!!str"
		}
	}
	for i, child := range n.Content {
		mark(child, n.Kind == yaml.MappingNode && i%2 == 0, tags)
	}
}

func unmark(v any) any {
	switch t := v.(type) {
	case string:
		if digits, ok := strings.CutPrefix(t, numberMark); ok {
			return json.Number(digits)
		}
	case map[string]any:
		for name, child := range t {
			t[name] = unmark(child)
		}
	case map[any]any: // of names that are no texts
		for name, child := range t {
			t[name] = unmark(child)
		}
	case []any:
		for i, child := range t {
			t[i] = unmark(child)
		}
	}
	return v
}

// Name returns the name of a flow, by which files and flows find each other.
func (f Flow) Name() string {
	name, _ := f["name"].(string)
	return name
}

// ids are the fields whose values are ids, or names in a file, by the level on which they stand.
const (
	VariableSet = "variable_set_id"
	Credential  = "credential_id"
)

// Rename returns a copy in which rename was asked for every credential and variable set.
func (f Flow) Rename(rename func(field, text string) (string, error)) (Flow, error) {
	out := Flow(clone(map[string]any(f)).(map[string]any)) //nolint:forcetypeassert // clone keeps types
	one := func(object map[string]any, field string) error {
		text, ok := object[field].(string)
		if !ok {
			return nil
		}
		name, err := rename(field, text)
		if err != nil {
			return err
		}
		object[field] = name
		return nil
	}
	if err := one(out, VariableSet); err != nil {
		return nil, err
	}
	return out, eachTask(out, func(task map[string]any) error { return one(task, Credential) })
}

func eachTask(f Flow, do func(task map[string]any) error) error {
	for _, step := range objects(f["steps"]) {
		for _, task := range objects(step["tasks"]) {
			if err := do(task); err != nil {
				return err
			}
		}
	}
	return nil
}

func objects(list any) (out []map[string]any) {
	items, _ := list.([]any)
	for _, item := range items {
		if o, ok := item.(map[string]any); ok {
			out = append(out, o)
		}
	}
	return out
}

// served are fields that the service sets.
var served = []string{"id", "org_id", "version", "created_by", "created_at", "updated_at"}

// Bare returns a copy without what the service sets, nulls, and values that are the default.
func Bare(f map[string]any) Flow {
	out := clone(f).(map[string]any) //nolint:forcetypeassert // clone keeps types
	for _, name := range served {
		delete(out, name)
	}
	drop(out, map[string]any{"description": ""})
	if threshold, ok := out["failure_threshold"].(map[string]any); ok {
		drop(threshold, nil)
	}
	for _, step := range objects(out["steps"]) {
		drop(step, map[string]any{"name": step["id"]})
		for _, task := range objects(step["tasks"]) {
			drop(task, map[string]any{"on_error": "fail", "delivery": "at_most_once", "params": map[string]any{}})
			if retry, ok := task["retry"].(map[string]any); ok {
				drop(retry, map[string]any{"initial_seconds": 1, "factor": 2, "max_seconds": 60})
			}
		}
	}
	return out
}

// drop removes nulls and defaults.
func drop(object, defaults map[string]any) {
	for name, v := range object {
		if d, ok := defaults[name]; v == nil || (ok && reflect.DeepEqual(number(v), number(d))) {
			delete(object, name)
		}
	}
}

// number makes equal numbers of different types equal.
func number(v any) any {
	switch n := v.(type) {
	case int:
		return float64(n)
	case int64:
		return float64(n)
	case uint64:
		return float64(n)
	case json.Number:
		if f, err := n.Float64(); err == nil {
			return f
		}
	}
	return v
}

func clone(v any) any {
	switch t := v.(type) {
	case Flow:
		return clone(map[string]any(t))
	case map[string]any:
		out := make(map[string]any, len(t))
		for name, child := range t {
			out[name] = clone(child)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, child := range t {
			out[i] = clone(child)
		}
		return out
	}
	return v
}

// order is how fields follow each other in a file; others come after them, by their names.
var order = []string{
	"id", "name", "description", "status", "lane", VariableSet, "variable_version", "input_schema", "failure_threshold",
	"key", "steps",
	"action_id", Credential, "when", "for_each", "params", "timeout_seconds", "retry", "on_error", "delivery", "tasks",
}

// YAML writes a flow as a file has it; equal flows have equal texts.
func (f Flow) YAML() (string, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	n, err := node(map[string]any(f))
	if err == nil {
		err = e.Encode(n)
	}
	if err != nil {
		return "", fmt.Errorf("write the flow %s: %w", f.Name(), err)
	}
	return out.String(), nil
}

func node(v any) (*yaml.Node, error) {
	n := &yaml.Node{}
	switch t := v.(type) {
	case map[string]any:
		n.Kind = yaml.MappingNode
		names := make([]string, 0, len(t))
		for name := range t {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int {
			if d := rank(a) - rank(b); d != 0 {
				return d
			}
			return strings.Compare(a, b)
		})
		for _, name := range names {
			key := &yaml.Node{}
			child, err := node(t[name])
			if err = errors.Join(err, key.Encode(name)); err != nil {
				return nil, err
			}
			n.Content = append(n.Content, key, child)
		}
		return n, nil
	case []any:
		n.Kind = yaml.SequenceNode
		for _, item := range t {
			child, err := node(item)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		return n, nil
	case json.Number: // digits as they are: a float has not room for every id
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	}
	return n, n.Encode(v) //nolint:wrapcheck // YAML says which flow it is
}

func rank(name string) int {
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

// Diff returns what makes one flow of another, as a unified diff; empty if nothing does. A status that the new one does
// not name is the old one's.
func Diff(old, changed Flow) (string, error) {
	if _, ok := changed["status"]; !ok && old["status"] != nil {
		changed = Flow(clone(map[string]any(changed)).(map[string]any)) //nolint:forcetypeassert // clone keeps types
		changed["status"] = old["status"]
	}
	before, after := "", ""
	var err error
	if old != nil {
		if before, err = old.YAML(); err != nil {
			return "", err
		}
	}
	if after, err = changed.YAML(); err != nil {
		return "", err
	}
	return udiff.Unified("server: "+changed.Name(), "file: "+changed.Name(), before, after), nil
}

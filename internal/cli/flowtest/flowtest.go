// Package flowtest is tests of flows as files: what a flow is run with, what its calls are answered, and which calls
// and results are expected. It promises that whatever is wrong is named with file and line. It knows no server.
package flowtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"flowlane/internal/cli/flowfile"
)

// maxFile bounds a file in bytes.
const maxFile = 4 << 20

// Test is one file.
type Test struct {
	Path string `yaml:"-"`
	// Flow is the file with the flow; paths count from the folder of the test.
	Flow yaml.Node `yaml:"flow"`
	// Flows are the files of flows that the flow starts, by what stands for each in definition_id.
	Flows yaml.Node `yaml:"flows"`
	// Credentials and Variables are made before, as the API takes them; flows have them by their names.
	Credentials []yaml.Node `yaml:"credentials"`
	Variables   []yaml.Node `yaml:"variables"`
	// Hosts are the beginnings of addresses, as http://127.0.0.1:3000, in whose place the test answers.
	Hosts []string `yaml:"hosts"`
	// Rows are the records, or RowsFile the file that holds them.
	Rows     []yaml.Node `yaml:"rows"`
	RowsFile string      `yaml:"rows_file"`
	Answers  []Answer    `yaml:"answers"`
	Expect   struct {
		// Calls is not checked where it is not there; the calls of records come in any order.
		Calls yaml.Node `yaml:"calls"`
		// Results are in the order of the rows.
		Results yaml.Node `yaml:"results"`
	} `yaml:"expect"`
}

// Answer is what calls get.
type Answer struct {
	// Call is a method and a path with its query; a * at its end stands for anything.
	Call   yaml.Node         `yaml:"call"`
	Status int               `yaml:"status"`
	Header map[string]string `yaml:"headers"`
	Body   yaml.Node         `yaml:"body"`
	// Times is how many calls get it, after which later answers count; 0 for all.
	Times int `yaml:"times"`

	body []byte
	kind string
}

// ExpectedCall is a call that has to come.
type ExpectedCall struct {
	Call yaml.Node `yaml:"call"`
	// Body is not checked where it is not there.
	Body yaml.Node `yaml:"body"`
}

// MistakeError is what is wrong, and where. Expected and Came are one line each; empty where there is nothing to
// compare.
type MistakeError struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Message  string `json:"message"`
	Expected string `json:"expected,omitempty"`
	Came     string `json:"came,omitempty"`
}

// Error implements error.
func (m MistakeError) Error() string {
	text := fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.Message)
	if m.Expected != "" {
		text += "\n    expected: " + m.Expected
	}
	if m.Came != "" {
		text += "\n    came:     " + m.Came
	}
	return text
}

// Find returns the files of paths: files as they are, of folders those whose names end with flowfile.TestSuffix.
func Find(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err //nolint:wrapcheck // names the file
		}
		if !info.IsDir() {
			out = append(out, path)
			continue
		}
		err = filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() && strings.HasSuffix(at, flowfile.TestSuffix) {
				out = append(out, at)
			}
			return err
		})
		if err != nil {
			return nil, err //nolint:wrapcheck // names the file
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no test: the names of tests end with %s; `flowlane init` writes one",
			strings.Join(paths, ", "), flowfile.TestSuffix)
	}
	return out, nil
}

// Read reads a test. An error that is a MistakeError has the line.
func Read(path string) (*Test, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	t := &Test{Path: path}
	if err := t.decode(text, t); err != nil {
		return nil, err
	}
	return t, t.check()
}

// What the decoder says: with a line, and of a field that is not known.
var (
	knownError   = regexp.MustCompile(`line (\d+): (.*)`)
	unknownField = regexp.MustCompile(`^field (\S+) not found in type .+$`)
)

// decode decodes strictly: a field that is not known is a mistake.
func (t *Test) decode(text []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err := d.Decode(into)
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	m := MistakeError{File: t.Path, Line: 1, Message: strings.TrimPrefix(err.Error(), "yaml: ")}
	if at := knownError.FindStringSubmatch(err.Error()); at != nil {
		_, _ = fmt.Sscan(at[1], &m.Line) // digits
		m.Message = unknownField.ReplaceAllString(at[2], "a test has no field $1 there")
	}
	return m
}

func (t *Test) at(n *yaml.Node, format string, args ...any) MistakeError {
	return MistakeError{File: t.Path, Line: max(n.Line, 1), Message: fmt.Sprintf(format, args...)}
}

func (t *Test) check() error {
	if t.Flow.Value == "" {
		return t.at(&t.Flow, "the test needs `flow`: the file with the flow")
	}
	if (len(t.Rows) == 0) == (t.RowsFile == "") {
		return t.at(&t.Flow, "the test needs either `rows` or `rows_file`")
	}
	for _, host := range t.Hosts {
		if !strings.HasPrefix(host, "http://") && !strings.HasPrefix(host, "https://") {
			return t.at(&t.Flow, "a host is the beginning of an address, as http://127.0.0.1:3000; %q is none", host)
		}
	}
	if !t.Flows.IsZero() && t.Flows.Kind != yaml.MappingNode {
		return t.at(&t.Flows, "`flows` has a file for each definition_id, as {reminder: flows/reminder.yaml}")
	}
	for i := range t.Answers {
		if err := t.prepare(&t.Answers[i]); err != nil {
			return err
		}
	}
	if t.Expect.Calls.IsZero() && t.Expect.Results.IsZero() {
		return t.at(&t.Flow, "the test expects nothing: give `expect` with `calls`, `results` or both")
	}
	return nil
}

// prepare checks an answer and writes its body.
func (t *Test) prepare(a *Answer) error {
	if !isCall(a.Call.Value) {
		return t.at(&a.Call, "a call is a method and a path, as PUT /people/1; %q is none", a.Call.Value)
	}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	if a.Status < 200 || a.Status > 599 {
		return t.at(&a.Call, "status %d is none: take one from 200 to 599", a.Status)
	}
	if a.Body.Kind == yaml.ScalarNode && a.Body.ShortTag() == "!!str" {
		a.body, a.kind = []byte(a.Body.Value), "text/plain; charset=utf-8"
		return nil
	}
	if !a.Body.IsZero() {
		v, err := t.value(&a.Body)
		if err != nil {
			return err
		}
		a.body, a.kind = []byte(line(v)), "application/json"
	}
	return nil
}

func isCall(text string) bool {
	method, path, ok := strings.Cut(text, " ")
	return ok && method != "" && (path == "*" || strings.HasPrefix(path, "/"))
}

// value is what a node stands for, as JSON has it.
func (t *Test) value(n *yaml.Node) (any, error) {
	var out any
	v, err := flowfile.Decode(n)
	var text []byte
	if err == nil {
		text, err = json.Marshal(v)
	}
	if err == nil {
		out, err = parse(text)
	}
	if err != nil {
		return nil, t.at(n, "this is no JSON: %v", err)
	}
	return out, nil
}

// parse reads JSON with the digits of its numbers.
func parse(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err = d.Decode(&v); err == nil && !errors.Is(d.Decode(new(any)), io.EOF) {
		err = errors.New("something follows")
	}
	return v, err
}

// line writes a value as JSON on one line.
func line(v any) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // it was JSON
	return strings.TrimSpace(out.String())
}

// Near is a path as seen from the test.
func (t *Test) Near(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(t.Path), path)
}

// Records returns the rows that stand in the test, as NDJSON.
func (t *Test) Records() ([]byte, error) {
	var out []byte
	for i := range t.Rows {
		v, err := t.value(&t.Rows[i])
		if err != nil {
			return nil, err
		}
		if _, ok := v.(map[string]any); !ok {
			return nil, t.at(&t.Rows[i], "a row is an object, as {id: 1}")
		}
		out = append(append(out, line(v)...), '\n')
	}
	return out, nil
}

// Started is a flow that others start.
type Started struct {
	// ID stands for it in definition_id.
	ID   string
	File yaml.Node
}

// Started returns the flows that others start, in the order of the test.
func (t *Test) Started() []Started {
	var out []Started
	for i := 0; i+1 < len(t.Flows.Content); i += 2 {
		out = append(out, Started{t.Flows.Content[i].Value, *t.Flows.Content[i+1]})
	}
	return out
}

// Body is an object of the test as JSON, aimed as Aim does.
func (t *Test) Body(n *yaml.Node, to string) ([]byte, error) {
	v, err := t.value(n)
	return []byte(line(t.Aim(v, to))), err
}

// Mistake is what is wrong with a part of the test.
func (t *Test) Mistake(n *yaml.Node, message string) MistakeError { return t.at(n, "%s", message) }

// Link puts the ids of flows that were made in the place of what stands for them in definition_id.
func Link(v any, ids map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := v["definition_id"].(string); ok && ids[text] != "" {
			v["definition_id"] = ids[text]
		}
		for _, child := range v {
			Link(child, ids)
		}
	case []any:
		for _, child := range v {
			Link(child, ids)
		}
	}
}

// Aim returns a flow whose texts have the address to in the place of the test's hosts.
func (t *Test) Aim(v any, to string) any {
	switch v := v.(type) {
	case map[string]any:
		for name, child := range v {
			v[name] = t.Aim(child, to)
		}
	case []any:
		for i, child := range v {
			v[i] = t.Aim(child, to)
		}
	case string:
		for _, host := range t.Hosts {
			v = strings.ReplaceAll(v, strings.TrimRight(host, "/"), to)
		}
		return v
	}
	return v
}

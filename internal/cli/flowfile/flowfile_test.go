package flowfile_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"flowlane/internal/cli/flowfile"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRead reads several flows of a file, and names the place of what is none.
func TestRead(t *testing.T) {
	t.Parallel()
	files, err := flowfile.Read([]string{write(t, "a.yaml", "name: a\n---\nname: b\nsteps: []\n---\n")})
	if err != nil || len(files) != 2 || files[1].Flow.Name() != "b" {
		t.Errorf("%+v, %v", files, err)
	}
	for text, want := range map[string]string{
		"":                      "there is no flow in",
		"steps: []":             "a.yaml:1: a flow needs a name",
		"- a":                   "a.yaml:1: a flow is an object",
		"name: a\n---\n: :":     "a.yaml",
		"name: a\n---\nname: a": `the flow "a" stands in`,
	} {
		if _, err := flowfile.Read([]string{write(t, "a.yaml", text)}); err == nil || !strings.Contains(err.Error(),
			want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestDiff: what says nothing makes no difference, whatever type its numbers have; what says something does, also
// within schemas and parameters, where a null has a meaning.
func TestDiff(t *testing.T) {
	t.Parallel()
	served := `{"id":"1","name":"a","description":"","status":"active","version":3,"lane":null,
		"input_schema":{"enum":[1,null],"default":null},"failure_threshold":{"count":5,"percent":null},
		"steps":[{"id":"s","name":"s","tasks":[{"id":"t","action_id":"x","params":{"big":12345678901234567,"none":null},
		"when":null,"retry":{"max_attempts":2,"initial_seconds":1,"factor":2,"max_seconds":60},"on_error":"fail","delivery":"at_most_once"}]}]}`
	var old map[string]any
	d := json.NewDecoder(strings.NewReader(served))
	d.UseNumber()
	if err := d.Decode(&old); err != nil {
		t.Fatal(err)
	}
	text := `
name: a
input_schema: {enum: [1, null], default: null}
failure_threshold: {count: 5}
steps:
  - id: s
    tasks:
      - {id: t, action_id: x, params: {big: 12345678901234567, none: null}, retry: {max_attempts: 2}}
`
	for change, want := range map[string]string{
		"": "", "count: 5|count: 6": "+  count: 6",
		"12345678901234567|12345678901234568": "+          big: 12345678901234568",
		"none: null|other: null":              "-          none: null", "default: null|minimum: 1": "-  default: null",
		"name: a|name: a\nstatus: draft": "-status: active",
	} {
		from, to, _ := strings.Cut(change, "|")
		files, err := flowfile.Read([]string{write(t, "a.yaml", strings.Replace(text, from, to, 1))})
		if err != nil {
			t.Fatal(err)
		}
		got, err := flowfile.Diff(flowfile.Bare(old), files[0].Flow)
		if err != nil || (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %v\n%s", change, err, got)
		}
	}
}

// TestDecode: what stands in a file reaches the API digit for digit, and times as texts.
func TestDecode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: 18446744073709551616":                       `{"a":18446744073709551616}`,
		"a: [10.50, 1.0, 1e3, 12]":                      `{"a":[10.50,1.0,1e3,12]}`,
		"a: -0.1234567890123456789":                     `{"a":-0.1234567890123456789}`,
		"a: \"18446744073709551616\"":                   `{"a":"18446744073709551616"}`,
		"{2026-01-31: 5.0}":                             `{"2026-01-31":5.0}`,
		"a: 0x10":                                       `{"a":16}`,
		"a: 2026-11-29":                                 `{"a":"2026-11-29"}`,
		"b: &x 10.50\na: *x":                            `{"a":10.50,"b":10.50}`,
		"b: &x {c: 10.50}\na: {<<: *x, d: 1.50}":        `{"a":{"c":10.50,"d":1.50},"b":{"c":10.50}}`,
		`{"a":123456789012345678901234567890,"b":null}`: `{"a":123456789012345678901234567890,"b":null}`,
	} {
		var node yaml.Node
		if err := yaml.Unmarshal([]byte(text), &node); err != nil {
			t.Fatal(err)
		}
		before, _ := yaml.Marshal(&node)
		v, err := flowfile.Decode(&node)
		got, _ := json.Marshal(v)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
		if after, _ := yaml.Marshal(&node); strings.Contains(string(after), `\0`) {
			t.Errorf("of %s the node has become %s", before, after)
		}
	}
}

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tested runs `flowlane test` over a folder, and returns its exit code and all that it prints.
func tested(t *testing.T, args ...string) (int, string) {
	t.Helper()
	cmd := program(t, nil, append([]string{"test"}, args...)...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// replaceIn changes a file.
func replaceIn(t *testing.T, path, old, changed string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s does not hold %q", path, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, changed, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestInit: what init writes passes its test; a flow that is broken afterwards fails it, with the line; files that are
// there stay as they are.
func TestInit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mine")
	says(t, nil, "", "init", dir)
	flow, test := filepath.Join(dir, "flows", "greet.yaml"), filepath.Join(dir, "greet.test.yaml")

	if code, said := tested(t, dir); code != 0 || !strings.HasPrefix(said, "ok    "+test+" (3 rows, 3 calls)") {
		t.Fatalf("as it was written: exit %d\n%s", code, said)
	}
	replaceIn(t, flow, "Hello {{", "Goodbye {{")
	code, said := tested(t, dir)
	for _, want := range []string{
		"FAIL  " + test, test + ":14: this call did not come", `expected: PUT /people/1 {"text":"Hello Ada"}`,
		`came:     PUT /people/1 {"text":"Goodbye Ada"}`, "1 of 1 tests failed",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("nothing says %q", want)
		}
	}
	if code != 1 || t.Failed() {
		t.Errorf("a flow that says something else: exit %d\n%s", code, said)
	}
	code, said = fails(t, nil, "init", dir)
	if text, err := os.ReadFile(flow); code != 1 || !strings.Contains(said, flow+" is there already") || err != nil ||
		!strings.Contains(string(text), "Goodbye") {
		t.Errorf("again: exit %d, %s, %v", code, said, err)
	}
}

// TestTest: one server runs several tests; a batch that takes too long does not disturb the next one; a flow that the
// server refuses fails its test alone.
func TestTest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	says(t, nil, "", "init", dir)
	flow := func(name, old, changed string) {
		text, err := os.ReadFile(filepath.Join(dir, "flows", "greet.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "flows", name+".yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		replaceIn(t, path, old, changed)
		text = []byte("flow: flows/" + name +
			".yaml\nrows: [{id: \"1\", name: Ada}]\nhosts: [\"http://127.0.0.1:3000\"]\n" +
			"answers: [{call: PUT /people/1, status: 503, headers: {Retry-After: \"600\"}}]\nexpect: {calls: []}\n")
		if err := os.WriteFile(filepath.Join(dir, name+".test.yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flow("bad", "input.name", "inputt.name")
	flow("busy", "action_id:", "retry: {max_attempts: 3, initial_seconds: 600, max_seconds: 600}\n        action_id:")
	code, said := tested(t, dir, "--timeout", "5s")
	for _, want := range []string{
		"bad.test.yaml:1: ", `did you mean "input"?`,
		"busy.test.yaml:1: the flow was not done after 5s (--timeout), with 1 calls",
		"ok    " + filepath.Join(dir, "greet.test.yaml") + " (3 rows, 3 calls)", "2 of 3 tests failed",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("nothing says %q", want)
		}
	}
	if code != 1 || t.Failed() {
		t.Errorf("exit %d\n%s", code, said)
	}
}

// TestTest_Everything: a flow with a credential, a variable set, a platform of a folder and a flow that it starts is
// tested with what the test makes up; a record that failed names its step; a test that cannot be read is a mistake of
// the command.
func TestTest_Everything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("catalog/parcels.yaml", savedCatalog)
	write("inner.yaml", "name: inner\nsteps: [{id: send, tasks: [{id: send, action_id: parcels__api__send, params: "+
		"{to: '{{ input.to }}'}}]}]\n")
	write("outer.yaml", `name: outer
variable_set_id: settings
steps:
  - id: first
    tasks:
      - {id: greet, action_id: core__http__request, credential_id: crm, params: {method: POST, url: "http://127.0.0.1:3000/greet", body: {text: "{{ vars.greeting }}"}}}
  - id: second
    tasks:
      - {id: parcel, action_id: core__flow__start_flow, params: {definition_id: inner-id, input: {to: "{{ input.to }}"}, wait: true, timeout_seconds: 30}}
`)
	test := write("a.test.yaml", `flow: outer.yaml
flows: {inner-id: inner.yaml}
rows: [{to: Ada}, {to: Bo}]
hosts: ["http://127.0.0.1:3000"]
credentials:
  - {name: crm, platform_id: core, auth_method: api_key, credentials: {api_key: made-up}, api_key_placement: {header_name: X-Key}, allowed_origins: ["http://127.0.0.1:3000"]}
variables:
  - {name: settings, keys: [{name: greeting, default: Hello}]}
answers:
  - {call: POST /parcels, status: 201, body: {id: p1}}
expect:
  calls:
    - {call: POST /greet, body: {text: Hello}}
    - {call: POST /greet, body: {text: Hello}}
    - {call: POST /parcels, body: {to: Ada}}
    - {call: POST /parcels, body: {to: Bo}}
  results: [{status: completed}, {status: completed}]
`)
	catalog := filepath.Join(dir, "catalog")
	if code, said := tested(t, test, "--catalog-dir", catalog); code != 0 || !strings.Contains(said, "ok    "+test+
		" (2 rows, 4 calls)") {
		t.Errorf("exit %d\n%s", code, said)
	}
	replaceIn(t, test, "call: POST /parcels, status: 201", "call: POST /greet, status: 422")
	if code, said := tested(t, test, "--catalog-dir", catalog); code != 1 || !strings.Contains(said, test+
		":17: the result of row 1 is another one: "+
		`it failed in step "first", task "greet" of `+filepath.Join(dir, "outer.yaml")) {
		t.Errorf("a call that is refused: exit %d\n%s", code, said)
	}
	replaceIn(t, test, "credentials: {api_key", "credentials: {key")
	if code, said := tested(t, test, "--catalog-dir", catalog); code != 1 || !strings.Contains(said, test+
		":6: make it: ") {
		t.Errorf("a credential that is none: exit %d\n%s", code, said)
	}
	replaceIn(t, test, "answers:", "replies:")
	if code, said := tested(t, test); code != 2 || !strings.Contains(said, test+
		":9: a test has no field replies there") {
		t.Errorf("a test that cannot be read: exit %d\n%s", code, said)
	}
}

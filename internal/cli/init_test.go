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

// TestInit: what init writes passes its test; a flow that is broken afterwards fails it, with the line; files that are there
// stay as they are.
func TestInit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mine")
	says(t, nil, "", "init", dir)
	flow, test := filepath.Join(dir, "flows", "greet.yaml"), filepath.Join(dir, "greet.test.yaml")

	if code, said := tested(t, dir); code != 0 || !strings.Contains(said, "ok    "+test+" (3 rows, 3 calls)") {
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

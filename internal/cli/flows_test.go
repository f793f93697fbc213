package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// planned is what a plan says of one flow.
type planned struct{ Name, Action, Diff string }

func actionsOf(plan []planned) string {
	parts := make([]string, len(plan))
	for i, c := range plan {
		parts[i] = c.Action + " " + c.Name
	}
	return strings.Join(parts, ", ")
}

// TestFlows_Apply keeps flows as files: exported with names, applied without effect, changed, made and pruned; a
// mistake in one leaves all as they are.
func TestFlows_Apply(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	id := strictFlow(t, l, "strict/one")
	dir := t.TempDir()
	says(t, l.env, "", "flows", "export", "--dir", dir)
	file := filepath.Join(dir, "strict-one.yaml")
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "credential_id: dialer\n") || strings.Contains(string(text), id) ||
		strings.Contains(string(text), "null") {
		t.Fatalf("flows export: %s, %v", text, err)
	}
	var plan []planned
	if output(t, l.env, &plan, "flows", "diff", dir); actionsOf(plan) != "unchanged strict/one" {
		t.Errorf("flows diff of what was exported: %+v", plan)
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("strict-one.yaml", strings.Replace(string(text), "list: demo", "list: other", 1))
	// Defaults that are written out, JSON, and two flows in one file.
	write("more.json", `{"name": "second", "description": "", "steps": [{"id": "s", "name": "s", "tasks": [{"id": "t", "on_error": "fail",
		"action_id": "dialer__api__upload", "credential_id": "dialer", "retry": {"max_attempts": 2, "factor": 2},
		"params": {"list": "demo", "key_field": "id", "row": "{{ input }}"}}]}]}`)
	cmd := program(t, l.env, "flows", "diff", dir)
	said, _ := cmd.Output()
	if cmd.ProcessState.ExitCode() != 7 || !strings.Contains(string(said), "+          list: other\n") ||
		!strings.Contains(string(said), "1 to create, 1 to change, 0 to delete, 0 unchanged.") {
		t.Errorf("flows diff: exit %d\n%s", cmd.ProcessState.ExitCode(), said)
	}

	write("third.yaml", "name: third\nsteps: [{id: s, tasks: [{id: t, action_id: dialer__api__upload, "+
		"credential_id: dialer, params: {list: demo, key_field: id, row: '{{ inptu }}'}}]}]\n")
	if code, said := fails(t, l.env, "flows", "apply", dir); code != 3 || !strings.Contains(said,
		"third.yaml:2: steps.0.tasks.0.params.row: ") ||
		!strings.Contains(said, "Nothing was changed.") {
		t.Errorf("flows apply of a mistake: exit %d, %s", code, said)
	}
	write("third.yaml", "name: third\nsteps: [{id: s, tasks: [{id: t, action_id: dialer__api__upload, "+
		"credential_id: dialler}]}]\n")
	if code, said := fails(t, l.env, "flows", "apply", dir); code != 5 || !strings.Contains(said, `no "dialler"`) {
		t.Errorf("flows apply of an unknown credential: exit %d, %s", code, said)
	}
	write("third.yaml", "name: second\nsteps: []\n")
	if code, said := fails(t, l.env, "flows", "apply", dir); code != 2 || !strings.Contains(said, "stands in") {
		t.Errorf("flows apply of one name twice: exit %d, %s", code, said)
	}
	if err := os.Remove(filepath.Join(dir, "third.yaml")); err != nil {
		t.Fatal(err)
	}
	if output(t, l.env, &plan, "flows", "apply", dir); actionsOf(plan) != "create second, change strict/one" {
		t.Errorf("flows apply: %+v", plan)
	}
	if output(t, l.env, &plan, "flows", "apply", dir); actionsOf(plan) != "unchanged second, unchanged strict/one" {
		t.Errorf("flows apply again: %+v", plan)
	}
	var flow struct{ Version int }
	if output(t, l.env, &flow, "flows", "get", "strict/one"); flow.Version != 2 {
		t.Errorf("version %d after two applications, want 2", flow.Version)
	}

	if err := os.Remove(filepath.Join(dir, "more.json")); err != nil {
		t.Fatal(err)
	}
	if code, said := fails(t, l.env, "flows", "apply", dir, "--prune"); code != 2 || !strings.Contains(said,
		"delete second") ||
		!strings.Contains(said, "--yes") {
		t.Errorf("flows apply --prune with nobody there: exit %d, %s", code, said)
	}
	if output(t, l.env, &plan, "flows", "apply", dir, "--prune",
		"--yes"); actionsOf(plan) != "delete second, unchanged strict/one" {
		t.Errorf("flows apply --prune: %+v", plan)
	}
	if code, _ := fails(t, l.env, "flows", "get", "second"); code != 5 {
		t.Errorf("a pruned flow: exit %d", code)
	}
}

// TestFlows_Validate checks flows as they were exported, with names in them, and names each mistake with file and line.
func TestFlows_Validate(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	strictFlow(t, l, "strict")
	output(t, l.env, &struct{}{}, "variables", "create", "--file", testFile(t, "settings.yaml",
		"{name: settings, keys: [{name: a, default: b}]}"))
	exported := says(t, l.env, "", "flows", "export")
	second := strings.Replace(exported, "name: strict\n", "name: second\nvariable_set_id: settings\n", 1)
	if said := says(t, l.env, exported+"---\n"+second, "flows", "validate",
		"-"); said != "NAME    VALID  FILE\nstrict  true   standard input\n"+
		"second  true   standard input\n" {
		t.Errorf("flows validate of what was exported: %s", said)
	}
	// What takes one flow knows names, too.
	file := testFile(t, "second.yaml", second)
	says(t, l.env, "", "flows", "dry-run-new", "--file", file)
	says(t, l.env, "", "flows", "create", "--file", file)
	says(t, l.env, "", "flows", "replace", "second", "--file", file)

	for name, tt := range map[string]struct {
		code           int
		old, new, says string
	}{
		"Expression": {3, "{{ input }}", "{{ inptu }}",
			`:20: steps.0.tasks.0.params.row: {{ inptu }}: unknown name "inptu"`},
		"Field": {3, "steps:", "stepps:", `:11: stepps: `},
		"Credential": {5, "credential_id: dialer", "credential_id: dialler",
			`:16: credential_id: there is no "dialler"; ` + "`flowlane credentials list`"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := testFile(t, "bad.yaml", strings.Replace(exported, tt.old, tt.new, 1))
			if code, said := fails(t, l.env, "flows", "validate", file); code != tt.code || !strings.Contains(said,
				file+tt.says) {
				t.Errorf("exit %d, %s", code, said)
			}
			cmd := program(t, l.env, "flows", "validate", "--file", file, "--json")
			text, _ := cmd.Output()
			var facts []struct {
				Valid  bool
				Errors []struct{ At, Msg string }
			}
			if err := json.Unmarshal(text, &facts); err != nil || len(facts) != 1 || facts[0].Valid ||
				len(facts[0].Errors) == 0 ||
				!strings.HasPrefix(facts[0].Errors[0].At, file+":") {
				t.Errorf("as JSON: %s, %v", text, err)
			}
		})
	}
	if code, said := fails(t, l.env, "flows", "validate"); code != 2 || !strings.Contains(said,
		"- for standard input") {
		t.Errorf("flows validate of nothing: exit %d, %s", code, said)
	}
}

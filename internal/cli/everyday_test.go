package cli_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flowlane/test/pgtest"
)

// live is a server with its simulator, and the environment of commands that talk to it.
type live struct {
	env      []string
	url, key string
	// dsn is the server's database, which only operators know.
	dsn string
}

// newLive starts one, with further settings.
func newLive(t *testing.T, settings ...string) live {
	t.Helper()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test")
	var sim, at urlFacts
	launch(t, nil, &sim, "sim", "dialer", "--listen", "127.0.0.1:0")
	launch(t, append(append(env, settings...), "FLOWLANE_SIM_URL="+sim.URL), &at, "serve", "--listen", "127.0.0.1:0")
	return live{env: []string{"FLOWLANE_URL=" + at.URL, "FLOWLANE_API_KEY=" + key.Key}, url: at.URL, key: key.Key,
		dsn: dsn}
}

// says runs a command that must succeed, and returns what it prints.
func says(t *testing.T, env []string, stdin string, args ...string) string {
	t.Helper()
	cmd := program(t, env, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("flowlane %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// TestLogin: a key is checked, kept where only its owner reads it, and never shown.
func TestLogin(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	home := t.TempDir()
	env := []string{"XDG_CONFIG_HOME=" + home}
	file := filepath.Join(home, "flowlane", "profiles.yaml")
	if code, said := fails(t, env, "flows", "list"); code != 1 || !strings.Contains(said, "flowlane login") {
		t.Errorf("without a server: exit %d, %s", code, said)
	}
	if code, _ := fails(t, env, "login", l.url); code != 2 {
		t.Errorf("without a key: exit %d", code)
	}
	bad := program(t, env, "login", l.url)
	bad.Stdin = strings.NewReader(l.key + "x\n")
	if out, err := bad.CombinedOutput(); err == nil || bad.ProcessState.ExitCode() != 4 ||
		bytes.Contains(out, []byte(l.key)) {
		t.Errorf("a wrong key: exit %d, %s", bad.ProcessState.ExitCode(), out)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a key that is refused is written down")
	}
	for _, name := range []string{"default", "two"} {
		if said := says(t, env, l.key+"\n", "login", l.url, "--profile", name); strings.Contains(said, l.key) ||
			!strings.Contains(said, "admin in Acme") {
			t.Errorf("login: %s", said)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v", file, info.Mode(), err)
	}
	if said := says(t, env, "", "profiles", "--use", "default"); strings.Contains(said, l.key) ||
		!strings.Contains(said, "* default") {
		t.Errorf("profiles: %s", said)
	}
	says(t, env, "", "me", "show")
	says(t, append(env, "FLOWLANE_URL="+l.url), "", "me", "show")
	// A key goes nowhere but to its own server, not even one that the environment names beside a profile.
	says(t, append(env, "FLOWLANE_API_KEY=flow_other", "FLOWLANE_URL=http://127.0.0.1:1"), "", "me", "show",
		"--profile", "two")
	if code, said := fails(t, append(env, "FLOWLANE_URL=http://127.0.0.1:1"), "me", "show"); code != 1 ||
		!strings.Contains(said, "no API key") {
		t.Errorf("another server: exit %d, %s", code, said)
	}
	if code, said := fails(t, env, "me", "show", "--profile", "three"); code != 1 || !strings.Contains(said,
		`no profile "three"`) {
		t.Errorf("an unknown profile: exit %d, %s", code, said)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, said := fails(t, env, "me", "show"); code != 1 || !strings.Contains(said, "chmod 600") {
		t.Errorf("a file that others read: exit %d, %s", code, said)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, env, "", "logout")
	says(t, env, "", "logout", "--profile", "two")
	if text, err := os.ReadFile(file); err != nil || bytes.Contains(text, []byte(l.key)) {
		t.Errorf("after logout: %s, %v", text, err)
	}
}

// TestNouns goes through what is done every day: by names, by ids, and in every form of output.
func TestNouns(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	var demo struct {
		BatchID string `json:"batch_id"`
	}
	output(t, l.env, &demo, "demo", "--records", "1200")

	if table := says(t, l.env, "", "flows", "list"); !strings.HasPrefix(table, "ID  ") || !strings.Contains(table,
		"bulk-upload") ||
		strings.Contains(table, "\x1b") {
		t.Errorf("flows list:\n%s", table)
	}
	var flows []struct{ ID, Name string }
	output(t, l.env, &flows, "flows", "list")
	var flow struct{ ID string }
	output(t, l.env, &flow, "flows", "get", flows[0].Name)
	if flow.ID != flows[0].ID {
		t.Errorf("flows get by name: %+v of %+v", flow, flows)
	}
	// More than one page.
	lines := strings.Split(strings.TrimSpace(says(t, l.env, "", "jobs", "list", "--all", "-o", "ndjson")), "\n")
	if len(lines) != 1200 || !json.Valid([]byte(lines[1199])) {
		t.Errorf("jobs list --all: %d lines", len(lines))
	}
	var jobs []struct{ ID string }
	if output(t, l.env, &jobs, "jobs", "list", "--limit", "700", "--batch-id", demo.BatchID); len(jobs) != 700 {
		t.Errorf("jobs list --limit 700: %d", len(jobs))
	}
	rows, err := csv.NewReader(strings.NewReader(says(t, l.env, "", "batches", "list", "-o", "csv",
		"--columns", "id,job_counts.accepted"))).ReadAll()
	if err != nil || len(rows) != 2 || rows[1][0] != demo.BatchID || rows[1][1] != "1200" {
		t.Errorf("batches list -o csv: %v, %v", rows, err)
	}
	if text := says(t, l.env, "", "batches", "get", demo.BatchID, "-o", "yaml"); !strings.Contains(text,
		"\njob_counts:\n  staged: 0\n") {
		t.Errorf("batches get -o yaml:\n%s", text)
	}
	// Bodies: flags, files, and flags over files; a flow by its name.
	file := filepath.Join(t.TempDir(), "schedule.yaml")
	if err := os.WriteFile(file, []byte("definition_id: "+flows[0].Name+
		"\ndescription: from a file\ncron_expression: 0 3 * * *\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var schedule struct {
		ID, Description, CronExpression string
		DefinitionID                    string `json:"definition_id"`
		Enabled                         bool
		InputData                       struct{ Since string } `json:"input_data"`
	}
	output(t, l.env, &schedule, "schedules", "create", "--file", file, "--description", "nightly", "--no-enabled",
		"--input-data", "{since: 2026-01-01}")
	if schedule.Description != "nightly" || schedule.DefinitionID != flow.ID || schedule.Enabled ||
		schedule.InputData.Since != "2026-01-01" {
		t.Errorf("schedules create: %+v", schedule)
	}
	says(t, l.env, "", "schedules", "delete", "nightly")
	var key struct{ ID, Key string }
	output(t, l.env, &key, "keys", "create", "--name", "reader", "--role", "member")
	var holds []struct{ Status string }
	says(t, l.env, "", "dispatch", "hold", "--reason", "a test")
	if output(t, l.env, &holds, "dispatch", "resume"); len(holds) != 1 || holds[0].Status != "released" {
		t.Errorf("dispatch resume: %+v", holds)
	}
	searchCatalog(t, l)
	for _, noun := range []string{"batches", "executions", "calls", "triggers", "records", "webhooks", "subscriptions",
		"stores",
		"variables", "credentials", "tenants", "templates", "keys"} {
		says(t, l.env, "", noun, "list")
	}
	for args, want := range map[string]string{"stores list": "`flowlane stores create` makes one",
		"batches list --status paused": "`flowlane run FLOW FILE` makes one"} {
		cmd := program(t, l.env, strings.Fields(args)...)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s, with nothing there: %v, %s", args, err, out)
		}
	}
	if said := says(t, nil, "", "help", "stores", "list"); !strings.Contains(said, "flowlane stores list [flags]") {
		t.Errorf("help: %s", said)
	}

	for name, tt := range map[string]struct {
		code int
		says string
		args []string
	}{
		"NoName":   {5, "flowlane flows list", []string{"flows", "get", "nope"}},
		"NoID":     {5, "404", []string{"batches", "get", "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11"}},
		"Choice":   {2, "none of queued", []string{"batches", "list", "--status", "odd"}},
		"NoNumber": {2, "is no number", []string{"schedules", "create", "--catch-up-seconds", "soon"}},
		"Nothing":  {2, "nothing to send", []string{"schedules", "create"}},
		"TwoForms": {2, "say two things", []string{"flows", "list", "--json", "-o", "csv"}},
		"BadFile":  {2, "line 1", []string{"flows", "create", "-f", badFile(t)}},
		"Refused": {3, "cron_expression", []string{"schedules", "create", "--file", file, "--cron-expression",
			"x"}},
		"Member":       {4, "403", []string{"flows", "delete", flow.ID, "--api-key", key.Key}},
		"WrongKey":     {4, "401", []string{"flows", "list", "--api-key", "flow_no"}},
		"Away":         {6, "no server answers", []string{"flows", "list", "--url", "http://127.0.0.1:1"}},
		"SlashInAPath": {5, "404", []string{"stores", "get", "a/../b"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, said := fails(t, l.env, tt.args...)
			if code != tt.code || !strings.Contains(said, tt.says) {
				t.Errorf("exit %d: %s", code, said)
			}
		})
	}
}

// searchCatalog looks for actions, of which a search prints fifty unless it is told otherwise.
func searchCatalog(t *testing.T, l live) {
	t.Helper()
	var actions []struct{ ID string }
	if output(t, l.env, &actions, "catalog", "search", "UPLOAD", "dialer"); len(actions) == 0 ||
		!strings.HasPrefix(actions[0].ID, "dialer__") {
		t.Errorf("catalog search: %+v", actions)
	}
	if output(t, l.env, &actions, "catalog", "search", "--limit", "2", "dialer"); len(actions) != 2 {
		t.Errorf("catalog search --limit 2: %+v", actions)
	}
	if output(t, l.env, &actions, "catalog", "search", "--all", "e"); len(actions) <= 50 {
		t.Errorf("catalog search --all: %d actions", len(actions))
	}
	var said strings.Builder
	search := program(t, l.env, "catalog", "search", "e")
	search.Stderr = &said
	if err := search.Run(); err != nil || !strings.Contains(said.String(),
		"50, and there are more: --limit N or --all prints them") {
		t.Errorf("catalog search of what all have: %v, %s", err, &said)
	}
}

func badFile(t *testing.T) string {
	t.Helper()
	return testFile(t, "bad.yaml", "{a: b")
}

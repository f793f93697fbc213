package cli_test

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// strictFlow makes an active flow that fails records without an id, and returns the id of its credential.
func strictFlow(t *testing.T, l live, name string) string {
	t.Helper()
	var credential struct{ ID string }
	output(t, l.env, &credential, "credentials", "create", "--name", "dialer", "--platform-id", "dialer",
		"--auth-method", "basic_auth",
		"--credentials", "@"+testFile(t, "secret.yaml", "{username: demo, password: demo}"))
	flow := testFile(t, "flow.yaml", `
name: `+name+`
status: active
input_schema: {type: object, required: [id], properties: {id: {type: string, minLength: 1}}}
steps:
  - id: send
    tasks:
      - id: send
        action_id: dialer__api__upload
        credential_id: `+credential.ID+`
        params: {list: demo, key_field: id, row: "{{ input }}"}
`)
	says(t, l.env, "", "flows", "create", "--file", flow)
	return credential.ID
}

// TestBatches holds a batch, lets it go, watches it to an end that is not well, and reads why.
func TestBatches(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	strictFlow(t, l, "strict")
	var set struct {
		ID string `json:"record_set_id"`
	}
	output(t, l.env, &set, "records", "upload", testFile(t, "rows.csv", "id,name\na,Ada\n,=Bob\nc,Cy\n"))
	says(t, l.env, "", "dispatch", "hold", "--reason", "until the batch is paused")
	var batch struct {
		ID string `json:"batch_id"`
	}
	output(t, l.env, &batch, "flows", "trigger", "strict", "--record-set-id", set.ID)
	var pause struct{ Scope, Reason string }
	if output(t, l.env, &pause, "batches", "pause", batch.ID, "--reason", "look first"); pause.Reason != "look first" {
		t.Errorf("batches pause: %+v", pause)
	}
	says(t, l.env, "", "dispatch", "resume")
	says(t, l.env, "", "batches", "update", batch.ID, "--priority", "high")
	says(t, l.env, "", "batches", "resume", batch.ID)

	if code, said := fails(t, l.env, "batches", "watch", batch.ID); code != 7 || !strings.Contains(said,
		"batches errors "+batch.ID) {
		t.Errorf("batches watch: exit %d, %s", code, said)
	}
	if said := says(t, l.env, "", "batches", "errors", batch.ID); !strings.Contains(said, "input_invalid") {
		t.Errorf("batches errors: %s", said)
	}
	rows, err := csv.NewReader(strings.NewReader(says(t, l.env, "", "results", batch.ID, "--failed",
		"--csv"))).ReadAll()
	if err != nil || len(rows) != 2 || rows[0][0] != "position" || rows[1][0] != "1" || rows[1][2] != "failed" {
		t.Errorf("results --failed --csv: %v, %v", rows, err)
	}
	file := filepath.Join(t.TempDir(), "all.ndjson")
	says(t, l.env, "", "results", batch.ID, "-o", "ndjson", "--out", file)
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "\n") != 3 {
		t.Errorf("results --out: %s, %v", text, err)
	}
	var jobs []struct{ ID, Status string }
	output(t, l.env, &jobs, "jobs", "list", "--batch-id", batch.ID, "--status", "failed")
	if len(jobs) != 1 {
		t.Fatalf("jobs list --status failed: %+v", jobs)
	}
	if code, said := fails(t, l.env, "jobs", "resolve", jobs[0].ID, "--outcome", "carried_out"); code != 2 &&
		code != 3 {
		t.Errorf("jobs resolve of a job that is resolved: exit %d, %s", code, said)
	}
	var again struct {
		ID string `json:"batch_id"`
	}
	if output(t, l.env, &again, "batches", "retry", batch.ID); again.ID == "" || again.ID == batch.ID {
		t.Errorf("batches retry: %+v", again)
	}
	if code, _ := fails(t, l.env, "batches", "watch", again.ID); code != 7 {
		t.Errorf("the retry: exit %d", code)
	}
	if code, said := fails(t, l.env, "batches", "cancel", batch.ID); code != 3 || !strings.Contains(said, "Hint: ") {
		t.Errorf("batches cancel of one that is over: exit %d, %s", code, said)
	}
}

// TestAccounts reads and holds the budgets of an account, and rotates the secret that it was found with.
func TestAccounts(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	id := strictFlow(t, l, "strict")
	var accounts []struct {
		ID string `json:"tenancy_id"`
	}
	if output(t, l.env, &accounts, "accounts", "list", "dialer"); len(accounts) != 1 {
		t.Fatalf("accounts list: %+v", accounts)
	}
	account := accounts[0].ID
	for _, verb := range []string{"get", "headroom", "queue", "attribution", "history", "margins", "lanes", "holds",
		"refresh-limits"} {
		says(t, l.env, "", "accounts", verb, "dialer", account)
	}
	var estimate struct {
		Calls int `json:"estimated_calls"`
	}
	if output(t, l.env, &estimate, "accounts", "estimate", "dialer", account, "--action-id", "dialer__api__upload",
		"--record-count", "120000"); estimate.Calls != 3 {
		t.Errorf("accounts estimate: %+v", estimate)
	}
	says(t, l.env, "", "accounts", "set-margin", "dialer", account, "upload", "--margin-percent", "20")
	says(t, l.env, "", "accounts", "set-lane", "dialer", account, "bulk", "--weight", "3")
	var hold struct{ ID string }
	output(t, l.env, &hold, "accounts", "hold", "dialer", account, "--duration-seconds", "600")
	says(t, l.env, "", "accounts", "extend-hold", "dialer", account, hold.ID, "--duration-seconds", "900")
	var released []struct{ ID string }
	if output(t, l.env, &released, "accounts", "resume", "dialer", account); len(released) != 1 ||
		released[0].ID != hold.ID {
		t.Errorf("accounts resume: %+v", released)
	}

	// The secret is replaced and nothing else; it is not shown.
	if said := says(t, l.env, "{username: demo, password: another}", "credentials", "rotate",
		"dialer"); strings.Contains(said, "another") {
		t.Errorf("credentials rotate shows the secret: %s", said)
	}
	var credential struct {
		ID, Name string
		Account  string `json:"tenancy_id"`
	}
	if output(t, l.env, &credential, "credentials", "get", "dialer"); credential.ID != id ||
		credential.Account != account {
		t.Errorf("credentials rotate: %+v", credential)
	}
}

// TestBatches_Stream prints where a batch stands up to its end.
func TestBatches_Stream(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	strictFlow(t, l, "strict")
	var started struct {
		ID string `json:"batch_id"`
	}
	output(t, l.env, &started, "flows", "trigger", "strict", "--input-data", `{"id": "a"}`)
	lines := strings.Split(strings.TrimSpace(says(t, l.env, "", "batches", "stream", started.ID, "--json")), "\n")
	var last struct{ Event string }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Event != "batch.closed" {
		t.Errorf("batches stream: %v, %v", lines, err)
	}
	if said := says(t, l.env, "", "batches", "stream",
		started.ID); said != "batch.closed 100.00 % completed: 1 accepted\n" {
		t.Errorf("batches stream: %q", said)
	}
	output(t, l.env, &started, "flows", "trigger", "strict", "--input-data", `{"id": ""}`)
	if code, said := fails(t, l.env, "batches", "stream", started.ID); code != 7 || !strings.Contains(said, "failed") {
		t.Errorf("batches stream of one that fails: exit %d, %s", code, said)
	}
	if code, _ := fails(t, l.env, "batches", "stream", "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11"); code != 5 {
		t.Errorf("batches stream of none: exit %d", code)
	}
}

// TestExecutions_Follow prints the events of an execution up to the last.
func TestExecutions_Follow(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	strictFlow(t, l, "strict")
	var started struct {
		ID string `json:"execution_id"`
	}
	output(t, l.env, &started, "flows", "trigger", "strict", "--input-data", `{"id": "a"}`)
	lines := strings.Split(strings.TrimSpace(says(t, l.env, "", "executions", "follow", started.ID, "--json")), "\n")
	var last struct{ Event string }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Event != "execution.closed" ||
		!strings.Contains(lines[0], `"execution.snapshot"`) {
		t.Errorf("executions follow: %v, %v", lines, err)
	}
	if said := says(t, l.env, "", "executions", "follow", started.ID); !strings.Contains(said,
		"execution.closed completed") {
		t.Errorf("executions follow: %s", said)
	}
	output(t, l.env, &started, "flows", "trigger", "strict", "--input-data", `{"id": ""}`)
	if code, said := fails(t, l.env, "executions", "follow", started.ID); code != 7 || !strings.Contains(said,
		"failed") {
		t.Errorf("executions follow of one that fails: exit %d, %s", code, said)
	}
	if code, _ := fails(t, l.env, "executions", "follow", "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11.0.1"); code != 5 {
		t.Errorf("executions follow of none: exit %d", code)
	}
}

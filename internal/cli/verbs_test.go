package cli_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// verbLine is a command as somebody would type it, in the order of a day; $NAME stands for what an earlier one kept.
type verbLine struct {
	line string
	// keep names the field of the answer, or of its first item, that $NAME is from then on.
	name, keep string
	// says is a part of what is printed for a person.
	says string
	// forms is whether the command prints what it reads in every form.
	forms bool
	// until is whether it is typed again until it says that.
	until bool
	code  int
}

// verbLines are all verbs that people use every day, against a server.
var verbLines = []verbLine{
	{line: "credentials create --name dialer --platform-id dialer --auth-method " +
		"basic_auth --credentials @$DIR/secret.yaml", says: "Account demo"},
	{line: "credentials list", says: "NAME", forms: true},
	{line: "credentials get dialer", says: "basic_auth"},
	{line: "credentials test dialer", says: "true"},
	{line: "credentials rotate dialer --file $DIR/secret.yaml", says: "has a new secret"},
	{line: "variables create --name settings --keys @$DIR/keys.yaml", says: "greeting"},
	{line: "variables list", says: "settings", forms: true},
	{line: "variables get settings", says: "greeting"},

	{line: "flows validate $DIR/strict.yaml", says: "strict  true", forms: true},
	{line: "flows diff $DIR/strict.yaml", says: "1 to create", code: 7},
	{line: "flows apply $DIR/strict.yaml $DIR/cut.yaml", says: "created strict, version 1"},
	{line: "flows list", says: "strict", forms: true},
	{line: "flows get strict", says: "input_schema", forms: true},
	{line: "flows export strict", says: "credential_id: dialer"},
	{line: "flows dry-run strict --record-count 10 --input-data {id:\u00a0a}", says: "estimated_calls: 1", forms: true},

	{line: "records upload $DIR/rows.csv --json", name: "SET", keep: "record_set_id"},
	{line: "records upload $DIR/more.csv", says: "2 records, sealed"},
	{line: "records list", says: "sealed", forms: true},
	{line: "records get $SET", says: "received_count"},
	{line: "dispatch hold"},
	{line: "flows trigger strict --record-set-id $SET --json", name: "BATCH", keep: "batch_id"},
	{line: "batches pause $BATCH", says: "admin_request"},
	{line: "batches resume $BATCH", says: "released"},
	{line: "batches resume $BATCH"},
	{line: "dispatch resume", says: "released"},
	{line: "batches watch $BATCH", says: "partially_failed: 1 accepted, 1 failed", code: 7},
	{line: "batches list", says: "partially_failed", forms: true},
	{line: "batches get $BATCH", says: "job_counts", forms: true},
	{line: "batches errors $BATCH", says: "input_invalid", forms: true},
	{line: "batches cancel $BATCH", code: 3},
	{line: "results $BATCH", says: "accepted", forms: true},
	{line: "results $BATCH --failed --csv", says: "error_code"},
	{line: "jobs list --batch-id $BATCH", says: "input_invalid", forms: true},
	{line: "jobs get $BATCH.1", says: "input_data", forms: true},
	{line: "executions list --batch-id $BATCH", says: "completed", forms: true},
	{line: "executions get $BATCH.0.1", says: "import_id", forms: true},
	{line: "executions follow $BATCH.0.1", says: "execution.closed completed"},
	{line: "batches stream $BATCH", says: "batch.closed 100.00 %", code: 7},
	{line: "batches retry $BATCH --json", name: "AGAIN", keep: "batch_id"},
	{line: "batches watch $AGAIN", says: "failed: 1 failed", code: 7},
	{line: "run strict $DIR/good.csv --watch --yes", says: "completed: 2 accepted"},
	{line: "flows trigger cut --input-data {id:\u00a0a} --json", name: "CUT", keep: "batch_id"},
	{line: "jobs list --batch-id $CUT", says: "unresolved", until: true, forms: true},
	{line: "jobs resolve $CUT.0 --outcome accepted", says: "completed"},
	{line: "batches watch $CUT", says: "completed: 1 completed"},

	{line: "schedules create --flow strict --description nightly --cron-expression 0\u00a03\u00a0*\u00a0*\u00a0*",
		says: "next_fires"},
	{line: "schedules list", says: "nightly", forms: true},
	{line: "schedules get nightly", says: "0 3 * * *"},
	{line: "schedules update nightly --no-enabled", says: "enabled           false"},
	{line: "schedules preview --cron-expression 0\u00a03\u00a0*\u00a0*\u00a0*", says: "03:00:00"},
	{line: "schedules run nightly", says: "batch_id"},
	{line: "schedules fires nightly", says: "true", forms: true},
	{line: "schedules delete nightly", says: "Done."},
	{line: "webhooks create --flow strict --description hook --provider standard --mode trigger",
		says: "signing_secret"},
	{line: "webhooks list", says: "hook", forms: true},
	{line: "webhooks get hook", says: "standard"},
	{line: "webhooks deliveries hook"},
	{line: "webhooks rotate-secret hook", says: "signing_secret"},
	{line: "webhooks delete hook", says: "Done."},
	{line: "subscriptions create --flow cut --description after --event-kind batch.failed --no-enabled",
		says: "batch.failed"},
	{line: "subscriptions list", says: "after", forms: true},
	{line: "subscriptions get after", says: "batch.failed"},
	{line: "subscriptions kinds", says: "batch.completed", forms: true},
	{line: "subscriptions delete after", says: "Done."},
	{line: "stores create --name people --layers base --fields @$DIR/fields.yaml", says: "people"},
	{line: "stores list", says: "people", forms: true},
	{line: "stores get people", says: "layers"},
	{line: "stores records people"},
	{line: "stores delete people", says: "Done."},

	{line: "accounts list dialer --json", name: "ACCOUNT", keep: "tenancy_id"},
	{line: "accounts list dialer", says: "Account demo", forms: true},
	{line: "accounts headroom dialer $ACCOUNT", says: "remaining", forms: true},
	{line: "accounts queue dialer $ACCOUNT", says: "queued_records"},
	{line: "accounts margins dialer $ACCOUNT", says: "margin_percent"},
	{line: "accounts estimate dialer $ACCOUNT --action-id dialer__api__upload --record-count 120000",
		says: "estimated_calls          3", forms: true},
	{line: "accounts hold dialer $ACCOUNT --duration-seconds 600", says: "active"},
	{line: "accounts resume dialer $ACCOUNT", says: "released"},

	{line: "catalog search upload dialer", says: "dialer__api__upload", forms: true},
	{line: "catalog show dialer__api__upload", says: "params_schema", forms: true},
	{line: "catalog import openapi --help", says: "flowlane catalog import openapi"},
	{line: "keys create --name reader --role member", says: "reader"},
	{line: "keys list", says: "reader", forms: true},
	{line: "keys revoke reader", says: "Done."},
	{line: "doctor", says: "it answers within"},
	{line: "open --print", says: "/console/login#login_"},
	{line: "batches cancel $CUT", code: 3},
	{line: "variables delete settings", says: "Done."},
	{line: "flows delete cut", says: "Done."},
}

// TestVerbs_Live types every verb against a server, and reads what it prints in every form.
func TestVerbs_Live(t *testing.T) {
	t.Parallel()
	// An answer that never comes leaves it open whether the call was carried out.
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer cut.Close()
	l := newLive(t, "FLOWLANE_ALLOW_HOSTS="+strings.TrimPrefix(cut.URL, "http://"))
	dir := t.TempDir()
	for name, text := range map[string]string{
		"secret.yaml": "{username: demo, password: demo}", "keys.yaml": "[{name: greeting, default: Hello}]",
		"fields.yaml": "[{name: city, type: string}]", "rows.csv": "id\na\n\"\"\n", "more.csv": "id\nx\ny\n",
		"good.csv": "id\nc\nd\n",
		"strict.yaml": "name: strict\nstatus: active\ninput_schema: {type: object, properties: {id: {type: " +
			"string, minLength: 1}}}\n" +
			"steps: [{id: s, tasks: [{id: t, action_id: dialer__api__upload, credential_id: dialer," +
			" params: {list: demo, key_field: id, row: '{{ input }}'}}]}]\n",
		"cut.yaml": "name: cut\nstatus: active\nsteps: [{id: s, tasks: [{id: t, action_id: core__http__request," +
			" params: {method: POST, url: '" + cut.URL + "', body: {a: 1}}}]}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept := map[string]string{"DIR": dir}
	for _, v := range verbLines {
		v.run(t, l, kept)
	}
}

func (v verbLine) run(t *testing.T, l live, kept map[string]string) {
	t.Helper()
	args := strings.Fields(strings.ReplaceAll(v.line, "\u00a0", "_SPACE_"))
	for i := range args {
		args[i] = strings.ReplaceAll(os.Expand(args[i], func(name string) string { return kept[name] }), "_SPACE_", " ")
	}
	read := func(form ...string) []byte {
		cmd := program(t, l.env, append(args, form...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, _ := cmd.Output() // its code says the same
		if code := cmd.ProcessState.ExitCode(); code != v.code {
			t.Fatalf("flowlane %s: exit %d, want %d\n%s%s", v.line, code, v.code, out, stderr.String())
		}
		return out
	}
	out := read()
	for deadline := time.Now().Add(time.Minute); v.until && !bytes.Contains(out, []byte(v.says)) &&
		time.Now().Before(deadline); {
		out = read()
	}
	if v.name != "" {
		kept[v.name] = firstField(t, out, v.keep)
	}
	if !bytes.Contains(out, []byte(v.says)) || bytes.Contains(out, []byte("\x1b")) {
		t.Errorf("flowlane %s prints\n%s\nwithout %q, or with colours", v.line, out, v.says)
	}
	if !v.forms {
		return
	}
	var yamlValue, jsonValue any
	text := read("--json")
	if err := json.Unmarshal(text, &jsonValue); err != nil {
		t.Errorf("flowlane %s --json: %v\n%s", v.line, err, text)
	}
	if err := yaml.Unmarshal(read("-o", "yaml"), &yamlValue); err != nil {
		t.Errorf("flowlane %s -o yaml: %v", v.line, err)
	}
	lines := bytes.Split(bytes.TrimSpace(read("-o", "ndjson")), []byte("\n"))
	for _, line := range lines {
		if !json.Valid(line) {
			t.Errorf("flowlane %s -o ndjson: %s", v.line, line)
		}
	}
	items := 1
	if list, ok := jsonValue.([]any); ok {
		items = len(list)
	}
	rows, err := csv.NewReader(bytes.NewReader(read("-o", "csv"))).ReadAll()
	if err != nil || len(rows) != items+1 || len(lines) != items {
		t.Errorf("flowlane %s: %d items, %d rows, %d lines, %v", v.line, items, len(rows), len(lines), err)
	}
}

// firstField is a field of an object, or of the first of a list.
func firstField(t *testing.T, text []byte, name string) string {
	t.Helper()
	var list []map[string]any
	if text[0] != '[' {
		text = append(append([]byte("["), text...), ']')
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list) == 0 {
		t.Fatalf("%s: %v", text, err)
	}
	value, ok := list[0][name].(string)
	if !ok {
		t.Fatalf("%s has no %s", text, name)
	}
	return value
}

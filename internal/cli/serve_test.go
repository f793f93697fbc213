package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

type urlFacts struct {
	URL         string `json:"url"`
	OperatorURL string `json:"operator_url"`
}

// TestServe goes the way of an operator: migrate, organization, key, simulator, two servers and a worker on one
// database.
func TestServe(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewEmpty(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	if code, said := fails(t, env, "org", "create", "--name", "Acme"); code != 1 || !strings.Contains(said,
		"flowlane migrate up") {
		t.Errorf("an empty database: exit %d, %s", code, said)
	}
	for _, command := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"serve", "--migrate", "--no-migrate"},
		{"work"}} {
		if code, said := fails(t, env, command...); code != 1 || !strings.Contains(said, "flowlane migrate up") {
			t.Errorf("an empty database, %v: exit %d, %s", command, code, said)
		}
	}
	var migrated struct{ Applied, Total int }
	output(t, env, &migrated, "migrate", "up")
	if migrated.Applied == 0 || migrated.Applied != migrated.Total {
		t.Errorf("migrate up: %+v", migrated)
	}
	var org struct{ ID, Name string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	var key struct{ ID, Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test")

	var sim, one, two, worker urlFacts
	launch(t, nil, &sim, "sim", "dialer", "--listen", "127.0.0.1:0")
	env = append(env, "FLOWLANE_SIM_URL="+sim.URL, "FLOWLANE_API_KEY="+key.Key)
	first := launch(t, env, &one, "serve", "--listen", "127.0.0.1:0")
	second := launch(t, env, &two, "serve", "--listen", "127.0.0.1:0", "--migrate")
	third := launch(t, env, &worker, "work")
	for _, url := range []string{worker.OperatorURL, one.URL + "/"} {
		if said := says(t, nil, "", "ready", url); said != "{\"status\":\"ok\"}\n" {
			t.Errorf("ready %s: %s", url, said)
		}
	}
	notReady := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	t.Cleanup(notReady.Close)
	for url, want := range map[string]int{notReady.URL: 7, "http://127.0.0.1:1": 6, "://": 2} {
		if code, said := fails(t, nil, "ready", url); code != want {
			t.Errorf("ready %s: exit %d, %s", url, code, said)
		}
	}
	if res, err := http.Get(worker.OperatorURL + "/v1/account/me"); err != nil ||
		res.StatusCode != http.StatusNotFound || res.Body.Close() != nil {
		t.Errorf("worker: /v1 answers %v, %v", res, err)
	}
	var demo struct {
		Status  string
		BatchID string `json:"batch_id"`
	}
	output(t, append(env, "FLOWLANE_URL="+one.URL), &demo, "demo", "--records", "500")
	if demo.Status != "completed" {
		t.Errorf("demo: %+v", demo)
	}
	var batch struct {
		Counts struct{ Accepted int } `json:"job_counts"`
	}
	if get(t, two.URL+"/v1/flows/batches/"+demo.BatchID, key.Key, &batch); batch.Counts.Accepted != 500 {
		t.Errorf("the other server says %+v", batch)
	}
	for _, p := range []*running{first, second, third} {
		p.stop(t, syscall.SIGTERM)
	}
}

// TestServe_NoWorkers: the API alone takes work on, which begins once there is a worker. Its secrets are in files.
func TestServe_NoWorkers(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	file := func(value string) string {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var sim, api, worker urlFacts
	launch(t, nil, &sim, "sim", "dialer", "--listen", "127.0.0.1:0")
	env := []string{"DATABASE_URL_FILE=" + file(dsn), "FLOWLANE_KEK_FILE=" + file(testKEK), "FLOWLANE_SIM_URL=" + sim.URL}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test")
	const token = "operators-of-acme-only"
	launch(t, append(env, "FLOWLANE_WORKERS=false", "FLOWLANE_OPERATOR_TOKEN_FILE="+file(token)), &api,
		"serve", "--listen", "127.0.0.1:0")
	if status := get(t, api.OperatorURL+"/metrics", "", nil); status != http.StatusUnauthorized {
		t.Errorf("metrics without the token of the file: %d", status)
	}
	env = append(env, "FLOWLANE_URL="+api.URL, "FLOWLANE_API_KEY="+key.Key)
	var demo struct{ Status string }
	done := make(chan struct{})
	cmd := program(t, env, "demo", "--records", "50", "--json")
	go func() {
		defer close(done)
		text, err := cmd.Output()
		if err != nil || json.Unmarshal(text, &demo) != nil {
			t.Errorf("demo: %v, %s", err, text)
		}
	}()
	var batches struct {
		Items []struct {
			Counts struct{ Queued, Accepted int } `json:"job_counts"`
		}
	}
	queued := func() bool {
		return len(batches.Items) > 0 && batches.Items[0].Counts.Queued+batches.Items[0].Counts.Accepted > 0
	}
	for look := time.NewTicker(100 * time.Millisecond); !queued(); <-look.C {
		if status := get(t, api.URL+"/v1/flows/batches", key.Key, &batches); status != http.StatusOK {
			t.Fatalf("batches: %d", status)
		}
	}
	if n := batches.Items[0].Counts.Accepted; n != 0 {
		t.Errorf("%d records were sent without a worker", n)
	}
	launch(t, env, &worker, "work")
	if <-done; demo.Status != "completed" {
		t.Errorf("demo: %+v", demo)
	}
}

// TestValueFiles: a file whose value cannot be used is named, and what it holds is not.
func TestValueFiles(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		env  []string
		want string
	}{
		{[]string{"DATABASE_URL_FILE=/none"}, "DATABASE_URL_FILE: open /none"},
		{[]string{"DATABASE_URL_FILE=" + empty}, "DATABASE_URL_FILE: " + empty + " is empty"},
		{[]string{"FLOWLANE_LISTEN_FILE=" + empty, "FLOWLANE_LISTEN=127.0.0.1:0"}, "are both set: keep one"},
	} {
		if code, said := fails(t, tt.env, "serve"); code != 2 || !strings.Contains(said, tt.want) {
			t.Errorf("%v: exit %d, %s", tt.env, code, said)
		}
	}
}

// TestServe_Waits: a Postgres that takes connections and says nothing is named while it is waited for, then why there
// is none.
func TestServe_Waits(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	silent, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	at := silent.Addr().String()
	cmd := program(t, []string{
		"FLOWLANE_KEK=" + testKEK, "DATABASE_URL=postgres://a:secret@" + at + "/b?connect_timeout=1",
	}, "serve", "--listen", "127.0.0.1:0")
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(pipe)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its exit code is looked at
	waits := strings.Index(string(said), `msg="waiting for Postgres" address=`+at+"/b")
	ends := strings.Index(string(said), "no Postgres answers at "+at+
		"/b; check DATABASE_URL: it did not answer in time\n")
	if cmd.ProcessState.ExitCode() != 1 || waits < 0 || ends < waits || strings.Contains(string(said), "secret") {
		t.Errorf("exit %d\n%s", cmd.ProcessState.ExitCode(), said)
	}
}

// TestOrg_Set: what one cause may lead to is the operator's to say.
func TestOrg_Set(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn}
	var org struct {
		ID          string
		StartBudget int `json:"start_budget"`
	}
	output(t, env, &org, "org", "create", "--name", "Acme")
	all := []struct {
		StartBudget int `json:"start_budget"`
	}{{}}
	if output(t, env, &all, "org", "list"); all[0].StartBudget != 1000 {
		t.Errorf("the first budget is %d", all[0].StartBudget)
	}
	if output(t, env, &org, "org", "set", "--org", org.ID, "--start-budget", "7"); org.StartBudget != 7 {
		t.Errorf("the budget is %d", org.StartBudget)
	}
	for _, budget := range []string{"0", "1000001"} {
		if code, text := fails(t, env, "org", "set", "--org", org.ID, "--start-budget", budget); code != 1 ||
			!strings.Contains(text, "--start-budget") {
			t.Errorf("%s: %d %s", budget, code, text)
		}
	}
}

// TestOrg_SetQuota: quotas that are not the default are shown, and taken back.
func TestOrg_SetQuota(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	list := func() map[string]int {
		var all []struct{ Quotas map[string]int }
		output(t, env, &all, "org", "list")
		return all[0].Quotas
	}
	var set struct{ Quotas map[string]int }
	output(t, env, &set, "org", "set", "--org", org.ID, "--quota", "webhooks=5", "--quota", "open_batches=0")
	want := map[string]int{"webhooks": 5, "open_batches": 0}
	if got := list(); !maps.Equal(got, want) || !maps.Equal(set.Quotas, want) {
		t.Errorf("the quotas are %v and %v", got, set.Quotas)
	}
	output(t, env, &set, "org", "set", "--org", org.ID, "--quota", "webhooks=default", "--quota", "open_batches=7",
		"--start-budget", "9")
	if got := list(); !maps.Equal(got, map[string]int{"open_batches": 7}) {
		t.Errorf("the quotas are %v", got)
	}
	for _, tt := range [][]string{{"--quota", "hooks=5"}, {"--quota", "webhooks=-1"}, {"--quota", "webhooks=many"},
		{"--quota", "webhooks=1000000000000001"}, {}} {
		if code, text := fails(t, env, append([]string{"org", "set", "--org", org.ID}, tt...)...); code != 1 ||
			!strings.Contains(text, "--quota") {
			t.Errorf("%v: %d %s", tt, code, text)
		}
	}
	nobody := "00000000-0000-0000-0000-000000000000"
	if code, text := fails(t, env, "org", "set", "--org", nobody, "--quota", "webhooks=5"); code != 1 ||
		!strings.Contains(text, "there is no organization") {
		t.Errorf("%d %s", code, text)
	}
}

// TestOrg_SetRequestLimit: so are the requests that it may make, by operation; what is not named stays.
func TestOrg_SetRequestLimit(t *testing.T) {
	t.Parallel()
	dsn, pool := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn}
	type facts struct {
		ID            string
		StartBudget   int               `json:"start_budget"`
		RequestLimits map[string]string `json:"request_limits"`
	}
	var org facts
	output(t, env, &org, "org", "create", "--name", "Acme")
	id := org.ID
	for _, step := range []struct {
		flags []string
		want  map[string]string
	}{
		{[]string{"--request-limit", "getMe=70 per 1 minute", "--request-limit", "createTenant=5 per 60 minute"},
			map[string]string{"getMe": "70 per 1 minute", "createTenant": "5 per 60 minute"}},
		{[]string{"--start-budget", "7"}, map[string]string{"getMe": "70 per 1 minute",
			"createTenant": "5 per 60 minute"}},
		{[]string{"--request-limit", "getMe=default", "--request-limit", "createTenant=6 per 60 minute"},
			map[string]string{"createTenant": "6 per 60 minute"}},
	} {
		org = facts{}
		output(t, env, &org, append([]string{"org", "set", "--org", id}, step.flags...)...)
		if !maps.Equal(org.RequestLimits, step.want) {
			t.Errorf("%s: %+v", step.flags, org)
		}
	}
	var entries int
	err := pool.QueryRow(t.Context(), "SELECT count(*) FROM flow.audit_log WHERE org_id = $1 AND action = 'org set'",
		id).Scan(&entries)
	if err != nil || entries != 3 {
		t.Errorf("%d entries in the audit log, %v", entries, err)
	}
	var all []facts
	if output(t, env, &all, "org", "list"); len(all) != 1 || all[0].StartBudget != 7 ||
		all[0].RequestLimits["createTenant"] != "6 per 60 minute" {
		t.Errorf("org list: %+v", all)
	}
	for flag, want := range map[string]string{
		"": "nothing to set", "--request-limit=nothing=6 per 1 minute": "operationId",
		"--request-limit=listPlatforms=6 per 1 minute": "operationId",
		"--request-limit=getMe=6":                      `"6000 per 1 minute"`,
		"--request-limit=getMe=0 per 1 minute":         `"6000 per 1 minute"`,
	} {
		args := []string{"org", "set", "--org", id, flag}
		if flag == "" {
			args = args[:4]
		}
		if code, text := fails(t, env, args...); code != 1 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", flag, code, text)
		}
	}
}

// TestOrg_Suspend: a suspended organization is refused, until that is taken back.
func TestOrg_Suspend(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	var org struct{ ID, Status string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test", "--expires-in", "1h")
	for _, tt := range []struct {
		flag   []string
		status string
		want   int
	}{{nil, "suspended", http.StatusUnauthorized}, {[]string{"--resume"}, "active", http.StatusOK}} {
		output(t, env, &org, append([]string{"org", "suspend", "--org", org.ID}, tt.flag...)...)
		var at urlFacts
		p := launch(t, env, &at, "serve", "--listen", "127.0.0.1:0")
		if status := get(t, at.URL+"/v1/account/me", key.Key, nil); status != tt.want || org.Status != tt.status {
			t.Errorf("%s: %d, want %d", org.Status, status, tt.want)
		}
		p.stop(t, syscall.SIGINT)
	}
	var all []struct {
		ID   string
		Keys int `json:"active_api_keys"`
	}
	if output(t, env, &all, "org", "list"); len(all) != 1 || all[0].ID != org.ID || all[0].Keys != 1 {
		t.Errorf("org list: %+v", all)
	}
}

// TestAPIKey_Create: a key has the role, the scopes and the end that it was made with.
func TestAPIKey_Create(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	create := []string{"apikey", "create", "--org", org.ID, "--name", "test"}
	for flag, want := range map[string]string{
		"--scope=jobs:all": "record-sets:write", "--scope=jobs:read,jobs": `--scope "jobs"`, "--role=owner": "admin",
		"--expires-in=-1h": "--expires-in",
	} {
		if _, said := fails(t, env, append(create, flag)...); !strings.Contains(said, want) {
			t.Errorf("%s: %s", flag, said)
		}
	}
	var whole, narrow struct{ Key string }
	output(t, env, &whole, create...)
	output(t, env, &narrow, append(create, "--role", "member", "--scope", "jobs:read,account:read", "--scope",
		"stores:write", "--expires-in", "1h")...)
	var at urlFacts
	launch(t, env, &at, "serve", "--listen", "127.0.0.1:0")
	client := apitest.NewClient(t, at.URL, narrow.Key)
	items := client.Do("GET", "/account/api-keys", nil).Want(http.StatusOK).JSON()["items"].([]any)
	for i, want := range []string{"admin <nil> false", "member [account:read jobs:read stores:write] true"} {
		k := items[i].(map[string]any)
		if got := fmt.Sprint(k["role"], " ", k["scopes"], " ", k["expires_at"] != nil); got != want {
			t.Errorf("key %d: %s, want %s", i, got, want)
		}
	}
	client.Do("GET", "/data/stores", nil).Want(http.StatusOK)
	client.Do("GET", "/flows/batches", nil).Detail(http.StatusForbidden, "Scope batches:read required")
	client.Do("POST", "/data/stores", `{"name":"s","fields":[],"layers":["l"]}`).Detail(http.StatusForbidden,
		"Admin role required")
}

// TestOrg_Link: an organization is let in under the name that the identity provider gave it.
func TestOrg_Link(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	issuer := apitest.NewIssuer(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK, "FLOWLANE_JWT_ISSUER=" + apitest.TokenIssuer,
		"FLOWLANE_JWT_AUDIENCE=" + apitest.TokenAudience, "FLOWLANE_JWT_KEYS_URL=" + issuer.KeysURL,
		"FLOWLANE_JWT_ORG_CLAIM=tenant", "FLOWLANE_JWT_ROLE_CLAIM=roles", "FLOWLANE_JWT_ADMIN_ROLE=owner"}
	var acme, other struct {
		ID         string
		ExternalID string `json:"external_id"`
	}
	output(t, env, &acme, "org", "create", "--name", "Acme", "--external-id", "acme-corp")
	output(t, env, &other, "org", "create", "--name", "Other")
	if code, said := fails(t, env, "org", "link", "--org", other.ID, "--external-id", "acme-corp"); code != 1 ||
		!strings.Contains(said, "org list") {
		t.Errorf("a name of another: exit %d, %s", code, said)
	}
	if code, said := fails(t, env, "org", "link", "--org", "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11", "--external-id",
		"x"); code != 1 || !strings.Contains(said, "no organization") {
		t.Errorf("an unknown organization: exit %d, %s", code, said)
	}
	if code, said := fails(t, env, "org", "create", "--name", "Third", "--external-id", "acme-corp"); code != 1 ||
		!strings.Contains(said, "org list") {
		t.Errorf("a name of another: exit %d, %s", code, said)
	}
	output(t, env, &other, "org", "link", "--org", other.ID, "--external-id", "other-corp")
	var at urlFacts
	launch(t, env, &at, "serve", "--listen", "127.0.0.1:0")
	client := apitest.NewClient(t, at.URL, "")
	for name, want := range map[string]string{"acme-corp": acme.ID, "other-corp": other.ID, acme.ID: acme.ID} {
		token := issuer.Token("", map[string]any{"tenant": name, "roles": []string{"viewer", "owner"}})
		me := client.Bearer(token).Do("GET", "/account/me", nil).Want(http.StatusOK).JSON()
		if got := me["organization"].(map[string]any)["id"]; got != want || me["role"] != "admin" {
			t.Errorf("%s: %v, want %s", name, me, want)
		}
	}
	output(t, env, &other, "org", "link", "--org", other.ID, "--external-id", "")
	client.Bearer(issuer.Token("", map[string]any{"tenant": "other-corp", "sub": "user-2"})).Do("GET", "/account/me",
		nil).Want(http.StatusUnauthorized)
	var all []struct {
		ExternalID *string `json:"external_id"`
	}
	output(t, env, &all, "org", "list")
	if len(all) != 2 || all[0].ExternalID == nil || *all[0].ExternalID != "acme-corp" || all[1].ExternalID != nil {
		t.Errorf("org list: %+v", all)
	}
}

func TestRecordsUpload(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	var org struct{ ID string }
	output(t, env, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, env, &key, "apikey", "create", "--org", org.ID, "--name", "test")
	var at urlFacts
	launch(t, env, &at, "serve", "--listen", "127.0.0.1:0")
	env = []string{"FLOWLANE_URL=" + at.URL, "FLOWLANE_API_KEY=" + key.Key}
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, []byte("id,name\n1,Ada\n2,\n3,\"a,b\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var result struct {
		RecordSetID string `json:"record_set_id"`
		Records     int
		ContentHash string `json:"content_hash"`
	}
	output(t, env, &result, "records", "upload", file, "--chunk-size", "2")
	var set struct {
		Status        string
		ReceivedCount int    `json:"received_count"`
		ContentHash   string `json:"content_hash"`
	}
	get(t, at.URL+"/v1/data/record-sets/"+result.RecordSetID, key.Key, &set)
	if set.Status != "sealed" || set.ReceivedCount != 3 || result.Records != 3 ||
		set.ContentHash != result.ContentHash {
		t.Errorf("printed %+v, the server has %+v", result, set)
	}
	if err := os.WriteFile(file, []byte("id,id\n1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, said := fails(t, env, "records", "upload", file); code != 1 || !strings.Contains(said, `both named "id"`) {
		t.Errorf("exit %d, %s", code, said)
	}
}

// TestVaultRewrap replaces the key-encryption key between two servers.
func TestVaultRewrap(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	const next = "CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg="
	old := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + testKEK}
	var org struct{ ID string }
	output(t, old, &org, "org", "create", "--name", "Acme")
	var key struct{ Key string }
	output(t, old, &key, "apikey", "create", "--org", org.ID, "--name", "test")
	var done struct{ Keys int }
	command := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK_COMMAND=echo " + next, "FLOWLANE_OTHER_KEK=" + testKEK}
	output(t, command, &done, "vault", "rewrap")
	if done.Keys != 1 {
		t.Errorf("%d keys", done.Keys)
	}
	if code, said := fails(t, old, "serve", "--listen", "127.0.0.1:0"); code != 1 || !strings.Contains(said,
		"FLOWLANE_KEK") {
		t.Errorf("with the old key: exit %d, %s", code, said)
	}
	var at urlFacts
	launch(t, []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + next}, &at, "serve", "--listen", "127.0.0.1:0")
	var me struct{ Role string }
	if get(t, at.URL+"/v1/account/me", key.Key, &me); me.Role != "admin" {
		t.Errorf("the API key is not known any more: %+v", me)
	}
	output(t, []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK=" + next}, &done, "vault", "rotate")
	if done.Keys != 0 {
		t.Errorf("%d organizations without a secret have keys", done.Keys)
	}
	for _, bad := range []string{"false", "echo c2hvcnQ=", "/nowhere/program"} {
		env := []string{"DATABASE_URL=" + dsn, "FLOWLANE_KEK_COMMAND=" + bad}
		if code, said := fails(t, env, "serve"); code != 1 || !strings.Contains(said, "key-encryption key") {
			t.Errorf("%s: exit %d, %s", bad, code, said)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		env  []string
		args []string
		code int
		says string
	}{
		"unknown command": {nil, []string{"fly"}, 2, "unexpected argument fly"},
		"missing flag":    {nil, []string{"org", "create"}, 2, "--name"},
		"no settings":     {nil, []string{"env"}, 1, "flowlane dev"},
		"no server":       {nil, []string{"demo"}, 1, "FLOWLANE_URL"},
		"no key":          {[]string{"FLOWLANE_URL=http://127.0.0.1:1"}, []string{"demo"}, 1, "FLOWLANE_API_KEY"},
		"server is down": {[]string{"FLOWLANE_URL=http://127.0.0.1:1", "FLOWLANE_API_KEY=flow_x"}, []string{"demo"},
			6, "no server answers"},
		"bad URL": {[]string{"FLOWLANE_URL=localhost", "FLOWLANE_API_KEY=flow_x"}, []string{"demo"}, 1,
			"root of a server"},
		"no database": {nil, []string{"org", "list"}, 1, "DATABASE_URL"},
		"database is down": {[]string{"DATABASE_URL=postgres://a:b@127.0.0.1:1/x"}, []string{"org", "list"}, 1,
			"no Postgres answers"},
		"bad KEK": {[]string{"DATABASE_URL=postgres://a:b@127.0.0.1:1/x", "FLOWLANE_KEK=short"},
			[]string{"serve"}, 1, "32 bytes"},
		"half a provider": {[]string{"DATABASE_URL=postgres://a:b@127.0.0.1:1/x", "FLOWLANE_KEK=" + testKEK},
			[]string{"serve", "--jwt-issuer", "x"}, 1, "--jwt-keys-url"},
		"bad org": {[]string{"DATABASE_URL=postgres://a:b@127.0.0.1:1/x"}, []string{"org", "suspend", "--org",
			"x"}, 1, "org list"},
		"no such file": {nil, []string{"records", "upload", "gone.csv"}, 2, "gone.csv"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if code, said := fails(t, tt.env, tt.args...); code != tt.code || !strings.Contains(said, tt.says) {
				t.Errorf("exit %d, %s", code, said)
			}
		})
	}
}

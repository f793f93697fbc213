package cli_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

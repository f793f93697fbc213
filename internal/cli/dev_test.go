package cli_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

type devFacts struct {
	URL         string `json:"url"`
	APIKey      string `json:"api_key"`
	DatabaseURL string `json:"database_url"`
	SimURL      string `json:"sim_url"`
	EnvFile     string `json:"env_file"`
	FirstStart  bool   `json:"first_start"`
}

type list struct {
	Total int `json:"total"`
	Items []struct {
		ID     string `json:"id"`
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"items"`
}

// TestDev starts a development server three times on one folder: new, after an orderly stop, and after a kill. Each
// start finds what the one before left.
func TestDev(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"dev", "--data-dir", dir, "--listen", "127.0.0.1:0"}
	var first devFacts
	dev := launch(t, nil, &first, args...)
	if !first.FirstStart || !strings.HasPrefix(first.APIKey, "flow_") {
		t.Fatalf("first start: %+v", first)
	}
	for _, kept := range []string{first.SimURL, first.DatabaseURL} {
		// Linux gives ports from 32,768 on to connections: one of them may be taken when the server starts again.
		at, err := url.Parse(kept)
		if err != nil {
			t.Fatal(err)
		}
		if port, err := strconv.Atoi(at.Port()); err != nil || port >= 32_768 {
			t.Errorf("a port that is kept: %q", at.Port())
		}
	}
	checkEnv(t, first)
	var defs list
	if status := get(t, first.URL+"/v1/flows/definitions", first.APIKey, &defs); status != 200 || defs.Total != 1 ||
		defs.Items[0].Name != "bulk-upload" || defs.Items[0].Status != "active" {
		t.Errorf("definitions: %d %+v", status, defs)
	}
	if code, said := fails(t, nil, args...); code != 1 || !strings.Contains(said, "another `flowlane dev`") {
		t.Errorf("a second server on the folder: exit %d, %s", code, said)
	}
	var demo struct {
		Status    string         `json:"status"`
		JobCounts map[string]int `json:"job_counts"`
		Calls     int            `json:"calls"`
	}
	output(t, nil, &demo, "demo", "--records", "2000", "--data-dir", dir)
	if demo.Status != "completed" || demo.JobCounts["accepted"] != 2000 || demo.Calls != 1 {
		t.Errorf("demo: %+v", demo)
	}
	dev.stop(t, syscall.SIGINT)

	for n, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		began := time.Now()
		var again devFacts
		dev = launch(t, nil, &again, args...)
		t.Logf("start %d on kept data: %s", n+2, time.Since(began))
		if again.FirstStart || again.APIKey != "" || again.SimURL != first.SimURL ||
			again.DatabaseURL != first.DatabaseURL {
			t.Errorf("start %d: %+v; first %+v", n+2, again, first)
		}
		var batches list
		if status := get(t, again.URL+"/v1/flows/batches", first.APIKey, &batches); status != 200 ||
			batches.Total != 1 {
			t.Errorf("start %d: batches: %d %+v", n+2, status, batches)
		}
		dev.stop(t, sig)
	}
}

func checkEnv(t *testing.T, f devFacts) {
	t.Helper()
	info, err := os.Stat(f.EnvFile)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %s", f.EnvFile, info.Mode())
	}
	var env map[string]string
	output(t, nil, &env, "env", "--data-dir", filepath.Dir(f.EnvFile))
	want := map[string]string{
		"FLOWLANE_URL": f.URL, "FLOWLANE_API_KEY": f.APIKey, "DATABASE_URL": f.DatabaseURL,
		"FLOWLANE_SIM_URL": f.SimURL,
	}
	for name, value := range want {
		if env[name] != value {
			t.Errorf("%s is %q, want %q", name, env[name], value)
		}
	}
}

// TestDev_OldFolder starts on a folder that an earlier server left in disorder: Postgres was killed, another program
// has the process id of its files by now, and the sockets of two more are there. Flows, keys and secrets are as they
// were.
func TestDev_OldFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"dev", "--data-dir", dir, "--listen", "127.0.0.1:0"}
	var first devFacts
	dev := launch(t, nil, &first, args...)
	env := []string{"FLOWLANE_DATA_DIR=" + dir}
	says(t, env, "", "flows", "create", "--file", testFile(t, "kept.yaml",
		"name: kept\nstatus: active\nsteps: [{id: s, tasks: [{id: t, action_id: dialer__api__upload, credential_id: "+
			"dialer, params: {list: kept, key_field: id, row: '{{ input }}'}}]}]\n"))
	exported := says(t, env, "", "flows", "export")
	var key struct{ Key string }
	output(t, env, &key, "keys", "create", "--name", "another", "--role", "member")

	data := postgresFolder(t, dir)
	pid := postgresID(t, data)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := dev.Wait()
	dev.ended = true
	if code := dev.ProcessState.ExitCode(); err == nil || code != 1 || !strings.Contains(dev.stderr.String(),
		"the embedded Postgres has ended") {
		t.Errorf("after its Postgres was killed: exit %d, %s", code, dev.stderr.String())
	}
	for name, text := range map[string]string{
		"postmaster.pid": fmt.Sprintf("%d\n%s\n", os.Getpid(), data),
		".s.PGSQL.1":     "", ".s.PGSQL.1.lock": "1\n", ".s.PGSQL.2": "", ".s.PGSQL.2.lock": fmt.Sprintf("%d\n",
			os.Getpid()),
	} {
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var again devFacts
	dev = launch(t, nil, &again, args...)
	if again.FirstStart || again.APIKey != "" || again.DatabaseURL != first.DatabaseURL {
		t.Errorf("the next start: %+v; first %+v", again, first)
	}
	if said := says(t, env, "", "flows", "export"); said != exported || !strings.Contains(said, "name: kept\n") {
		t.Errorf("flows: %s, before %s", said, exported)
	}
	for _, key := range []string{first.APIKey, key.Key} {
		if status := get(t, again.URL+"/v1/account/me", key, nil); status != 200 {
			t.Errorf("a key of before: %d", status)
		}
	}
	var tested struct{ Success bool }
	if output(t, env, &tested, "credentials", "test", "dialer"); !tested.Success {
		t.Errorf("a credential of before: %+v", tested)
	}
	says(t, env, "", "run", "kept", testFile(t, "rows.csv", "id\na\n"), "--watch", "--yes")
	for _, gone := range []string{".s.PGSQL.[12]", ".s.PGSQL.[12].lock"} {
		if left, err := filepath.Glob(filepath.Join(data, gone)); err != nil || len(left) > 0 {
			t.Errorf("sockets of servers that are gone: %v, %v", left, err)
		}
	}
	dev.stop(t, syscall.SIGTERM)
}

// postgresFolder is where the Postgres of a data folder has its data.
func postgresFolder(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "pg*", "PG_VERSION"))
	if err != nil || len(found) != 1 {
		t.Fatalf("Postgres's data: %v, %v", found, err)
	}
	data, err := filepath.EvalSymlinks(filepath.Dir(found[0]))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func postgresID(t *testing.T, data string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// TestDev_Starting: who comes before the server is ready is told to wait, not to start one.
func TestDev_Starting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := os.Create(filepath.Join(dir, "dev.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	env := []string{"FLOWLANE_DATA_DIR=" + dir, "XDG_CONFIG_HOME=" + dir}
	if _, said := fails(t, env, "flows", "list"); !strings.Contains(said, "flowlane dev") {
		t.Errorf("without a server: %s", said)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, said := fails(t, env, "flows", "list"); !strings.Contains(said,
		"is starting; try again once it says that it is ready") {
		t.Errorf("while it starts: %s", said)
	}
}

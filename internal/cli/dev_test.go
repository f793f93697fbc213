package cli_test

import (
	"os"
	"path/filepath"
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

// TestDev starts a development server three times on one folder: new, after an orderly stop, and after a kill. Each start
// finds what the one before left.
func TestDev(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"dev", "--data-dir", dir, "--listen", "127.0.0.1:0"}
	var first devFacts
	dev := launch(t, nil, &first, args...)
	if !first.FirstStart || !strings.HasPrefix(first.APIKey, "flow_") {
		t.Fatalf("first start: %+v", first)
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
		if again.FirstStart || again.APIKey != "" || again.SimURL != first.SimURL || again.DatabaseURL != first.DatabaseURL {
			t.Errorf("start %d: %+v; first %+v", n+2, again, first)
		}
		var batches list
		if status := get(t, again.URL+"/v1/flows/batches", first.APIKey, &batches); status != 200 || batches.Total != 1 {
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
		"FLOWLANE_URL": f.URL, "FLOWLANE_API_KEY": f.APIKey, "DATABASE_URL": f.DatabaseURL, "FLOWLANE_SIM_URL": f.SimURL,
	}
	for name, value := range want {
		if env[name] != value {
			t.Errorf("%s is %q, want %q", name, env[name], value)
		}
	}
}

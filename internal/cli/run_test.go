package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestRun takes 50,000 rows from a file to their results.
func TestRun(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	strictFlow(t, l, "strict")
	var text strings.Builder
	text.WriteString("id,name\n")
	for i := range 50_000 {
		fmt.Fprintf(&text, "r%d,Name %d\n", i, i)
	}
	file := testFile(t, "runways.csv", text.String())
	var facts struct {
		Records   int    `json:"record_count"`
		BatchID   string `json:"batch_id"`
		Status    string
		JobCounts map[string]int `json:"job_counts"`
		Estimates []struct {
			Calls int `json:"estimated_calls"`
		}
	}
	results := filepath.Join(t.TempDir(), "results.csv")
	output(t, l.env, &facts, "run", "strict", file, "--yes", "--watch", "--results", results)
	if facts.Status != "completed" || facts.Records != 50_000 || facts.JobCounts["accepted"] != 50_000 ||
		len(facts.Estimates) != 1 || facts.Estimates[0].Calls != 1 {
		t.Errorf("run: %+v", facts)
	}
	written, err := os.ReadFile(results)
	if err != nil || strings.Count(string(written), "\n") != 50_001 {
		t.Errorf("results: %d lines, %v", strings.Count(string(written), "\n"), err)
	}
	// Without --watch it only starts; the same file again makes a batch of its own.
	first := facts.BatchID
	if output(t, l.env, &facts, "run", "strict", file, "--yes", "--priority", "high"); facts.BatchID == first ||
		facts.Status != "queued" {
		t.Errorf("run again: %+v", facts)
	}
	says(t, l.env, "", "batches", "watch", facts.BatchID)
	if code, said := fails(t, l.env, "run", "strict", file); code != 2 || !strings.Contains(said, "--yes") {
		t.Errorf("with nobody there: exit %d, %s", code, said)
	}
	says(t, l.env, "", "flows", "apply", testFile(t, "draft.yaml", "name: later\nsteps: [{id: s, tasks: [{id: t, "+
		"action_id: dialer__api__upload, credential_id: dialer, params: {list: demo, key_field: "+
		"id, row: '{{ input }}'}}]}]"))
	if code, said := fails(t, l.env, "run", "later", file, "--yes"); code != 2 || !strings.Contains(said,
		"--status active") {
		t.Errorf("a draft: exit %d, %s", code, said)
	}
}

// TestRun_AnswerLost: a command whose start was not answered starts nothing twice when it is repeated, be it the way
// of a file or a start alone.
func TestRun_AnswerLost(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	strictFlow(t, l, "strict")
	to, err := url.Parse(l.url)
	if err != nil {
		t.Fatal(err)
	}
	var loses atomic.Bool
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(res *http.Response) error {
			if loses.Load() && strings.HasSuffix(res.Request.URL.Path, "/trigger") {
				return http.ErrAbortHandler
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusInternalServerError) },
	}
	lossy := httptest.NewServer(proxy)
	t.Cleanup(lossy.Close)
	env := append([]string{"XDG_CACHE_HOME=" + t.TempDir()}, l.env...)
	env = append(env, "FLOWLANE_URL="+lossy.URL)
	file := testFile(t, "rows.csv", "id,name\nr1,One\nr2,Two\n")
	batches := func() (ids []string) {
		var list []struct{ ID string }
		output(t, l.env, &list, "batches", "list", "--all")
		for _, b := range list {
			ids = append(ids, b.ID)
		}
		return ids
	}
	loses.Store(true)
	if code, said := fails(t, env, "run", "strict", file, "--yes"); code != 6 ||
		!strings.Contains(said, "the same command goes on with it, and starts it once") {
		t.Errorf("exit %d, %s", code, said)
	}
	first := batches()
	if len(first) != 1 {
		t.Fatalf("batches %v", first)
	}
	loses.Store(false)
	var facts struct {
		BatchID string `json:"batch_id"`
		Records int    `json:"record_count"`
	}
	if output(t, env, &facts, "run", "strict", file, "--yes"); facts.BatchID != first[0] || facts.Records != 2 {
		t.Errorf("repeated: %+v, want batch %s", facts, first[0])
	}
	if output(t, env, &facts, "run", "strict", file, "--yes"); facts.BatchID == first[0] {
		t.Error("a command that was answered is a new one when it is repeated")
	}

	loses.Store(true)
	single := []string{"flows", "trigger", "strict", "--input-data", `{"id":"s","name":"S"}`}
	code, said := fails(t, env, single...)
	_, key, named := strings.Cut(said, "--idempotency-key ")
	if code != 6 || !named {
		t.Fatalf("exit %d, %s", code, said)
	}
	key, _, _ = strings.Cut(key, " ")
	loses.Store(false)
	before := batches()
	says(t, env, "", append(single, "--idempotency-key", key)...)
	if after := batches(); len(before) != 3 || len(after) != 3 {
		t.Errorf("%d batches, then %d", len(before), len(after))
	}
}

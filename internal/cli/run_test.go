package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

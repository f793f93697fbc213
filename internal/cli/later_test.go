package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// later stands before a server and makes its answers those of a later version: every object has one more field, words
// that stand for one of several are others, and streams have an event of a new kind.
func later(t *testing.T, at string) string {
	t.Helper()
	target, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.ModifyResponse = func(res *http.Response) error {
		kind := res.Header.Get("Content-Type")
		if strings.HasPrefix(kind, "text/event-stream") {
			news := strings.NewReader("event: something.new\ndata: {\"what\":[1]}\n\n")
			res.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(news, res.Body), res.Body}
		}
		if !strings.HasPrefix(kind, "application/json") {
			return nil
		}
		var v any
		if err := json.NewDecoder(res.Body).Decode(&v); err != nil {
			return err
		}
		text, err := json.Marshal(grown(v))
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		res.Header.Del("Content-Length")
		return nil
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	return front.URL
}

// grown is a value as a later version has it. job_counts stay numbers by status.
func grown(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = grown(v[i])
		}
	case map[string]any:
		for name, field := range v {
			if name != "job_counts" {
				v[name] = grown(field)
			}
			_, text := field.(string)
			if text && slices.Contains([]string{"trigger_type", "auth_method", "priority", "lane", "input_mode", "type",
				"health"}, name) {
				v[name] = "of_a_later_version"
			}
		}
		v["new_in_a_later_version"] = map[string]any{"a": []any{1}}
	}
	return v
}

// TestLaterServer: commands work with a server whose answers have fields and words that they do not know, and its
// refusals are read.
func TestLaterServer(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	strictFlow(t, l, "strict")
	env := []string{"FLOWLANE_URL=" + later(t, l.url), "FLOWLANE_API_KEY=" + l.key}
	file := testFile(t, "people.csv", "id,n\na,1\n,2\n")
	said := program(t, env, "run", "strict", file, "--yes", "--watch")
	out, err := said.CombinedOutput()
	if said.ProcessState.ExitCode() != 7 || !strings.Contains(string(out), "1 accepted, 1 failed") ||
		!strings.Contains(string(out), "input_invalid") {
		t.Errorf("run: %v\n%s", err, out)
	}
	var facts struct {
		Batch  string `json:"batch_id"`
		Status string
		Calls  int
	}
	if output(t, env, &facts, "demo", "--records", "3"); facts.Status != "completed" || facts.Calls != 1 {
		t.Errorf("demo: %+v", facts)
	}
	if said := says(t, env, "", "executions", "follow", facts.Batch+".0.1"); !strings.Contains(said,
		"execution.closed") {
		t.Errorf("executions follow: %s", said)
	}
	if said := says(t, env, "", "batches", "stream", facts.Batch); !strings.Contains(said, "batch.closed") {
		t.Errorf("batches stream: %s", said)
	}
	if said := says(t, env, "", "open", "--print"); !strings.Contains(said, "/console/login#") {
		t.Errorf("open: %s", said)
	}
	if code, said := fails(t, env, "batches", "get", "unknown"); code != 5 || !strings.Contains(said,
		"Batch not found") || !strings.Contains(said, "Hint: ") {
		t.Errorf("batches get: exit %d, %s", code, said)
	}
}

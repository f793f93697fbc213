package cli_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// unsteady is a way to a server on which streams of batches break: the first after its first event, and all where
// refuse is set.
type unsteady struct {
	proxy  *httputil.ReverseProxy
	to     *url.URL
	refuse bool
	// opened is called when a stream is opened that does not break.
	opened func()

	mu sync.Mutex
	// after is the Last-Event-ID of each stream.
	after []string
	polls int
}

func newUnsteady(t *testing.T, server string) (*unsteady, string) {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u := &unsteady{to: to, proxy: httputil.NewSingleHostReverseProxy(to)}
	u.proxy.FlushInterval = -1
	s := httptest.NewServer(u)
	t.Cleanup(s.Close)
	return u, s.URL
}

func (u *unsteady) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	stream := strings.HasSuffix(r.URL.Path, "/stream")
	u.mu.Lock()
	if stream {
		u.after = append(u.after, r.Header.Get("Last-Event-ID"))
	} else if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/v1/flows/batches/") {
		u.polls++
	}
	n := len(u.after)
	u.mu.Unlock()
	switch {
	case stream && u.refuse:
		http.Error(w, "no streams here", http.StatusBadGateway)
	case stream && n == 1:
		u.first(w, r)
	case stream:
		u.opened()
		fallthrough
	default:
		u.proxy.ServeHTTP(w, r)
	}
}

// first lets the first event of a stream through, and cuts it.
func (u *unsteady) first(w http.ResponseWriter, r *http.Request) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, u.to.String()+r.URL.RequestURI(), nil)
	if err != nil {
		panic(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer res.Body.Close()
	w.Header().Set("Content-Type", res.Header.Get("Content-Type"))
	w.WriteHeader(res.StatusCode)
	data := false
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		_, _ = w.Write(append(lines.Bytes(), '\n')) // who is gone has its reason
		if data = data || strings.HasPrefix(lines.Text(), "data:"); data && lines.Text() == "" {
			break
		}
	}
	w.(http.Flusher).Flush() //nolint:forcetypeassert // the server's own writer is one
	panic(http.ErrAbortHandler)
}

// TestBatches_WatchBroken: a stream that breaks is opened again behind its last event; without streams the batch is
// asked about.
func TestBatches_WatchBroken(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	strictFlow(t, l, "strict")
	start := func() string {
		t.Helper()
		var set struct {
			ID string `json:"record_set_id"`
		}
		output(t, l.env, &set, "records", "upload", testFile(t, "rows.csv", "id,name\na,Ada\n"))
		var batch struct {
			ID string `json:"batch_id"`
		}
		output(t, l.env, &batch, "flows", "trigger", "strict", "--record-set-id", set.ID)
		return batch.ID
	}
	var end struct {
		Status  string
		Records int            `json:"record_count"`
		Counts  map[string]int `json:"job_counts"`
	}
	says(t, l.env, "", "dispatch", "hold")
	id := start()
	u, at := newUnsteady(t, l.url)
	u.opened = func() { says(t, l.env, "", "dispatch", "resume") }
	output(t, l.env, &end, "batches", "watch", id, "--url", at)
	if end.Status != "completed" || end.Records != 1 || end.Counts["accepted"] != 1 {
		t.Errorf("a stream that breaks: %+v", end)
	}
	if len(u.after) < 2 || u.after[0] != "" || slices.Contains(u.after[1:], "") {
		t.Errorf("the streams began after %q", u.after)
	}

	u, at = newUnsteady(t, l.url)
	u.refuse = true
	end.Status = ""
	if output(t, l.env, &end, "batches", "watch", start(), "--url", at); end.Status != "completed" || u.polls == 0 {
		t.Errorf("without streams: %+v after %d questions", end, u.polls)
	}
}

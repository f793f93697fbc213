package api_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
)

// exampleOutput is what the example of each client prints.
const exampleOutput = `stored 2
stored 3
batch partially_failed
0 accepted
1 rejected Row is bad
2 accepted
execution.snapshot
execution.closed
retry completed
1 accepted
404 not_found true
`

// front stands before a service, and lets the first request of each kind fail in the way that faults names.
type front struct {
	*httptest.Server
	t       *testing.T
	service http.Handler
	browser http.Handler // the service without a look at its answers, for what browsers ask before a request
	repair  func()       // called when a retry of a batch arrives

	mu      sync.Mutex
	faults  map[string]string
	notSoon map[string]time.Time // when a request may come again
	resumed string               // the Last-Event-ID of the last request for a stream
	cuts    int                  // answers cut midway
	unkeyed []string
}

// serveFront stands before the stack with an account whose platform refuses bad records until the first retry.
func serveFront(t *testing.T, s *stack, faults map[string]string) *front {
	t.Helper()
	bad := dialersim.Rule{Kind: "equals", Field: "bad", Value: []byte(`"yes"`), Code: "BAD_ROW", Reason: "Row is bad"}
	s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{bad}})
	target, err := url.Parse(s.URL)
	require.NoError(t, err)
	f := &front{
		t: t, faults: faults, notSoon: map[string]time.Time{},
		service: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: apitest.Checked(t, nil),
		},
		browser: httputil.NewSingleHostReverseProxy(target),
		repair:  func() { s.sim.SetAccount("acme", dialersim.AccountSettings{Rules: []dialersim.Rule{}}) },
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// kind names a request without the ids in its path, for example "POST retry".
func kind(r *http.Request) string {
	parts := strings.Split(r.URL.Path, "/")
	last := parts[len(parts)-1]
	if len(parts) > 2 && parts[len(parts)-2] == "batches" {
		last = "batch"
	}
	return r.Method + " " + last
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions {
		f.browser.ServeHTTP(w, r)
		return
	}
	name := kind(r)
	if name == "POST retry" {
		f.repair()
	}
	if name == "POST stream-token" {
		body, err := io.ReadAll(r.Body)
		assert.NoError(f.t, err)
		assert.Contains(f.t, string(body), `"execution_id"`, "a token that opens more than one stream")
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	switch f.fault(name, r) {
	case "busy": // as the service says it, to pages of other origins, too
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	case "cut before":
		panic(http.ErrAbortHandler)
	case "cut after":
		f.service.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case "cut midway":
		answer := httptest.NewRecorder()
		f.service.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		w.Header().Del("Content-Length")
		body := answer.Body.Bytes()
		_, _ = w.Write(body[:f.midway(name, body)])
		_ = http.NewResponseController(w).Flush()
		select { // what has arrived is lost in a browser whose page reads it only after the cut
		case <-r.Context().Done():
		case <-time.After(f.patient()):
		}
		panic(http.ErrAbortHandler)
	default:
		f.service.ServeHTTP(w, r)
	}
}

// fault takes the fault that is to befall a request, and notes what is to be checked of it.
func (f *front) fault(name string, r *http.Request) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault := f.faults[name]
	if name == "GET stream" {
		// Who read nothing before the cut is cut again.
		f.resumed = r.Header.Get("Last-Event-ID")
		if fault != "" && f.resumed == "" {
			return fault
		}
		fault = ""
	}
	delete(f.faults, name)
	if may, ok := f.notSoon[name]; ok {
		assert.False(f.t, time.Now().Before(may), "%s came again before its Retry-After", name)
		delete(f.notSoon, name)
	}
	if fault == "busy" {
		f.notSoon[name] = time.Now().Add(time.Second)
	}
	switch name {
	case "POST credentials", "POST definitions", "POST record-sets", "POST trigger", "POST retry":
		if r.Header.Get("Idempotency-Key") == "" {
			f.unkeyed = append(f.unkeyed, name)
		}
	}
	return fault
}

// patient is how long a cut waits for its reader: longer each time.
func (f *front) patient() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cuts++
	return time.Duration(f.cuts) * 200 * time.Millisecond
}

// midway is the place in a body where it is cut: after the first event, or within the second line.
func (f *front) midway(name string, body []byte) int {
	if name != "GET stream" {
		return bytes.IndexByte(body, '\n') + 10
	}
	data := bytes.Index(body, []byte("data:"))
	return data + bytes.Index(body[data:], []byte("\n\n")) + 2
}

// check says what must hold once an example has run through.
func (f *front) check(s *stack) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.Empty(f.t, f.faults, "faults that befell nothing")
	assert.Empty(f.t, f.notSoon, "what was busy and not asked again")
	assert.Empty(f.t, f.unkeyed, "requests without an Idempotency-Key")
	for path, n := range map[string]int{"/credentials": 2, "/flows/definitions": 1, "/data/record-sets": 1,
		"/flows/batches": 2} {
		assert.Len(f.t, s.pages(path, 10), n, path)
	}
	assert.Equal(f.t, 1, s.sim.Arrivals("example")["a"], "arrivals of the first record")
}

// purposely is how each kind of request of an example fails once.
func purposely() map[string]string {
	return map[string]string{
		"POST credentials": "cut after", "POST record-sets": "cut after", "POST records": "busy",
		"POST seal":    "cut before",
		"POST trigger": "cut after", "GET batch": "cut before", "GET results": "cut midway",
		"POST stream-token": "cut after",
		"GET stream":        "cut midway", "POST retry": "cut after",
	}
}

// runExample has an example run twice: with a service that works, and with one that fails on purpose.
func runExample(t *testing.T, run func(t *testing.T, env []string) string, options ...func(c *app.Config)) {
	t.Helper()
	for name, faults := range map[string]map[string]string{"Live": {}, "Failing": purposely()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveStack(t, true, options...)
			failing := len(faults) > 0
			f := serveFront(t, s, faults)
			env := []string{"FLOWLANE_URL=" + f.URL + "/v1/", "FLOWLANE_API_KEY=" + s.Key}
			assert.Equal(t, exampleOutput, run(t, env))
			f.check(s)
			assert.Equal(t, failing, f.resumed != "", "a stream that was cut goes on after its last event")
		})
	}
}

// TestSDK_TypeScript runs the example of the TypeScript client as somebody would who has installed it.
func TestSDK_TypeScript(t *testing.T) {
	t.Parallel()
	dir := project(t)
	compiler, err := filepath.Abs(filepath.Join(typeScript, "node_modules/typescript/bin/tsc"))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(typeScript, "examples/main.ts"))
	require.NoError(t, err)
	write(t, dir, "main.mts", string(text))
	node(t, nil, compiler, "--strict", "--module", "nodenext", "--target", "es2022", "--lib",
		"es2022,dom,dom.asynciterable",
		filepath.Join(dir, "main.mts"))
	runExample(t, func(t *testing.T, env []string) string {
		t.Helper()
		return string(node(t, env, filepath.Join(dir, "main.mjs")))
	})
}

package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// retryProgram notes how long the client means to wait, and does not wait so long.
const retryProgram = asModule + `
const seen = {}, real = globalThis.setTimeout;
let waits, stop, silent;
globalThis.setTimeout = (then, ms, ...rest) => {
  if (!new Error().stack.includes('@flowlane')) return real(then, ms, ...rest); // fetch has timers of its own
  waits.push(Math.round(ms));
  if (ms === 45000) return real(then, silent ? 0 : ms, ...rest);
  if (stop) return real(stop, 0);
  return real(then, 0, ...rest);
};
async function attempt(name, call, abort) {
  const client = new flow.Flowlane({ url: process.env.FLOWLANE_URL + '/' + name, apiKey: 'k', retries: 2, backoff: 1 });
  const signal = new AbortController();
  waits = [];
  silent = name === 'silent';
  stop = abort && (() => signal.abort(new Error('enough')));
  let said = 'done';
  try {
    await call(client, signal.signal);
  } catch (e) {
    said = e.name + (e.status ? ' ' + e.status : '') + (e.message === 'enough' ? ' enough' : '');
  }
  const longest = Math.max(0, ...waits.filter((ms) => ms !== 45000));
  seen[name] = said + (longest > 2 ? ' after ' + longest : '');
}
const me = (client, signal) => client.account.getMe({ signal });
const results = async (client) => {
  for await (const _ of client.batches.results('b'));
};
await attempt('date', me);
await attempt('seconds', me);
await attempt('past', me);
await attempt('nonsense', me);
await attempt('abort', me, true);
await attempt('unkeyed', (client) => client.account.createApiKey({ body: { name: 'x' } }));
await attempt('keyed', (client) => client.records.create({}));
await attempt('cutanswer', me);
await attempt('cutkeyless', (client) => client.account.createApiKey({ body: { name: 'x' } }));
await attempt('cutstream', results);
const follow = async (client, signal) => {
  for await (const { id } of client.executions.follow('e', { signal })) seen.events += id;
};
seen.events = '';
for (const way of ['cutevents', 'idle', 'silent', 'refused']) await attempt(way, follow);
process.stdout.write(JSON.stringify(seen));
`

// faultyServer fails on purpose, in the way that the first part of a path names, and counts the requests of each way
// and the idempotency keys that they had.
type faultyServer struct {
	mu    sync.Mutex
	calls map[string]int
	keys  map[string]bool
	// streams counts the requests for streams of events.
	streams map[string]int
}

func (f *faultyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	way := r.PathValue("way")
	f.mu.Lock()
	f.calls[way]++
	calls := f.calls[way]
	f.keys[way+" "+r.Header.Get("Idempotency-Key")] = true
	f.mu.Unlock()
	after := map[string]string{
		"date": "Thu, 01 Jan 2026 00:01:00 GMT", "seconds": "30", "past": "Wed, 31 Dec 2025 00:00:00 GMT",
		"nonsense": "soon", "abort": "60",
	}
	switch way {
	case "unkeyed", "keyed":
		w.WriteHeader(http.StatusBadGateway)
	case "cutanswer", "cutkeyless":
		panic(http.ErrAbortHandler)
	case "cutstream":
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, `{"job_id":`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "cutevents", "idle", "silent", "refused":
		f.stream(w, r, way)
	default:
		if calls > 1 {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
			return
		}
		w.Header()["Date"] = []string{"Thu, 01 Jan 2026 00:00:00 GMT"}
		w.Header().Set("Retry-After", after[way])
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// stream is one of events that is cut after the first, or has none: for ever, until the tenth request, or in silence.
func (f *faultyServer) stream(w http.ResponseWriter, r *http.Request, way string) {
	if r.Method == http.MethodPost {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"token":"t"}`)
		return
	}
	f.mu.Lock()
	f.streams[way]++
	opened := f.streams[way]
	f.mu.Unlock()
	if way == "refused" && opened > 1 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	text := ""
	switch {
	case way == "idle" && opened < 10:
		text = ":\n\n"
	case way == "idle":
		text = "id: 9\nevent: execution.closed\ndata: {}\n\n"
	case way != "silent" && opened == 1:
		text = "id: 1\nevent: execution.snapshot\ndata: {}\n\n"
	}
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
	if way == "silent" {
		<-r.Context().Done()
	}
}

// TestSDK_TypeScript_Retries: the client waits as long as it is told, sends nothing twice that may happen twice, can be
// stopped while it waits, and says so when there is no getting through.
func TestSDK_TypeScript_Retries(t *testing.T) {
	t.Parallel()
	dir := project(t)
	faulty := &faultyServer{calls: map[string]int{}, keys: map[string]bool{}, streams: map[string]int{}}
	mux := http.NewServeMux()
	mux.Handle("/{way}/v1/", faulty)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	write(t, dir, "retry.mjs", retryProgram)
	assert.JSONEq(t, `{
		"date": "done after 60000", "seconds": "done after 30000", "past": "done", "nonsense": "done", "abort": "Error enough after 60000",
		"unkeyed": "ServerError 502", "keyed": "ServerError 502", "cutanswer": "NetworkError", "cutkeyless": "NetworkError", "cutstream": "NetworkError",
		"cutevents": "NetworkError", "idle": "done", "silent": "NetworkError", "refused": "NotFoundError 404", "events": "191"
	}`, string(node(t, []string{"FLOWLANE_URL=" + server.URL}, filepath.Join(dir, "retry.mjs"))))
	assert.Equal(t, map[string]int{
		"date": 2, "seconds": 2, "past": 2, "nonsense": 2, "abort": 1, "unkeyed": 1, "keyed": 3, "cutanswer": 3,
		"cutkeyless": 1, "cutstream": 3,
		"cutevents": 6, "idle": 20, "silent": 6, "refused": 4,
	}, faulty.calls)
	assert.Equal(t, map[string]int{"cutevents": 3, "idle": 10, "silent": 3, "refused": 2}, faulty.streams)
	keyed := 0
	for key := range faulty.keys {
		if after, ok := strings.CutPrefix(key, "keyed "); ok && after != "" {
			keyed++
		}
	}
	assert.Equal(t, 1, keyed, "each attempt has the same key")
}

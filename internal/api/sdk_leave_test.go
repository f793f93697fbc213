package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// leaveProgram reads no further than the first of what happens and of the results, and asks what of it is still open.
// Then it uploads what is refused to a service that does not delete the set: it notes the bound of that and waits less.
const leaveProgram = asModule + `
const url = process.env.FLOWLANE_URL;
const client = new flow.Flowlane({ url, apiKey: 'k', backoff: 1 });
const seen = [];
for await (const { event } of client.executions.follow('e')) {
  seen.push(event);
  break;
}
for await (const { position } of client.batches.results('b')) {
  seen.push(position);
  break;
}
seen.push(await (await fetch(url + '/open')).text());
const real = AbortSignal.timeout;
AbortSignal.timeout = (ms) => {
  seen.push(ms);
  return real.call(AbortSignal, 100);
};
for (const way of ['hangs', 'busy']) {
  const client = new flow.Flowlane({ url: url + '/' + way, apiKey: 'k', backoff: 1 });
  seen.push(await client.records.upload([{}]).catch((error) => error.name));
}
process.stdout.write(JSON.stringify(seen), () => process.exit()); // also where something is open
`

// TestSDK_TypeScript_Leave: who reads no further leaves no connection open, and a failed upload does not wait for long
// until its set is deleted.
func TestSDK_TypeScript_Leave(t *testing.T) {
	t.Parallel()
	dir := project(t)
	ended := make(chan string, 2)
	var deletions atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := map[string]string{
			"stream": "id: 1\nevent: execution.snapshot\ndata: {}\n\n", "results": `{"position":0}` + "\n",
		}[filepath.Base(r.URL.Path)]
		switch {
		case first != "":
			_, _ = io.WriteString(w, first)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			ended <- filepath.Base(r.URL.Path)
		case r.URL.Path == "/open":
			for range 2 {
				select {
				case <-ended:
				case <-time.After(10 * time.Second):
					_, _ = io.WriteString(w, "open")
				}
			}
		case r.Method == http.MethodDelete:
			deletions.Add(1)
			if strings.HasPrefix(r.URL.Path, "/hangs/") {
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Second):
				}
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		case filepath.Base(r.URL.Path) == "records":
			w.WriteHeader(http.StatusUnprocessableEntity)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"s","token":"t"}`)
		}
	}))
	t.Cleanup(server.Close)
	write(t, dir, "leave.mjs", leaveProgram)
	out := node(t, []string{"FLOWLANE_URL=" + server.URL}, filepath.Join(dir, "leave.mjs"))
	assert.JSONEq(t, `["execution.snapshot", 0, "", 5000, "ValidationError", 5000, "ValidationError"]`, string(out))
	assert.Equal(t, int32(2), deletions.Load(), "one attempt each")
}

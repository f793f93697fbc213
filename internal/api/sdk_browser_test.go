package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/servers"
)

// pageText has a browser run a program of Node's: it lends it a process, and sends home what it prints.
const pageText = `<!doctype html>
<script type="importmap">{"imports":{"@flowlane/client":"/client/index.js"}}</script>
<script type="module">
let text = '';
globalThis.process = { env: %s, stdout: { write: (part) => { text += part; } } };
console.log = (...parts) => { text += parts.join(' ') + '\n'; };
await import('/program.js').catch((error) => { text += error.stack; });
await fetch(location, { method: 'POST', body: text });
</script>
`

// page is an origin whose pages run a program in a real browser.
type page struct {
	*httptest.Server
	mux *http.ServeMux
}

// newPage serves a program, and the modules of the client as they were installed in dir.
func newPage(t *testing.T, dir, program string) *page {
	t.Helper()
	p := &page{mux: http.NewServeMux()}
	modules := http.FileServer(http.Dir(filepath.Join(dir, "node_modules/@flowlane/client/dist/esm")))
	p.mux.Handle("GET /client/", http.StripPrefix("/client/", modules))
	p.mux.HandleFunc("GET /program.js", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, program) })
	p.Server = httptest.NewServer(p.mux)
	t.Cleanup(p.Close)
	return p
}

// serve has the service behind the origin of the pages, too.
func (p *page) serve(t *testing.T, service string) {
	t.Helper()
	target, err := url.Parse(service)
	require.NoError(t, err)
	p.mux.Handle("/v1/", httputil.NewSingleHostReverseProxy(target))
}

// open runs the program in a browser with these variables, and returns what it prints.
func (p *page) open(t *testing.T, env ...string) string {
	t.Helper()
	variables := map[string]string{}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		variables[name] = value
	}
	script, err := json.Marshal(variables)
	require.NoError(t, err)
	printed := make(chan string, 1)
	path := "/page/" + variables["FLOWLANE_API_KEY"]
	p.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, pageText, script)
	})
	p.mux.HandleFunc("POST "+path, func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		printed <- string(text)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// With a port for debuggers it stays until it is stopped.
	cmd := servers.Browser(ctx, t, "--no-proxy-server", "--remote-debugging-port=0", p.URL+path)
	require.NoError(t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	select {
	case text := <-printed:
		return text
	case <-ctx.Done():
		t.Fatal("the page printed nothing")
		return ""
	}
}

// TestSDK_TypeScript_Browser runs the example in a real browser, on a page of an origin that the service takes: with
// the modules of the package as they are, without a build.
func TestSDK_TypeScript_Browser(t *testing.T) {
	t.Parallel()
	dir := project(t)
	example, err := filepath.Abs(filepath.Join(typeScript, "examples/main.ts"))
	require.NoError(t, err)
	program := filepath.Join(dir, "program.js")
	execute(t, dir, nil, bundler(t), example, "--format=esm", "--target=es2022", "--outfile="+program)
	p := newPage(t, dir, program)
	runExample(t, func(t *testing.T, env []string) string {
		t.Helper()
		return p.open(t, env...)
	}, func(c *app.Config) { c.Front.Origins = []string{p.URL} })
}

// directProgram asks the service at its own address, which is not that of the page.
const directProgram = `
const direct = new flow.Flowlane({ url: process.env.DIRECT, apiKey: process.env.FLOWLANE_API_KEY, retries: 1, backoff: 1 });
process.stdout.write(await direct.account.getMe().catch((e) => '\n' + e.name));
`

// TestSDK_TypeScript_Bundle bundles the client with a program of files and signatures for a page of the service's own
// origin, and sees that no page of another origin is let in that the service was not told of.
func TestSDK_TypeScript_Bundle(t *testing.T) {
	t.Parallel()
	dir := project(t)
	write(t, dir, "files.mjs", filesProgram+directProgram)
	program := filepath.Join(dir, "program.js")
	execute(t, dir, nil, bundler(t), "files.mjs", "--bundle", "--minify", "--format=esm", "--outfile="+program)
	s := serveStack(t, false)
	p := newPage(t, dir, program)
	p.serve(t, s.URL)
	out := p.open(t, "FLOWLANE_URL="+p.URL, "FLOWLANE_API_KEY="+s.Key, "DEFINITION="+s.define(uploadSteps), "DIRECT="+
		s.URL)
	seen, direct, _ := strings.Cut(out, "\n")
	s.checkFiles(seen)
	assert.Equal(t, "NetworkError", direct)
}

// bundler is esbuild, which `npm ci` installs with what packs the client.
func bundler(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(typeScript, "node_modules/.bin/esbuild"))
	require.NoError(t, err)
	return path
}

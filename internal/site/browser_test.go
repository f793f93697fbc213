package site_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane"
	"flowlane/docs"
	"flowlane/internal/reference"
	"flowlane/internal/site"
	"flowlane/test/servers"
)

// framed shows all pages at once, each in a frame as narrow as a telephone, and writes down of each what a look at it
// would find: no heading, something that is wider than the page, a link to a place in it that is not there, where else
// in the site it leads.
const framed = `<!doctype html><title>All pages</title><body>
%s<script>
addEventListener("load", () => {
  const found = []
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, at = new URL(frame.src).pathname
    if (!page.querySelector("h1")) found.push(at + " has no heading")
    if (page.documentElement.scrollWidth > page.documentElement.clientWidth) found.push(at + " is wider than its window")
    for (const image of page.images) if (!image.naturalWidth) found.push(at + " does not show " + image.src)
    for (const link of page.querySelectorAll("a[href]")) {
      const to = new URL(link.href)
      if (to.host != location.host) continue
      if (to.pathname != at) found.push("link " + at + " " + to.pathname)
      else if (to.hash.length > 1 && !page.getElementById(decodeURIComponent(to.hash.slice(1)))) found.push(at + " has no place " + to.hash)
    }
  }
  document.body.innerText = [...new Set(found), "looked at " + document.querySelectorAll("iframe").length].join("\n")
})
</script>`

// TestBrowser: a real browser that opens every page and the reference asks nobody but the service, has no errors to
// tell of, and finds nothing out of its place. All its requests go to a proxy, which writes down for whom they are; a
// page that loads something from elsewhere shows that the proxy would see that.
func TestBrowser(t *testing.T) {
	t.Parallel()
	pages, err := site.New(docs.Files, site.Options{})
	require.NoError(t, err)
	handler := pages.Handler("/docs")
	operations, err := reference.Page(flowlane.OpenAPI, nil)
	require.NoError(t, err)
	known := map[string]bool{"/docs/reference": true, "/docs/": true, "/openapi.yaml": true, "/openapi.json": true}
	var frames strings.Builder
	frames.WriteString(`<iframe width=500 src="/docs/reference"></iframe>`)
	for _, at := range pages.Paths() {
		known["/docs/"+at], known["/docs/"+strings.TrimSuffix(at, "index.html")] = true, true
		if strings.HasSuffix(at, ".html") {
			frames.WriteString(`<iframe width=500 src="/docs/` + at + `"></iframe>`)
		}
	}
	all := fmt.Sprintf(framed, frames.String())
	asked := map[string]bool{}
	var mu sync.Mutex
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		host, _, _ := strings.Cut(r.Host, ":")
		// Whom the browser asks by itself: for the time, for accounts, and for newer parts of itself.
		if !strings.HasSuffix(host, ".google.com") && host != "update.googleapis.com" {
			asked[host+r.URL.Path] = true
		}
		mu.Unlock()
		switch host {
		case "flowlane.test":
			if r.URL.Path == "/docs/reference" { // without its policy, which would keep the browser from asking
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				_, _ = w.Write(operations)
				return
			}
			if r.URL.Path == "/docs/all" {
				w.Header().Set("Content-Type", "text/html")
				_, _ = w.Write([]byte(all))
				return
			}
			handler.ServeHTTP(unguarded{w}, r)
		case "other.test":
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(`<img src="http://elsewhere.test/a.png"><script>console.error("not in order")</script>`))
		default:
			http.Error(w, "not here", http.StatusBadGateway)
		}
	}))
	defer proxy.Close()
	open := func(address string) (page, console string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := servers.Browser(ctx, t, "--proxy-server="+proxy.URL, "--enable-logging=stderr", "--dump-dom", address)
		var said strings.Builder
		cmd.Stderr = &said
		text, err := cmd.Output()
		require.NoError(t, err, address)
		for line := range strings.Lines(said.String()) {
			if strings.Contains(line, ":CONSOLE") {
				console += line
			}
		}
		return string(text), console
	}
	page, console := open("http://flowlane.test/docs/all")
	assert.Empty(t, console)
	require.Contains(t, page, fmt.Sprintf("looked at %d", strings.Count(all, "<iframe ")))
	_, body, _ := strings.Cut(page, "<body>")
	for line := range strings.SplitSeq(strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(body), "</body></html>"),
		"<br>", "\n"), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "link" {
			assert.True(t, known[fields[2]], "%s leads to %s, which is not there", fields[1], fields[2])
		} else if !strings.HasPrefix(line, "looked at ") {
			t.Error(line)
		}
	}
	mu.Lock()
	assert.True(t, asked["flowlane.test/docs/style.css"])
	for address := range asked {
		assert.True(t, strings.HasPrefix(address, "flowlane.test/"), address)
	}
	mu.Unlock()
	_, console = open("http://other.test/")
	assert.Contains(t, console, "not in order", "the console is heard")
	mu.Lock()
	defer mu.Unlock()
	assert.True(t, asked["elsewhere.test/a.png"])
}

// unguarded leaves out the policy of pages, which would keep the browser from asking, and from showing them in a frame.
type unguarded struct{ http.ResponseWriter }

func (u unguarded) WriteHeader(status int) {
	u.Header().Del("Content-Security-Policy")
	u.Header().Del("X-Frame-Options")
	u.ResponseWriter.WriteHeader(status)
}

func (u unguarded) Write(text []byte) (int, error) {
	u.Header().Del("Content-Security-Policy")
	return u.ResponseWriter.Write(text) //nolint:wrapcheck // as it is
}

package site_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
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
)

// TestBrowser: a real browser that opens pages and the reference asks nobody but the service. All its requests go to a
// proxy, which writes down for whom they are; a page that loads something from elsewhere shows that the proxy would see that.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("left out: there is no chromium on this machine")
	}
	pages, err := site.New(docs.Files, site.Options{})
	require.NoError(t, err)
	handler := pages.Handler("/docs")
	operations, err := reference.Page(flowlane.OpenAPI, nil)
	require.NoError(t, err)
	asked := map[string]bool{}
	var mu sync.Mutex
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		host, _, _ := strings.Cut(r.Host, ":")
		if !strings.HasSuffix(host, ".google.com") { // whom the browser asks by itself, for the time and for accounts
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
			handler.ServeHTTP(w, r)
		case "other.test":
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(`<img src="http://elsewhere.test/a.png">`))
		default:
			http.Error(w, "not here", http.StatusBadGateway)
		}
	}))
	defer proxy.Close()
	open := func(address string) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
			"--user-data-dir="+t.TempDir(), "--proxy-server="+proxy.URL, "--dump-dom", address)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		page, err := cmd.Output()
		require.NoError(t, err, address)
		return string(page)
	}
	for _, page := range []string{"", "cli.html", "platforms/", "reference"} {
		assert.Contains(t, open("http://flowlane.test/docs/"+page), "<h1", page)
	}
	mu.Lock()
	assert.True(t, asked["flowlane.test/docs/style.css"])
	for address := range asked {
		assert.True(t, strings.HasPrefix(address, "flowlane.test/"), address)
	}
	mu.Unlock()
	open("http://other.test/")
	mu.Lock()
	defer mu.Unlock()
	assert.True(t, asked["elsewhere.test/a.png"])
}

package console_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/console"
)

func TestConsole(t *testing.T) {
	t.Parallel()
	handler := console.Handler()
	get := func(method, path string, header ...string) *httptest.ResponseRecorder {
		req := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, req)
		return rec
	}
	page := get(http.MethodGet, "/console/")
	require.Equal(t, http.StatusOK, page.Code)
	assert.Equal(t, "no-cache", page.Header().Get("Cache-Control"))
	policy := page.Header().Get("Content-Security-Policy")
	for _, rule := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
		"require-trusted-types-for 'script'"} {
		assert.Contains(t, policy, rule)
	}
	assert.NotContains(t, policy, "unsafe")
	assert.NotContains(t, page.Body.String(), "<script>", "inline code would not run")

	script := regexp.MustCompile(`src="(/console/assets/[^"]+\.js)"`).FindStringSubmatch(page.Body.String())
	require.Len(t, script, 2)
	asset := get(http.MethodGet, script[1], "Accept-Encoding", "gzip, br")
	assert.Equal(t, http.StatusOK, asset.Code)
	assert.Equal(t, "gzip", asset.Header().Get("Content-Encoding"))
	assert.Contains(t, asset.Header().Get("Cache-Control"), "immutable")
	assert.True(t, strings.HasPrefix(asset.Header().Get("Content-Type"), "text/javascript"))
	assert.Empty(t, get(http.MethodGet, script[1]).Header().Get("Content-Encoding"))
	assert.Equal(t, http.StatusNotModified, get(http.MethodGet, script[1], "If-None-Match",
		asset.Header().Get("ETag")).Code)

	// A screen of the page is the page; a file that is gone is not.
	assert.Equal(t, page.Body.String(), get(http.MethodGet,
		"/console/batches/01981f6e-3f1a-7c36-a6bc-5bb7b0b0c2aa").Body.String())
	assert.Equal(t, http.StatusNotFound, get(http.MethodGet, "/console/assets/gone.js").Code)
	assert.Equal(t, http.StatusMethodNotAllowed, get(http.MethodPost, "/console/").Code)
	moved := get(http.MethodGet, "/console")
	assert.Equal(t, []any{http.StatusMovedPermanently, "/console/"}, []any{moved.Code, moved.Header().Get("Location")})
}

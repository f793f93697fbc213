package app_test

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane"
	"flowlane/internal/api"
)

// TestDocs: the document and its reference are served without a key, need nothing from elsewhere, and lead to every
// place that errors name.
func TestDocs(t *testing.T) {
	t.Parallel()
	p := start(t)
	read := func(path string, header ...string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+path, http.NoBody)
		require.NoError(t, err)
		if len(header) == 2 {
			req.Header.Set(header[0], header[1])
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res, string(text)
	}

	res, text := read("/openapi.yaml")
	assert.Equal(t, "application/yaml", res.Header.Get("Content-Type"))
	assert.Equal(t, string(flowlane.OpenAPI), text)
	again, _ := read("/openapi.yaml", "If-None-Match", res.Header.Get("ETag"))
	assert.Equal(t, http.StatusNotModified, again.StatusCode)

	_, text = read("/openapi.json")
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]json.RawMessage }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &doc))
	assert.Equal(t, "3.1.0", doc.OpenAPI)

	res, text = read("/docs") // leads to the pages, and these to the reference
	assert.Equal(t, "/docs/", res.Request.URL.Path)
	assert.Contains(t, text, `<a href="flows.html">Flows</a>`)
	assert.Contains(t, text, `<a href="reference">Reference</a>`)
	assert.Contains(t, res.Header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'self'")
	res, _ = read("/docs/style.css")
	assert.Equal(t, "text/css; charset=utf-8", res.Header.Get("Content-Type"))
	res, _ = read("/docs/none.html")
	assert.Equal(t, http.StatusNotFound, res.StatusCode)

	res, text = read("/docs/reference")
	assert.Equal(t, http.StatusOK, res.StatusCode)
	assert.Equal(t, "text/html; charset=utf-8", res.Header.Get("Content-Type"))
	assert.Contains(t, res.Header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-")
	assert.NotContains(t, text, "<script")
	assert.NotRegexp(t, `(?i)(src|@import|url\()\s*=?\s*["']?(https?:)?//`, text)
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(text, -1) {
		assert.False(t, ids[m[1]], "%s stands twice", m[1])
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(text, -1) {
		assert.True(t, ids[m[1]], "the link #%s leads nowhere", m[1])
	}
	for _, code := range api.Codes() {
		assert.True(t, ids["error-"+code.Code], code.Code)
	}
	for path, item := range doc.Paths {
		for method, operation := range item {
			var o struct{ OperationID string }
			if !slices.Contains([]string{"get", "post", "put", "patch", "delete"}, method) {
				continue
			}
			require.NoError(t, json.Unmarshal(operation, &o))
			assert.True(t, ids[o.OperationID], "%s %s", method, path)
		}
	}
	for name := range doc.Components.Schemas {
		assert.True(t, ids["schema-"+name], name)
	}
}

package api_test

import (
	"net/http"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/api/violation"
	"flowlane/internal/app"
)

// catalogPaths are the reads of the catalog, all that the document has.
func catalogPaths(t *testing.T) (out []string) {
	t.Helper()
	doc, err := violation.Document()
	require.NoError(t, err)
	names := strings.NewReplacer("{platform_id}", "core", "{service_id}", "core__flow", "{action_id}",
		"core__flow__transform")
	for path := range doc["paths"].(map[string]any) {
		if strings.HasPrefix(path, "/catalog/") && !strings.HasPrefix(path, "/catalog/imports") {
			out = append(out, names.Replace(path))
		}
	}
	sort.Strings(out)
	return out
}

// TestCatalog_ETag asks every read of the catalog whether it has changed.
func TestCatalog_ETag(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.As("")
	paths := catalogPaths(t)
	assert.Len(t, paths, 8)
	for _, path := range append(paths, "/catalog/actions?limit=1", "/catalog/services?order=desc&skip=1") {
		first := c.Do(http.MethodGet, path, nil).Want(http.StatusOK)
		tag := first.Header.Get("ETag")
		require.Regexp(t, `^W/"[0-9a-f]{24}"$`, tag, path)
		assert.Equal(t, "public, no-cache", first.Header.Get("Cache-Control"), path)
		for _, known := range []string{tag, strings.TrimPrefix(tag, "W/"), "*", `"other", ` + tag, tag + `,"other"`} {
			got := c.Do(http.MethodGet, path, nil, "If-None-Match", known).Want(http.StatusNotModified)
			assert.Empty(t, got.Body, path)
			assert.Equal(t, tag, got.Header.Get("ETag"), path)
			assert.Equal(t, "public, no-cache", got.Header.Get("Cache-Control"), path)
		}
		for _, other := range []string{`"other"`, "", strings.Trim(tag, `W/"`), strings.Replace(tag, `"`, `"0`, 1),
			`W/"*"`} {
			again := c.Do(http.MethodGet, path, nil, "If-None-Match", other).Want(http.StatusOK)
			assert.JSONEq(t, string(first.Body), string(again.Body), path)
			assert.Equal(t, tag, again.Header.Get("ETag"), path)
		}
	}
	for path, detail := range map[string]string{
		"/catalog/platforms/nowhere": "Platform not found", "/catalog/services/nowhere": "Service not found",
		"/catalog/actions/nowhere":          "Action not found",
		"/catalog/services/nowhere/actions": "Service not found",
	} {
		c.Do(http.MethodGet, path, nil, "If-None-Match", "*").Detail(http.StatusNotFound, detail)
	}
	c.Do(http.MethodGet, "/catalog/actions?limit=0", nil, "If-None-Match",
		"*").Invalid("query.limit greater_than_equal")
	c.Do(http.MethodGet, "/catalog/services?cursor=x", nil, "If-None-Match", "*").Detail(http.StatusBadRequest,
		"Invalid cursor")
}

// TestCatalog_ETagOfAnother: processes with one catalog agree on its tag, and those with different ones differ.
func TestCatalog_ETagOfAnother(t *testing.T) {
	t.Parallel()
	s := serveStack(t, false)
	const path = "/catalog/services"
	tag := s.Do(http.MethodGet, path, nil).Want(http.StatusOK).Header.Get("ETag")
	s.replica().Do(http.MethodGet, path, nil, "If-None-Match", tag).Want(http.StatusNotModified)
	s.replica(func(c *app.Config) { c.BaseURLs = map[string]string{"dialer": "http://127.0.0.1:9"} }).Do(http.MethodGet,
		path, nil, "If-None-Match", tag).Want(http.StatusOK)
}

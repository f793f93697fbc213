package site_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"flowlane/docs"
	"flowlane/internal/site"
)

// element is what a test needs of an element of a page.
type element struct{ tag, name, value string }

// addresses are the attributes of a page that name something: where it links to, what it loads, what can be linked to.
func addresses(t *testing.T, page []byte) (out []element) {
	t.Helper()
	tree, err := html.Parse(strings.NewReader(string(page)))
	require.NoError(t, err)
	for n := range tree.Descendants() {
		for _, a := range n.Attr {
			switch a.Key {
			case "href", "src", "id", "srcset", "action", "data", "style":
				out = append(out, element{n.Data, a.Key, a.Val})
			}
		}
		if n.Type == html.ElementNode && (n.Data == "script" || n.Data == "iframe" || n.Data == "style") {
			out = append(out, element{n.Data, "element", ""})
		}
	}
	return out
}

func picture(at string) bool { return path.Ext(at) == ".webp" || path.Ext(at) == ".svg" }

// TestLinks: every link leads to a page and an anchor that are there, and nothing is loaded from elsewhere.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, err := site.New(docs.Files, site.Options{})
	require.NoError(t, err)
	anchors := map[string]bool{}
	for _, at := range pages.Paths() {
		anchors[at] = true
		if picture(at) {
			continue
		}
		text, _ := pages.File(at)
		for _, e := range addresses(t, text) {
			if e.name == "id" {
				anchors[at+"#"+e.value] = true
			}
		}
	}
	links := 0
	for _, at := range pages.Paths() {
		if picture(at) {
			continue
		}
		text, _ := pages.File(at)
		for _, e := range addresses(t, text) {
			outside := strings.HasPrefix(e.value, "https://") || strings.HasPrefix(e.value, "http://")
			switch {
			case e.name == "id", e.value == "data:,", e.tag == "a" && outside:
			case e.name != "href" && e.name != "src":
				t.Errorf("%s: %s with %s", at, e.tag, e.name)
			default:
				links++
				target, anchor, _ := strings.Cut(e.value, "#")
				to := at
				if target != "" {
					to = path.Join(path.Dir(at), target)
				}
				if anchor != "" {
					to += "#" + anchor
				}
				assert.Truef(t, anchors[to], "%s: %s leads nowhere", at, e.value)
			}
		}
	}
	assert.Greater(t, links, 500)
}

// TestNew_Orphan: a page that nobody would find is a mistake.
func TestNew_Orphan(t *testing.T) {
	t.Parallel()
	_, err := site.New(fstest.MapFS{"README.md": {Data: []byte("# A")}, "lost.md": {Data: []byte("# B")}},
		site.Options{})
	assert.ErrorContains(t, err, "lost.md: in no section")
}

// TestNew_RawHTML: what a page holds of HTML is not taken for its own.
func TestNew_RawHTML(t *testing.T) {
	t.Parallel()
	s, err := site.New(fstest.MapFS{"README.md": {
		Data: []byte("# A `b` & c\n\n## D\n\nWords <script>x</script> {{ input.id }} [e](javascript:x)\n")}},
		site.Options{Reference: "reference"})
	require.NoError(t, err)
	page, ok := s.File("index.html")
	require.True(t, ok)
	assert.Contains(t, string(page), "<title>A b &amp; c · Flowlane</title>")
	assert.Contains(t, string(page), `<a href="#d">D</a>`)
	assert.Contains(t, string(page), `<a href="reference">Reference</a>`)
	assert.Contains(t, string(page), "{{ input.id }}")
	assert.NotContains(t, string(page), "<script")
	assert.NotContains(t, string(page), "javascript:")
}

func TestHandler(t *testing.T) {
	t.Parallel()
	pages, err := site.New(docs.Files, site.Options{})
	require.NoError(t, err)
	srv := httptest.NewServer(pages.Handler("/docs"))
	defer srv.Close()
	for _, tt := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/docs", 200, "text/html; charset=utf-8"}, // sent on
		{"GET", "/docs/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/docs/cli.html", 200, "text/html; charset=utf-8"},
		{"GET", "/docs/platforms/", 200, "text/html; charset=utf-8"},
		{"GET", "/docs/style.css", 200, "text/css; charset=utf-8"},
		{"GET", "/docs/pictures/overview.webp", 200, "image/webp"},
		{"GET", "/docs/pictures/soak.svg", 200, "image/svg+xml"},
		{"GET", "/docs/none.html", 404, "text/plain; charset=utf-8"},
		{"GET", "/docsx", 404, "text/plain; charset=utf-8"},
		{"GET", "/docs/../cli.html", 404, "text/plain; charset=utf-8"},
		{"POST", "/docs/", 405, "text/plain; charset=utf-8"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, srv.URL+tt.path, nil)
		require.NoError(t, err)
		res, err := srv.Client().Do(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, tt.status, res.StatusCode, "%s %s", tt.method, tt.path)
		assert.Equal(t, tt.kind, res.Header.Get("Content-Type"), tt.path)
		if tt.status == http.StatusOK {
			assert.Contains(t, res.Header.Get("Content-Security-Policy"), "default-src 'none'")
		}
	}
}

// TestWrite: what is written is what is served.
func TestWrite(t *testing.T) {
	t.Parallel()
	pages, err := site.New(docs.Files, site.Options{})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, pages.Write(dir))
	srv := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer srv.Close()
	res, err := srv.Client().Get(srv.URL + "/platforms/five9.html")
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	want, _ := pages.File("platforms/five9.html")
	assert.Equal(t, string(want), string(text))
}

package site

import (
	"net/http"
	"path"
	"strings"
)

// policy lets a page load what belongs to the site, and run nothing.
const policy = "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// Handler serves the site below prefix, as "/docs/"; the address without the last slash is sent on to it.
func (s *Site) Handler(prefix string) http.Handler {
	prefix = strings.TrimSuffix(prefix, "/") + "/"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, below := strings.CutPrefix(r.URL.Path, prefix)
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Only GET and HEAD", http.StatusMethodNotAllowed)
			return
		case !below && r.URL.Path+"/" == prefix:
			http.Redirect(w, r, prefix, http.StatusMovedPermanently)
			return
		case name == "" || strings.HasSuffix(name, "/"):
			name += "index.html"
		}
		text, ok := s.files[name]
		if !below || !ok {
			http.NotFound(w, r)
			return
		}
		kind := "text/html; charset=utf-8"
		switch path.Ext(name) {
		case ".css":
			kind = "text/css; charset=utf-8"
		case ".webp":
			kind = "image/webp"
		case ".svg":
			kind = "image/svg+xml"
		}
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "public, max-age=300")
		_, _ = w.Write(text) // the reader has gone
	})
}

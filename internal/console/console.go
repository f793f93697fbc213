// Package console serves the console of web: pages that a browser runs against the API of the same address. It promises
// that they run and ask nothing that comes from elsewhere, and that no other page has them in a frame. It knows nothing
// of what they show.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

// Root is where the console stands.
const Root = "/console/"

//go:embed all:dist
var dist embed.FS

// policy lets the pages run and ask what comes from here, and nothing else: no inline code, no other host, no frame
// around them.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; " +
	"connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types flowlane"

// file is what is sent for one path.
type file struct {
	text, packed []byte
	media, tag   string
}

// Handler serves everything below Root, and Root without its last slash. An address that names no file is one of a
// screen, which the page reads itself.
func Handler() http.Handler { return http.HandlerFunc(serve) }

// files are what is served, by their names. They are read when somebody first looks: to compress them takes a while.
var files = sync.OnceValues(func() (map[string]file, error) {
	all := map[string]file{}
	err := fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := dist.ReadFile(name)
		all[strings.TrimPrefix(name, "dist/")] = fileOf(name, text)
		return err //nolint:wrapcheck // names the file
	})
	return all, err //nolint:wrapcheck // names the file
})

func fileOf(name string, text []byte) file {
	sum := sha256.Sum256(text)
	f := file{text: text, media: mime.TypeByExtension(path.Ext(name)), tag: `"` + hex.EncodeToString(sum[:16]) + `"`}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // a level that is known
	_, _ = z.Write(text)
	_ = z.Close()
	if packed.Len() < len(text) {
		f.packed = packed.Bytes()
	}
	return f
}

func serve(w http.ResponseWriter, r *http.Request) {
	name, below := strings.CutPrefix(r.URL.Path, Root)
	header := w.Header()
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "Only GET and HEAD", http.StatusMethodNotAllowed)
		return
	case !below:
		http.Redirect(w, r, Root, http.StatusMovedPermanently)
		return
	}
	all, err := files()
	if err != nil { // a mistake of ours, which the tests find
		http.Error(w, "Internal error", http.StatusInternalServerError)
		return
	}
	f, found := all[name]
	switch {
	case found && strings.HasPrefix(name, "assets/"):
		header.Set("Cache-Control", "public, max-age=31536000, immutable") // their names change with what is in them
	case strings.HasPrefix(name, "assets/"):
		http.NotFound(w, r)
		return
	default:
		f = all["index.html"]
		header.Set("Cache-Control", "no-cache")
	}
	header.Set("Content-Security-Policy", policy)
	header.Set("Content-Type", f.media)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("ETag", f.tag)
	header.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	text := f.text
	if f.packed != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		text = f.packed
	}
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(text) // the reader has gone
}

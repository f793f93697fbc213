// Package console serves the console of web: pages that a browser runs against the API of the same address. It knows nothing of
// what they show.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

// Root is where the console stands.
const Root = "/console/"

//go:embed all:dist
var dist embed.FS

// policy lets the pages run and ask what comes from here, and nothing else: no inline code, no other host, no frame around them.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; " +
	"worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types flowlane"

// file is what is sent for one path.
type file struct {
	text, packed []byte
	media, tag   string
}

// New returns the handler of everything below Root, and of Root without its last slash. An address that names no file is one of a
// screen, which the page reads itself.
func New() (http.Handler, error) {
	files := map[string]file{}
	err := fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := dist.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		files[strings.TrimPrefix(name, "dist/")] = fileOf(name, text)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	if _, ok := files["index.html"]; !ok {
		return nil, fmt.Errorf("console: %w: index.html", fs.ErrNotExist)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, files) }), nil
}

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

func serve(w http.ResponseWriter, r *http.Request, files map[string]file) {
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
	f, found := files[name]
	switch {
	case found && strings.HasPrefix(name, "assets/"):
		header.Set("Cache-Control", "public, max-age=31536000, immutable") // their names change with what is in them
	case strings.HasPrefix(name, "assets/"):
		http.NotFound(w, r)
		return
	default:
		f = files["index.html"]
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

package app

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"flowlane"
	"flowlane/docs"
	"flowlane/internal/api"
	"flowlane/internal/api/violation"
	"flowlane/internal/reference"
	"flowlane/internal/site"
)

// docsRoot is where people read.
const docsRoot = "/docs/"

// documents are the API document in its two forms.
func documents() map[string]http.Handler {
	return map[string]http.Handler{
		"/openapi.yaml": static("application/yaml", "", func() ([]byte, error) { return flowlane.OpenAPI, nil }),
		"/openapi.json": static("application/json", "", documentJSON),
	}
}

func documentJSON() ([]byte, error) {
	doc, err := violation.Document()
	if err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode the API document: %w", err)
	}
	return text, nil
}

// docsOf serves the reference, and beside it the pages of the documentation, whose root is /docs/.
func docsOf() http.Handler {
	pages := static("text/html; charset=utf-8", reference.Policy(), func() ([]byte, error) {
		return reference.Page(flowlane.OpenAPI, api.Codes())
	})
	made := sync.OnceValues(func() (http.Handler, error) {
		s, err := site.New(docs.Files, site.Options{Reference: strings.TrimPrefix(api.ReferencePath, docsRoot)})
		if err != nil {
			return nil, fmt.Errorf("make the documentation: %w", err)
		}
		return s.Handler(docsRoot), nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case api.ReferencePath, api.ReferencePath + "/":
			pages.ServeHTTP(w, r)
		default:
			rest, err := made()
			if err != nil { // a mistake of ours, which the tests find
				http.Error(w, "Internal error", http.StatusInternalServerError)
				return
			}
			rest.ServeHTTP(w, r)
		}
	})
}

// static serves what is made once, when it is first asked for. policy is its Content-Security-Policy; empty for that of
// all answers.
func static(media, policy string, build func() ([]byte, error)) http.Handler {
	made := sync.OnceValues(build)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := made()
		if err != nil { // a mistake of ours, which the tests find
			http.Error(w, "Internal error", http.StatusInternalServerError)
			return
		}
		sum := sha256.Sum256(body)
		header := w.Header()
		header.Set("Content-Type", media)
		header.Set("Cache-Control", "no-cache")
		header.Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
		if policy != "" {
			header.Set("Content-Security-Policy", policy)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}

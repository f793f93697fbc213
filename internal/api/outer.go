package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"
)

// maxRequestID is the longest request id that is taken over from a caller.
const maxRequestID = 128

// outer is around every request: its id, its body's limit, and the last resort when something panics.
type outer struct {
	next http.Handler
	errs errorHandler
	now  func() time.Time
	log  *slog.Logger
	// lists bounds the long lists in memory.
	lists *slots
}

// request is what is known of a request from its beginning.
type request struct {
	id   string
	body *lazyBody
	// items are those of a long list, which are written past the generated server.
	items func(w io.Writer) error
	// lists bounds the long lists in memory; release gives back the place of this one.
	lists   *slots
	release func()
}

type requestKey struct{}

// requestID returns the id under which the request is logged and answered.
func requestID(ctx context.Context) string {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.id
	}
	return ""
}

// requestBody returns the body as far as it was read.
func requestBody(ctx context.Context) []byte {
	if r, ok := ctx.Value(requestKey{}).(*request); ok && r.body != nil {
		return r.body.text
	}
	return nil
}

func (o outer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := o.now()
	known := &request{id: callerID(r.Header.Get("X-Request-Id")), lists: o.lists, release: func() {}}
	rec := &recorder{ResponseWriter: w, request: known}
	header := rec.Header()
	header.Set("X-Request-Id", known.id)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", cacheControl(r.URL.Path))

	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, known))
	if r.Body != nil && r.Body != http.NoBody {
		known.body = &lazyBody{from: r.Body, length: r.ContentLength, limit: maxBody}
		r.Body = known.body
	}
	r.URL = routable(r.URL)

	defer func() {
		known.release()
		if v := recover(); v != nil {
			o.recovered(r, rec, v)
		}
		o.log.DebugContext(r.Context(), "request", "request_id", known.id, "method", r.Method, "path", r.URL.Path,
			"status", rec.status, "ms", elapsed(o.now().Sub(began)))
	}()
	o.next.ServeHTTP(rec, r)
}

// recovered answers 500 after a panic if nothing was sent yet; otherwise it cuts the connection.
func (o outer) recovered(r *http.Request, rec *recorder, v any) {
	err, ok := v.(error)
	if ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	o.log.ErrorContext(r.Context(), "panic", "request_id", requestID(r.Context()), "method", r.Method, "path", r.URL.Path,
		"panic", v, "stack", string(debug.Stack()))
	if rec.status != 0 {
		panic(http.ErrAbortHandler)
	}
	o.errs.write(rec, internalError())
}

// callerID takes over an id of visible ASCII characters, and makes one otherwise.
func callerID(id string) string {
	if id != "" && len(id) <= maxRequestID && strings.IndexFunc(id, func(c rune) bool { return c < '!' || c > '~' }) < 0 {
		return id
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// cacheControl lets only the public catalog be kept, and that be asked about each time.
func cacheControl(path string) string {
	if strings.HasPrefix(path, prefix+"/catalog/") {
		return "public, no-cache"
	}
	return "no-store"
}

// routable returns the address with what cannot be stored replaced by U+FFFD, so that a path parameter with a NUL or
// broken UTF-8 matches nothing, instead of failing in the database.
func routable(u *url.URL) *url.URL {
	if utf8.ValidString(u.Path) && strings.IndexByte(u.Path, 0) < 0 {
		return u
	}
	clean := *u
	clean.Path = strings.ReplaceAll(strings.ToValidUTF8(u.Path, "\ufffd"), "\x00", "\ufffd")
	clean.RawPath = ""
	return &clean
}

// recorder knows whether an answer has begun.
type recorder struct {
	http.ResponseWriter
	request *request
	status  int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if items := w.request.items; items != nil {
		w.request.items = nil
		return splice(w.ResponseWriter, p, items)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap gives http.ResponseController what lies below.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// headersSent tells whether an answer has begun on w or below it.
func headersSent(w http.ResponseWriter) bool {
	for w != nil {
		if rec, ok := w.(*recorder); ok {
			return rec.status != 0
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
	return false
}

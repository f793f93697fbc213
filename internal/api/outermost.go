package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"flowlane/gen/oas"
	"flowlane/internal/request"
)

// maxDiscarded is how much of a body that is refused is read for nothing.
const maxDiscarded = 32 << 20

// maxRequestID is the longest request id that is taken over from a caller.
const maxRequestID = 128

// outermost is around every request: its id, its body's limit, and the last resort when something panics.
type outermost struct {
	next http.Handler
	// route finds the operation of a request.
	route   func(method string, u *url.URL) (oas.Route, bool)
	errs    errorHandler
	observe func(ctx context.Context, operation string, status int, took time.Duration)
	tracer  trace.Tracer
	now     func() time.Time
	log     *slog.Logger
	// lists bounds the long lists in memory.
	lists *places
}

// exchange is what is known of a request and its answer from the beginning.
type exchange struct {
	id string
	// remote is the other end of the connection, as net/http writes it; uri is the path and the query as they came.
	remote, uri string
	// route is the operation with what its path names; zero where a path has none.
	route oas.Route
	body  *lazyBody
	// session is the text of the session that a page of ours shows; empty for none.
	session string
	// private tells that nobody on the way can read the answer.
	private bool
	// unread tells that the request was refused before its body was wanted.
	unread bool
	// items are those of a long list, which are written past the generated server.
	items func(w io.Writer) error
	// outputs are those of an execution, which are written so, too.
	outputs *outputs
	// lists bounds the long lists in memory.
	lists *places
	// rest writes what follows once the generated server has returned; nil for nothing. A stream goes on there: what
	// waits for hours under all of that server keeps 32 KiB of stack, and 8 without.
	rest func()
	// release gives back the place of the long list, the export or the stream that this is.
	release func()
	// header is that of the answer, sent that of the request.
	header, sent http.Header
	// attempt is set while a request with an idempotency key is carried out.
	attempt *request.Attempt
	// kept is what its handler has kept as its answer.
	kept *request.Answer
	// answer is sent instead of whatever else is being sent.
	answer *request.Answer
}

type exchangeKey struct{}

// exchangeOf returns the exchange that a context belongs to; one that nobody looks at if it belongs to none.
func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{header: http.Header{}}
}

// from is the address of the other end of the connection; what headers say of it anybody can write.
func (x *exchange) from() netip.Addr {
	at, _ := netip.ParseAddrPort(x.remote)
	return at.Addr().Unmap().WithZone("")
}

// requestID returns the id under which the request is logged and answered.
func requestID(ctx context.Context) string { return exchangeOf(ctx).id }

// requestBody returns the body as far as it was read.
func requestBody(ctx context.Context) []byte {
	if body := exchangeOf(ctx).body; body != nil {
		return body.text
	}
	return nil
}

func (o outermost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := o.now()
	x := &exchange{id: callerID(r.Header.Get("X-Request-Id")), remote: r.RemoteAddr, uri: r.URL.RequestURI(),
		lists: o.lists, release: func() {}}
	rec := &recorder{ResponseWriter: w, exchange: x}
	header := rec.Header()
	x.header, x.sent = header, r.Header
	x.session = showSession(r)
	x.private = privateWay(r, o.errs.reached())
	header.Set("X-Request-Id", x.id)
	header.Set("Cache-Control", cacheControl(r.URL.Path))

	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if r.ContentLength == 0 {
		r.Header.Del("Content-Type") // many clients send one with no body, too, and then it says nothing
	}
	if r.Body != nil && r.Body != http.NoBody {
		x.body = &lazyBody{from: r.Body, length: r.ContentLength, limit: maxBody, refuse: refuseEncoded(r)}
		r.Body = x.body
	}
	r.URL = routable(r.URL)
	x.route, _ = o.route(r.Method, r.URL)
	if r.URL.RawQuery != "" {
		nameIgnored(header, x.route.OperationID(), r.URL.Query())
	}
	openBySession(r, x)
	if x.body != nil && x.route.OperationID() == "importPlatform" {
		x.body.limit = maxImportBody
	}

	r, end := o.trace(r, x)
	defer func() {
		status := cmp.Or(rec.status, http.StatusOK)
		end(status)
		o.observe(r.Context(), x.route.OperationID(), status, o.now().Sub(began))
	}()
	defer func() {
		x.release()
		if v := recover(); v != nil {
			o.recovered(r, rec, v)
		}
		if o.log.Enabled(r.Context(), slog.LevelDebug) {
			o.log.DebugContext(r.Context(), "request", "request_id", x.id, "method", r.Method, "path", r.URL.Path,
				"status", rec.status, "ms", elapsed(o.now().Sub(began)))
		}
	}()
	o.next.ServeHTTP(rec, r)
	if x.rest != nil {
		x.rest()
	}
	if rec.status != http.StatusRequestEntityTooLarge && !x.unread || x.body == nil || r.Header.Get("Expect") != "" {
		return
	}
	_ = http.NewResponseController(rec).Flush()
	// Many clients look for no answer before they have sent everything, and see none if the connection is cut
	// meanwhile.
	_, _ = io.CopyN(io.Discard, rawBody(r), maxDiscarded)
}

// recovered answers 500 after a panic if nothing was sent yet; otherwise it cuts the connection.
func (o outermost) recovered(r *http.Request, rec *recorder, v any) {
	err, ok := v.(error)
	if ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	o.log.ErrorContext(r.Context(), "panic", "request_id", requestID(r.Context()), "method", r.Method, "path",
		r.URL.Path,
		"panic", v, "stack", string(debug.Stack()))
	if rec.status != 0 {
		panic(http.ErrAbortHandler)
	}
	o.errs.write(rec, o.errs.internalError(r.Context()))
}

// callerID takes over an id of visible ASCII characters, and makes one otherwise: 80 bits of chance, since a row of the
// audit log keeps it as text.
func callerID(id string) string {
	if id != "" && len(id) <= maxRequestID && strings.IndexFunc(id, func(c rune) bool {
		return c < '!' ||
			c > '~'
	}) < 0 {
		return id
	}
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// cacheControl lets only the public catalog and templates be kept, and these be asked about each time.
func cacheControl(path string) string {
	if (strings.HasPrefix(path, prefix+"/catalog/") && !strings.HasPrefix(path, prefix+"/catalog/imports")) ||
		strings.HasPrefix(path, prefix+"/flows/templates") {
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

// recorder knows whether an answer has begun, and sends the exchange's answer, if there is one, in the place of what
// it is given.
type recorder struct {
	http.ResponseWriter
	exchange *exchange
	status   int
	replaced bool
}

func (w *recorder) WriteHeader(status int) {
	if w.exchange.body != nil && (w.exchange.unread || status == http.StatusRequestEntityTooLarge) {
		// So the answer does not wait for the body, as net/http has it do for another request on the connection.
		w.Header().Set("Connection", "close")
	}
	if w.status == 0 && w.exchange.answer != nil {
		w.replaced, status = true, w.exchange.answer.Status
		w.Header().Del("Content-Length")
	}
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
	if w.replaced {
		_, _ = w.ResponseWriter.Write(w.exchange.answer.Body)
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.replaced {
		return len(p), nil
	}
	if items := w.exchange.items; items != nil {
		w.exchange.items = nil
		return splice(w.ResponseWriter, p, items)
	}
	if outputs := w.exchange.outputs; outputs != nil {
		w.exchange.outputs = nil
		return outputs.write(w.ResponseWriter, p)
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

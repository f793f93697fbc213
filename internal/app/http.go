package app

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"net/http"
	"time"
)

// readyTimeout bounds the question whether the database answers.
const readyTimeout = 2 * time.Second

// bounds are how long clients may stall.
type bounds struct {
	// A request's body must arrive within grace and one second per rate bytes that it announces, but within most; one that
	// announces nothing has most.
	grace, most time.Duration
	rate        int64
	// An answer may take as long as it wants, but each piece of it must be taken within piece.
	piece time.Duration
}

var standardBounds = bounds{grace: 30 * time.Second, most: 5 * time.Minute, rate: 64 << 10, piece: time.Minute}

// root routes what the process answers to clients.
func (a *App) root(v1 http.Handler) http.Handler {
	own := a.health()
	// No http.ServeMux: it answers a path such as //healthz by itself, with a redirect in place of a 404.
	return a.cfg.Front.around(standardBounds.around(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, ok := own[r.URL.Path]
		if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
			h = v1
		}
		h.ServeHTTP(w, r)
	})))
}

// health is what tells whether the process is up, and whether it can serve.
func (a *App) health() map[string]http.Handler {
	return map[string]http.Handler{
		"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok", "") }),
		"/readyz":  a.ready(),
	}
}

// ready answers 200 while the database answers. That it has every migration which this program needs was checked by New,
// and migrations are never taken back under a running process.
func (a *App) ready() http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if a.stopping.Err() != nil {
			answer(w, http.StatusServiceUnavailable, "stopping", "the process is about to end")
			return
		}
		if err := a.Pool.Ping(ctx); err != nil {
			a.cfg.Log.WarnContext(ctx, "not ready", "error", err)
			answer(w, http.StatusServiceUnavailable, "unavailable", "the database does not answer")
			return
		}
		answer(w, http.StatusOK, "ok", "")
	}
}

func answer(w http.ResponseWriter, status int, word, detail string) {
	body := map[string]string{"status": word}
	if detail != "" {
		body["detail"] = detail
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// around frees the process from clients that stall. The server's own timeouts cannot: they count from the start of a
// request, and would cut a slow but steady upload or export.
func (b bounds) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			limit := b.most
			if r.ContentLength >= 0 {
				limit = min(b.most, b.grace+time.Duration(r.ContentLength/b.rate)*time.Second)
			}
			_ = control.SetReadDeadline(time.Now().Add(limit))
			r.Body = &timedBody{ReadCloser: r.Body, control: control}
		}
		next.ServeHTTP(&timedWriter{ResponseWriter: w, control: control, piece: b.piece}, r)
	})
}

// timedBody lifts the deadline once the body is there: what comes after is no longer the client's fault.
type timedBody struct {
	io.ReadCloser

	control *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { //nolint:errorlint // readers return it bare
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err //nolint:wrapcheck // a reader
}

// timedWriter gives each piece of an answer its own time.
type timedWriter struct {
	http.ResponseWriter

	control *http.ResponseController
	piece   time.Duration
	until   time.Time
}

func (w *timedWriter) Write(p []byte) (int, error) {
	if now := time.Now(); w.until.Sub(now) < w.piece/2 {
		w.until = now.Add(w.piece)
		_ = w.control.SetWriteDeadline(w.until)
	}
	return w.ResponseWriter.Write(p) //nolint:wrapcheck // a writer
}

// Unwrap gives http.ResponseController what lies below.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serverLog keeps what net/http has to say, such as failed handshakes, at debug.
func serverLog(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }

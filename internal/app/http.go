package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"strings"
	"time"

	"flowlane/internal/cell"
	"flowlane/internal/console"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// readyTimeout bounds the question whether the database answers.
const readyTimeout = 2 * time.Second

// bounds are how long clients may stall.
type bounds struct {
	// A request's body must come at rate bytes a second, after a grace that covers pauses, too.
	grace time.Duration
	rate  int64
	// An answer may take as long as it wants, but each piece of it must be taken within piece.
	piece time.Duration
}

var standardBounds = bounds{grace: 10 * time.Second, rate: 32 << 10, piece: time.Minute}

// readTimeout is how long to wait for more of a body of which so many bytes have come, while so long was waited for
// them.
func (b bounds) readTimeout(bytes int64, waited time.Duration) time.Duration {
	due := time.Duration(float64(bytes) / float64(b.rate) * float64(time.Second))
	return min(b.grace+due-waited, b.grace)
}

// root routes what the process answers to clients.
func (a *App) root(v1 http.Handler) http.Handler {
	own := a.health()
	maps.Copy(own, documents())
	maps.Copy(own, a.signIns())
	docs := docsOf()
	pages := console.Handler()
	// No http.ServeMux: it answers a path such as //healthz by itself, with a redirect in place of a 404.
	return a.cfg.Front.around(standardBounds.around(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, ok := own[r.URL.Path]
		switch place := r.URL.Path + "/"; {
		case ok:
		case strings.HasPrefix(place, docsRoot):
			h, ok = docs, true
		case strings.HasPrefix(place, console.Root):
			h, ok = pages, true
		}
		if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
			h = v1
		}
		h.ServeHTTP(w, r)
	})))
}

// health is what tells whether the process is up, and whether it can serve.
func (a *App) health() map[string]http.Handler {
	return map[string]http.Handler{
		"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, "ok",
				"")
		}),
		"/readyz": a.ready(),
	}
}

// ready answers 200 while the database answers, and is the one that was confirmed. That it has every migration which
// this program needs was checked by New, and migrations are never taken back under a running process; one that comes
// and that this program must not see ends the process.
func (a *App) ready() http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if a.stopping.Err() != nil {
			answer(w, http.StatusServiceUnavailable, "stopping", "the process is about to end")
			return
		}
		// By the connections that leases have: a process whose others all have a request is ready, and all are at once.
		why, err := pg.Moved(ctx, a.clock, a.cfg.TrustFailover)
		if err != nil {
			a.cfg.Log.WarnContext(ctx, "not ready", "error", err)
			answer(w, http.StatusServiceUnavailable, "unavailable", "the database does not answer")
			return
		}
		if why != "" {
			answer(w, http.StatusServiceUnavailable, "restored",
				"the database was restored, and nothing goes on before somebody has run `flowlane restore confirm`: "+
					why)
			return
		}
		if a.blobs != nil {
			// What needs no large body goes on, so that nobody shall be sent elsewhere.
			if since := a.blobs.Down(ctx); !since.IsZero() {
				answer(w, http.StatusOK, "degraded", "the store of large bodies has not answered since "+
					since.UTC().Format(time.RFC3339)+
					": uploads are refused, and work on what is there waits")
				return
			}
		}
		answer(w, http.StatusOK, "ok", cellDetail())
	}
}

// cellDetail names the cell of a process where there are several.
func cellDetail() string {
	if n := cell.Here(); n != 0 {
		return fmt.Sprintf("cell %d", n)
	}
	return ""
}

func answer(w http.ResponseWriter, status int, word, detail string) {
	body := map[string]string{"status": word}
	if detail != "" {
		body["detail"] = detail
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// around frees the process from clients that stall. The server's own timeouts cannot: they count from the start of a
// request, and would cut a slow but steady upload or export.
func (b bounds) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			_ = control.SetReadDeadline(time.Now().Add(b.grace)) // for what nobody but the server itself reads
			r.Body = &timedBody{ReadCloser: r.Body, bounds: b, control: control, header: w.Header()}
		}
		next.ServeHTTP(&timedWriter{ResponseWriter: w, control: control, piece: b.piece}, r)
	})
}

// timedBody waits for a body as long as bounds say, and only while somebody reads it: a client is not to blame for
// what else its request waits for. Fault of a body that comes too slowly: TooSlow; its connection is closed after the
// answer.
type timedBody struct {
	io.ReadCloser
	bounds

	control *http.ResponseController
	header  http.Header
	bytes   int64
	waited  time.Duration
}

func (b *timedBody) Read(p []byte) (int, error) {
	began := time.Now()
	_ = b.control.SetReadDeadline(began.Add(b.readTimeout(b.bytes, b.waited)))
	n, err := b.ReadCloser.Read(p)
	b.bytes, b.waited = b.bytes+int64(n), b.waited+time.Since(began)
	switch {
	case err == io.EOF: //nolint:errorlint // readers return it bare
		_ = b.control.SetReadDeadline(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.header.Set("Connection", "close")
		err = fault.New(fault.TooSlow,
			"Request body came too slowly: after %.0f seconds it must come at %d KiB a second",
			b.grace.Seconds(), b.rate>>10)
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

// serverLog takes what net/http has to say: what clients cause, such as failed handshakes, at debug, and what somebody
// must mend as errors.
func serverLog(l *slog.Logger) *log.Logger { return log.New(serverLines{l}, "", 0) }

type serverLines struct{ log *slog.Logger }

// Write implements io.Writer for a line at a time.
func (w serverLines) Write(line []byte) (int, error) {
	text, level := strings.TrimSpace(string(line)), slog.LevelDebug
	if strings.HasPrefix(text, "http: Accept error") || strings.HasPrefix(text, "http: panic serving") {
		level = slog.LevelError
	}
	w.log.Log(context.Background(), level, text)
	return len(line), nil
}

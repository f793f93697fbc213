package app

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"syscall"
)

// Operator says where operators look at a process: metrics and profiles, apart from the API, because they tell about
// all organizations.
type Operator struct {
	// Listen is a host:port; port 0 takes a free one, empty means nowhere.
	Listen string
	// OrFree has a free port of the same host be taken where that one is not free.
	OrFree bool
	// Token must come with requests for metrics and profiles, as Authorization: Bearer; empty for none, which is taken
	// on loopback addresses alone.
	Token string
}

// leastToken is the length of the shortest token of operators.
const leastToken = 16

func (o Operator) check() error {
	if o.Token != "" && len(o.Token) < leastToken {
		return fmt.Errorf("the operator token is too short: set FLOWLANE_OPERATOR_TOKEN to %d characters or more",
			leastToken)
	}
	if o.Listen == "" || o.Token != "" {
		return nil
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("--operator-listen %q is no HOST:PORT: %w", o.Listen, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("metrics and profiles at %s could be read by whoever reaches it: "+
			"set FLOWLANE_OPERATOR_TOKEN, or listen on 127.0.0.1", o.Listen)
	}
	return nil
}

// listen returns the listener of the operators' pages; nil for none.
func (o Operator) listen(ctx context.Context, sockets *Sockets, log *slog.Logger) (net.Listener, error) {
	listener, err := sockets.listen(ctx, o.Listen, "--operator-listen or FLOWLANE_OPERATOR_LISTEN")
	if err == nil || !o.OrFree || !errors.Is(err, syscall.EADDRINUSE) {
		return listener, err
	}
	log.WarnContext(ctx, "the port of metrics and profiles is taken; another one is used", "address", o.Listen)
	host, _, _ := net.SplitHostPort(o.Listen)
	return sockets.listen(ctx, net.JoinHostPort(host, "0"), "--operator-listen")
}

// operatorPages are health, metrics and profiles.
func (a *App) operatorPages() http.Handler {
	mux := http.NewServeMux()
	for path, h := range a.health() {
		mux.Handle("GET "+path, h)
	}
	for path, h := range map[string]http.Handler{
		"/metrics":             a.metrics.handler(),
		"/debug/pprof/":        http.HandlerFunc(pprof.Index),
		"/debug/pprof/cmdline": http.NotFoundHandler(), // it may hold secrets
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	} {
		mux.Handle("GET "+path, a.cfg.Operator.guard(h))
	}
	mux.Handle("GET /queue", a.cfg.Operator.login(http.HandlerFunc(a.showQueue)))
	return Front{}.around(mux)
}

// guard lets in who brings the token.
func (o Operator) guard(next http.Handler) http.Handler {
	if o.Token == "" {
		return next
	}
	want := sha256.Sum256([]byte(o.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(token))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, http.StatusUnauthorized, "unauthorized", "send the operator token as Authorization: Bearer")
			return
		}
		next.ServeHTTP(w, r)
	})
}

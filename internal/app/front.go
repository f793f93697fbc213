package app

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/rs/cors"

	"flowlane/internal/api"
)

// Front says how clients reach the API.
type Front struct {
	// CertFile and KeyFile hold the certificate with its chain and its private key, in PEM, of an API that speaks TLS;
	// empty for one that does not.
	CertFile, KeyFile string
	// Origins are those of pages whose scripts may call the API from a browser, as https://console.example.com.
	Origins []string
}

const (
	// strictTransport has browsers come by TLS alone for a year.
	strictTransport = "max-age=31536000"
	// preflightFor is how long a browser need not ask again whether it may call.
	preflightFor = 10 * time.Minute

	jsonType = "application/json; charset=utf-8"
)

// secure reports whether the API speaks TLS.
func (f Front) secure() bool { return f.CertFile != "" }

func (f Front) check() error {
	if (f.CertFile == "") != (f.KeyFile == "") {
		return errors.New("a certificate and its key belong together: set both --tls-cert and --tls-key, or neither")
	}
	if strings.Contains(f.CertFile+f.KeyFile, "-----BEGIN") {
		return errors.New("--tls-cert and --tls-key name files: put the certificate and its key into these")
	}
	for _, origin := range f.Origins {
		if err := checkOrigin(origin); err != nil {
			return err
		}
	}
	return nil
}

// checkOrigin refuses what no browser sends, and pages that somebody in between could change.
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || strings.Contains(origin, "*") || strings.ToLower(u.Scheme+"://"+u.Host) != origin {
		return fmt.Errorf("--cors-origin %q is no origin: name each as browsers send it, "+
			"like https://console.example.com; * is not taken", origin)
	}
	ip, err := netip.ParseAddr(u.Hostname())
	here := u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !here) {
		return fmt.Errorf("--cors-origin %q must begin with https://; only pages of this machine may come by http://",
			origin)
	}
	return nil
}

// cors lets the pages of its origins call next. Callers are known by headers that scripts set, so that no cookies or
// certificates are taken from browsers.
func (f Front) cors(next http.Handler) http.Handler {
	if len(f.Origins) == 0 {
		return next
	}
	return cors.New(cors.Options{
		AllowedOrigins: f.Origins,
		AllowedMethods: []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		},
		AllowedHeaders: []string{
			"Authorization", "X-API-Key", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID",
			"X-Request-Id",
		},
		ExposedHeaders: []string{
			"Allow", "ETag", "Idempotency-Replayed", "Ignored-Query-Parameters", "RateLimit-Limit",
			"RateLimit-Remaining", "RateLimit-Reset", "Retry-After",
			"X-Request-Id",
		},
		MaxAge: int(preflightFor.Seconds()),
	}).Handler(next)
}

// headers keep browsers from making anything of an answer but data.
func (f Front) headers() http.Header {
	header := http.Header{}
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	if f.secure() {
		header.Set("Strict-Transport-Security", strictTransport)
	}
	return header
}

// framed returns the listener with what is looked at below net/http.
func (f Front) framed(listener net.Listener) net.Listener {
	var lines strings.Builder
	_ = f.headers().Write(&lines)
	return framed{listener, lines.String()}
}

// around gives every answer its headers, and refuses requests of which two servers could see different ends.
func (f Front) around(next http.Handler) http.Handler {
	next = f.cors(next)
	headers := f.headers()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		for name, values := range headers {
			header.Set(name, values[0])
		}
		if !r.ProtoAtLeast(1, 1) {
			// HTTP/1.0 knows no chunks: whoever sends some means another end than we do
			header.Set("Connection", "close")
		}
		if ambiguous(r.Context()) {
			header.Set("Connection", "close")
			header.Set("Content-Type", jsonType)
			id := api.NewRequestID()
			header.Set("X-Request-Id", id)
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(api.Problem(id, "A request has either a Content-Length or a Transfer-Encoding, not both",
				""))
			return
		}
		next.ServeHTTP(w, r)
	})
}

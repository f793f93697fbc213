package app_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"flowlane/internal/app"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// smuggling is one connection's first bytes. What comes after them is the next request where they are taken for whole.
type smuggling struct {
	Name, Request   string
	Refused, Closed bool
}

// TestFront_Smuggling: what two servers may see two ends of is refused, and nothing behind it is taken for a request.
func TestFront_Smuggling(t *testing.T) {
	t.Parallel()
	p := start(t)
	text, err := os.ReadFile("testdata/smuggling.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []smuggling
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(p.URL(), "http://")
	for _, c := range cases {
		for _, piece := range []int{1, 7, len(c.Request)} {
			got := statuses(t, address, c.Request+"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
				piece)
			if got.refused != c.Refused || got.smuggled == (c.Refused || c.Closed) {
				t.Errorf("%s, sent by %d bytes: refused %t, with what is behind it carried out %t",
					c.Name, piece, got.refused, got.smuggled)
			}
		}
	}
}

type seen struct{ refused, smuggled bool }

// statuses sends text in pieces, and reads all answers.
func statuses(t *testing.T, address, text string, piece int) (out seen) {
	t.Helper()
	for _, a := range exchange(t, address, text, piece) {
		out.refused = out.refused || a.StatusCode == http.StatusBadRequest || a.StatusCode == http.StatusNotImplemented
		out.smuggled = out.smuggled || a.StatusCode == http.StatusOK
	}
	return out
}

// TestFront_Unhandled: what is no request is answered as every request is, though no handler sees it, and its
// connection ends.
func TestFront_Unhandled(t *testing.T) {
	t.Parallel()
	p := start(t)
	for _, address := range []string{strings.TrimPrefix(p.URL(), "http://"),
		strings.TrimPrefix(p.OperatorURL(), "http://")} {
		for request, want := range map[string]struct {
			status int
			detail string
		}{
			"GET /healthz HTTP/1.1\r\n\r\n": {400,
				"400 Bad Request: missing required Host header"},
			"GET /healthz HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n": {400,
				"400 Bad Request: invalid header name"},
			"GET /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n": {501,
				"Unsupported transfer encoding"},
			"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 100<<10): {431,
				"431 Request Header Fields Too Large"},
			"GET /healthz HTTP/9.9\r\nHost: a\r\n\r\n": {505,
				"505 HTTP Version Not Supported: unsupported protocol version"},
			"POST /healthz HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 1\r\n\r\n": {417,
				"417 Expectation Failed"},
		} {
			// as the first, and as a later one
			for _, before := range []string{"", "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"} {
				answers := exchange(t, address, before+request, len(before+request))
				last := answers[len(answers)-1]
				if detail := "{\"detail\":\"" + want.detail + "\"}"; last.StatusCode != want.status ||
					apitest.Detail(last.text) != detail {
					t.Errorf("%.60q: %d %q", request, last.StatusCode, last.text)
				}
				wantHeaders(t, request[:20], last.Header, "no-store", "")
				if !last.Close || last.Header.Get("Content-Type") != "application/json; charset=utf-8" {
					t.Errorf("%.60q: %v", request, last.Header)
				}
			}
		}
	}
}

// TestFront_Asterisk: a request for no path is looked at as any other.
func TestFront_Asterisk(t *testing.T) {
	t.Parallel()
	p := start(t)
	const request = "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	answers := exchange(t, strings.TrimPrefix(p.URL(), "http://"), request, len(request))
	if answers[0].StatusCode != http.StatusNotFound {
		t.Errorf("it is answered %d", answers[0].StatusCode)
	}
	wantHeaders(t, "OPTIONS *", answers[0].Header, "no-store", "")
}

// answered is an answer with its body.
type answered struct {
	*http.Response

	text string
}

// exchange sends text in pieces, and reads all answers until the connection ends.
func exchange(t *testing.T, address, text string, piece int) (out []answered) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		for rest := text; len(rest) > 0; {
			n := min(piece, len(rest))
			if _, err := io.WriteString(conn, rest[:n]); err != nil {
				return // refused before the end
			}
			rest = rest[n:]
		}
	}()
	for reader := bufio.NewReader(conn); ; {
		res, err := http.ReadResponse(reader, nil)
		if err != nil {
			if len(out) == 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%.60q has %d answers, and then %v", text, len(out), err)
			}
			return out
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		out = append(out, answered{res, string(body)})
	}
}

// wantHeaders checks what every answer has.
func wantHeaders(t *testing.T, what string, header http.Header, cache, transport string) {
	t.Helper()
	for name, value := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": cache,
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Strict-Transport-Security": transport,
	} {
		if header.Get(name) != value {
			t.Errorf("%s: %s is %q", what, name, header.Get(name))
		}
	}
}

func headersOf(t *testing.T, client *http.Client, method, url string, pairs ...string) (int, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		req.Header.Set(pairs[i], pairs[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Header
}

// TestFront_Headers: no answer of any path is anything but data to a browser, or kept by one that should not.
func TestFront_Headers(t *testing.T) {
	t.Parallel()
	p := start(t)
	for _, c := range []struct {
		method, path, cache string
		status              int
	}{
		{"GET", "/v1/account/me", "no-store", http.StatusOK},
		{"GET", "/v1/catalog/platforms", "public, no-cache", http.StatusOK},
		{"GET", "/v1/nowhere", "no-store", http.StatusNotFound},
		{"GET", "/", "no-store", http.StatusNotFound},
		{"DELETE", "/v1/account/me", "no-store", http.StatusMethodNotAllowed},
		{"POST", "/v1/flows/definitions", "no-store", http.StatusUnprocessableEntity},
		{"POST", "/v1/flows/webhooks/standard/x", "no-store", http.StatusNotFound},
		{"GET", "/healthz", "no-store", http.StatusOK},
		{"GET", "/readyz", "no-store", http.StatusOK},
	} {
		status, header := headersOf(t, http.DefaultClient, c.method, p.URL()+c.path, "X-API-Key", p.key)
		if status != c.status {
			t.Errorf("%s %s: %d", c.method, c.path, status)
		}
		wantHeaders(t, c.method+" "+c.path, header, c.cache, "")
		if header.Get("Access-Control-Allow-Origin") != "" || header.Get("Vary") != "" {
			t.Errorf("%s %s: %v", c.method, c.path, header)
		}
	}
	if _, header := headersOf(t, http.DefaultClient, "GET",
		p.OperatorURL()+"/metrics"); header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("metrics: %v", header)
	}
}

// TestFront_CORS: pages of named origins may call, and read what an answer says in its headers; no others.
func TestFront_CORS(t *testing.T) {
	t.Parallel()
	const origin = "https://console.example.com"
	closed, open := start(t), startWith(t, func(cfg *app.Config) {
		cfg.Front.Origins = []string{"http://localhost:3000", origin}
	})
	for _, c := range []struct {
		p                      *process
		origin, method, header string
		allowed                bool
	}{
		{open, origin, "GET", "x-api-key", true},
		{open, "http://localhost:3000", "PATCH", "content-type,idempotency-key,x-api-key", true},
		{open, origin, "DELETE", "authorization", true},
		{open, origin, "PUT", "x-evil", false},
		{open, origin, "TRACE", "authorization", false},
		{open, "https://console.example.com.evil.example", "GET", "x-api-key", false},
		{open, "https://example.com", "GET", "x-api-key", false},
		{open, "http://console.example.com", "GET", "x-api-key", false},
		{open, "null", "GET", "x-api-key", false},
		{closed, origin, "GET", "x-api-key", false},
	} {
		_, header := headersOf(t, http.DefaultClient, "OPTIONS", c.p.URL()+"/v1/account/me",
			"Origin", c.origin, "Access-Control-Request-Method", c.method, "Access-Control-Request-Headers", c.header)
		if header.Get("Access-Control-Allow-Origin") != map[bool]string{true: c.origin}[c.allowed] ||
			c.allowed && header.Get("Access-Control-Allow-Methods") != c.method {
			t.Errorf("%s of %s with %s: %v", c.method, c.origin, c.header, header)
		}
		if header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s of %s may bring credentials", c.method, c.origin)
		}
	}
	status, header := headersOf(t, http.DefaultClient, "GET", open.URL()+"/v1/account/me", "Origin", origin,
		"X-API-Key",
		open.key)
	if status != http.StatusOK || header.Get("Access-Control-Allow-Origin") != origin ||
		header.Get("Vary") != "Origin" ||
		!strings.Contains(header.Get("Access-Control-Expose-Headers"), "Retry-After") {
		t.Errorf("%d %v", status, header)
	}
	_, header = headersOf(t, http.DefaultClient, "GET", open.URL()+"/v1/account/me", "Origin", "https://evil.example")
	if header.Get("Access-Control-Allow-Origin") != "" || header.Get("Vary") != "Origin" {
		t.Errorf("another origin: %v", header)
	}
}

func TestFront_Settings(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	cert, key := keyPair(t, "one")
	for _, c := range []struct {
		front app.Front
		want  string
	}{
		{app.Front{CertFile: cert}, "--tls-key"},
		{app.Front{KeyFile: key}, "--tls-cert"},
		{app.Front{CertFile: cert, KeyFile: cert}, "--tls-key"},
		{app.Front{CertFile: cert, KeyFile: key + "x"}, "no such file"},
		{app.Front{Origins: []string{"*"}}, "* is not taken"},
		{app.Front{Origins: []string{"https://*.example.com"}}, "* is not taken"},
		{app.Front{Origins: []string{"https://example.com/"}}, "is no origin"},
		{app.Front{Origins: []string{"https://Example.com"}}, "is no origin"},
		{app.Front{Origins: []string{"null"}}, "is no origin"},
		{app.Front{Origins: []string{"http://example.com"}}, "must begin with https://"},
		{app.Front{Origins: []string{"file://x"}}, "must begin with https://"},
	} {
		a, err := app.New(t.Context(), app.Config{DatabaseURL: dsn, KEK: testKEK(t), Listen: "127.0.0.1:0",
			Front: c.front,
			Log:   slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.front, err)
		}
		if err == nil {
			a.Close()
		}
	}
}

// TestFront_TLS: clients come by TLS 1.2 or newer, and are told to do so from then on.
func TestFront_TLS(t *testing.T) {
	t.Parallel()
	cert, key := keyPair(t, "one")
	p := startWith(t, func(cfg *app.Config) { cfg.Front = app.Front{CertFile: cert, KeyFile: key} })
	if !strings.HasPrefix(p.URL(), "https://127.0.0.1:") {
		t.Fatalf("it serves at %s", p.URL())
	}
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true,
		tls.VersionTLS13: true} {
		client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
			RootCAs: rootsOf(t, cert), MinVersion: version, MaxVersion: version, ServerName: "one",
		}}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+"/v1/account/me", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-API-Key", p.key)
		res, err := client.Do(req)
		if (err == nil) != want {
			t.Fatalf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			res.Body.Close()
			if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Strict-Transport-Security"),
				"max-age=") {
				t.Errorf("%s: %d %v", tls.VersionName(version), res.StatusCode, res.Header)
			}
		}
	}
	if _, err := http.Get(strings.Replace(p.URL(), "https", "http", 1) + "/healthz"); err == nil {
		t.Error("it answers without TLS")
	}
	smuggler, err := tls.Dial("tcp", strings.TrimPrefix(p.URL(), "https://"),
		&tls.Config{RootCAs: rootsOf(t, cert), ServerName: "one"})
	if err != nil {
		t.Fatal(err)
	}
	defer smuggler.Close()
	if _, err := io.WriteString(smuggler,
		"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n"+
			"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if res, err := http.ReadResponse(bufio.NewReader(smuggler), nil); err != nil ||
		res.StatusCode != http.StatusBadRequest {
		t.Errorf("two lengths over TLS: %v, %v", res, err)
	}
}

func keyPair(t *testing.T, name string) (cert, key string) {
	t.Helper()
	return app.WriteKeyPair(t, t.TempDir(), name)
}

// rootsOf trusts a certificate.
func rootsOf(t *testing.T, cert string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatal("no certificate")
	}
	return roots
}

package provider

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The guard alone must stop a resend too, should net/http ever decide on one.
func TestGuard_SecondConnection(t *testing.T) {
	t.Parallel()
	c := newCutter(t)
	s := newTestSender(t, c.addr)
	r := soon(Request{Method: "POST", URL: "http://" + c.addr})
	if ans := s.Send(t.Context(), r); ans.Sent != Answered {
		t.Fatalf("the first request failed: %+v", ans)
	}
	ctx, abort := context.WithCancelCause(t.Context())
	g := &guard{now: time.Now, before: r.SendBefore, abort: abort}
	req, err := g.request(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "k")
	req.Body, req.GetBody = http.NoBody, func() (io.ReadCloser, error) { return http.NoBody, nil }
	if _, err = s.transport.RoundTrip(req); err == nil || !errors.Is(context.Cause(ctx), errResend) {
		t.Errorf("error is %v because of %v; want the refusal of a second connection", err, context.Cause(ctx))
	}
	if got := c.requests.Load(); got != 2 {
		t.Errorf("the server read %d requests", got)
	}
	for late := time.After(60 * time.Second); c.conns.Load() < 2; { // the server may take it up after all is over here
		select {
		case <-late:
			t.Fatal("net/http did not try again: the test shows nothing")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestSend_RedirectIsAnAnswer(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	s := newTestSender(t, hostOf(srv.URL))
	ans := s.Send(t.Context(), soon(Request{Method: "POST", URL: srv.URL, Body: [][]byte{[]byte("{}")}}))
	if ans.Sent != Answered || ans.Status != 307 || hits.Load() != 1 {
		t.Errorf("answer is %+v after %d hits", ans, hits.Load())
	}
}

func TestSend_GuardRefuses(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		t.Error("the request arrived")
	}))
	defer srv.Close()
	s := newTestSender(t, "localhost:1", "10.0.0.1:80")
	text, err := os.ReadFile("testdata/refused_addresses.txt")
	if err != nil {
		t.Fatal(err)
	}
	for url := range strings.Lines(srv.URL + "\n" + string(text)) {
		if url = strings.TrimSpace(url); strings.HasPrefix(url, "#") {
			continue
		}
		ans := s.Send(t.Context(), soon(Request{Method: "GET", URL: url}))
		if ans.Sent != NotSent || !errors.Is(ans.Err, ErrAddressRefused) {
			t.Errorf("%s: answer is %+v; want the address refused", url, ans)
		}
	}
}

// TestSend_DeniedNetworks: what the operator denies is not reached, but for the hosts that the operator allows by name.
func TestSend_DeniedNetworks(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	denied := []netip.Prefix{netip.MustParsePrefix("1.2.3.4/8"), netip.MustParsePrefix("2606:4700::/32"),
		netip.MustParsePrefix("127.0.0.0/8")}
	s := NewSender(Options{DenyNetworks: denied, AllowHosts: []string{hostOf(srv.URL)}})
	for _, url := range []string{"http://1.1.1.1/", "http://1.255.0.1:443/", "http://[2606:4700::1]/",
		"http://[::ffff:1.1.1.1]/", "http://168.63.129.16/"} {
		ans := s.Send(t.Context(), soon(Request{Method: "GET", URL: url}))
		if ans.Sent != NotSent || !errors.Is(ans.Err, ErrAddressRefused) {
			t.Errorf("%s: answer is %+v; want the address refused", url, ans)
		}
	}
	if ans := s.Send(t.Context(), soon(Request{Method: "GET", URL: srv.URL})); ans.Sent != Answered {
		t.Errorf("the allowed host: answer is %+v", ans)
	}
}

// TestSend_AllPorts: an allowed host may be allowed with all its ports, and no other host with it.
func TestSend_AllPorts(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	s := NewSender(Options{AllowHosts: []string{"127.0.0.1:*", "[::1]:80"}})
	if ans := s.Send(t.Context(), soon(Request{Method: "GET", URL: srv.URL})); ans.Sent != Answered {
		t.Errorf("the allowed host: answer is %+v", ans)
	}
	for url, want := range map[string]string{
		"http://127.0.0.2:3000/": "127.0.0.2 is private: start with --allow-host 127.0.0.2:3000",
		"http://localhost/":      "localhost is private: start with --allow-host localhost:80",
		"http://[::1]:81/a?b=c":  "::1 is private: start with --allow-host [::1]:81",
		"http://1.1.1.1:8080/":   "port 8080 is neither 80 nor 443: start with --allow-host 1.1.1.1:8080",
		"http://168.63.129.16/": "168.63.129.16 is in a network that must not be called: " +
			"start with --allow-host 168.63.129.16:80",
		"http://169.254.169.254/": "169.254.169.254 is private: start with --allow-host 169.254.169.254:80",
	} {
		ans := s.Send(t.Context(), soon(Request{Method: "GET", URL: url}))
		if got := causeOf(ans.Err); ans.Sent != NotSent || got != want {
			t.Errorf("%s: %q; want %q", url, got, want)
		}
	}
}

func TestCheckHost(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"127.0.0.1:3000", "127.0.0.1:*", "[::1]:80", "crm.internal:443", "localhost:*"} {
		if err := CheckHost(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for text, want := range map[string]string{
		"127.0.0.1":              "write 127.0.0.1:3000, or 127.0.0.1:* for all its ports",
		"::1":                    "write [::1]:3000, or [::1]:* for all its ports",
		"http://127.0.0.1:3000/": "leave out the scheme and the path",
		"localhost":              "is no HOST:PORT",
		"":                       "is no HOST:PORT",
		"localhost:":             "is no HOST:PORT",
		"localhost:0":            "names no port from 1 to 65535",
		"localhost:http":         "names no port from 1 to 65535",
	} {
		if err := CheckHost(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

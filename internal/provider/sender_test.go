package provider

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// newTestSender returns a sender that may reach these "host:port".
func newTestSender(t *testing.T, hosts ...string) *Sender {
	t.Helper()
	s := NewSender(Options{AllowHosts: hosts})
	t.Cleanup(s.Close)
	return s
}

// soon gives a request generous deadlines.
func soon(r Request) Request {
	r.SendBefore, r.AnswerBefore = time.Now().Add(20*time.Second), time.Now().Add(20*time.Second)
	return r
}

func hostOf(url string) string { return url[strings.Index(url, "//")+2:] }

func TestSend_Answer(t *testing.T) {
	t.Parallel()
	type seen struct {
		method, body, length, encoding string
		te                             []string
	}
	got := make(chan seen, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- seen{r.Method, string(b), r.Header.Get("Content-Length"), r.Header.Get("Accept-Encoding"), r.TransferEncoding}
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "hello")
	}))
	defer srv.Close()
	s := newTestSender(t, hostOf(srv.URL))
	for _, tc := range []struct {
		method string
		body   [][]byte
		want   seen
	}{
		{"POST", [][]byte{[]byte("ab"), nil, []byte("c")}, seen{method: "POST", body: "abc", length: "3"}},
		{"POST", nil, seen{method: "POST", length: "0"}},
		{"GET", nil, seen{method: "GET"}},
		{"DELETE", nil, seen{method: "DELETE"}},
	} {
		ans := s.Send(t.Context(), soon(Request{Method: tc.method, URL: srv.URL, Body: tc.body}))
		if ans.Sent != Answered || ans.Err != nil || ans.Status != 201 || string(ans.Body) != "hello" || ans.Header.Get("X-Answer") != "yes" {
			t.Errorf("%s: answer is %+v", tc.method, ans)
		}
		if ans.FinishedAt.Before(ans.StartedAt) || ans.StartedAt.IsZero() {
			t.Errorf("%s: times are %v, %v", tc.method, ans.StartedAt, ans.FinishedAt)
		}
		r := <-got
		if r.method != tc.want.method || r.body != tc.want.body || r.encoding != "" || len(r.te) > 0 {
			t.Errorf("%s: the server saw %+v", tc.method, r)
		}
	}
}

// cutter is a server that answers the first request of its first connection and accepts, but never answers, the second:
// it cuts the connection. It counts the requests that it read.
type cutter struct {
	addr     string
	requests atomic.Int32
	conns    atomic.Int32
}

func newCutter(t *testing.T) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	c := &cutter{addr: ln.Addr().String()}
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			first := c.conns.Add(1) == 1
			go c.serve(nc, first)
		}
	}()
	return c
}

func (c *cutter) serve(nc net.Conn, first bool) {
	defer nc.Close()
	r := bufio.NewReader(nc)
	for n := 0; ; n++ {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		c.requests.Add(1)
		if first && n == 1 {
			return
		}
		_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

func TestSend_CutAfterAcceptance(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Request{
		"get":                 {Method: "GET"},
		"delete":              {Method: "DELETE"},
		"delete with key":     {Method: "DELETE", Header: http.Header{"Idempotency-Key": {"k"}}},
		"empty post":          {Method: "POST"},
		"empty post with key": {Method: "POST", Header: http.Header{"Idempotency-Key": {"k"}}},
		"post with key":       {Method: "POST", Header: http.Header{"Idempotency-Key": {"k"}}, Body: [][]byte{[]byte("{}")}},
		"put with x key":      {Method: "PUT", Header: http.Header{"X-Idempotency-Key": {"k"}}, Body: [][]byte{[]byte("{}")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCutter(t)
			s := newTestSender(t, c.addr)
			r.URL = "http://" + c.addr
			if ans := s.Send(t.Context(), soon(r)); ans.Sent != Answered {
				t.Fatalf("the first request failed: %+v", ans)
			}
			ans := s.Send(t.Context(), soon(r))
			if ans.Sent != Maybe || ans.Err == nil || ans.Status != 0 {
				t.Errorf("answer is %+v; want maybe sent", ans)
			}
			if got := c.requests.Load(); got != 2 {
				t.Errorf("the server read %d requests; want the first and the second once", got)
			}
			if got := c.conns.Load(); got != 1 {
				t.Errorf("the sender made %d connections; the second request needed the first again", got)
			}
		})
	}
}

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
	if c.conns.Load() < 2 {
		t.Error("net/http did not try again: the test shows nothing")
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
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request arrived") }))
	defer srv.Close()
	s := newTestSender(t, "localhost:1", "10.0.0.1:80")
	for _, url := range []string{
		srv.URL, "http://127.0.0.1/", "http://localhost/", "http://169.254.169.254/latest/meta-data/", "http://10.1.2.3/", "http://192.168.0.1/",
		"http://172.16.0.1/", "http://100.64.0.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[fd00::1]/",
		"http://0.0.0.0/", "http://1.1.1.1:22/", "http://10.0.0.1:81/", "http://168.63.129.16/", "http://[::ffff:168.63.129.16]/",
	} {
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
	denied := []netip.Prefix{netip.MustParsePrefix("1.2.3.4/8"), netip.MustParsePrefix("2606:4700::/32"), netip.MustParsePrefix("127.0.0.0/8")}
	s := NewSender(Options{DenyNetworks: denied, AllowHosts: []string{hostOf(srv.URL)}})
	for _, url := range []string{"http://1.1.1.1/", "http://1.255.0.1:443/", "http://[2606:4700::1]/", "http://[::ffff:1.1.1.1]/", "http://168.63.129.16/"} {
		ans := s.Send(t.Context(), soon(Request{Method: "GET", URL: url}))
		if ans.Sent != NotSent || !errors.Is(ans.Err, ErrAddressRefused) {
			t.Errorf("%s: answer is %+v; want the address refused", url, ans)
		}
	}
	if ans := s.Send(t.Context(), soon(Request{Method: "GET", URL: srv.URL})); ans.Sent != Answered {
		t.Errorf("the allowed host: answer is %+v", ans)
	}
}

func TestSend_NotSent(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	addr := ln.Addr().String()
	past := soon(Request{Method: "GET", URL: "http://" + addr})
	past.SendBefore = time.Now()
	for name, r := range map[string]Request{
		"connection refused": soon(Request{Method: "GET", URL: "http://" + addr}),
		"deadline passed":    past,
		"no host":            soon(Request{Method: "GET", URL: "http://"}),
		"other scheme":       soon(Request{Method: "GET", URL: "file:///etc/passwd"}),
		"relative":           soon(Request{Method: "GET", URL: "/x"}),
		"bad header":         soon(Request{Method: "GET", URL: "http://" + addr, Header: http.Header{"X-A": {"a\r\nb: c"}}}),
		"bad method":         soon(Request{Method: "G ET", URL: "http://" + addr}),
	} {
		if ans := newTestSender(t, addr).Send(t.Context(), r); ans.Sent != NotSent || ans.Err == nil {
			t.Errorf("%s: answer is %+v", name, ans)
		}
	}
	if ans := newTestSender(t, addr).Send(t.Context(), past); !errors.Is(ans.Err, ErrTooLate) {
		t.Errorf("error is %v", ans.Err)
	}
}

// The clock is read before each write, so a small body adds no look at it: it goes out in the write of its headers.
func TestSend_SmallBodyGoesWithItsHeaders(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	}))
	defer srv.Close()
	looks := func(size int) int64 {
		var n atomic.Int64
		s := NewSender(Options{AllowHosts: []string{hostOf(srv.URL)}, Now: func() time.Time { n.Add(1); return time.Now() }})
		defer s.Close()
		body := bytes.Repeat([]byte("x"), size)
		ans := s.Send(t.Context(), soon(Request{Method: "POST", URL: srv.URL, Body: [][]byte{body[:size/2], body[size/2:]}}))
		if ans.Err != nil || !bytes.Equal(ans.Body, body) {
			t.Errorf("a body of %d bytes came back as %d bytes, %v", size, len(ans.Body), ans.Err)
		}
		return n.Load()
	}
	if none, small := looks(0), looks(smallBody); none != small {
		t.Errorf("a small body took %d looks at the clock, none %d", small, none)
	}
	if none, large := looks(0), looks(smallBody+1); none >= large {
		t.Errorf("a body in a write of its own took %d looks at the clock, none %d", large, none)
	}
}

// A body whose server stops reading is never completed after the deadline, not even out of the kernel's buffers.
func TestSend_DeadlineInTheBody(t *testing.T) {
	t.Parallel()
	const size = 32 << 20
	total := make(chan int64, 1)
	resume := make(chan struct{})
	addr := rawServer(t, func(nc net.Conn) {
		first := make([]byte, 64<<10)
		n, _ := io.ReadFull(nc, first)
		<-resume
		rest, _ := io.Copy(io.Discard, nc)
		total <- int64(n) + rest
	})
	s := newTestSender(t, addr)
	r := soon(Request{Method: "POST", URL: "http://" + addr, Body: [][]byte{make([]byte, size)}})
	r.SendBefore = time.Now().Add(200 * time.Millisecond)
	ans := s.Send(t.Context(), r)
	close(resume)
	if ans.Sent != Maybe || !errors.Is(ans.Err, ErrTooLate) {
		t.Errorf("answer is %+v", ans)
	}
	if took := ans.FinishedAt.Sub(ans.StartedAt); took > 5*time.Second {
		t.Errorf("it took %v to give up", took)
	}
	if got := <-total; got >= size {
		t.Errorf("the server read %d bytes: the body was completed", got)
	}
}

// rawServer serves connections with f and returns its address.
func rawServer(t *testing.T, f func(nc net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				f(nc)
			}()
		}
	}()
	return ln.Addr().String()
}

// The clock jumps past the deadline after the n-th look at it; wherever that falls, no byte goes out afterwards. A small body goes
// out in one write, after the third look.
func TestSend_ClockJumps(t *testing.T) {
	t.Parallel()
	read := make(chan []byte, 64)
	addr := rawServer(t, func(nc net.Conn) {
		b, _ := io.ReadAll(nc)
		read <- b
	})
	for _, wall := range []bool{false, true} {
		for _, tc := range []struct {
			size int
			jump int64
		}{{100, 2}, {smallBody, 2}, {smallBody, 3}, {smallBody, 4}, {smallBody, 5}} {
			base, looks := time.Now(), atomic.Int64{}
			s := NewSender(Options{AllowHosts: []string{addr}, Now: func() time.Time {
				switch {
				case looks.Add(1) <= tc.jump:
					return base
				case wall:
					// The machine was suspended: only the wall clock moved on.
					return wallLater(base, time.Hour)
				default:
					return base.Add(time.Hour)
				}
			}})
			ans := s.Send(t.Context(), Request{
				Method: "POST", URL: "http://" + addr, Body: [][]byte{[]byte(strings.Repeat("x", tc.size)), []byte("the end")},
				SendBefore: base.Add(20 * time.Second), AnswerBefore: base.Add(20 * time.Second),
			})
			s.Close()
			if !errors.Is(ans.Err, ErrTooLate) {
				t.Errorf("wall %v, %+v: answer is %+v", wall, tc, ans)
			}
			if ans.Sent == Answered {
				t.Errorf("wall %v, %+v: it was sent", wall, tc)
			}
		}
	}
	for {
		select {
		case b := <-read:
			if bytes.Contains(b, []byte("the end")) {
				t.Errorf("the body was completed: %q", b)
			}
		default:
			return
		}
	}
}

// wallLater gives a time whose wall clock is later but which has no monotonic reading to compare by.
func wallLater(t time.Time, d time.Duration) time.Time { return t.Round(0).Add(d) }

func TestSend_AnswerDeadline(t *testing.T) {
	t.Parallel()
	addr := rawServer(t, func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) })
	s := newTestSender(t, addr)
	r := soon(Request{Method: "GET", URL: "http://" + addr})
	r.AnswerBefore = time.Now().Add(100 * time.Millisecond)
	ans := s.Send(t.Context(), r)
	if ans.Sent != Maybe || !errors.Is(ans.Err, context.DeadlineExceeded) {
		t.Errorf("answer is %+v", ans)
	}
}

func TestSend_UnreadableAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text   string
		sent   Sent
		status int
	}{
		"nothing":        {"", Maybe, 0},
		"garbage":        {"hello\r\n\r\n", Maybe, 0},
		"half a header":  {"HTTP/1.1 200 OK\r\nContent-", Maybe, 0},
		"cut body":       {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", Answered, 200},
		"cut chunks":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", Answered, 200},
		"announced huge": {"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\nabc", Answered, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := rawServer(t, func(nc net.Conn) {
				_, _ = http.ReadRequest(bufio.NewReader(nc))
				_, _ = io.WriteString(nc, tc.text)
			})
			ans := newTestSender(t, addr).Send(t.Context(), soon(Request{Method: "GET", URL: "http://" + addr}))
			if ans.Sent != tc.sent || ans.Status != tc.status || ans.Err == nil {
				t.Errorf("answer is %+v", ans)
			}
		})
	}
}

func TestSend_AnswerTooLarge(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		_, _ = w.Write(make([]byte, 1001))
	}))
	defer srv.Close()
	for limit, want := range map[int64]error{1000: ErrAnswerTooLarge, 1001: nil} {
		s := NewSender(Options{AllowHosts: []string{hostOf(srv.URL)}, MaxAnswer: limit})
		ans := s.Send(t.Context(), soon(Request{Method: "GET", URL: srv.URL}))
		if ans.Sent != Answered || !errors.Is(ans.Err, want) {
			t.Errorf("limit %d: answer is %+v", limit, ans.Err)
		}
		s.Close()
	}
}

func TestSend_TLS(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	s := NewSender(Options{AllowHosts: []string{hostOf(srv.URL)}, RootCAs: roots})
	defer s.Close()
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for range 2 {
		ans := s.Send(t.Context(), soon(Request{Method: "POST", URL: srv.URL, Body: [][]byte{big}}))
		if ans.Sent != Answered || !bytes.Equal(ans.Body, big) {
			t.Fatalf("answer is %v %v, %d bytes", ans.Sent, ans.Err, len(ans.Body))
		}
	}
	strict := newTestSender(t, hostOf(srv.URL))
	if ans := strict.Send(t.Context(), soon(Request{Method: "GET", URL: srv.URL})); ans.Sent != NotSent {
		t.Errorf("an untrusted certificate gave %+v", ans)
	}
}

func TestSend_TLSDeadlineInTheBody(t *testing.T) {
	t.Parallel()
	const size = 32 << 20
	total := make(chan int64, 1)
	resume := make(chan struct{})
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-resume
		n, _ := io.Copy(io.Discard, r.Body)
		total <- n
	}))
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	s := NewSender(Options{AllowHosts: []string{hostOf(srv.URL)}, RootCAs: roots})
	defer s.Close()
	r := soon(Request{Method: "POST", URL: srv.URL, Body: [][]byte{make([]byte, size)}})
	r.SendBefore = time.Now().Add(300 * time.Millisecond)
	ans := s.Send(t.Context(), r)
	close(resume)
	if ans.Sent != Maybe || !errors.Is(ans.Err, ErrTooLate) {
		t.Errorf("answer is %+v", ans)
	}
	if got := <-total; got >= size {
		t.Errorf("the server read %d bytes: the body was completed", got)
	}
}

func TestSend_EarlyRefusal(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }))
	defer srv.Close()
	s := newTestSender(t, hostOf(srv.URL))
	for range 5 {
		ans := s.Send(t.Context(), soon(Request{Method: "POST", URL: srv.URL, Body: [][]byte{make([]byte, 8<<20)}}))
		if ans.Sent != Answered || ans.Status != 429 {
			t.Errorf("answer is %+v; a refusal before the end of the body must be seen", ans)
		}
	}
}

package provider

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
		got <- seen{r.Method, string(b), r.Header.Get("Content-Length"), r.Header.Get("Accept-Encoding"),
			r.TransferEncoding}
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
		if ans.Sent != Answered || ans.Err != nil || ans.Status != 201 || string(ans.Body) != "hello" ||
			ans.Header.Get("X-Answer") != "yes" {
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
		"post with key": {Method: "POST", Header: http.Header{"Idempotency-Key": {"k"}},
			Body: [][]byte{[]byte("{}")}},
		"put with x key": {Method: "PUT", Header: http.Header{"X-Idempotency-Key": {"k"}},
			Body: [][]byte{[]byte("{}")}},
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
		"bad header": soon(Request{Method: "GET", URL: "http://" + addr,
			Header: http.Header{"X-A": {"a\r\nb: c"}}}),
		"bad method": soon(Request{Method: "G ET", URL: "http://" + addr}),
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
		s := NewSender(Options{AllowHosts: []string{hostOf(srv.URL)},
			Now: func() time.Time { n.Add(1); return time.Now() }})
		defer s.Close()
		body := bytes.Repeat([]byte("x"), size)
		ans := s.Send(t.Context(), soon(Request{Method: "POST", URL: srv.URL, Body: [][]byte{body[:size/2],
			body[size/2:]}}))
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

func TestSend_EarlyRefusal(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer srv.Close()
	s := newTestSender(t, hostOf(srv.URL))
	for range 5 {
		ans := s.Send(t.Context(), soon(Request{Method: "POST", URL: srv.URL, Body: [][]byte{make([]byte, 8<<20)}}))
		if ans.Sent != Answered || ans.Status != 429 {
			t.Errorf("answer is %+v; a refusal before the end of the body must be seen", ans)
		}
	}
}

package provider

import (
	"bytes"
	"context"
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

// The clock jumps past the deadline after the n-th look at it; wherever that falls, no byte goes out afterwards. A
// small body goes out in one write, after the third look.
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
				Method: "POST", URL: "http://" + addr, Body: [][]byte{[]byte(strings.Repeat("x", tc.size)),
					[]byte("the end")},
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

package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// A request whose time is over for going out unconfirmed is confirmed before its first byte, and never after it.
func TestSend_Confirm(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); n > 0 && err == nil {
			arrived.Add(1)
		}
	}))
	defer srv.Close()
	s := newTestSender(t, hostOf(srv.URL))
	refuse := errors.New("held")
	for name, tc := range map[string]struct {
		fresh, until time.Duration
		err          error
		confirmed    int
		sent         Sent
	}{
		"fresh":     {fresh: time.Hour, sent: Answered},
		"stale":     {until: time.Hour, confirmed: 1, sent: Answered},
		"refused":   {err: refuse, confirmed: 1, sent: NotSent},
		"no answer": {err: context.DeadlineExceeded, confirmed: 1, sent: NotSent},
	} {
		for _, size := range []int{10, 4 << 20} {
			confirmed, before := 0, arrived.Load()
			r := soon(Request{Method: "POST", URL: srv.URL, Body: [][]byte{bytes.Repeat([]byte("x"), size)},
				FreshUntil: time.Now().Add(tc.fresh)})
			r.Confirm = func(context.Context) (time.Time, error) {
				confirmed++
				return time.Now().Add(tc.until), tc.err
			}
			ans := s.Send(t.Context(), r)
			if ans.Sent != tc.sent || confirmed != tc.confirmed || errors.Is(ans.Err, ErrWithheld) != (tc.err != nil) {
				t.Errorf("%s, %d bytes: %s after %d confirmations, error %v", name, size, ans.Sent, confirmed, ans.Err)
			}
			if got := arrived.Load() - before; got != 1 && tc.sent == Answered || got != 0 && tc.sent == NotSent {
				t.Errorf("%s, %d bytes: %d requests arrived", name, size, got)
			}
		}
	}
}

// A confirmation that took too long is none; one that comes after the deadline does not help.
func TestSend_ConfirmAgain(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	var ahead atomic.Int64
	s := NewSender(Options{AllowHosts: []string{hostOf(srv.URL)},
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	defer s.Close()
	r := soon(Request{Method: "POST", URL: srv.URL, FreshUntil: time.Now()})
	asked := 0
	r.Confirm = func(context.Context) (time.Time, error) {
		asked++
		return time.Now().Add(time.Duration(asked-2) * time.Hour), nil
	}
	if ans := s.Send(t.Context(), r); ans.Sent != Answered || asked != 3 {
		t.Errorf("%s after %d confirmations: %v", ans.Sent, asked, ans.Err)
	}
	r.Confirm = func(context.Context) (time.Time, error) {
		ahead.Store(int64(time.Hour))
		return time.Now().Add(24 * time.Hour), nil
	}
	if ans := s.Send(t.Context(), r); ans.Sent != NotSent || !errors.Is(ans.Err, ErrTooLate) {
		t.Errorf("%s: %v", ans.Sent, ans.Err)
	}
}

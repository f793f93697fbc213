package app

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"flowlane/internal/fault"
)

// tight are bounds that a test can wait for.
var tight = bounds{grace: 100 * time.Millisecond, rate: 1 << 30, piece: 100 * time.Millisecond}

func serveBounded(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(tight.around(h))
	t.Cleanup(server.Close)
	return server
}

func TestBounds_StalledBody(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	server := serveBounded(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		got <- err
	})
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !fault.Is(err, fault.TooSlow) {
		t.Errorf("error %v", err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if !res.Close {
		t.Error("the connection stays open, and what comes late would be the next request")
	}
}

func TestBounds_WaitLimit(t *testing.T) {
	t.Parallel()
	b := bounds{grace: 10 * time.Second, rate: 1000}
	for name, c := range map[string]struct {
		bytes  int64
		waited time.Duration
		want   time.Duration
	}{
		"nothing came":              {0, 0, 10 * time.Second},
		"nothing came for a while":  {0, 4 * time.Second, 6 * time.Second},
		"a byte now and then":       {1, 10 * time.Second, time.Millisecond},
		"as slow as may be":         {60_000, 60 * time.Second, 10 * time.Second},
		"a little slower":           {60_000, 69 * time.Second, time.Second},
		"much slower":               {60_000, 80 * time.Second, -10 * time.Second},
		"much at once, then silent": {1 << 40, time.Second, 10 * time.Second},
	} {
		if got := b.readTimeout(c.bytes, c.waited); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestBounds_LongWork: the bound is on the body, not on what is done with it.
func TestBounds_LongWork(t *testing.T) {
	t.Parallel()
	server := serveBounded(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		select {
		case <-r.Context().Done():
			t.Error("the request was cancelled")
		case <-time.After(4 * tight.grace):
		}
		_, _ = io.WriteString(w, "done")
	})
	res, err := http.Post(server.URL, "text/plain", strings.NewReader("abc"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || string(text) != "done" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestBounds_StalledReader(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	server := serveBounded(t, func(w http.ResponseWriter, _ *http.Request) {
		for piece := bytes.Repeat([]byte("x"), 1<<20); ; {
			if _, err := w.Write(piece); err != nil {
				got <- err
				return
			}
		}
	})
	res, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

package torture_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"flowlane/internal/platform/provider/dialersim"
)

// front stands before the platform, as the network and its gateways do: it delays what arrives, loses what nobody waits
// for any more, and can stop to read in the middle of a body.
type front struct {
	sim *dialersim.Sim

	mu     sync.Mutex
	random *rand.Rand
	// delay is how long a request may take to arrive, and then again how long it may lie before it is looked at. One
	// whose sender is gone by then is lost.
	delay time.Duration
	// stall, if set, stops reading upload bodies after so many bytes, once each, until it is released.
	stall *stall
	// rows, if set, are the rows that were passed on, by their id.
	rows map[string]string

	lost, whole, broken atomic.Int64
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/_control/") || !strings.Contains(r.URL.Path, "upload") {
		f.sim.ServeHTTP(w, r)
		return
	}
	first, second, stall := f.draw()
	if stall != nil {
		defer stall.ended.Add(1)
	}
	pass(r.Context(), first)
	body, err := f.read(r, stall)
	if err != nil {
		f.broken.Add(1)
		panic(http.ErrAbortHandler)
	}
	pass(r.Context(), second)
	if r.Context().Err() != nil {
		f.lost.Add(1)
		panic(http.ErrAbortHandler)
	}
	f.whole.Add(1)
	f.remember(body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.sim.ServeHTTP(w, r)
}

func (f *front) draw() (first, second time.Duration, s *stall) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.delay > 0 {
		first, second = time.Duration(f.random.Int64N(int64(f.delay))), time.Duration(f.random.Int64N(int64(f.delay)))
	}
	return first, second, f.stall
}

func (f *front) read(r *http.Request, s *stall) ([]byte, error) {
	var body bytes.Buffer
	if s != nil && r.ContentLength > s.most {
		f.mu.Lock()
		n := f.random.Int64N(s.most)
		f.mu.Unlock()
		if _, err := io.CopyN(&body, r.Body, n); err != nil {
			return nil, err
		}
		if s.reached.Add(1); !s.wait(r.Context()) {
			return nil, context.Canceled
		}
	}
	_, err := io.Copy(&body, r.Body)
	return body.Bytes(), err
}

// remember keeps the rows of an upload that is passed on.
func (f *front) remember(body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rows == nil {
		return
	}
	var upload struct{ Rows []json.RawMessage }
	_ = json.Unmarshal(body, &upload) // the platform says what is wrong
	for _, row := range upload.Rows {
		var key struct{ ID string }
		_ = json.Unmarshal(row, &key)
		f.rows[key.ID] = string(row)
	}
}

// setStall makes uploads stall from now on; nil ends it for new ones.
func (f *front) setStall(s *stall) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stall = s
}

// stall holds readers of bodies somewhere before byte most until it is released.
type stall struct {
	most int64
	// reached counts the bodies that were held, ended the requests that are over.
	reached, ended atomic.Int64
	released       chan struct{}
}

func (s *stall) wait(ctx context.Context) bool {
	select {
	case <-s.released:
		return true
	case <-ctx.Done():
		return false
	}
}

// pass lets time pass.
func pass(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// narrowListener has small windows, so that most of a large body stays in the process that sends it until it is read.
func narrowListener(t *testing.T) net.Listener {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF,
				64<<10)
		})
	}}
	return must(config.Listen(t.Context(), "tcp", "127.0.0.1:0"))
}

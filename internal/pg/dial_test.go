package pg_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// silencer stands before a Postgres; connections of before it fell silent stay open, and carry nothing any more.
type silencer struct {
	net.Listener

	target string
	silent atomic.Bool
}

func (s *silencer) run(ctx context.Context) {
	for {
		front, err := s.Accept()
		if err != nil {
			return
		}
		back, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.target)
		if err != nil {
			_ = front.Close()
			continue
		}
		context.AfterFunc(ctx, func() { _ = front.Close() })
		heard := !s.silent.Load()
		go func() { _, _ = io.Copy(front, back) }()
		go func() {
			defer back.Close()
			buf := make([]byte, 4096)
			for {
				n, err := front.Read(buf)
				if err != nil {
					return
				}
				if !heard || !s.silent.Load() {
					_, _ = back.Write(buf[:n])
				}
			}
		}()
	}
}

// TestOpen_SilentServer: a connection whose server has gone without a word while it was idle holds nobody up.
func TestOpen_SilentServer(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewEmpty(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	s := &silencer{Listener: ln, target: u.Host}
	go s.run(t.Context())
	u.Host = ln.Addr().String()
	pool, err := pg.Open(t.Context(), u.String(), pg.Options{MaxConns: 2}) // it may take long to close
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s.silent.Store(true)
	<-time.After(1100 * time.Millisecond) // what was idle for less is used without a question
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	if _, err := pool.Exec(ctx, "SELECT 1"); err != nil {
		t.Error(err)
	}
}

package app_test

import (
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"flowlane/internal/app"
	"flowlane/internal/platform/provider/dialersim"
)

// outage is how long the database is away: long enough that every lease is lost.
const outage = 3 * time.Second

// TestRun_AnswerDuringOutage has a call answered while Postgres is away and the lease on its budget is lost: the answer
// is written down once Postgres is back, although nobody could find it out otherwise.
func TestRun_AnswerDuringOutage(t *testing.T) {
	t.Parallel()
	sim := dialersim.New(dialersim.Options{})
	platform := httptest.NewServer(sim)
	t.Cleanup(platform.Close)
	t.Cleanup(sim.Close)
	var front *front
	p := startWith(t, func(c *app.Config) {
		front = newFront(t, c.DatabaseURL)
		c.DatabaseURL, c.BaseURLs, c.Lease = front.url, map[string]string{"dialer": platform.URL}, time.Second
	})
	flow := p.define(t)
	sim.SetAccount("acme", dialersim.AccountSettings{LatencyByOperation: map[string]dialersim.Range{
		"upload": {FixedMS: 1000}}})
	p.trigger(t, flow)
	p.awaitCall(t)
	front.cut()
	<-time.After(outage)
	front.mend()
	p.await(t, "SELECT count(*) FROM flow.call c, flow.batch_count b WHERE c.state = 'settled' AND c.note IS NULL "+
		"AND b.status = 'completed'")
}

// front stands before a Postgres and can be cut off.
type front struct {
	url, target string

	mu    sync.Mutex
	away  bool
	conns []net.Conn
}

func newFront(t *testing.T, dsn string) *front {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	f := &front{target: u.Host}
	u.Host = ln.Addr().String()
	f.url = u.String()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go f.carry(c)
		}
	}()
	return f
}

func (f *front) carry(c net.Conn) {
	defer c.Close()
	back, err := net.Dial("tcp", f.target)
	if err != nil {
		return
	}
	defer back.Close()
	f.mu.Lock()
	f.conns = append(f.conns, c)
	away := f.away
	f.mu.Unlock()
	if away {
		return
	}
	go func() {
		_, _ = io.Copy(back, c)
		back.Close()
	}()
	_, _ = io.Copy(c, back)
}

func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = true
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

func (f *front) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = false
}

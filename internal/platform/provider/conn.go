//go:build unix

package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// guard belongs to one request. It decides, immediately before each write system call, whether the request may still go
// out, and counts what did.
type guard struct {
	now    func() time.Time
	before time.Time
	abort  context.CancelCauseFunc
	// confirm is called before the first byte once fresh has passed; nil where nothing needs to be confirmed.
	confirm func() (time.Time, error)

	stage stage
	// reused: another request had its connection before.
	reused atomic.Bool

	mu    sync.Mutex
	fresh time.Time
	owner *conn // the connection that carried the first byte
	bytes int64
	done  bool
}

// late reports whether the time for sending is over, and passed whether a time is. Either clock may say so: the
// monotonic one stands still while a machine is suspended, the wall clock may be set back.
func (g *guard) late() bool {
	return !g.before.IsZero() && passed(g.before, g.now())
}

func passed(at, now time.Time) bool {
	return !now.Before(at) || !now.Round(0).Before(at.Round(0))
}

// errStale: the request must be confirmed before its first byte.
var errStale = errors.New("the request is not confirmed any more")

// reconfirm has the request confirmed again.
func (g *guard) reconfirm() error {
	until, err := g.confirm()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWithheld, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fresh = until
	return nil
}

// mayWrite is asked before every system call that would write a part of the request to c.
func (g *guard) mayWrite(c *conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bytes > 0 && g.owner != c {
		return errResend
	}
	now := g.now()
	if !g.before.IsZero() && passed(g.before, now) {
		return ErrTooLate
	}
	if g.bytes == 0 && g.confirm != nil && passed(g.fresh, now) {
		return errStale
	}
	return nil
}

func (g *guard) wrote(c *conn, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.owner = c
	g.bytes += int64(n)
}

func (g *guard) written() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bytes
}

// finish marks that the whole answer was read, so that closing the connection later needs no haste.
func (g *guard) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = true
}

func (g *guard) finished() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done
}

// attach puts the guard on the connection that net/http chose for the request, before anything is written to it.
func (g *guard) attach(nc net.Conn) {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, ok := nc.(*conn)
	if !ok {
		g.abort(fmt.Errorf("connection of an unknown kind: %T", nc))
		return
	}
	c.guard.Store(g)
	if err := c.SetWriteDeadline(g.before); err != nil {
		g.abort(err)
	}
}

// conn is a TCP connection that asks the guard of its current request before every write.
type conn struct {
	net.Conn
	raw   syscall.RawConn
	guard atomic.Pointer[guard]
}

func newConn(c net.Conn) (net.Conn, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("connection of an unknown kind: %T", c)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		c.Close()
		return nil, err
	}
	limitUnsent(raw)
	return &conn{Conn: c, raw: raw}, nil
}

// Write hands p to the kernel in pieces. net.Conn.Write would look at the clock once and then wait for room and go on:
// a process that was stopped while it waited would finish its request after it was continued. Here the clock is read
// immediately before each system call, also after a wait.
func (c *conn) Write(p []byte) (int, error) {
	g := c.guard.Load()
	if g == nil {
		return c.Conn.Write(p) // TLS handshake: no request has this connection yet
	}
	total, err := c.write(g, p)
	for errors.Is(err, errStale) {
		if err = g.reconfirm(); err == nil {
			total, err = c.write(g, p)
		}
	}
	if err != nil && g.late() && !errors.Is(err, ErrWithheld) {
		err = ErrTooLate
	}
	if errors.Is(err, ErrTooLate) || errors.Is(err, errResend) || errors.Is(err, ErrWithheld) {
		// Other failures are left to net/http: an early answer may still be on its way.
		g.abort(err)
	}
	return total, err
}

// write is Write as far as the guard lets it.
func (c *conn) write(g *guard, p []byte) (total int, failed error) {
	err := c.raw.Write(func(fd uintptr) bool {
		for total < len(p) {
			if failed = g.mayWrite(c); failed != nil {
				return true
			}
			n, err := syscall.Write(int(fd), p[total:min(len(p), total+maxRead)])
			if n > 0 {
				total += n
				g.wrote(c, n)
			}
			switch err {
			case nil, syscall.EINTR:
			case syscall.EAGAIN:
				return false
			default:
				failed = os.NewSyscallError("write", err)
				return true
			}
		}
		return true
	})
	if failed == nil {
		failed = err
	}
	return total, failed
}

// Close drops what the kernel still holds of an abandoned request: without it the rest of a body could arrive long
// after the deadline.
func (c *conn) Close() error {
	if g := c.guard.Load(); g != nil && !g.finished() {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	return c.Conn.Close()
}

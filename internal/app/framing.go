package app

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"flowlane/internal/api"
)

// framed listens for connections that look at the heads of their requests. net/http drops the Content-Length of a
// request that has a Transfer-Encoding, too, so that no handler can tell; a proxy in front that goes by the length
// takes the rest of its body for a part of it, where we take it for the next request.
type framed struct {
	net.Listener

	// headers are lines that every answer has.
	headers string
}

// Accept implements net.Listener.
func (l framed) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // a listener
	}
	return &framedConn{Conn: c, headers: l.headers}, nil
}

// lingering is how long a connection stays open for what comes after a request that has no handler.
const lingering = time.Second

// framedConn looks at what is read from it, and at the answers that net/http gives without a handler.
type framedConn struct {
	net.Conn

	headers string
	heads   heads
	// ambiguous is true from the first request on that says its length in two ways.
	ambiguous atomic.Bool
	// handled is true while a handler, or what it has written, is under way.
	handled atomic.Bool
}

// Write replaces the answers that net/http itself gives, each in one piece and the last of its connection, to what it
// cannot read as a request: they are text, without our headers.
func (c *framedConn) Write(p []byte) (int, error) {
	if c.handled.Load() || !bytes.HasPrefix(p, []byte("HTTP/1.1 ")) {
		return c.Conn.Write(p) //nolint:wrapcheck // a writer
	}
	head, text, _ := bytes.Cut(p, []byte("\r\n\r\n"))
	status, _, _ := strings.Cut(strings.TrimPrefix(string(head), "HTTP/1.1 "), "\r\n")
	id := api.NewRequestID()
	body := api.Problem(id, cmp.Or(string(text), status), "")
	_, err := fmt.Fprintf(c.Conn,
		"HTTP/1.1 %s\r\n%sConnection: close\r\nX-Request-Id: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		status, c.headers, id, jsonType, len(body), body)
	if err != nil {
		return 0, err //nolint:wrapcheck // a writer
	}
	// net/http waits for the body of a request that it has refused; so no longer than this.
	_ = c.SetReadDeadline(time.Now().Add(lingering))
	return len(p), nil
}

// idle ends an answer.
func idle(c net.Conn, state http.ConnState) {
	if c, ok := c.(*framedConn); ok && state == http.StateIdle {
		c.handled.Store(false)
	}
}

// handled marks a connection whose request has a handler.
func handled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*framedConn); ok {
			c.handled.Store(true)
		}
		next.ServeHTTP(w, r)
	})
}

func (c *framedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.heads.take(p[:n]) {
		c.ambiguous.Store(true)
	}
	return n, err //nolint:wrapcheck // a reader
}

type connKey struct{}

// withConn lets requests see their connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ambiguous reports whether a request came on a connection on which one had two lengths.
func ambiguous(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*framedConn)
	return ok && c.ambiguous.Load()
}

// part is what the next line of a connection belongs to.
type part int

const (
	inHead part = iota
	// atChunk is before the line with a chunk's size, afterChunk before the end of the line with its data.
	atChunk
	afterChunk
	inTrailer
)

// lineStart is how much of a line is looked at: the longest name that matters, with any number.
const lineStart = 64

// heads follows the requests of a connection: each line of a head, and past each body. What is malformed may lead it
// astray, but ends the connection: net/http answers it with 400.
type heads struct {
	in   part
	line []byte
	// skip is how many bytes of a body or a chunk are still to come.
	skip int64
	// length is that of the head so far; sized and chunked say what stands in it.
	length         int64
	sized, chunked bool
}

// take goes on with what was read, and reports whether a head in it had both a Content-Length and a Transfer-Encoding.
func (h *heads) take(p []byte) (both bool) {
	for len(p) > 0 {
		if n := min(h.skip, int64(len(p))); n > 0 {
			h.skip -= n
			p = p[n:]
			continue
		}
		line, rest, ended := bytes.Cut(p, []byte("\n"))
		h.line = append(h.line, line[:min(len(line), lineStart-len(h.line))]...)
		if !ended {
			return both
		}
		both = h.ended(strings.TrimSuffix(string(h.line), "\r")) || both
		h.line, p = h.line[:0], rest
	}
	return both
}

// ended takes one line.
func (h *heads) ended(line string) (both bool) {
	switch h.in {
	case inHead:
		return h.headLine(line)
	case atChunk:
		size, _, _ := strings.Cut(line, ";")
		n, err := strconv.ParseInt(strings.TrimSpace(size), 16, 64)
		h.in, h.skip = afterChunk, n
		if err != nil || n <= 0 {
			h.in, h.skip = inTrailer, 0
		}
	case afterChunk:
		h.in = atChunk
	case inTrailer:
		if line == "" {
			h.in = inHead
		}
	}
	return false
}

func (h *heads) headLine(line string) (both bool) {
	if line == "" {
		if h.chunked {
			h.in = atChunk
		} else {
			h.skip = h.length
		}
		h.length, h.sized, h.chunked = 0, false, false
		return false
	}
	name, value, _ := strings.Cut(line, ":")
	switch {
	case strings.EqualFold(name, "Content-Length"):
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil || n < 0 || len(line) == lineStart {
			return true // it goes on in the next line, or for longer than any number
		}
		h.sized, h.length = true, n
	case strings.EqualFold(name, "Transfer-Encoding"):
		h.chunked = true
	}
	return h.sized && h.chunked
}

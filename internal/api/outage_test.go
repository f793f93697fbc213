package api_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/test/apitest"
)

// wire carries connections to the database, until it is cut.
type wire struct {
	server string

	mu   sync.Mutex
	cut  bool
	open []net.Conn
}

// through returns the address of a database by way of a new wire.
func through(t *testing.T, dsn string) (x *wire, address string) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	x = &wire{server: u.Host}
	u.Host = listener.Addr().String()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go x.carry(client)
		}
	}()
	return x, u.String()
}

func (x *wire) carry(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", x.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	x.mu.Lock()
	if x.cut {
		x.mu.Unlock()
		return
	}
	x.open = append(x.open, client, server)
	x.mu.Unlock()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(server, client)
}

// set cuts all connections and takes no more, or takes them again.
func (x *wire) set(cut bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cut = cut
	if cut {
		for _, c := range x.open {
			_ = c.Close()
		}
		x.open = nil
	}
}

// serveOverWire is serveStack with a wire to its database.
func serveOverWire(t *testing.T, log *logBuffer) (*stack, *wire) {
	t.Helper()
	var x *wire
	s := serveStack(t, false, func(c *app.Config) {
		x, c.DatabaseURL = through(t, c.DatabaseURL)
		c.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	})
	return s, x
}

// back waits until the service serves again.
func (s *stack) back() {
	s.t.Helper()
	s.eventually(func() bool { return s.Do(http.MethodGet, "/account/me", nil).Status == http.StatusOK })
}

func refusedByOutage(t *testing.T, got apitest.Response) {
	t.Helper()
	assert.Equal(t, http.StatusServiceUnavailable, got.Status, "%s", got.Body)
	assert.Equal(t, "1", got.Header.Get("Retry-After"))
}

// TestOutage_EveryOperation: while the database is away every operation says that it cannot be used just now, whether
// its caller is known already or not.
func TestOutage_EveryOperation(t *testing.T) {
	t.Parallel()
	s, wire := serveOverWire(t, &logBuffer{})
	party := newParty(s, "acme")
	org := s.orgID(party.Key)
	for _, op := range documented(t) {
		t.Run(op.id, func(t *testing.T) {
			p := party.in(t)
			defer p.back()
			var call auditedCall
			if op.access == streamers {
				call = auditedCall{method: op.method, path: p.fill(t, op) + "?token=" + streamToken(p.Client, "")}
			} else {
				call = p.call(t, op)
			}
			stranger := p.Bearer(p.issuer.Token(org, map[string]any{"role": "admin", "sub": p.unique()}))
			p.Do(http.MethodGet, "/account/me", nil).Want(http.StatusOK) // the key is known for a second
			wire.set(true)
			defer wire.set(false)
			known, unknown := p.Do(call.method, call.path, call.body), stranger.Do(call.method, call.path, call.body)
			switch {
			case slices.ContainsFunc(publicReads, func(prefix string) bool {
				return strings.HasPrefix(op.path,
					prefix)
			}):
				assert.Equal(t, call.status, unknown.Status, "needs no database")
				if known.Status != call.status { // who is known may have platforms that stand in the database
					refusedByOutage(t, known)
				}
				return
			// nor do they, of who is known
			case (op.id == "validateDefinition" || op.id == "listEventKinds") && known.Status == call.status:
			default:
				refusedByOutage(t, known)
			}
			refusedByOutage(t, unknown)
		})
	}
}

// TestOutage_Log: an outage is logged when it begins, and when it is over, with its length and the number of requests
// refused.
func TestOutage_Log(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s, wire := serveOverWire(t, &log)
	flow := s.define(transformSteps)
	before := log.String()
	wire.set(true)
	const requests = 100
	for i := range requests {
		if i%2 == 0 {
			refusedByOutage(t, s.Do(http.MethodGet, "/flows/definitions/"+flow, nil))
		} else {
			refusedByOutage(t, s.Do(http.MethodPost, "/flows/definitions/"+flow+"/trigger", nil, "Idempotency-Key",
				s.unique()))
		}
	}
	wire.set(false)
	s.eventually(func() bool { return strings.Contains(log.String(), "can be used again") })
	said := strings.TrimPrefix(log.String(), before)
	assert.Equal(t, 1, strings.Count(said, "requests are answered 503"), said)
	assert.Equal(t, 1, strings.Count(said, "can be used again"), said)
	assert.Contains(t, said, "refused=100")
	assert.Contains(t, said, "seconds=")
	assert.NotContains(t, said, "request failed")
	assert.Less(t, strings.Count(said, "\n"), 20, said)
	s.back()
}

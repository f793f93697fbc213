package provider

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"code.dny.dev/ssrf"
	"github.com/google/uuid"

	"flowlane/internal/command"
	"flowlane/internal/memory"
	"flowlane/internal/platform/catalog"
)

// Errors that an Answer may wrap.
var (
	// ErrTooLate: the deadline for sending passed before the request was out.
	ErrTooLate = errors.New("the deadline for sending has passed")
	// ErrNotTried: it had passed before anything was tried. It wraps ErrTooLate.
	ErrNotTried = fmt.Errorf("%w before the call was tried", ErrTooLate)
	// ErrWithheld: the request was not confirmed, so that nothing of it was sent.
	ErrWithheld = errors.New("the request was withheld")
	// ErrAddressRefused: the address lies in a network, or on a port, that calls must not reach.
	ErrAddressRefused = errors.New("the address is not allowed")
	// ErrAnswerTooLarge: the answer is larger than what is read.
	ErrAnswerTooLarge = errors.New("the answer is too large")
	// ErrBadRequest: the request cannot be put on the wire.
	ErrBadRequest = errors.New("the request is malformed")

	errResend = errors.New("the request was already sent on another connection")
)

// defaultMaxAnswer is the size in bytes up to which an answer is read.
const defaultMaxAnswer = 8 << 20

// Options configure a Sender.
type Options struct {
	// AllowHosts lists "host:port" that may be reached although they lie in a private network, as the operator
	// configured them (the simulator, a provider behind a VPN); "host:*" allows all ports. They are compared with the
	// address as the URL names it.
	AllowHosts []string
	// DenyNetworks are public networks that must not be reached either, but for those hosts.
	DenyNetworks []netip.Prefix
	// PlatformHosts lists those that only calls of one platform may reach, by its id.
	PlatformHosts map[string][]string
	// Now is the clock; nil for time.Now. It must give monotonic readings.
	Now func() time.Time
	// Random is where what must not repeat comes from; nil for crypto/rand.
	Random io.Reader
	// MaxAnswer bounds the answer in bytes; 0 for defaultMaxAnswer.
	MaxAnswer int64
	// RootCAs are the certificate authorities; nil for those of the system.
	RootCAs *x509.CertPool
	// DialTimeout bounds making one connection; 0 for ten seconds.
	DialTimeout time.Duration
	// Memory is the process's budget for answers; nil for none.
	Memory *memory.Budget
	// Commands are those that may be run; nil for none.
	Commands *command.Set
}

// Sender sends requests, each at most once. It is safe for concurrent use; its connections are kept for later calls.
type Sender struct {
	// transport serves all but the platforms with hosts of their own: a connection that one of these has is nobody
	// else's.
	transport *http.Transport
	platforms map[string]*http.Transport
	now       func() time.Time
	random    io.Reader
	maxAnswer int64
	memory    *memory.Budget
	tokens    *tokens
	sessions  *sessions
	pools     *pools
	commands  *command.Set
}

// metadata is where a public address stands for the machine's own host: the platform service of Azure.
var metadata = netip.MustParsePrefix("168.63.129.16/32")

// NewSender returns a Sender that reaches public addresses on ports 80 and 443 but for DenyNetworks, and AllowHosts.
func NewSender(o Options) *Sender {
	s := &Sender{platforms: map[string]*http.Transport{}, now: o.Now, random: o.Random, maxAnswer: o.MaxAnswer,
		memory: o.Memory, commands: o.Commands}
	if s.now == nil {
		s.now = time.Now
	}
	if s.random == nil {
		s.random = rand.Reader
	}
	s.tokens, s.sessions = newTokens(s.now), newSessions()
	s.pools = newPools(s.now)
	if s.maxAnswer == 0 {
		s.maxAnswer = defaultMaxAnswer
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
	s.transport = newTransport(&o, o.AllowHosts)
	for platform, hosts := range o.PlatformHosts {
		s.platforms[platform] = newTransport(&o, slices.Concat(o.AllowHosts, hosts))
	}
	return s
}

func newTransport(o *Options, allow []string) *http.Transport {
	// HTTP/1 only: HTTP/2 resends requests on refused streams and shares one connection between calls, so that neither
	// the write guard nor the count of bytes written would belong to one call.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:               nil,
		DialContext:         dialer(o, allow),
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs},
		TLSHandshakeTimeout: 10 * time.Second,
		Protocols:           protocols,
		DisableCompression:  true,
		MaxIdleConns:        1024,
		// as many calls as may be under way: a connection that is not kept is made anew for the next call
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// Close closes the connections that are idle.
func (s *Sender) Close() {
	s.pools.close()
	s.transport.CloseIdleConnections()
	for _, t := range s.platforms {
		t.CloseIdleConnections()
	}
}

// dialer connects to public addresses that are not denied, and to those that are allowed.
func dialer(o *Options, allow []string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	v4, v6 := []netip.Prefix{metadata}, []netip.Prefix(nil)
	for _, network := range o.DenyNetworks {
		if network.Addr().Is4() {
			v4 = append(v4, network)
		} else {
			v6 = append(v6, network)
		}
	}
	guardian := ssrf.New(ssrf.WithDeniedV4Prefixes(v4...), ssrf.WithDeniedV6Prefixes(v6...))
	control := func(network, address string, c syscall.RawConn) error {
		if err := guardian.Safe(network, address, c); err != nil {
			return fmt.Errorf("%w: %w", ErrAddressRefused, err)
		}
		return nil
	}
	guarded := &net.Dialer{Timeout: o.DialTimeout, Control: control}
	open := &net.Dialer{Timeout: o.DialTimeout}
	allowed := newHosts(allow)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := guarded
		if allowed.has(addr) {
			d = open
		}
		c, err := d.DialContext(ctx, network, addr)
		if errors.Is(err, ErrAddressRefused) {
			return nil, &refusedAddressError{addr, err}
		}
		if err != nil {
			return nil, err
		}
		return newConn(c)
	}
}

// Send sends the request once and reads the answer. It follows no redirect and never sends again, whatever happens: an
// Answer always says what is known.
func (s *Sender) Send(ctx context.Context, r Request) Answer {
	ans := Answer{StartedAt: s.now(), repeats: r.Repeats, outcomes: r.outcomes, rows: r.rows, soap: r.soap}
	g := &guard{now: s.now, before: r.SendBefore}
	if r.Memory == nil {
		r.Memory = s.memory.Begin(uuid.Nil)
		defer r.Memory.Release()
	}
	if !r.AnswerBefore.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.AnswerBefore)
		defer cancel()
	}
	ctx, g.abort = context.WithCancelCause(ctx)
	defer g.abort(nil)
	if !r.FreshUntil.IsZero() {
		g.fresh, g.confirm = r.FreshUntil, func() (time.Time, error) { return r.Confirm(ctx) }
	}
	if r.job != nil {
		return s.sendJob(ctx, &r)
	}
	if r.command != nil {
		s.runCommand(ctx, &r, g, &ans)
		return ans
	}
	var req *http.Request
	err := ErrNotTried
	if !g.late() {
		err = r.tls.good(s.now())
	}
	if err == nil {
		err = s.sign(ctx, &r)
	}
	if err == nil && r.tool != nil {
		ans.toolCall = r.tool.id
		err = s.join(ctx, &r)
	}
	if err == nil {
		req, err = g.request(ctx, r)
	}
	if err == nil {
		s.exchange(req, &r, g, &ans)
		for _, m := range r.masks {
			m.answer(&ans)
		}
		if ans.Err != nil {
			ans.FailedAt = g.stage.String()
		}
		ans.Stale = s.tokens.answered(r.token, &ans)
		s.sessions.answered(r.tool, &ans)
	} else {
		ans.Err = err
	}
	ans.FinishedAt, ans.masks = s.now(), r.masks
	return ans
}

// sign makes a request ready whose authentication must be fresh.
func (s *Sender) sign(ctx context.Context, r *Request) error {
	if r.sign == nil {
		return nil
	}
	r.Header = r.Header.Clone()
	return r.sign(ctx, s, r)
}

// exchange does the one round trip; what it learns goes into ans.
func (s *Sender) exchange(req *http.Request, r *Request, g *guard, ans *Answer) {
	transport := cmp.Or(s.platforms[r.PlatformID], s.transport)
	if r.tls != nil {
		own, done, err := s.pools.take(r.tls, r.PlatformID, transport)
		if err != nil {
			ans.Err = err
			return
		}
		defer done()
		transport = own
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		if cause := context.Cause(req.Context()); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		ans.Err = err
		if g.written() > 0 {
			ans.Sent = Maybe
		}
		if refused := refusesClient(err); refused != nil && !g.reused.Load() {
			ans.Sent, ans.Err = NotSent, refused
		}
		return
	}
	defer resp.Body.Close()
	g.stage.enter(StageRead)
	ans.Sent, ans.Status, ans.Header = Answered, resp.StatusCode, resp.Header
	if r.tool != nil && isEventStream(resp.Header) {
		ans.Body, ans.Err = readMessage(req.Context(), resp.Body, r.tool.id, s.maxAnswer, r.Memory)
	} else {
		ans.Body, ans.Err = readAll(req.Context(), resp, s.maxAnswer, r.Memory)
	}
	if ans.Err == nil {
		g.finish()
	}
}

// request builds the http.Request so that net/http has nothing to resend: the body is there but cannot be read again.
func (g *guard) request(ctx context.Context, r Request) (*http.Request, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("%w: the address must be a whole http or https URL", ErrBadRequest)
	}
	if strings.Contains(u.Host, catalog.Open) {
		return nil, fmt.Errorf("%w: the address names no host", ErrBadRequest)
	}
	if !isASCII(u.Host) {
		return nil, fmt.Errorf("%w: the address must name its host in ASCII: "+
			"write an international name in its xn-- form", ErrBadRequest)
	}
	trace := &httptrace.ClientTrace{
		DNSStart:          func(httptrace.DNSStartInfo) { g.stage.enter(StageDNS) },
		ConnectStart:      func(string, string) { g.stage.enter(StageConnect) },
		TLSHandshakeStart: func() { g.stage.enter(StageTLS) },
		GotConn: func(info httptrace.GotConnInfo) {
			g.stage.enter(StageWrite)
			g.reused.Store(info.Reused)
			g.attach(info.Conn)
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				g.stage.enter(StageWait)
			}
		},
	}
	header := r.Header
	if header == nil {
		header = http.Header{}
	}
	req := &http.Request{
		Method: r.Method, URL: u, Host: u.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: r.Size(), Body: &body{parts: r.Body, g: g},
	}
	if req.ContentLength > 0 && req.ContentLength <= smallBody {
		// A body of a kind that net/http knows goes out with the headers, others in a write of their own. It cannot be
		// read again either: that takes GetBody.
		req.Body = io.NopCloser(bytes.NewReader(bytes.Join(r.Body, nil)))
	}
	if req.ContentLength == 0 && saysZero(r.Method) && !replayable(header) {
		// Without a body that may be resent these methods announce "Content-Length: 0", which more servers understand
		// than an empty chunked body.
		req.Body = http.NoBody
	}
	return req.WithContext(httptrace.WithClientTrace(ctx, trace)), nil
}

// isASCII reports whether a host can be compared letter by letter: others look, or are mapped, like hosts that they are
// not.
func isASCII(host string) bool {
	return strings.IndexFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}

func saysZero(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// replayable reports whether net/http would take a header as the permission to send a bodyless request again.
func replayable(h http.Header) bool {
	_, a := h["Idempotency-Key"]
	_, b := h["X-Idempotency-Key"]
	return a || b
}

// smallBody is the size up to which a body goes out in one write with the headers: they share a buffer of 4 KiB.
const smallBody = 2 << 10

// maxRead is the most that one read of a body gives, so that the deadline is looked at often.
const maxRead = 64 << 10

// body reads the parts one after the other and fails once the deadline has passed.
type body struct {
	parts    [][]byte
	part, at int
	g        *guard
}

func (b *body) Read(p []byte) (int, error) {
	if b.g.late() {
		b.g.abort(ErrTooLate)
		return 0, ErrTooLate
	}
	for b.part < len(b.parts) && b.at == len(b.parts[b.part]) {
		b.part, b.at = b.part+1, 0
	}
	if b.part == len(b.parts) {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), maxRead)], b.parts[b.part][b.at:])
	b.at += n
	return n, nil
}

func (b *body) Close() error { return nil }

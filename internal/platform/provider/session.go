package provider

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"
	"golang.org/x/sync/singleflight"

	"flowlane/internal/platform/catalog"
)

const (
	// sessionTimeout bounds the beginning of a session.
	sessionTimeout = 10 * time.Second
	// maxSessions bounds the sessions in memory.
	maxSessions = 10_000

	sessionHeader, versionHeader = "Mcp-Session-Id", "Mcp-Protocol-Version"
)

// protocolVersions are those of the protocol in which calls of tools are as they are made here, the one that is asked
// for first.
var protocolVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// errNoSession: there is no session for a call, so that nothing of it was sent.
var errNoSession = errors.New("no session")

// session is what a server knows a series of messages by.
type session struct {
	key string
	// id is empty where the server keeps no sessions; version is the protocol's.
	id, version string
	// proven: the server has taken a call in it.
	proven atomic.Bool
}

// header says in a request which session it belongs to.
func (of *session) header(h http.Header) {
	if of.id != "" {
		h.Set(sessionHeader, of.id)
	}
	h.Set(versionHeader, of.version)
}

// sessions are those of this process, in memory only: of each owner with a credential at an address one.
type sessions struct {
	group singleflight.Group

	mu   sync.Mutex
	held map[string]*session
}

func newSessions() *sessions { return &sessions{held: map[string]*session{}} }

// join has a call belong to a session, which it begins where there is none. To begin one changes nothing, and may be
// done again; the call itself is not sent by it. Errors are *ProbeError that wrap errNoSession, and those of Send and
// of ctx.
func (s *Sender) join(ctx context.Context, r *Request) error {
	if r.tool.opening {
		return nil
	}
	key := ""
	if r.Owner != "" && r.tool.shared {
		key = strings.Join([]string{r.Owner, r.PlatformID, r.URL, r.tool.secret}, "\n")
	}
	of, err := s.sessions.get(ctx, key, func(ctx context.Context) (*session, error) { return s.begin(ctx, r) })
	if err != nil {
		return err
	}
	own := *r.tool
	own.session, r.tool = of, &own
	r.Header = r.Header.Clone()
	of.header(r.Header)
	return nil
}

func (t *sessions) lookup(key string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held[key]
}

func (t *sessions) get(ctx context.Context, key string,
	begin func(context.Context) (*session, error)) (*session, error) {
	if key == "" {
		return begin(ctx)
	}
	if held := t.lookup(key); held != nil {
		return held, nil
	}
	done := t.group.DoChan(key, func() (any, error) {
		if held := t.lookup(key); held != nil {
			return held, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionTimeout)
		defer cancel()
		of, err := begin(ctx)
		if err != nil {
			return nil, err
		}
		of.key = key
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(t.held) >= maxSessions {
			clear(t.held) // each is begun once more
		}
		t.held[key] = of
		return of, nil
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-done:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*session), nil
	}
}

// answered takes note of the answer to a call. A session that the server no longer knows is dropped, once for all calls
// that had it.
func (t *sessions) answered(call *toolCall, ans *Answer) {
	if call == nil || call.session == nil || ans.Sent != Answered {
		return
	}
	of := call.session
	if of.id == "" || !saysNoSession(ans) {
		if ans.Status == http.StatusOK {
			of.proven.Store(true)
		}
		return
	}
	ans.NoSession, ans.Proven = true, of.proven.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[of.key] == of {
		delete(t.held, of.key)
	}
}

// saysNoSession: by the protocol a server answers 404 to a session that is over. Some answer 400 instead, and say why.
func saysNoSession(ans *Answer) bool {
	return ans.Status == http.StatusNotFound ||
		ans.Status == http.StatusBadRequest && bytes.Contains(bytes.ToLower(ans.Body), []byte("session"))
}

// begin begins a session for a call: it introduces us, and says that it has begun.
func (s *Sender) begin(ctx context.Context, call *Request) (*session, error) {
	r := message("initialize", []byte(`{"protocolVersion":"`+protocolVersions[0]+
		`","capabilities":{},"clientInfo":{"name":"`+userAgent+`","version":"1"}}`))
	r.tool.opening = true
	ans := s.inform(ctx, call, r, nil)
	if ans.Stale { // its token was dropped
		ans = s.inform(ctx, call, r, nil)
	}
	doc, err := sessionAnswer(&ans)
	if err != nil {
		return nil, err
	}
	of := &session{id: ans.Header.Get(sessionHeader), version: doc.Get("result.protocolVersion").String()}
	switch {
	case ans.Status != http.StatusOK || !doc.Get("result").IsObject():
		return nil, probeError(UnknownClass, errNoSession, "The server did not begin a session (%s).", statusText(&ans))
	case !slices.Contains(protocolVersions, of.version):
		return nil, probeError(UnknownClass, errNoSession,
			"The server speaks version %s of the protocol, which is not supported.", clean(of.version, maxSaid))
	case !httpguts.ValidHeaderFieldValue(of.id):
		return nil, probeError(UnknownClass, errNoSession, "The server's session id is malformed.")
	}
	begun := Request{Method: http.MethodPost,
		Body: [][]byte{[]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)}, Header: rpcHeader()}
	ans = s.inform(ctx, call, begun, of)
	_, err = sessionAnswer(&ans)
	return of, err
}

// inform sends a message that changes nothing, authenticated as the call is.
func (s *Sender) inform(ctx context.Context, call *Request, r Request, of *session) Answer {
	for name, values := range call.Header { // what the credential has set
		if r.Header[name] == nil && name != sessionHeader && name != versionHeader {
			r.Header[name] = values
		}
	}
	if of != nil {
		of.header(r.Header)
	}
	deadline := s.now().Add(sessionTimeout)
	r.URL, r.PlatformID, r.sign, r.newToken, r.masks = call.URL, call.PlatformID, call.sign, call.newToken,
		slices.Clip(call.masks)
	r.tls = call.tls
	r.SendBefore, r.AnswerBefore = deadline, deadline
	return s.Send(ctx, r)
}

// sessionAnswer is the message of an answer to what begins a session, if it can be one. The error says why not.
func sessionAnswer(ans *Answer) (gjson.Result, error) {
	class, _ := CredentialUse(ans)
	switch {
	case ans.Sent == NotSent:
		return gjson.Result{}, ans.Err
	case ans.Sent == Maybe, class == Timeout:
		return gjson.Result{}, probeError(class, errNoSession, "The server did not begin a session: no answer came.")
	case class != "":
		return gjson.Result{}, probeError(class, errNoSession, "The server did not begin a session (%s).",
			statusText(ans))
	}
	return parse(ans.Body), nil
}

// trySession tries a secret by beginning a session.
func (s *Sender) trySession(ctx context.Context, svc *catalog.Service, secret Secret) error {
	base, err := secret.base(svc)
	r := Request{Method: http.MethodPost, URL: base, PlatformID: svc.PlatformID, Header: http.Header{}, newToken: true}
	if err == nil {
		err = secret.apply(svc, &r)
	}
	if err != nil {
		return probeError(InvalidShape, err, "The credential lacks what this platform needs.")
	}
	of, err := s.begin(ctx, &r)
	var known *ProbeError
	switch {
	case err == nil && of.id != "":
		end := Request{Method: http.MethodDelete, Header: rpcHeader()}
		s.inform(ctx, &r, end, of) // the server may refuse that
	case err != nil && !errors.As(err, &known):
		return probeError(Network, err, "The platform could not be reached.")
	}
	return err
}

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"flowlane/internal/platform/catalog"
)

// toolServer is a server of the protocol, with what it was sent.
type toolServer struct {
	url string
	// seen are the messages, "<method> <session>"; ran counts calls that were carried out.
	mu   sync.Mutex
	seen []string
	ran  atomic.Int32
	// handler may be replaced.
	handler atomic.Pointer[http.Handler]
}

func (s *toolServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.seen = append(s.seen, strings.TrimSpace(gjson.GetBytes(body, "method").String()+" "+
		r.Header.Get("Mcp-Session-Id")))
	s.mu.Unlock()
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	(*s.handler.Load()).ServeHTTP(w, r)
}

// count is how many messages of a method came.
func (s *toolServer) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.seen {
		if name, _, _ := strings.Cut(m, " "); name == method {
			n++
		}
	}
	return n
}

// official is a server made with the official library. renew forgets its sessions.
func official(t *testing.T, o *mcp.StreamableHTTPOptions) (s *toolServer, renew func()) {
	t.Helper()
	s = &toolServer{}
	renew = func() {
		server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
		type words struct {
			Text string `json:"text"`
		}
		mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest,
			in words) (*mcp.CallToolResult, any, error) {
			s.ran.Add(1)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text},
				&mcp.TextContent{Text: "again"}}}, nil, nil
		})
		mcp.AddTool(server, &mcp.Tool{Name: "count"}, func(ctx context.Context, r *mcp.CallToolRequest,
			in words) (*mcp.CallToolResult, map[string]int, error) {
			s.ran.Add(1)
			note := &mcp.ProgressNotificationParams{ProgressToken: "counting", Progress: 1}
			_ = r.Session.NotifyProgress(ctx, note) // there is no place for it in an answer of JSON
			return nil, map[string]int{"letters": len(in.Text)}, nil
		})
		mcp.AddTool(server, &mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest,
			words) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.New("the printer is on fire")
		})
		var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, o)
		s.handler.Store(&h)
	}
	renew()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	s.url = web.URL + "/mcp"
	return s, renew
}

// scripted is a server that answers the calls of tools as a test says.
func scripted(t *testing.T, call func(w http.ResponseWriter, r *http.Request, id string)) *toolServer {
	t.Helper()
	s := &toolServer{}
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id := gjson.GetBytes(body, "id").Raw
		switch gjson.GetBytes(body, "method").String() {
		case "initialize":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Mcp-Session-Id", fmt.Sprintf("s%d", s.count("initialize")))
			_, _ = fmt.Fprintf(w,
				`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`, id)
		case "tools/call":
			s.ran.Add(1)
			call(w, r, id)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
	s.handler.Store(&h)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	s.url = web.URL
	return s
}

func toolAction(name string) *catalog.Action {
	return &catalog.Action{ID: "p__s__" + name, Call: &catalog.Call{Tool: name,
		Answer: catalog.Answer{Success: []int{200}, Refused: []int{400, 401, 404}}}}
}

// callTool calls a tool once, for an owner.
func callTool(t *testing.T, sender *Sender, url, owner, tool, params string, secret Secret) Reading {
	t.Helper()
	svc := &catalog.Service{ID: "p__s", PlatformID: "p", Kind: "mcp", AuthMethod: "none", BaseURL: url}
	act := toolAction(tool)
	r, err := Prepare(svc, act, json.RawMessage(params), nil, secret, "")
	if err != nil {
		t.Fatal(err)
	}
	r.Owner = owner
	return Read(act, sender.Send(t.Context(), soon(r)), 0)
}

func TestTool(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*mcp.StreamableHTTPOptions{
		"streams": {}, "json": {JSONResponse: true}, "stateless": {Stateless: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := official(t, o)
			sender := newTestSender(t, hostOf(strings.TrimSuffix(s.url, "/mcp")))
			for _, c := range []struct{ tool, params, kind, want string }{
				{"echo", `{"text":"a \"b\" ü"}`, "success",
					`{"text":"a \"b\" ü\nagain","content":[{"type":"text","text":"a \"b\" ü"},{"type":"text","text":"again"}]}`},
				{"count", `{"text":"four"}`, "success", `{"letters":4}`},
				{"fail", `{"text":""}`, "refused", "tool_error the printer is on fire"},
				{"nothing", `{}`, "refused", `-32602 unknown tool "nothing"`},
			} {
				got := callTool(t, sender, s.url, "acme", c.tool, c.params, Secret{})
				text := strings.TrimSpace(string(got.Output) + got.Code + " " + got.Message)
				if string(got.Kind) != c.kind || text != c.want {
					t.Errorf("%s: %s %s; want %s %s", c.tool, got.Kind, text, c.kind, c.want)
				}
			}
			if begun, calls := s.count("initialize"), s.count("tools/call"); begun != 1 || calls != 4 {
				t.Errorf("%d sessions, %d calls; want 1 and 4", begun, calls)
			}
		})
	}
}

// TestTool_Sessions: calls of one owner share a session, those of others have their own, and one without an owner keeps
// none.
func TestTool_Sessions(t *testing.T) {
	t.Parallel()
	s, renew := official(t, &mcp.StreamableHTTPOptions{})
	sender := newTestSender(t, hostOf(strings.TrimSuffix(s.url, "/mcp")))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			text := fmt.Sprintf("text %d", i)
			got := callTool(t, sender, s.url, "acme", "echo", `{"text":"`+text+`"}`, Secret{})
			if !strings.HasPrefix(gjson.GetBytes(got.Output, "text").String(), text+"\n") {
				t.Errorf("%s was answered %s", text, got.Output)
			}
		})
	}
	wg.Wait()
	if n := s.count("initialize"); n != 1 {
		t.Errorf("%d sessions of one owner; want 1", n)
	}
	callTool(t, sender, s.url, "other", "echo", `{"text":"x"}`, Secret{})
	for range 2 {
		callTool(t, sender, s.url, "", "echo", `{"text":"x"}`, Secret{})
	}
	if n := s.count("initialize"); n != 4 {
		t.Errorf("%d sessions; want 4", n)
	}
	renew() // the server knows no session any more
	ran := s.ran.Load()
	if got := callTool(t, sender, s.url, "acme", "echo", `{"text":"x"}`, Secret{}); got.Kind != RetryLater ||
		got.Reason != ReasonBusy {
		t.Errorf("a session that is over: %+v; want retry_later", got)
	}
	if got := callTool(t, sender, s.url, "acme", "echo", `{"text":"x"}`, Secret{}); got.Kind != Success {
		t.Errorf("in a new session: %+v", got)
	}
	if n := s.ran.Load() - ran; n != 1 {
		t.Errorf("carried out %d times; want 1", n)
	}
}

// TestTool_Unknown: what the answer does not say is not known, and no call is sent a second time.
func TestTool_Unknown(t *testing.T) {
	t.Parallel()
	stream := func(text string) func(w http.ResponseWriter, r *http.Request, id string) {
		return func(w http.ResponseWriter, _ *http.Request, id string) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "ID", id))
		}
	}
	answer := func(status int, text string) func(w http.ResponseWriter, r *http.Request, id string) {
		return func(w http.ResponseWriter, _ *http.Request, id string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "ID", id))
		}
	}
	const ok = `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`
	for name, c := range map[string]struct {
		call   func(w http.ResponseWriter, r *http.Request, id string)
		kind   Kind
		reason string
	}{
		"notes before it": {stream(": hello\n\nevent: message\r\ndata: " +
			"{\"method\":\"notifications/progress\"}\r\n\r\nid: 4\ndata: {\"jsonrpc\":\"2.0\",\n" +
			"data: \"id\":ID,\"result\":{}}\n\nrest"), Success, ""},
		"old line ends": {stream("data: " + ok + "\r\r"), Success, ""},
		"no empty line": {stream("data: " + ok), Success, ""},
		"json":          {answer(200, ok), Success, ""},
		"cut":           {stream("data: {\"jsonrpc\":\"2.0\",\"id\":ID"), Unknown, ReasonUnreadable},
		"another's": {stream("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n"), Unknown,
			ReasonUnreadable},
		"another's, json": {answer(200, `{"id":7,"result":{}}`), Unknown, ReasonUnreadable},
		"no result":       {answer(200, `{"id":ID,"result":"done"}`), Unknown, ReasonUnreadable},
		"no json":         {answer(200, `<html>`), Unknown, ReasonUnreadable},
		"flood": {stream(strings.Repeat("data: {\"method\":\"notifications/message\"}\n\n", 5000)), Unknown,
			ReasonUnreadable},
		"internal error": {answer(200, `{"id":ID,"error":{"code":-32603,"message":"oh"}}`), Unknown, ReasonUnexpected},
		"bad arguments":  {answer(200, `{"id":ID,"error":{"code":-32602,"message":"oh"}}`), Refused, ReasonRefused},
		"not begun":      {answer(400, `{"id":null,"error":{"code":-32600,"message":"oh"}}`), Refused, ReasonRefused},
		"only accepted":  {answer(202, ``), Unknown, ReasonUnexpected},
		"server error":   {answer(500, ``), Unknown, ReasonServerError},
		"no session":     {answer(404, ``), NotArrived, ReasonNoSession},
		"closed": {func(w http.ResponseWriter, _ *http.Request, _ string) {
			nc, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				nc.Close()
			}
		}, Unknown, ReasonNoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, c.call)
			sender := NewSender(Options{AllowHosts: []string{hostOf(s.url)}, MaxAnswer: 64 << 10})
			t.Cleanup(sender.Close)
			got := callTool(t, sender, s.url, "acme", "x", `{}`, Secret{})
			if got.Kind != c.kind || got.Reason != c.reason {
				t.Errorf("reading %+v; want %s %s", got, c.kind, c.reason)
			}
			if n := s.ran.Load(); n != 1 {
				t.Errorf("sent %d times; want 1", n)
			}
		})
	}
}

// TestTool_Hangs: a stream without an end is given up at the deadline.
func TestTool_Hangs(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	s := scripted(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": working\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(done)
	})
	sender := newTestSender(t, hostOf(s.url))
	svc := &catalog.Service{PlatformID: "p", Kind: "mcp", AuthMethod: "none", BaseURL: s.url}
	r, err := Prepare(svc, toolAction("x"), nil, nil, Secret{}, "")
	if err != nil {
		t.Fatal(err)
	}
	r.SendBefore, r.AnswerBefore = time.Now().Add(20*time.Second), time.Now().Add(2*time.Second)
	ans := sender.Send(t.Context(), r)
	if got := Read(toolAction("x"), ans, 0); got.Kind != Unknown || ans.FailedAt != StageRead {
		t.Fatalf("reading %+v, failed at %s; want unknown at read", got, ans.FailedAt)
	}
	<-done
}

// TestTool_NoSession: where none is begun, nothing of the call is sent.
func TestTool_NoSession(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status     int
		body       string
		code, said string
	}{
		"refused":  {401, `{"message":"bad k3y-of-acme"}`, AuthFailed, `status 401: {"message":"bad ***********"}`},
		"no tools": {404, `not here`, UnknownClass, "status 404"},
		"version":  {200, `{"id":1,"result":{"protocolVersion":"1999-01-01"}}`, UnknownClass, "version 1999-01-01"},
		"failed":   {200, `{"id":1,"error":{"code":-32602}}`, UnknownClass, "status 200"},
		"no json":  {200, `{`, UnknownClass, "status 200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &toolServer{}
			var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Key") != "k3y-of-acme" {
					t.Error("a message without the key")
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			s.handler.Store(&h)
			web := httptest.NewServer(s)
			t.Cleanup(web.Close)
			secret, err := NewSecret(Spec{Method: "api_key", PlatformID: "p", Origins: []string{web.URL},
				Version: "c/1",
				Fields:  map[string]string{"api_key": "k3y-of-acme"}, Placement: Placement{HeaderName: "X-Key"}})
			if err != nil {
				t.Fatal(err)
			}
			got := callTool(t, newTestSender(t, hostOf(web.URL)), web.URL, "acme", "x", `{}`, secret)
			if got.Kind != NotArrived || got.Reason != ReasonNoSession || got.Code != c.code ||
				!strings.Contains(got.Message, c.said) {
				t.Errorf("reading %+v; want %s %q", got, c.code, c.said)
			}
			if n := s.count("tools/call"); n != 0 {
				t.Errorf("%d calls were sent", n)
			}
		})
	}
}

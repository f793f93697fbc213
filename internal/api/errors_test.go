package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/fault"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	field := fault.Field{Loc: []string{"body", "a"}, Msg: "m", Type: "t", Input: "i", Ctx: map[string]any{"ge": 1}}
	tests := []struct {
		name   string
		err    error
		status int
		detail string
	}{
		{"Moved", &fault.Error{Code: fault.Moved, Detail: "x", To: "https://cell1.example"}, 307, `"x"`},
		{"Invalid", fault.New(fault.Invalid, "x"), 400, `"x"`},
		{"Unauthenticated", fault.New(fault.Unauthenticated, "x"), 401, `"x"`},
		{"Forbidden", fault.New(fault.Forbidden, "Admin role required"), 403, `"Admin role required"`},
		{"NotFound", fault.Missing("Batch"), 404, `"Batch not found"`},
		{"Conflict", fault.New(fault.Conflict, "x"), 409, `"x"`},
		{"TooLarge", fault.New(fault.TooLarge, "x"), 413, `"x"`},
		{"TooSlow", fault.New(fault.TooSlow, "x"), 408, `"x"`},
		{"Fields", fault.Invalidated(field), 422,
			`[{"loc":["body","a"],"msg":"m","type":"t","input":"i","ctx":{"ge":1}}]`},
		{"Expressions", fault.BadExpressions([]string{"x"}), 422, `{"expression_errors":["x"]}`},
		{"RateLimited", &fault.Error{Code: fault.RateLimited, Detail: "x", RetryAfter: 1500 * time.Millisecond}, 429,
			`"x"`},
		{"Unavailable", fault.New(fault.Unavailable, "x"), 503, `"x"`},
		{"Wrapped", fmt.Errorf("somewhere: %w", fault.Missing("Job")), 404, `"Job not found"`},
		{"WithCause", fault.New(fault.Conflict, "x").Because(errors.New("secret")), 409, `"x"`},
		{"OfOurs", errors.New("secret: connection refused"), 500,
			`"Internal error; quote the X-Request-Id when you report it"`},
		{"UnknownCode", &fault.Error{Code: "new", Detail: "secret"}, 500,
			`"Internal error; quote the X-Request-Id when you report it"`},
	}
	h := errorHandler{log: slog.New(slog.DiscardHandler)}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			h.fail(context.Background(), w, tt.err)
			var body struct {
				Detail     json.RawMessage
				Code, Hint string
			}
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
			if w.Code != tt.status || string(body.Detail) != tt.detail {
				t.Errorf("%d %s, want %d %s", w.Code, body.Detail, tt.status, tt.detail)
			}
			if hints[body.Code] == "" || body.Hint != hints[body.Code] {
				t.Errorf("code %q with hint %q", body.Code, body.Hint)
			}
			want := ""
			switch tt.status {
			case 429:
				want = "2"
			case 503:
				want = "1"
			}
			if got := w.Header().Get("Retry-After"); got != want {
				t.Errorf("Retry-After %q, want %q", got, want)
			}
		})
	}
	if len(statuses) != 12 {
		t.Error("a code has no status, or one that this test does not know")
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	grant := func(role account.Role, scopes ...string) account.Caller {
		return account.Caller{Grant: account.Grant{Role: role, Scopes: scopes}}
	}
	admins := []string{"admin"}
	for _, tt := range []struct {
		caller    account.Caller
		operation string
		roles     []string
		detail    string
	}{
		{grant("member"), "ListCredentials", nil, ""},
		{grant("admin"), "CreateCredential", admins, ""},
		{grant("member"), "CreateCredential", admins, "Admin role required"},
		{grant(""), "CreateCredential", admins, "Admin role required"},
		{grant("admin"), "CreateCredential", []string{"owner"}, "Owner role required"},
		{grant("admin", "credentials:write"), "CreateCredential", admins, ""},
		{grant("admin", "credentials:write"), "ListCredentials", nil, ""},
		{grant("admin", "credentials:read"), "ListCredentials", nil, ""},
		{grant("admin", "credentials:read"), "CreateCredential", admins, "Scope credentials:write required"},
		{grant("admin", "tenants:write", "jobs:read"), "ListCredentials", nil, "Scope credentials:read required"},
		{grant("member", "tenants:write"), "CreateCredential", admins, "Admin role required"},
		{grant("admin", "tenants:write"), "GetMe", nil, ""},
		{grant("admin", "tenants:write"), "Forgotten", nil, "A key without scopes required"},
		{grant("admin", "none"), "Forgotten", nil, "A key without scopes required"},
		{grant("admin"), "Forgotten", nil, ""},
	} {
		err := refuse(tt.caller, tt.operation, tt.roles)
		if detail := detailOf(err); detail != tt.detail || err != nil && !fault.Is(err, fault.Forbidden) {
			t.Errorf("%+v calls %s: %q, want %q", tt.caller.Grant, tt.operation, detail, tt.detail)
		}
	}
}

// detailOf is what a fault says to its caller; empty for none.
func detailOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Detail
	}
	return ""
}

// through serves one request through the outermost handler.
func through(t *testing.T, inner http.HandlerFunc) (*http.Response, error) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	server := httptest.NewServer(around(inner, log))
	t.Cleanup(server.Close)
	res, err := http.Get(server.URL + "/v1/x")
	if res != nil {
		t.Cleanup(func() { _ = res.Body.Close() })
	}
	return res, err
}

func TestPanic(t *testing.T) {
	t.Parallel()
	res, err := through(t, func(http.ResponseWriter, *http.Request) { panic("secret") })
	if err != nil {
		t.Fatal(err)
	}
	var body struct{ Detail string }
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 500 || strings.Contains(body.Detail, "secret") || res.Header.Get("X-Request-Id") == "" {
		t.Errorf("%d %+v %v", res.StatusCode, body, res.Header)
	}
}

func TestPanic_AfterTheAnswerBegan(t *testing.T) {
	t.Parallel()
	res, err := through(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half an answer")
		_ = http.NewResponseController(w).Flush()
		panic("secret")
	})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("half an answer reads as a whole one: %q", text)
	}
}

func TestStreamThatBreaksOff(t *testing.T) {
	t.Parallel()
	h := errorHandler{log: slog.New(slog.DiscardHandler)}
	res, err := through(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "{}\n")
		_ = http.NewResponseController(w).Flush()
		h.refused(r.Context(), w, r, errors.New("the database went away"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("a cut stream reads as a whole one: %q", text)
	}
}

func TestReadAll(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 10)
	for _, length := range []int64{10, -1, 3} {
		if got, err := readAll(strings.NewReader(text), length, 10, nil); err != nil || string(got) != text {
			t.Errorf("length %d: %q, %v", length, got, err)
		}
		if _, err := readAll(strings.NewReader(text), length, 9, nil); !fault.Is(err, fault.TooLarge) {
			t.Errorf("length %d over the limit: %v", length, err)
		}
	}
	if _, err := readAll(strings.NewReader(text), 1<<60, 10, nil); !fault.Is(err, fault.TooLarge) {
		t.Errorf("an announced length over the limit: %v", err)
	}
	broken := io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, err := readAll(broken, 10, 10, nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("a body that broke off: %v", err)
	}
}

func TestRoutable(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"/v1/a%2Fb": "/v1/a%2Fb", "/v1/%C3%A9": "/v1/%C3%A9", "/v1/a%00b": "/v1/a%EF%BF%BDb",
		"/v1/%ffb": "/v1/%EF%BF%BDb",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := routable(u).EscapedPath(); got != want {
			t.Errorf("%s became %s, want %s", raw, got, want)
		}
	}
}

// around is what stands around every request, before a handler that is no operation.
func around(next http.Handler, log *slog.Logger) http.Handler {
	return outermost{
		next: next, route: func(string, *url.URL) (route oas.Route, ok bool) { return route, false },
		errs:    errorHandler{log: log},
		observe: func(context.Context, string, int, time.Duration) {}, tracer: noop.Tracer{}, now: time.Now, log: log,
	}
}

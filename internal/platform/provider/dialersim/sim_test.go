package dialersim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"flowlane/internal/platform/provider/dialersim"
)

// start is the time at which the fake clock stands: the first second of a minute, not of an hour.
var start = time.Date(2026, 3, 4, 10, 30, 0, 0, time.UTC)

type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// bundle is a simulator served over HTTP with a clock that stands still.
type bundle struct {
	*testing.T
	sim   *dialersim.Sim
	clock *fakeClock
	url   string
}

func setup(t *testing.T) *bundle {
	t.Helper()
	clock := &fakeClock{now: start}
	sim := dialersim.New(dialersim.Options{Clock: clock.read, Seed: 7})
	server := httptest.NewServer(sim)
	t.Cleanup(func() { sim.Close(); server.CloseClientConnections(); server.Close() })
	return &bundle{T: t, sim: sim, clock: clock, url: server.URL}
}

// reply is an answer with its body read.
type reply struct {
	status int
	header http.Header
	body   string
}

// try sends one request as account 1001, once, following nothing.
func (b *bundle) try(method, path, body string) (reply, error) {
	b.Helper()
	return b.tryAs("1001", "secret", method, path, strings.NewReader(body))
}

func (b *bundle) tryAs(user, password, method, path string, body io.Reader) (reply, error) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, b.url+path, body)
	if err != nil {
		b.Fatal(err)
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(text)}, err
}

// do is try where an answer must come, with this status.
func (b *bundle) do(status int, method, path, body string) reply {
	b.Helper()
	r, err := b.try(method, path, body)
	if err != nil {
		b.Fatalf("%s %s: %v", method, path, err)
	}
	if r.status != status {
		b.Fatalf("%s %s: status %d, want %d: %s", method, path, r.status, status, r.body)
	}
	return r
}

// read decodes a JSON body.
func read[T any](b *bundle, r reply) T {
	b.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		b.Fatalf("%v in %s", err, r.body)
	}
	return v
}

type refusal struct {
	Fault         string `json:"fault"`
	Message       string `json:"message"`
	OperationType string `json:"operation_type"`
	WindowSeconds int    `json:"window_seconds"`
	Limit         int    `json:"limit"`
}

type imported struct {
	ImportID string `json:"import_id"`
	State    string `json:"state"`
	Received int    `json:"received"`
	Accepted int    `json:"accepted"`
	Rejected []struct {
		Row    int    `json:"row"`
		Code   string `json:"code"`
		Reason string `json:"reason"`
	} `json:"rejected"`
}

// rows is an upload of these ids.
func rows(ids ...string) string {
	var b bytes.Buffer
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%q}`, id)
	}
	return `{"rows":[` + b.String() + `],"key_field":"id"}`
}

// value is the true counter of account 1001.
func (b *bundle) value(operation string, window int) int64 {
	b.Helper()
	for _, c := range b.sim.Counters("1001") {
		if c.OperationType == operation && c.WindowSeconds == window {
			return c.Value
		}
	}
	b.Fatalf("no counter of %s and %d", operation, window)
	return 0
}

// wantArrivals checks what was uploaded to a list.
func (b *bundle) wantArrivals(list string, want map[string]int) {
	b.Helper()
	if got := b.sim.Arrivals(list); fmt.Sprint(got) != fmt.Sprint(want) {
		b.Fatalf("arrivals %v, want %v", got, want)
	}
}

// eventually waits until a condition holds.
func (b *bundle) eventually(what string, holds func() bool) {
	b.Helper()
	tick, timeout := time.NewTicker(time.Millisecond), time.After(60*time.Second)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			b.Fatalf("never happened: %s", what)
		}
	}
}

func TestWhoami(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("locked", dialersim.AccountSettings{Password: new("right"), Name: "Locked Ltd",
		TimeZone: "America/New_York"})
	for _, c := range []struct {
		name, user, password string
		status               int
		want                 string
	}{
		{"account alone", "1001", "x", 200,
			`{"account_name":"Account 1001","account_number":"1001","time_zone":"UTC","user":"1001"}`},
		{"account and user", "1001/eve", "x", 200,
			`{"account_name":"Account 1001","account_number":"1001","time_zone":"UTC","user":"eve"}`},
		{"right password", "locked/eve", "right", 200,
			`{"account_name":"Locked Ltd","account_number":"locked","time_zone":"America/New_York","user":"eve"}`},
		{"wrong password", "locked/eve", "wrong", 401, "unauthorized"},
		{"empty password", "1001", "", 401, "unauthorized"},
		{"empty account", "/eve", "x", 401, "unauthorized"},
		{"long account", strings.Repeat("a", 201), "x", 401, "unauthorized"},
		{"no credentials", "", "", 401, "unauthorized"},
	} {
		r, err := b.tryAs(c.user, c.password, http.MethodGet, "/whoami", nil)
		if err != nil || r.status != c.status || !strings.Contains(r.body, c.want) {
			t.Errorf("%s: %d %s %v, want %d %s", c.name, r.status, r.body, err, c.status, c.want)
		}
	}
	if got := b.sim.Totals().Unauthorized; got != 5 {
		t.Errorf("%d unauthorized, want 5", got)
	}
}

func TestSuspended(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.SetAccount("1001", dialersim.AccountSettings{Suspended: new(true)})
	r := b.do(403, http.MethodPost, "/lists/demo/upload", rows("a"))
	if read[refusal](b, r).Fault != "account_suspended" || b.value("upload", 60) != 0 {
		t.Errorf("%s, %d spent", r.body, b.value("upload", 60))
	}
	b.sim.SetAccount("1001", dialersim.AccountSettings{Suspended: new(false)})
	b.do(200, http.MethodPost, "/lists/demo/upload", rows("a"))
}

func TestUnknownOperation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/", "/lists", "/lists/demo/upload", "/_control/nothing"} {
		if r := b.do(404, http.MethodGet, path, ""); read[refusal](b, r).Fault != "not_found" {
			t.Errorf("%s: %s", path, r.body)
		}
	}
}

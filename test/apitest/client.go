package apitest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/account"
	"flowlane/internal/request"
)

// Accounts returns the service of accounts on pool, with a hash key that all tests share.
func Accounts(t testing.TB, pool *pgxpool.Pool) *account.Service {
	t.Helper()
	svc, err := account.New(account.Config{
		Pool: pool, HashKeys: [][]byte{bytes.Repeat([]byte("k"), 32)}, Random: rand.Reader, Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return svc
}

// Answers returns the answers under idempotency keys on pool, with a hash key that all tests share.
func Answers(t testing.TB, pool *pgxpool.Pool) *request.Answers {
	t.Helper()
	answers, err := request.NewAnswers(pool, bytes.Repeat([]byte("r"), 32))
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// Tenant is an organization with an API key.
type Tenant struct {
	account.Org
	Key string
}

// NewTenant makes an organization and a key for it.
func NewTenant(t testing.TB, pool *pgxpool.Pool, accounts *account.Service, name string) Tenant {
	t.Helper()
	org, err := account.CreateOrg(t.Context(), pool, name)
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := accounts.CreateKey(t.Context(), pool, account.NewKey{OrgID: org.ID, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return Tenant{Org: org, Key: key}
}

// Client sends requests as one tenant and validates every response.
type Client struct {
	// URL is the root of the service, without /v1.
	URL string
	// Key is sent as X-API-Key unless it is empty.
	Key string
	// Token is sent as a bearer token unless it is empty.
	Token string
	// HTTP validates; use it for generated clients too.
	HTTP *http.Client
	t    testing.TB
}

// NewClient returns a client of the service at url.
func NewClient(t testing.TB, url, key string) *Client {
	t.Helper()
	return &Client{URL: strings.TrimSuffix(url, "/"), Key: key, HTTP: &http.Client{Transport: Checked(t, nil)}, t: t}
}

// Serve starts a server with this handler and returns a client of it.
func Serve(t testing.TB, handler http.Handler, key string) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return NewClient(t, server.URL, key)
}

// As returns the same client with another key, and no token.
func (c *Client) As(key string) *Client {
	other := *c
	other.Key, other.Token = key, ""
	return &other
}

// In returns the same client, which fails this test: a subtest need not end those beside it.
func (c *Client) In(t testing.TB) *Client {
	t.Helper()
	other := *c
	other.t = t
	return &other
}

// Response is an answer that was read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
	t      testing.TB
}

// Do sends a request. body may be nil, a string or []byte (sent as they are), or anything that json.Marshal takes.
// header holds pairs of names and values; an empty value removes a default header.
func (c *Client) Do(method, path string, body any, header ...string) Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(c.t.Context()), method, c.URL+prefix+path,
		c.reader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Key != "" {
		req.Header.Set("X-API-Key", c.Key)
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Del(header[i])
		if header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return Response{Status: res.StatusCode, Header: res.Header, Body: text, t: c.t}
}

func (c *Client) reader(body any) io.Reader {
	switch b := body.(type) {
	case nil:
		return nil
	case string:
		return strings.NewReader(b)
	case []byte:
		return bytes.NewReader(b)
	}
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	return bytes.NewReader(text)
}

// Want fails the test unless the status is this one, and returns the response for more.
func (r Response) Want(status int) Response {
	r.t.Helper()
	if r.Status != status {
		r.t.Fatalf("status %d, want %d; body %s", r.Status, status, r.Body)
	}
	return r
}

// Detail fails the test unless the answer is this status with this sentence as its detail.
func (r Response) Detail(status int, detail string) Response {
	r.t.Helper()
	r.Want(status)
	var e struct{ Detail any }
	r.Into(&e)
	if e.Detail != detail {
		r.t.Fatalf("detail %v, want %q", e.Detail, detail)
	}
	return r
}

// Invalid fails the test unless the answer is 422 with exactly these entries, each written as "body.steps.0.id
// missing".
func (r Response) Invalid(entries ...string) Response {
	r.t.Helper()
	r.Want(http.StatusUnprocessableEntity)
	var e struct {
		Detail []struct {
			Loc       []string
			Msg, Type string
		}
	}
	r.Into(&e)
	var got []string
	for _, d := range e.Detail {
		got = append(got, strings.Join(d.Loc, ".")+" "+d.Type)
	}
	if strings.Join(got, "\n") != strings.Join(entries, "\n") {
		r.t.Fatalf("entries\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(entries, "\n"))
	}
	return r
}

// Into decodes the body.
func (r Response) Into(v any) Response {
	r.t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		r.t.Fatalf("decode %s: %v", r.Body, err)
	}
	return r
}

// JSON decodes the body as an object.
func (r Response) JSON() map[string]any {
	r.t.Helper()
	var v map[string]any
	r.Into(&v)
	return v
}

// Detail is what the body of an error says is wrong, alone: `{"detail":"Batch not found"}`.
func Detail(body string) string {
	var e struct {
		Detail json.RawMessage `json:"detail"`
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		return body
	}
	text, _ := json.Marshal(e)
	return string(text)
}

var requestID = regexp.MustCompile(`"request_id":"[^"]*"`)

// Alike is the body of an error without what tells one request from another: two that must not be told apart have the
// same.
func (r Response) Alike() string {
	return requestID.ReplaceAllString(string(r.Body), `"request_id":""`)
}

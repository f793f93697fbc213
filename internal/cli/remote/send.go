package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Request is any request to the API.
type Request struct {
	Method string
	// Path is below /v1, with its parameters escaped.
	Path   string
	Query  url.Values
	Header http.Header
	// Body is JSON; nil for none.
	Body []byte
	// Repeat says that it may be sent again where nobody knows whether it arrived.
	Repeat bool
}

// Send makes a request and returns its answer, whose body the caller closes. Anything but a success is an error, an
// *AnswerError where the server answered.
func (c *Client) Send(ctx context.Context, r Request) (*http.Response, error) {
	var res *http.Response
	once := func() (err error) {
		target := c.URL + "/v1" + r.Path
		if len(r.Query) > 0 {
			target += "?" + r.Query.Encode()
		}
		// Of a reader of bytes the library knows how to send them again, to where a redirection leads.
		req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(r.Body))
		if err != nil {
			return fmt.Errorf("make the request: %w", err)
		}
		for name, values := range r.Header {
			req.Header[name] = values
		}
		if r.Body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		res, err = c.do(req) //nolint:bodyclose // the caller closes it
		return err
	}
	if r.Repeat {
		return res, Retry(ctx, once)
	}
	return res, once()
}

// Get reads a thing: of its answer, what T has fields for.
func Get[T any](ctx context.Context, c *Client, path string) (T, error) {
	return Call[T](ctx, c, Request{Method: http.MethodGet, Path: path, Repeat: true}, nil)
}

// Call sends body as JSON, nil for none, and reads of the answer what T has fields for.
func Call[T any](ctx context.Context, c *Client, r Request, body any) (out T, err error) {
	if body != nil {
		if r.Body, err = json.Marshal(body); err != nil {
			return out, fmt.Errorf("make the request: %w", err)
		}
	}
	res, err := c.Send(ctx, r)
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(io.LimitReader(res.Body, maxBody)).Decode(&out); err != nil {
		return out, fmt.Errorf("the answer is not as documented: %w", err)
	}
	return out, nil
}

// answer reads an answer that is no success.
func answer(res *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	p := problemOf(res, text)
	if res.StatusCode/100 == 3 && res.StatusCode != http.StatusNotModified {
		p.Detail, p.Hint = redirected(res), ""
	}
	if p.Detail == "" {
		p.Detail = notOurs
	}
	return p
}

// notOurs is what is said of an answer that something else gave.
const notOurs = "this is not an answer of Flowlane; check FLOWLANE_URL"

// problemOf reads what an answer says; its detail is empty where that is not in the form of the API.
func problemOf(res *http.Response, text []byte) *AnswerError {
	p := &AnswerError{Status: res.StatusCode}
	var said struct {
		Detail    json.RawMessage `json:"detail"`
		Code      string          `json:"code"`
		Hint      string          `json:"hint"`
		RequestID string          `json:"request_id"`
	}
	if json.Unmarshal(text, &said) == nil {
		p.Code, p.Hint, p.RequestID = said.Code, said.Hint, said.RequestID
		p.Detail, p.Entries = detailOf(said.Detail)
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		p.RetryAfter = time.Duration(s) * time.Second
	}
	return p
}

// Package flowlane is the client of Flowlane, the Flow Orchestration Service. A Client has a method for every operation
// of the API; Upload, Wait, Results and Follow are what most programs need beside them. It uses the standard library
// alone.
package flowlane

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client is a service, as one caller sees it. Its fields are set before the first call; after that it may be used side
// by side.
type Client struct {
	// URL is the root of the service, for example https://flows.example.com; /v1 is added.
	URL string
	// APIKey is a key of the organization. Without one, Token is asked for each call.
	APIKey string
	Token  func(ctx context.Context) (string, error)
	// HTTP sends the requests; nil is http.DefaultClient.
	HTTP *http.Client
	// Retries is how often a request that failed and may pass is sent again; 0 is 5, less than 0 never.
	Retries int
	// Backoff is the wait before the first retry, 250 ms if 0. Each further one is twice as long, up to 10 s;
	// Retry-After counts for more.
	Backoff time.Duration

	longestSilence time.Duration // of a stream of events; 45 s if 0
	longestCleanUp time.Duration // of what a failed upload leaves; 5 s if 0
}

// call is one request.
type call struct {
	operation, method, path string
	query                   url.Values
	body                    any
}

// do sends a request as often as it takes and reads the JSON of the answer. What the service refuses is an *APIError.
func (c *Client) do(ctx context.Context, call call, answer any) error {
	res, err := c.send(ctx, call, nil)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if answer == nil || res.StatusCode == http.StatusNoContent {
		return nil
	}
	decoder := json.NewDecoder(res.Body)
	decoder.UseNumber() // numbers of records keep every digit
	if err := decoder.Decode(answer); err != nil {
		return fmt.Errorf("%s: the answer: %w", call.operation, err)
	}
	return nil
}

type idempotencyKey struct{}

// WithIdempotencyKey has a call that creates or starts something use this key: made again with it, also by another
// process within 24 hours, the call does nothing more and gets the first answer. Without it each call has a key of its
// own, which its retries share.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, key)
}

// send returns the first answer below 300.
func (c *Client) send(ctx context.Context, call call, header http.Header) (*http.Response, error) {
	text, ok := call.body.(json.RawMessage)
	if !ok && !isNil(call.body) {
		var err error
		if text, err = json.Marshal(call.body); err != nil {
			return nil, fmt.Errorf("%s: the body: %w", call.operation, err)
		}
	}
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if keyed[call.operation] {
		key, ok := ctx.Value(idempotencyKey{}).(string)
		if !ok {
			key = rand.Text()
		}
		header.Set("Idempotency-Key", key)
	}
	if text != nil {
		header.Set("Content-Type", "application/json")
	}
	for failures := 0; ; failures++ {
		res, err := c.once(ctx, call, header, text)
		wait, again := c.again(call, err)
		if err == nil || !again || failures >= c.retries() || ctx.Err() != nil {
			return res, err
		}
		if err := sleep(ctx, max(wait, c.backoff(failures))); err != nil {
			return nil, err
		}
	}
}

func (c *Client) once(ctx context.Context, call call, header http.Header, body []byte) (*http.Response, error) {
	root := strings.TrimSuffix(strings.TrimRight(c.URL, "/"), "/v1")
	r, err := http.NewRequestWithContext(ctx, call.method, root+"/v1"+call.path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", call.operation, err)
	}
	r.Header = header.Clone()
	r.URL.RawQuery = call.query.Encode()
	if err := c.authorize(ctx, r); err != nil {
		return nil, err
	}
	res, err := follower(c.HTTP).Do(r)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // the address may hold a stream token
		}
		return nil, fmt.Errorf("%s: no answer: %w", call.operation, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode < http.StatusBadRequest {
			return nil, redirected(res, call.path)
		}
		return nil, newAPIError(res)
	}
	return res, nil
}

func (c *Client) authorize(ctx context.Context, r *http.Request) error {
	if c.APIKey != "" {
		r.Header.Set("X-API-Key", c.APIKey)
		return nil
	}
	if c.Token == nil {
		return nil
	}
	token, err := c.Token(ctx)
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// pages goes through the pages of a list.
func pages[T any](list func(cursor *string) ([]T, *string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for cursor := (*string)(nil); ; {
			items, next, err := list(cursor)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == nil {
				return
			}
			cursor = next
		}
	}
}

// queryOf reads the fields that are set of a struct of query parameters.
func queryOf(params any) url.Values {
	text, err := json.Marshal(params)
	if err != nil {
		return nil // params are texts, numbers and booleans
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil
	}
	query := url.Values{}
	for name, value := range fields {
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil {
			list = []json.RawMessage{value}
		}
		for _, v := range list {
			var s string
			if json.Unmarshal(v, &s) != nil {
				s = string(v)
			}
			query.Add(name, s)
		}
	}
	return query
}

// Ptr returns the address of a value, for fields that may be absent.
func Ptr[T any](v T) *T { return &v }

// body reads at most a MiB, which is more than any error has.
func body(r io.Reader) []byte {
	text, _ := io.ReadAll(io.LimitReader(r, 1<<20))
	return text
}

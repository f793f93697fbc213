// Package remote is the way from the command line to a server: requests, chunks as raw bytes, retries of what may be
// repeated, and errors in words that say what to do. It knows no command. Of answers it reads what is asked of them: a
// server of another version may say more, or use words that are not known here.
package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"flowlane/internal/moment"
)

const (
	// answerTimeout bounds the wait for the beginning of an answer.
	answerTimeout = 2 * time.Minute
	// maxAnswer bounds what is read of an answer that is no success, maxBody one that is, maxResult one result of a
	// batch.
	maxAnswer = 1 << 20
	maxBody   = 512 << 20
	maxResult = 64 << 20
	// attempts, firstDelay and lastDelay: temporary failures are tried again for about 15 s.
	attempts              = 7
	firstDelay, lastDelay = 250 * time.Millisecond, 5 * time.Second
)

// Client talks to one server with one key.
type Client struct {
	// URL is the root of the server, without /v1.
	URL  string
	key  string
	http *http.Client
}

// New returns a client. The errors say which setting to correct.
func New(server, key string) (*Client, error) {
	server = strings.TrimSuffix(strings.TrimRight(server, "/"), "/v1")
	if !IsAddress(server) {
		return nil, errors.New(
			"FLOWLANE_URL must be the root of a server, for example http://127.0.0.1:8080, " +
				"without a user or a password")
	}
	if key == "" {
		return nil, errors.New("no API key: set FLOWLANE_API_KEY, or make a key with `flowlane apikey create`")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented
	transport.ResponseHeaderTimeout, transport.MaxIdleConnsPerHost = answerTimeout, 8
	return &Client{URL: server, key: key, http: &http.Client{Transport: transport, CheckRedirect: follow}}, nil
}

// IsAddress reports whether a text is an address of HTTP that can be printed: it has no password. What is none is not
// to be printed, since it may be a key that was put in the wrong place.
func IsAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "http" || u.Scheme == "https")
}

// AppendChunk uploads the body of one chunk as it is.
func (c *Client) AppendChunk(ctx context.Context, setID string, body []byte) error {
	target := c.URL + "/v1/data/record-sets/" + url.PathEscape(setID) + "/records"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.do(req)
	if err != nil {
		return err
	}
	return res.Body.Close() //nolint:wrapcheck // cannot matter
}

// EachResult calls see with every result of a batch, or those in one status, in order, each the text of a JSON object
// that is valid until see returns. The results are not held in memory.
func (c *Client) EachResult(ctx context.Context, batchID, status string, see func(result []byte) error) error {
	target := c.URL + "/v1/flows/batches/" + url.PathEscape(batchID) + "/results?format=ndjson"
	if status != "" {
		target += "&status=" + url.QueryEscape(status)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	res, err := c.do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxResult)
	for lines.Scan() {
		if err := see(lines.Bytes()); err != nil {
			return err
		}
	}
	return lines.Err() //nolint:wrapcheck // Explain knows it
}

// do makes a request by hand. The caller closes the body of a success; anything else is an error.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	req.Header.Set("X-API-Key", c.key)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err //nolint:wrapcheck // Explain knows it
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, answer(res)
}

// Retry calls do until it succeeds, fails for good, or has failed too often. Only for what may be repeated.
func Retry(ctx context.Context, do func() error) error { return retry(ctx, temporary, do) }

// retry calls do until it succeeds, fails with what need not be tried again, or has failed too often.
func retry(ctx context.Context, again func(error) bool, do func() error) error {
	for n := 1; ; n++ {
		err := do()
		if err == nil || n == attempts || ctx.Err() != nil || !again(err) {
			return err
		}
		wait := moment.Backoff(n-1, firstDelay, lastDelay)
		var p *AnswerError
		if errors.As(err, &p) && p.RetryAfter > wait {
			wait = min(p.RetryAfter, time.Minute)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

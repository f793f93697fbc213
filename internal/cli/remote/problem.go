package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// AnswerError is an answer that is no success.
type AnswerError struct {
	Status int
	// Code and Hint are empty where the server names none.
	Detail, Code, Hint, RequestID string
	// Entries are the fields that are bad, where it names them.
	Entries    []Entry
	RetryAfter time.Duration
}

// Entry is a field that is bad.
type Entry struct {
	Loc []string `json:"loc"`
	Msg string   `json:"msg"`
}

func (p *AnswerError) Error() string {
	text := fmt.Sprintf("the server answered %d: %s", p.Status, p.Detail)
	hint := p.Hint
	switch p.Status {
	case http.StatusUnauthorized:
		hint = "Log in with `flowlane login`, or check FLOWLANE_API_KEY; FLOWLANE_URL must be the server that gave it."
	case http.StatusForbidden:
		text += " (this needs a key with the admin role)"
	case http.StatusInternalServerError:
		text += " (request " + p.RequestID + ")"
	}
	if hint != "" {
		text += "\nHint: " + hint
	}
	return text
}

// Status returns the status of a AnswerError in err, 0 if there is none.
func Status(err error) int {
	var p *AnswerError
	if errors.As(err, &p) {
		return p.Status
	}
	return 0
}

// ErrNoServer is an address at which nothing listens.
var ErrNoServer = errors.New("no server answers")

// Explain puts an error of the client into words for a person. what says what was tried: "create the record set".
func (c *Client) Explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var network *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", what, context.Canceled)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s: %w at %s; start one with `flowlane dev`, or set FLOWLANE_URL", what, ErrNoServer, c.URL)
	case errors.As(err, &network):
		return fmt.Errorf("%s: %w", what, &url.Error{Op: network.Op, URL: c.URL, Err: network.Err})
	}
	return fmt.Errorf("%s: %w", what, err)
}

// detailOf puts the detail of an error answer into one line, and names the fields that are bad. Both are empty where it
// has no form that errors have.
func detailOf(raw json.RawMessage) (text string, entries []Entry) {
	var said string
	var expressions struct {
		Errors []string `json:"expression_errors"`
	}
	switch {
	case json.Unmarshal(raw, &said) == nil:
		return said, nil
	case json.Unmarshal(raw, &entries) == nil:
		lines := make([]string, len(entries))
		for i, e := range entries {
			lines[i] = strings.Join(e.Loc, ".") + ": " + e.Msg
		}
		return strings.Join(lines, "; "), entries
	case json.Unmarshal(raw, &expressions) == nil:
		return strings.Join(expressions.Errors, "; "), nil
	}
	return "", nil
}

// temporary tells whether the same may succeed in a moment.
func temporary(err error) bool {
	var p *AnswerError
	if errors.As(err, &p) {
		switch p.Status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
			http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	if errors.Is(err, context.Canceled) {
		return false
	}
	var network net.Error
	var sent *url.Error
	return errors.As(err, &network) || errors.As(err, &sent)
}

package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/ogen-go/ogen/validate"

	"flowlane/gen/oas"
)

// AnswerError is an answer that is no success.
type AnswerError struct {
	Status int
	// Code and Hint are empty where the server names none.
	Detail, Code, Hint, RequestID string
	// Entries are the fields that are bad, where it names them.
	Entries    []oas.ValidationEntry
	RetryAfter time.Duration
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
	if errors.As(explain(err), &p) {
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
	err = explain(err)
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

// explain finds the answer in an error of the generated client.
func explain(err error) error {
	var coded *oas.ErrorStatusCodeWithHeaders
	var unexpected *validate.UnexpectedStatusCodeError
	switch {
	case errors.As(err, &coded):
		r := coded.Response
		p := &AnswerError{Status: coded.StatusCode, Detail: detail(r.Detail), Code: r.Code, Hint: r.Hint, RequestID: r.RequestID}
		p.Entries = r.Detail.ValidationEntryArray
		p.RetryAfter = time.Duration(coded.RetryAfter.Or(0)) * time.Second
		return p
	case errors.As(err, &unexpected):
		return &AnswerError{Status: unexpected.StatusCode, Detail: notOurs}
	}
	return err
}

// detail puts the detail of an error answer into one line.
func detail(d oas.ErrorDetail) string {
	switch d.Type {
	case oas.StringErrorDetail:
		return d.String
	case oas.ValidationEntryArrayErrorDetail:
		lines := make([]string, len(d.ValidationEntryArray))
		for i, e := range d.ValidationEntryArray {
			lines[i] = strings.Join(e.Loc, ".") + ": " + e.Msg
		}
		return strings.Join(lines, "; ")
	default:
		return strings.Join(d.ExpressionErrors.ExpressionErrors, "; ")
	}
}

// temporary tells whether the same may succeed in a moment.
func temporary(err error) bool {
	err = explain(err)
	var p *AnswerError
	if errors.As(err, &p) {
		switch p.Status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
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

package cli

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"flowlane/internal/cli/remote"
)

// Exit codes. They are part of what scripts rely on: docs/cli.md lists them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitRefused     = 3 // the server refuses the request: 400, 409, 422 and the like
	exitNotAllowed  = 4 // no valid key, or one that may not do this: 401, 403
	exitNotFound    = 5 // 404, or nothing has the name
	exitUnavailable = 6 // no answer, 429, or a failure of the server
	exitUnwell      = 7 // what was watched ended otherwise than well
	exitInterrupted = 130
)

// usageError is a command that makes no sense as it is written.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// notFoundError is a name that nothing has.
type notFoundError struct{ error }

func (e notFoundError) Unwrap() error { return e.error }

// unwellError is an end of what was watched, said already.
type unwellError struct{ error }

func (e unwellError) Unwrap() error { return e.error }

// exitCode returns the code for a failure.
func exitCode(err error) int {
	var usage usageError
	var missing notFoundError
	var unwell unwellError
	var network *url.Error
	var invalid invalidError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &missing):
		return exitNotFound
	case errors.As(err, &unwell):
		return exitUnwell
	case errors.As(err, &invalid):
		return exitRefused
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	switch status := remote.Status(err); {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return exitNotAllowed
	case status == http.StatusNotFound:
		return exitNotFound
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return exitUnavailable
	case status >= http.StatusBadRequest:
		return exitRefused
	case errors.As(err, &network), errors.Is(err, remote.ErrNoServer), errors.Is(err, errCut):
		return exitUnavailable
	}
	return exitFailed
}

// Package fault is the error model: what a caller did wrong or must know, as a code and a detail that may be shown.
// It knows nothing of HTTP; package api alone maps codes to statuses. Errors that are not a *Error are failures of ours
// and are never shown.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Code is the kind of a fault; each has exactly one status in package api.
type Code string

const (
	// Moved means that what the request is of is at another address, which To names (307).
	Moved Code = "moved"
	// Invalid is an operation that makes no sense in this state of the request (400).
	Invalid Code = "invalid"
	// Unauthenticated means that no valid credentials came with the request (401).
	Unauthenticated Code = "unauthenticated"
	// Forbidden means that the caller lacks the role or the scope (403).
	Forbidden Code = "forbidden"
	// NotFound is a missing resource, or one of another organization: callers cannot tell which (404).
	NotFound Code = "not_found"
	// Conflict is a duplicate, or a resource in the wrong state (409).
	Conflict Code = "conflict"
	// TooSlow is a body that does not come at the least speed (408).
	TooSlow Code = "too_slow"
	// TooLarge is a body over its limit (413).
	TooLarge Code = "too_large"
	// Unsupported is a body in a form that is not read (415).
	Unsupported Code = "unsupported"
	// Unprocessable is a body or parameter that breaks a rule; Fields name each place (422).
	Unprocessable Code = "unprocessable"
	// RateLimited means too many requests, or too much that is under way; RetryAfter says when to come back (429).
	RateLimited Code = "rate_limited"
	// Unavailable is a dependent start that failed and was cleaned up (503).
	Unavailable Code = "unavailable"
)

// Field is one validation entry of an Unprocessable fault.
type Field struct {
	// Loc is the exact place, for example ["body", "steps", "0", "name"].
	Loc []string
	// Msg says what is wrong and what would be right.
	Msg string
	// Type is a stable slug such as "missing" or "value_error".
	Type string
	// Input is the offending value when it may be echoed (never a secret), else nil.
	Input any
	// Ctx holds the rule's numbers, for example {"ge": 1}; may be nil.
	Ctx map[string]any
}

// Error is a fault that may be shown to the caller.
type Error struct {
	Code   Code
	Detail string
	// Fields are the bad places. Of an Unprocessable fault they stand in the place of Detail, unless Expressions do.
	Fields []Field
	// Expressions replaces Detail for bad expressions of a definition, each entry naming expression, step, task and
	// field.
	Expressions []string
	// RetryAfter is when the caller may try again, as the Retry-After of the answer; 0 leaves it to package api.
	RetryAfter time.Duration
	// To is the root of the service to which a Moved request has to go, without /v1.
	To string
	// Reason is a stable word that is narrower than Code, for example "record_set_consumed"; empty where Code says it
	// all. Package api lists them all.
	Reason string
	// Hint says what to do next, in a sentence; empty for what package api says of the reason or the code.
	Hint  string
	cause error
}

func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Detail, e.cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Detail)
}

func (e *Error) Unwrap() error { return e.cause }

// New returns a fault with a detail for the caller.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Missing returns the 404 fault "<thing> not found".
func Missing(thing string) *Error { return New(NotFound, "%s not found", thing) }

// Value returns an Unprocessable fault with one entry at loc of type "value_error".
func Value(loc []string, format string, args ...any) *Error {
	return &Error{Code: Unprocessable, Detail: "Validation failed",
		Fields: []Field{{Loc: loc, Msg: fmt.Sprintf(format, args...), Type: "value_error"}}}
}

// Invalidated returns an Unprocessable fault with these entries.
func Invalidated(fields ...Field) *Error {
	return &Error{Code: Unprocessable, Detail: "Validation failed", Fields: fields}
}

// BadExpressions returns the Unprocessable fault of a definition whose expressions do not compile.
func BadExpressions(list []string) *Error {
	return &Error{Code: Unprocessable, Detail: "Validation failed", Expressions: list}
}

// Because returns a copy that keeps cause for the log; the caller never sees it.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// Known returns a copy that programs can tell from others of its code by reason.
func (e *Error) Known(reason string) *Error {
	c := *e
	c.Reason = reason
	return &c
}

// At returns a copy that names places of the request beside what it says.
func (e *Error) At(fields ...Field) *Error {
	c := *e
	c.Fields = fields
	return &c
}

// Hinted returns a copy that says what to do next.
func (e *Error) Hinted(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// Is reports whether err is, or wraps, a fault of this code.
func Is(err error, code Code) bool {
	var f *Error
	return errors.As(err, &f) && f.Code == code
}

// Wrap says of an error, if there is one, what failed.
func Wrap(err error, what string, args ...any) error {
	if err != nil {
		return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), err)
	}
	return nil
}

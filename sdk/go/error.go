package flowlane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// APIError is an answer of 400 and more, or a redirection that is not followed; errors.As finds it.
type APIError struct {
	Status int
	// Code is a stable word for what is wrong, for example record_set_consumed; empty where something else than the
	// service answered.
	Code string
	// Detail is a sentence for people, which names every bad field.
	Detail string
	// Fields are the bad fields of a request that is not valid (422).
	Fields []ValidationEntry
	// ExpressionErrors names each bad expression of a definition (422).
	ExpressionErrors []string
	// RequestID is to be quoted in a report, Hint says what to do next, and Docs where the reference says more.
	RequestID, Hint, Docs string
	// RetryAfter is the time after which the service wants to be asked again, 0 where it said none.
	RetryAfter time.Duration
}

func (e *APIError) Error() string { return fmt.Sprintf("%d: %s", e.Status, e.Detail) }

func newAPIError(res *http.Response) *APIError {
	e := &APIError{Status: res.StatusCode, Detail: http.StatusText(res.StatusCode),
		RequestID: res.Header.Get("X-Request-Id")}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	var known struct {
		Detail     json.RawMessage `json:"detail"`
		Code       string          `json:"code"`
		RequestID  string          `json:"request_id"`
		Hint, Docs string
	}
	if json.Unmarshal(body(res.Body), &known) != nil {
		return e
	}
	e.Code, e.Hint, e.Docs = known.Code, known.Hint, known.Docs
	if known.RequestID != "" {
		e.RequestID = known.RequestID
	}
	var expressions ExpressionErrors
	switch {
	case json.Unmarshal(known.Detail, &e.Detail) == nil:
	case json.Unmarshal(known.Detail, &e.Fields) == nil:
		reasons := make([]string, len(e.Fields))
		for i, f := range e.Fields {
			reasons[i] = strings.Join(f.Loc, ".") + ": " + f.Msg
		}
		e.Detail = strings.Join(reasons, "; ")
	case json.Unmarshal(known.Detail, &expressions) == nil:
		e.ExpressionErrors = expressions.ExpressionErrors
		e.Detail = strings.Join(expressions.ExpressionErrors, "; ")
	}
	return e
}

package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"flowlane/internal/command"
	"flowlane/internal/expr"
	"flowlane/internal/platform/catalog"
)

// Kind is what an answer proves.
type Kind string

// The kinds of readings.
const (
	// Success: the call was carried out; single rows of it may be rejected.
	Success Kind = "success"
	// Pending: the call was accepted, its result comes later.
	Pending Kind = "pending"
	// Refused: nothing was done, and sending the same again is useless.
	Refused Kind = "refused"
	// RetryLater: nothing was done, but the same call may pass later.
	RetryLater Kind = "retry_later"
	// NotArrived: the request provably did not reach the provider, and may be sent again.
	NotArrived Kind = "not_arrived"
	// Unknown: nobody knows; it must not be sent again blindly.
	Unknown Kind = "unknown"
)

// Reasons of readings that are no success.
const (
	ReasonTooLate     = "too_late"          // the deadline for sending passed before anything was tried
	ReasonWithheld    = "withheld"          // people hold it, or nobody could say that they do not
	ReasonAddress     = "address_refused"   // the address must not be called
	ReasonRequest     = "bad_request"       // the request cannot be put on the wire
	ReasonNotAllowed  = "command_forbidden" // the operator allows no such command
	ReasonNoSession   = "no_session"        // the server did not begin a session for the call, or ended it before
	ReasonNoToken     = "no_access_token"   // what the call must carry could not be had
	ReasonUnreachable = "unreachable"       // no connection, no such name, no valid certificate
	ReasonNoAnswer    = "no_answer"         // the connection broke
	ReasonSenderLost  = "sender_lost"       // the process that sent it did not live to see the answer
	ReasonForgotten   = "forgotten"         // it may have been sent in the time that a restore of the database lost
	// An earlier attempt may have arrived, with a key that the provider has forgotten.
	ReasonKeyForgotten = "key_forgotten"
	ReasonTimeout      = "timeout" // no connection, or no answer, in time
	// A success whose body is cut, too large or no JSON as the catalog describes it.
	ReasonUnreadable   = "unreadable_answer"
	ReasonRedirect     = "redirected"         // a redirect, which is not followed
	ReasonUnsaid       = "row_not_named"      // a success that does not say what became of a row
	ReasonServerError  = "server_error"       // a 5xx
	ReasonUnexpected   = "unexpected_status"  // a status that the catalog does not know
	ReasonRefused      = "refused"            // a status that the catalog lists as refusal
	ReasonRateLimited  = "rate_limited"       // 429
	ReasonBusy         = "temporarily_denied" // another answer that asks to come back
	ReasonImportFailed = "import_failed"      // the result of an accepted call says that it failed
)

// Bounds of what is taken over from an answer.
const (
	maxText   = 500     // characters of a code or message
	maxOutput = 1 << 20 // bytes of an output
	maxWait   = 24 * time.Hour
)

// defaultWait is the pause after a 429 that the catalog does not describe.
const defaultWait = 60 * time.Second

// Reading is an answer, understood.
type Reading struct {
	Kind Kind
	// Reason says why it is no success, one of the Reason constants.
	Reason string
	// Reference is the provider's name of the call; may be empty.
	Reference string
	// Output is valid JSON, nil if there is none.
	Output json.RawMessage
	// Rows are those of a bulk call that was carried out which came out differently from the others, by ascending row,
	// each once: the others were accepted.
	Rows []RowOutcome
	// Status is that of the answer; 0 without one.
	Status int
	// Code and Message are the provider's own words, cut to 500 characters.
	Code, Message string
	// Cause says in a few words what went wrong on the way, where no answer did: a name that is not known, a
	// connection that was refused, or where a redirect leads; may be empty.
	Cause string
	// RetryAfter is how long to wait after RetryLater: what the provider asked for, else what the catalog says. It is
	// zero where the answer only names a window: the wait then ends with that window.
	RetryAfter time.Duration
	// Named: the answer itself says when to come back, by a time or by its window.
	Named bool
	// Bucket and WindowSeconds say which budget is spent, where the answer says so.
	Bucket        string
	WindowSeconds int
	// Spent: requests of it were answered, whatever became of it.
	Spent bool
}

// RefusedByProvider reports whether it was the provider that refused the call: others never leave this process.
func (r *Reading) RefusedByProvider() bool {
	switch r.Reason {
	case ReasonAddress, ReasonRequest, ReasonNotAllowed:
		return false
	}
	return r.Kind == Refused
}

// Read says what an answer proves. nRows is the number of rows that a bulk call carried, 0 for a single record.
func Read(act *catalog.Action, ans Answer, nRows int) Reading {
	if ans.step != nil {
		return readStep(&ans)
	}
	if r, done := readPlain(act, &ans); done {
		return r
	}
	spec, kind := &act.Call.Answer, ans.outcomes[ans.Status]
	if kind == "" && ans.repeats && ans.Status == http.StatusConflict {
		kind = Unknown
	}
	if kind == "" {
		if r, known := readReported(act, ans, nRows); known {
			return r
		}
	}
	switch {
	case kind == Success, kind == "" && slices.Contains(spec.Success, ans.Status):
		return readAccepted(Success, act, ans, nRows)
	case kind == "" && slices.Contains(spec.Pending, ans.Status):
		return readAccepted(Pending, act, ans, nRows)
	}
	r := Reading{Status: ans.Status}
	r.Code, r.Message = readFault(spec, &ans)
	switch {
	case kind == Refused, kind == "" && slices.Contains(spec.Refused, ans.Status):
		r.Kind, r.Reason = Refused, ReasonRefused
		if ans.Status >= 300 && ans.Status < 400 {
			r.Reason, r.Cause = ReasonRedirect, redirectTarget(&ans)
		}
		return r
	case kind == NotArrived && ans.Status != http.StatusTooManyRequests: // whose pause is that of everybody
		r.Kind, r.Reason = NotArrived, ReasonBusy
		r.RetryAfter, _ = retryAfter(ans)
		return r
	case kind == Unknown:
		r.Kind, r.Reason = Unknown, ReasonUnexpected
		return r
	}
	for i := range spec.RetryLater {
		if spec.RetryLater[i].Status == ans.Status {
			r.retryLater(&spec.RetryLater[i], ans, ans.Status == http.StatusTooManyRequests)
			return r
		}
	}
	switch {
	case ans.Status == http.StatusTooManyRequests:
		r.retryLater(&catalog.RetryLater{Status: ans.Status, WaitSeconds: int(defaultWait / time.Second)}, ans, true)
		return r
	case ans.Status >= 500:
		r.Reason = ReasonServerError
	case ans.Status >= 300 && ans.Status < 400:
		r.Reason, r.Cause = ReasonRedirect, redirectTarget(&ans)
	default:
		r.Reason = ReasonUnexpected
	}
	r.Kind = Unknown
	return r
}

// readPlain reads what came of a call where the catalog's description of answers has no say.
func readPlain(act *catalog.Action, ans *Answer) (r Reading, done bool) {
	switch {
	case ans.Sent == NotSent:
		return readNotSent(ans.Err), true
	case ans.Sent == Maybe:
		return Reading{Kind: Unknown, Reason: reasonOfSilence(ans.Err), Cause: causeOf(ans.Err)}, true
	case act.Call.Command != "":
		return readExit(act.Call, ans), true
	case ans.Stale:
		return Reading{Kind: RetryLater, Reason: ReasonBusy, Message: "The platform no longer took the access token."},
			true
	case ans.NoSession:
		return readNoSession(*ans), true
	}
	return Reading{}, false
}

// readReported reads an answer by a case of the catalog, else by the rules of its protocol. known is false where
// neither says anything of it.
func readReported(act *catalog.Action, ans Answer, nRows int) (r Reading, known bool) {
	ans.Value(act)
	if c := answerCase(act.Call, &ans); c != nil {
		return readCase(c, act, ans, nRows), true
	}
	return readProtocol(act, &ans)
}

// answerCase is the case of the catalog whose condition an answer meets; nil for none.
func answerCase(call *catalog.Call, ans *Answer) *catalog.AnswerCase {
	if len(call.Answer.Cases) == 0 || ans.Err != nil {
		return nil
	}
	env := expr.Env{Answer: envelope(ans)}
	for i, when := range call.Compiled.Answers {
		if holds, err := when.Eval(&env); err == nil && holds {
			return &call.Answer.Cases[i]
		}
	}
	return nil
}

// readCase reads an answer that meets the condition of a case.
func readCase(c *catalog.AnswerCase, act *catalog.Action, ans Answer, nRows int) Reading {
	switch c.Is {
	case catalog.AnswerSuccess:
		return readAccepted(Success, act, ans, nRows)
	case catalog.AnswerPending:
		return readAccepted(Pending, act, ans, nRows)
	}
	spec := act.Call.Answer
	spec.Code, spec.Message = cmp.Or(c.Code, spec.Code), cmp.Or(c.Message, spec.Message)
	r := Reading{Kind: Unknown, Reason: ReasonUnexpected, Status: ans.Status}
	r.Code, r.Message = readFault(&spec, &ans)
	switch c.Is {
	case catalog.AnswerRefused:
		r.Kind, r.Reason = Refused, ReasonRefused
	case catalog.AnswerRetryLater:
		r.retryLater(&catalog.RetryLater{Bucket: c.Bucket, WindowSeconds: c.WindowSeconds, Reset: c.Reset,
			WaitSeconds: c.WaitSeconds}, ans, c.RateLimit)
	}
	return r
}

func readNotSent(err error) Reading {
	var unsigned *ProbeError
	switch {
	case errors.Is(err, errNoSession) && errors.As(err, &unsigned):
		return Reading{Kind: NotArrived, Reason: ReasonNoSession, Code: unsigned.Class, Message: unsigned.Details}
	// it stays so until somebody does something about the credential
	case errors.As(err, &unsigned) && (unsigned.lost || unsigned.kind == Refused):
		return Reading{Kind: Refused, Reason: ReasonNoToken, Code: unsigned.Class, Message: unsigned.Details}
	case errors.As(err, &unsigned):
		return Reading{Kind: NotArrived, Reason: ReasonNoToken, Code: unsigned.Class, Message: unsigned.Details}
	case errors.Is(err, command.ErrNotAllowed):
		return Reading{Kind: Refused, Reason: ReasonNotAllowed}
	case errors.Is(err, command.ErrInput):
		return Reading{Kind: Refused, Reason: ReasonRequest, Message: "There is more input than the command takes."}
	case errors.Is(err, ErrNotTried):
		return Reading{Kind: NotArrived, Reason: ReasonTooLate}
	case errors.Is(err, ErrWithheld):
		return Reading{Kind: NotArrived, Reason: ReasonWithheld}
	case errors.Is(err, ErrAddressRefused):
		return Reading{Kind: Refused, Reason: ReasonAddress, Cause: causeOf(err)}
	case errors.Is(err, ErrBadRequest):
		return Reading{Kind: Refused, Reason: ReasonRequest}
	case reasonOfSilence(err) == ReasonTimeout:
		return Reading{Kind: NotArrived, Reason: ReasonTimeout, Cause: causeOf(err)}
	}
	return Reading{Kind: NotArrived, Reason: ReasonUnreachable, Cause: causeOf(err)}
}

func reasonOfSilence(err error) string {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTooLate) || errors.Is(err, command.ErrTime) ||
		(errors.As(err, &timeout) && timeout.Timeout()) {
		return ReasonTimeout
	}
	return ReasonNoAnswer
}

// readAccepted reads an answer that proves acceptance, if it can be read at all.
func readAccepted(kind Kind, act *catalog.Action, ans Answer, nRows int) Reading {
	spec := &act.Call.Answer
	unreadable := Reading{Kind: Unknown, Reason: ReasonUnreadable, Status: ans.Status}
	if ans.Err != nil {
		return unreadable
	}
	if act.Call.Tool != "" {
		return readTool(ans)
	}
	if spec.Envelope {
		return Reading{Kind: kind, Output: envelope(&ans)}
	}
	text := bytes.TrimSpace(ans.Body)
	if len(text) == 0 {
		if spec.Reference != "" || len(spec.Output) > 0 || spec.Rows != nil {
			return unreadable
		}
		return Reading{Kind: kind}
	}
	if text = ans.Value(act); text == nil {
		return unreadable
	}
	doc := parse(text)
	if doc.Type == gjson.String && (spec.Reference != "" || len(spec.Output) > 0 || spec.Rows != nil) ||
		act.Call.GraphQL != nil && !doc.Get("data").Exists() {
		return unreadable
	}
	r := Reading{Kind: kind, Output: output(doc, text, spec.Output)}
	if spec.Reference != "" {
		if r.Reference = scalarText(doc.Get(spec.Reference)); r.Reference == "" {
			return unreadable
		}
	}
	if kind == Success && spec.Rows != nil {
		var ok bool
		if r.Rows, ok = readRows(doc, spec.Rows, rowReader{count: nRows, sent: ans.rows}); !ok {
			return unreadable
		}
		if len(spec.Output) == 0 && spec.Rows.HasOutput() {
			r.Output = nil // what there is of it, records have
		}
	}
	return r
}

func wholeNumber(v gjson.Result) (int, bool) {
	if v.Type != gjson.Number || v.Num != math.Trunc(v.Num) || math.Abs(v.Num) > 1<<53 {
		return 0, false
	}
	return int(v.Num), true
}

// retryLater fills in when and why to come back; limited tells that a rate limit is why.
func (r *Reading) retryLater(spec *catalog.RetryLater, ans Answer, limited bool) {
	r.Kind, r.Reason = RetryLater, ReasonBusy
	if limited {
		r.Reason = ReasonRateLimited
	}
	if value := ans.Value(nil); value != nil {
		doc := parse(value)
		r.Bucket = named(doc, spec.Bucket)
		if spec.WindowSeconds != "" {
			r.WindowSeconds, _ = wholeNumber(doc.Get(spec.WindowSeconds))
			r.WindowSeconds = max(r.WindowSeconds, 0)
		}
	}
	if wait, ok := retryAfter(ans); ok {
		r.RetryAfter, r.Named = wait, true
	} else if r.Named = r.WindowSeconds > 0; r.Named {
		return
	} else if wait, ok := reset(ans, spec.Reset); ok && limited {
		r.RetryAfter, r.Named = wait, true
	} else {
		r.RetryAfter = time.Duration(spec.WaitSeconds) * time.Second
	}
}

// retryAfter reads the header of that name: seconds, or a date that is compared with the provider's own clock where the
// answer tells it.
func retryAfter(ans Answer) (time.Duration, bool) {
	text := strings.TrimSpace(ans.Header.Get("Retry-After"))
	if text == "" {
		return 0, false
	}
	if n, err := strconv.Atoi(text); err == nil {
		if n < 0 {
			return 0, false
		}
		return min(time.Duration(min(n, 1<<30))*time.Second, maxWait), true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(answeredAt(ans)), 0), maxWait), true
}

// answeredAt is when the provider answered: by its own clock where it tells.
func answeredAt(ans Answer) time.Time {
	if date, err := http.ParseTime(ans.Header.Get("Date")); err == nil {
		return date
	}
	return ans.FinishedAt
}

// named returns the text of a field, cut and cleaned; "" for a field without a name.
func named(doc gjson.Result, field string) string {
	if field == "" {
		return ""
	}
	return clean(scalarText(doc.Get(field)), maxText)
}

func scalarText(v gjson.Result) string {
	text, _ := scalar(v)
	return clean(text, maxText)
}

// clean makes a provider's text fit to be stored and shown: valid UTF-8 without control characters, at most limit
// characters.
func clean(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	text = strings.TrimSpace(text)
	if utf8.RuneCountInString(text) > limit {
		text = string([]rune(text)[:limit-1]) + "…"
	}
	return strings.Clone(text) // else it would keep the whole answer
}

package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"flowlane/internal/batch"
	"flowlane/internal/platform/provider"
)

// explain says what a reading that is no success comes to, as the error of the records of its call; nil for a success.
func explain(r *provider.Reading) *batch.JobError {
	e := &batch.JobError{ProviderStatus: r.Status, ProviderCode: r.Code, ProviderMessage: r.Message}
	switch r.Kind {
	case provider.Success, provider.Pending, "": // a person has said what came of it
		return nil
	case provider.Refused:
		e.Code, e.Message = explainRefused(r)
	case provider.RetryLater:
		e.Code, e.Message = codeRefused, "The provider asked to come back later"
	case provider.NotArrived:
		e.Code, e.Message = explainNotArrived(r)
	default:
		e.Code, e.Message = batch.CodeUnknown, explainUnknown(r.Reason)
	}
	if r.Status != 0 {
		e.Message += fmt.Sprintf(" (status %d)", r.Status)
	}
	if r.Cause != "" {
		e.Message += ": " + r.Cause
	}
	return e
}

func explainRefused(r *provider.Reading) (code, message string) {
	switch r.Reason {
	case provider.ReasonAddress:
		return r.Reason, "The service must not call this address"
	case provider.ReasonNotAllowed:
		return r.Reason, "The operator of the service does not allow the command"
	case provider.ReasonRequest:
		return r.Reason, "The request cannot be sent as it is"
	case provider.ReasonRedirect:
		return codeRefused, "The provider answered with a redirect, which is not followed: call the new address"
	case provider.ReasonImportFailed:
		return r.Reason, "The provider took the call, and could not do it"
	}
	return codeRefused, "The provider refused the call"
}

func explainNotArrived(r *provider.Reading) (code, message string) {
	switch r.Reason {
	case "": // it was asked
		return codeUnreachable, "The provider says that the call did not arrive"
	case provider.ReasonTooLate:
		return codeTooLate, "The call was not sent in time"
	case provider.ReasonBusy:
		return codeRefused, "The provider asked to come back later"
	case provider.ReasonNoToken:
		return codeUnreachable, "The credential gave no access token"
	case provider.ReasonNoSession:
		return codeUnreachable, "The server gave no session"
	case provider.ReasonTimeout:
		return codeUnreachable, "The provider cannot be reached in time"
	}
	return codeUnreachable, "The provider cannot be reached"
}

// unknownWhy says why nobody knows what came of a call, by its reason.
var unknownWhy = map[string]string{
	provider.ReasonTimeout:     "no answer came in time",
	provider.ReasonNoAnswer:    "the connection broke before an answer came",
	provider.ReasonSenderLost:  "the process that sent the call ended before an answer came",
	provider.ReasonUnreadable:  "its answer cannot be read",
	provider.ReasonUnsaid:      "its answer does not say what became of the record",
	provider.ReasonRedirect:    "it answered with a redirect, which is not followed",
	provider.ReasonServerError: "it failed",
	provider.ReasonUnexpected:  "its answer does not say what was done",
}

func explainUnknown(reason string) string {
	switch why := unknownWhy[reason]; {
	case reason == provider.ReasonForgotten:
		return "The call may have been sent in the time that a restore of the service's database lost"
	case reason == provider.ReasonKeyForgotten:
		return "An earlier attempt may have reached the provider, which has forgotten its idempotency key by now"
	case why != "":
		return "The provider gave no clear answer: " + why
	case whyUnresolved[reason] != "":
		return "The provider has accepted the call; its result is not known"
	}
	return "The provider gave no clear answer"
}

// unreadable is what came of a question whose answer was of another form.
const unreadable = "its answer cannot be read"

// whyUnresolved says why asking has led nowhere, by the reason.
var whyUnresolved = map[string]string{
	"no_lookup":        "the action has no way to ask whether it has taken the record",
	"nothing_to_match": "the call says nothing by which the provider could be asked for it",
	"ambiguous":        "several of what the provider has received look like this call",
	"too_many_pages":   "the provider's list is longer than what is read of it",
	"past_horizon":     "the provider was asked for as long as it can be, and did not say",
	"other_company": "the provider has no call with just these records; in the time that a restore lost they may " +
		"have gone with others",
	"job_forgotten": "a restore lost the name of the job in which the records may have gone",
	"action_gone":   "the catalog has the action no more, so that nobody can ask",
}

// explainQuestion says what came of a question whose reading is no success.
func explainQuestion(r *provider.Reading) string {
	e := explain(r)
	if r.Status == 0 {
		return e.Message
	}
	said := fmt.Sprintf("it answered with status %d", r.Status)
	if e.ProviderMessage != "" {
		said += ": " + e.ProviderMessage
	}
	return said
}

// logQuestion logs a question about a call that got no answer.
func (d *Dispatcher) logQuestion(ctx context.Context, call uuid.UUID, p *outboundCall, ans *provider.Answer,
	r *provider.Reading) {
	d.opts.Log.LogAttrs(ctx, slog.LevelInfo, "a question about a call got no answer",
		append([]slog.Attr{slog.Any("call", call),
			slog.Any("org_id", p.orgID), slog.String("action", p.r.task.Action.ID)}, said(&p.request, ans, r)...)...)
}

// logCall logs a call whose round trip is over: one that failed at level info, others at debug. The provider's own
// words, which may name people, stand in the errors of records only.
func (d *Dispatcher) logCall(ctx context.Context, k budgetKey, f *finished, v *outcome) {
	level, r, call := slog.LevelInfo, &v.reading, f.call
	if r.Kind == provider.Success || r.Kind == provider.Pending {
		level = slog.LevelDebug
	}
	if !d.opts.Log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.Any("call", v.id), slog.Any("org_id", call.orgID), slog.Any("batch_ids", call.batches()),
		slog.String("action", call.r.task.Action.ID), slog.String("domain", k.domain), slog.String("bucket", k.bucket),
		slog.Int("records", call.records), slog.Int("attempt", int(call.attempt)),
		slog.Duration("took", v.finishedAt.Sub(v.startedAt))}
	d.opts.Log.LogAttrs(ctx, level, "call", append(attrs, said(&call.request, &f.answer, r)...)...)
}

// said are the attributes of a log line about a request, its answer and what that says. The path may hold what names
// people.
func said(q *provider.Request, ans *provider.Answer, r *provider.Reading) (attrs []slog.Attr) {
	code := r.Code
	if strings.ContainsAny(code, " @") { // a sentence
		code = ""
	}
	for _, a := range []slog.Attr{
		slog.String("method", q.Method), slog.String("host", hostOf(q.URL)), slog.String("failed_at", ans.FailedAt),
		slog.String("outcome", string(r.Kind)), slog.String("reason", r.Reason), slog.String("provider_code", code),
		slog.String("cause", r.Cause),
	} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	if r.Status != 0 {
		attrs = append(attrs, slog.Int("status", r.Status))
	}
	return attrs
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// failureText is what the row of a call keeps of a reading that is no success; empty for a success.
func failureText(r *provider.Reading) string {
	e := explain(r)
	if e == nil {
		return ""
	}
	text, _ := json.Marshal(e) // texts: cannot fail
	return string(text)
}

package dispatch

import (
	"encoding/json"
	"fmt"

	"flowlane/internal/provider"
	"flowlane/internal/run"
)

// explain says what a reading that is no success comes to, as the error of the records of its call; nil for a success.
func explain(r *provider.Reading) *run.JobError {
	e := &run.JobError{ProviderCode: r.Code, ProviderMessage: r.Message}
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
		e.Code, e.Message = codeUnknown, explainUnknown(r.Reason)
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
		return r.Reason, "The address must not be called: it is not public"
	case provider.ReasonRequest:
		return r.Reason, "The request cannot be sent as it is"
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
	provider.ReasonRedirect:    "it answered with a redirect, which is not followed",
	provider.ReasonServerError: "it failed",
	provider.ReasonUnexpected:  "its answer does not say what was done",
}

func explainUnknown(reason string) string {
	if why := unknownWhy[reason]; why != "" {
		return "The provider gave no clear answer: " + why
	}
	return "The provider gave no clear answer"
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

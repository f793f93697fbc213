package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-faster/jx"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/orgquota"
	"flowlane/internal/reference"
)

// ReferencePath is where the reference of the API is served; each code of an error has a place in it.
const ReferencePath = "/docs/reference"

// Codes of errors that are no fault of a domain.
const (
	codeMalformed   = "malformed_request"
	codePath        = "path_not_found"
	codeMethod      = "method_not_allowed"
	codeInternal    = "internal"
	codeValidation  = "validation_failed"
	codeExpressions = "bad_expressions"
	codeQuota       = orgquota.TypeExceeded
)

// hints say what to do next, by the code of an error: they are all codes that there are. A fault that knows better
// brings its own.
var hints = map[string]string{
	string(fault.Moved): "Send the same request, with the same method and body, to the address in the header Location, " +
		"and use that host from now on: keys, ids and webhook addresses stay good.",
	string(fault.Invalid): "Change what detail names, then send the request again.",
	string(fault.Unauthenticated): "Send a valid key as X-API-Key: flow_..., or a token of your identity provider as " +
		"Authorization: Bearer ...; a key may be unknown here, revoked, expired or not allowed from your address.",
	string(fault.Forbidden): "Use a key or a token with the role that detail names, " +
		"or ask an administrator of your organization.",
	string(fault.NotFound): "Look for the id in the list of these resources; it may have been deleted, " +
		"or belong to another organization than your key.",
	string(fault.Conflict): "Read the resource again: its state, or another resource that detail names, " +
		"does not allow this now.",
	string(fault.TooSlow): "Send the body faster, or in smaller parts, over a better connection.",
	string(fault.TooLarge): "Send less at once: records go in several chunks " +
		"to POST /v1/data/record-sets/{record_set_id}/records, each with its own chunk_index.",
	string(fault.Unsupported): "Send JSON, uncompressed, with the header Content-Type: application/json.",
	string(fault.RateLimited): "Wait as many seconds as the header Retry-After says, then send the same request again.",
	string(fault.Unavailable): "Wait as many seconds as the header Retry-After says, " +
		"then send the same request again; an Idempotency-Key keeps it from happening twice.",
	codePath:   "See GET /openapi.yaml for all paths; each begins with /v1 and has no slash at its end.",
	codeMethod: "Use one of the methods that the header Allow names.",
	codeMalformed: "This could not be read as a request of HTTP/1.1: have a library of your language write it, " +
		"and look at proxies in between.",
	codeInternal: "Send the same request again, with an Idempotency-Key if it creates something; " +
		"quote the request_id to the operator of the service if it keeps failing.",
	codeValidation: "Mend every place that detail lists, then send the request again; nothing was changed.",
	codeExpressions: "Mend every expression that detail lists, then send the definition again; " +
		"POST /v1/flows/definitions/validate checks one without storing it.",
	codeQuota: "Remove what you no longer need, or ask the operator of the service for more; " +
		"GET /v1/account/quotas shows what is in use.",
	fault.RecordSetConsumed: "A record set is used once: upload the records as a new one, " +
		"or retry the failed ones of its batch with POST /v1/flows/batches/{batch_id}/retry.",
	fault.DefinitionNotActive: "Set the status of the definition to active first: " +
		`PATCH /v1/flows/definitions/{definition_id} with {"status":"active"}.`,
	fault.CursorInvalid: "Pass next_cursor back as it came, with the filters and the order of the request " +
		"that it came from; or begin without one.",
	fault.IdempotencyKeyReused: "Use a new Idempotency-Key for a new request; " +
		"the same key is only for sending the same request again.",
	fault.SignatureInvalid: "Sign {webhook-id}.{webhook-timestamp}.{body} with the secret that the creation " +
		"of the webhook showed, over the body byte for byte, with a clock that is right within 5 minutes.",
	fault.ScopeMissing: "Use a key that has this scope, or one without scopes; " +
		"DELETE and create a key to change what it may do.",
	fault.CredentialNotIdentified: "Test the credential with POST /v1/credentials/{credential_id}/test: " +
		"that finds out which account it belongs to.",
	fault.DatabaseUnavailable: "Wait as many seconds as the header Retry-After says, " +
		"then send the same request again; nothing was changed.",
	fault.Busy: "Wait as many seconds as the header Retry-After says, " +
		"then send the same request again; nothing was changed.",
	fault.OutcomeUnknown: "Read whether it was carried out, or send it again with the same Idempotency-Key, " +
		"which makes it happen once.",
	fault.StreamsExhausted: "Close streams that you no longer read, " +
		"or come back after the seconds that the header Retry-After says.",
	fault.BatchOver: "A batch that is over stays as it is; POST /v1/flows/batches/{batch_id}/retry starts " +
		"its failed records again.",
	fault.RecordSetNotSealed: "Seal it first: POST /v1/data/record-sets/{record_set_id}/seal with the number " +
		"of records as expected_count.",
	fault.RecordSetNotOpen: "A sealed set takes no more records: create another record set for them.",
}

// Codes are all codes of errors, sorted, each with what it says to do.
func Codes() []reference.Code {
	var codes []reference.Code
	for _, code := range slices.Sorted(maps.Keys(hints)) {
		codes = append(codes, reference.Code{Code: code, Hint: hints[code]})
	}
	return codes
}

// codeOf is the stable word for a fault.
func codeOf(f *fault.Error) string {
	exceeded := func(field fault.Field) bool { return field.Type == orgquota.TypeExceeded }
	switch {
	case f.Reason != "":
		return f.Reason
	case f.Expressions != nil:
		return codeExpressions
	case slices.ContainsFunc(f.Fields, exceeded):
		return codeQuota
	case f.Code == fault.Unprocessable:
		return codeValidation
	}
	return string(f.Code)
}

// problem is an error with all that its caller reads beside detail: hint is what code says of itself where it is empty.
func (h errorHandler) problem(ctx context.Context, status int, detail oas.ErrorDetail,
	code, hint string) *oas.ErrorStatusCodeWithHeaders {
	if hint == "" && code == string(fault.Unauthenticated) {
		hint = signInHint(exchangeOf(ctx).sent)
	}
	if hint == "" {
		hint = hints[code]
	}
	docs := h.reached() + ReferencePath + "#error-" + code
	return &oas.ErrorStatusCodeWithHeaders{StatusCode: status, Response: oas.Error{
		Detail: detail, Code: code, RequestID: requestID(ctx), Hint: hint, Docs: docs,
	}}
}

// reached is where people reach the service; empty where that is not known.
func (h errorHandler) reached() string {
	if h.publicURL == nil {
		return ""
	}
	return h.publicURL()
}

// signInHint says what is wrong with how a request says who sends it; empty where that cannot be seen from outside.
func signInHint(sent http.Header) string {
	authorization := sent.Get("Authorization")
	switch {
	case sent == nil || sent.Get("X-API-Key") != "":
	case strings.Contains(authorization, account.KeyPrefix):
		return "Send the key in the header X-API-Key: Authorization is for tokens of your identity provider."
	case authorization == "":
		return "The request has neither X-API-Key nor Authorization. " + hints[string(fault.Unauthenticated)]
	}
	return ""
}

// Problem is the body of an error that is answered before a request reaches this package.
func Problem(requestID, detail, publicURL string) []byte {
	h := errorHandler{publicURL: func() string { return publicURL }}
	ctx := context.WithValue(context.Background(), exchangeKey{}, &exchange{id: requestID})
	p := h.problem(ctx, http.StatusBadRequest, oas.NewStringErrorDetail(detail), codeMalformed, "")
	var e jx.Encoder
	p.Response.Encode(&e)
	return e.Bytes()
}

// NewRequestID is an id for a request that reaches no operation.
func NewRequestID() string { return callerID("") }

package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-faster/jx"
	"github.com/ogen-go/ogen/middleware"
	"github.com/ogen-go/ogen/ogenerrors"
	"github.com/ogen-go/ogen/validate"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/api/violation"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// statuses is the one table from codes to statuses.
var statuses = map[fault.Code]int{
	fault.Moved:           http.StatusTemporaryRedirect,
	fault.Invalid:         http.StatusBadRequest,
	fault.Unauthenticated: http.StatusUnauthorized,
	fault.Forbidden:       http.StatusForbidden,
	fault.NotFound:        http.StatusNotFound,
	fault.Conflict:        http.StatusConflict,
	fault.TooSlow:         http.StatusRequestTimeout,
	fault.TooLarge:        http.StatusRequestEntityTooLarge,
	fault.Unsupported:     http.StatusUnsupportedMediaType,
	fault.Unprocessable:   http.StatusUnprocessableEntity,
	fault.RateLimited:     http.StatusTooManyRequests,
	fault.Unavailable:     http.StatusServiceUnavailable,
}

// errorHandler turns every failure into the error envelope.
type errorHandler struct {
	log    *slog.Logger
	outage *outage
	// publicURL is where people reach the service; nil where that is not known.
	publicURL func() string
}

// NewError is called by the generated server with what a handler or the security check returned.
func (h errorHandler) NewError(ctx context.Context, err error) *oas.ErrorStatusCodeWithHeaders {
	if errors.Is(err, ogenerrors.ErrSecurityRequirementIsNotSatisfied) {
		return h.answer(ctx, unauthenticated)
	}
	if errors.Is(err, errReplay) {
		return h.internalError(ctx) // the recorder sends what is replayed instead
	}
	if f := account.MovedAway(err); f != nil {
		return h.answer(ctx, f)
	}
	if pg.IsDeleted(err) {
		return h.answer(ctx, unauthenticated)
	}
	var f *fault.Error
	if errors.As(err, &f) && statuses[f.Code] != 0 {
		var own cleanedUpError
		if cause := f.Unwrap(); cause != nil && !(errors.As(err, &own) && h.outage.refuse(ctx, cause) != nil) {
			h.log.WarnContext(ctx, "refused", "request_id", requestID(ctx), "error", f)
		}
		return h.answer(ctx, f)
	}
	if ctx.Err() == nil {
		if f := h.outage.refuse(ctx, err); f != nil {
			return h.answer(ctx, f)
		}
	}
	if ctx.Err() != nil {
		// The caller has gone and reads no answer; what failed because of that is no failure of ours.
		h.log.DebugContext(ctx, "request was given up", "request_id", requestID(ctx), "error", err)
	} else {
		h.log.ErrorContext(ctx, "request failed", "request_id", requestID(ctx), "error", err)
	}
	return h.internalError(ctx)
}

// busy answers a request that ran out of the time that one of our own look-ups has, and has done nothing.
var busy = &fault.Error{Code: fault.Unavailable, Detail: "The service is too busy; try again", RetryAfter: time.Second,
	Reason: fault.Busy}

func (h errorHandler) internalError(ctx context.Context) *oas.ErrorStatusCodeWithHeaders {
	return h.problem(ctx, http.StatusInternalServerError,
		oas.NewStringErrorDetail("Internal error; quote the X-Request-Id when you report it"), codeInternal, "")
}

// answer is what a caller reads of a fault.
func (h errorHandler) answer(ctx context.Context, f *fault.Error) *oas.ErrorStatusCodeWithHeaders {
	out := h.problem(ctx, statuses[f.Code], errorDetail(f), codeOf(f), f.Hint)
	out.Response.Errors = entriesOf(f.Fields)
	if f.RetryAfter > 0 || f.Code == fault.RateLimited || f.Code == fault.Unavailable {
		out.RetryAfter = oas.NewOptInt(wholeSeconds(f.RetryAfter))
	}
	if f.Code == fault.Moved {
		out.Location = oas.NewOptString(f.To + exchangeOf(ctx).uri)
	}
	return out
}

func errorDetail(f *fault.Error) oas.ErrorDetail {
	switch {
	case f.Expressions != nil:
		return oas.NewExpressionErrorsErrorDetail(oas.ExpressionErrors{ExpressionErrors: f.Expressions})
	case f.Fields != nil && f.Code == fault.Unprocessable:
		return oas.NewValidationEntryArrayErrorDetail(entriesOf(f.Fields))
	}
	return oas.NewStringErrorDetail(f.Detail)
}

func entriesOf(fields []fault.Field) (entries []oas.ValidationEntry) {
	for _, field := range fields[:min(len(fields), violation.Most)] {
		entries = append(entries, entry(field))
	}
	if len(fields) > violation.Most {
		entries = append(entries, oas.ValidationEntry{Loc: fields[violation.Most].Loc[:1], Type: "too_many_errors",
			Msg: "More places are bad; they are told once these are mended"})
	}
	return entries
}

func entry(f fault.Field) oas.ValidationEntry {
	out := oas.ValidationEntry{Loc: f.Loc, Msg: f.Msg, Type: f.Type}
	if f.Input != nil {
		if text, err := json.Marshal(f.Input); err == nil {
			out.Input = jx.Raw(text)
		}
	}
	if len(f.Ctx) > 0 {
		ctx := make(oas.ValidationEntryCtx, len(f.Ctx))
		for k, v := range f.Ctx {
			if text, err := json.Marshal(v); err == nil {
				ctx[k] = jx.Raw(text)
			}
		}
		out.Ctx = oas.NewOptValidationEntryCtx(ctx)
	}
	return out
}

// write sends an answer outside of the generated server, which does the same for its own.
func (h errorHandler) write(w http.ResponseWriter, a *oas.ErrorStatusCodeWithHeaders) {
	header := w.Header()
	header.Set("Content-Type", "application/json; charset=utf-8")
	if s, ok := a.RetryAfter.Get(); ok {
		header.Set("Retry-After", strconv.Itoa(s))
	}
	if to, ok := a.Location.Get(); ok {
		header.Set("Location", to)
	}
	var e jx.Encoder
	a.Response.Encode(&e)
	header.Set("Content-Length", strconv.Itoa(len(e.Bytes()))) // it may be sent before the request is over
	w.WriteHeader(a.StatusCode)
	_, _ = w.Write(e.Bytes())
}

// fail sends what NewError makes of err.
func (h errorHandler) fail(ctx context.Context, w http.ResponseWriter, err error) {
	h.write(w, h.NewError(ctx, err))
}

func (h errorHandler) notFound(w http.ResponseWriter, r *http.Request) {
	h.write(w, h.problem(r.Context(), http.StatusNotFound, oas.NewStringErrorDetail("Not found"), codePath,
		lostHint(r.URL.Path)))
}

func (h errorHandler) methodNotAllowed(w http.ResponseWriter, r *http.Request, allowed string) {
	w.Header().Set("Allow", allowed)
	h.write(w, h.problem(r.Context(), http.StatusMethodNotAllowed, oas.NewStringErrorDetail("Method not allowed"),
		codeMethod,
		"This path takes "+strings.Join(strings.Split(allowed, ","), " and ")+", not "+r.Method+"."))
}

// refused answers a request that the generated server could not decode, or a response that it could not send.
func (h errorHandler) refused(ctx context.Context, w http.ResponseWriter, r *http.Request, err error) {
	if headersSent(w) {
		// Half an answer is out. Cutting the connection is the only way left to say that the rest is missing.
		level := slog.LevelError
		if ctx.Err() != nil {
			level = slog.LevelDebug // the reader went away first
		}
		h.log.Log(ctx, level, "response broke off", "request_id", requestID(ctx), "error", err)
		panic(http.ErrAbortHandler)
	}
	var f *fault.Error
	var params *ogenerrors.DecodeParamsError
	var request *ogenerrors.DecodeRequestError
	switch {
	case errors.As(err, &f):
		h.fail(ctx, w, f)
	case errors.As(err, &params):
		h.refusedParams(ctx, w, r, params)
	case errors.As(err, &request):
		h.refusedBody(ctx, w, r, request)
	default:
		h.fail(ctx, w, err)
	}
}

func (h errorHandler) refusedParams(ctx context.Context, w http.ResponseWriter, r *http.Request,
	err *ogenerrors.DecodeParamsError) {
	fields := violation.Header(err.OperationID(), r.Header)
	fields = append(fields, violation.RawQuery(r.URL.RawQuery)...)
	fields = append(fields, violation.Query(err.OperationID(), r.URL.Query())...)
	if len(fields) > 0 {
		h.fail(ctx, w, fault.Invalidated(append(fields, badUnread(err.OperationID(), r)...)...))
		return
	}
	// Only a path that cannot be unescaped is left; it matches nothing.
	h.notFound(w, r)
}

func (h errorHandler) refusedBody(ctx context.Context, w http.ResponseWriter, r *http.Request,
	err *ogenerrors.DecodeRequestError) {
	body := requestBody(ctx)
	switch {
	case errors.Is(err, validate.ErrBodyRequired), len(body) == 0 && r.ContentLength <= 0:
		h.fail(ctx, w, fault.Invalidated(violation.Missing("body")))
	case !isJSON(r):
		h.fail(ctx, w, errNotJSON)
	default:
		fields := badBody(ctx, err.OperationID(), body)
		if len(fields) == 0 {
			// The decoder is stricter than the schema, for example on 1.0 where a whole number must be.
			fields = []fault.Field{{Loc: decodedPath(err), Msg: "Is not valid: " + rootCause(err), Type: "value_error"}}
		}
		h.fail(ctx, w, fault.Invalidated(fields...))
	}
}

func isJSON(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == "application/json"
}

// refuseBadQuery keeps text that Postgres refuses away from the handlers, and refuses a query that was read only in
// part. It runs after the security check.
func refuseBadQuery(req middleware.Request, next middleware.Next) (middleware.Response, error) {
	if req.Raw.URL.RawQuery != "" {
		fields := violation.RawQuery(req.Raw.URL.RawQuery)
		for name, values := range req.Raw.URL.Query() {
			for _, v := range values {
				fields = append(fields, violation.QueryText(name, v)...)
			}
		}
		if len(fields) > 0 {
			slices.SortFunc(fields, func(a, b fault.Field) int { return slices.Compare(a.Loc, b.Loc) })
			return middleware.Response{}, fault.Invalidated(fields...)
		}
	}
	return next(req)
}

var unauthenticated = fault.New(fault.Unauthenticated, "Authentication required")

// elapsed is in milliseconds, for logs.
func elapsed(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/go-faster/jx"
	"github.com/jackc/pgx/v5"
	"github.com/ogen-go/ogen/middleware"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/request"
)

// idempotency lets a request with an idempotency key be carried out once, and answers its repeats as it was answered.
// It stands around every operation whose parameters have the key; their handlers keep the answer in the transaction of
// the effect.
type idempotency struct {
	answers *request.Answers
	log     *slog.Logger
}

// errReplay makes the generated server answer, which the recorder replaces by the answer from earlier.
var errReplay = errors.New("api: answered from memory")

func (o idempotency) middleware(req middleware.Request, next middleware.Next) (middleware.Response, error) {
	param, _ := req.Params.Header("Idempotency-Key")
	key, _ := param.(oas.OptString)
	if !key.Set {
		return next(req)
	}
	x := exchangeOf(req.Context)
	attempt, kept, err := o.answers.Begin(req.Context, request.Keyed{
		OrgID: account.FromContext(req.Context).OrgID, Operation: req.OperationID, Path: req.Raw.URL.Path,
		Key:  key.Value,
		Body: requestBody(req.Context),
	})
	if err != nil {
		return middleware.Response{}, err
	}
	if kept != nil {
		return middleware.Response{}, x.replay(kept)
	}
	defer attempt.End()
	x.attempt = attempt
	res, err := next(req)
	if err == nil {
		x.answer = x.kept // to the byte: the members of a map may come in another order each time
		return res, nil
	}
	// It failed, but perhaps only because another process was faster, or because the commit got no answer.
	kept, keptErr := attempt.Kept(req.Context)
	switch {
	case fault.Is(keptErr, fault.Conflict):
		return middleware.Response{}, keptErr
	case pg.IsUnavailable(keptErr): // the answer says that nobody knows
	case account.MovedAway(keptErr) != nil:
		return middleware.Response{}, keptErr // the cell where it is knows
	case keptErr != nil:
		o.log.WarnContext(req.Context, "cannot tell whether a request was carried out", "request_id", x.id, "error",
			keptErr)
	case kept != nil:
		return middleware.Response{}, x.replay(kept)
	}
	return middleware.Response{}, err
}

// replay has an answer from earlier sent, and returns the error that brings the generated server to it.
func (x *exchange) replay(kept *request.Answer) error {
	x.answer = kept
	x.header.Set("Idempotency-Replayed", "true")
	return errReplay
}

// keep remembers the answer of a request that carries an idempotency key, last in the transaction of its effect.
func keep(ctx context.Context, tx pgx.Tx, status int, answer interface{ Encode(e *jx.Encoder) }) error {
	x := exchangeOf(ctx)
	if x.attempt == nil {
		return nil
	}
	x.kept = answerOf(status, answer)
	return x.attempt.Keep(ctx, tx, *x.kept)
}

// answerOf is an answer as it is sent.
func answerOf(status int, answer interface{ Encode(e *jx.Encoder) }) *request.Answer {
	var e jx.Encoder
	answer.Encode(&e)
	return &request.Answer{Status: status, Body: e.Bytes()}
}

// keepCreated does so for what was created; convert makes the answer.
func keepCreated[M any, A interface{ Encode(e *jx.Encoder) }](convert func(M, error) (A, error)) pg.TxHook[M] {
	return func(ctx context.Context, tx pgx.Tx, made M) error {
		answer, err := convert(made, nil)
		if err != nil {
			return err
		}
		return keep(ctx, tx, http.StatusCreated, answer)
	}
}

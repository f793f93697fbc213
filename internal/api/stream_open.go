package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"flowlane/gen/oas"
	"flowlane/internal/fault"
)

const (
	// bySession stands where the token of a stream does, while a session opens it. It is no secret, and opens nothing
	// by itself.
	bySession = "session"
	// sessionCheck is the pause between two looks at whether the session of an open stream is still good.
	sessionCheck = time.Second
)

// openBySession lets a page of ours open a stream with the session of its browser, which a browser sends and its
// EventSource cannot replace by a header. A token that stands there wins.
func openBySession(r *http.Request, x *exchange) {
	operation := x.route.OperationID()
	if x.session == "" || operation != "streamBatch" && operation != "streamExecution" {
		return
	}
	query := r.URL.Query()
	if query.Has("token") {
		return
	}
	query.Set("token", bySession)
	at := *r.URL
	at.RawQuery = query.Encode()
	r.URL = &at
}

// HandleStreamAuth is called when a stream token was sent to an operation that takes one, or when a session stands in
// for it. A stream outlives its token, and ends with its session.
func (s security) HandleStreamAuth(ctx context.Context, operation oas.OperationName,
	t oas.StreamAuth) (context.Context, error) {
	session := exchangeOf(ctx).session
	if t.APIKey != bySession || session == "" {
		caller, err := s.accounts.AuthenticateStreamToken(ctx, t.APIKey)
		return s.admit(ctx, operation, t.Roles, caller, err)
	}
	caller, err := s.accounts.AuthenticateToken(ctx, session)
	if err != nil {
		s.refused(ctx, operation, "", err)
	}
	ctx, err = s.admit(ctx, operation, t.Roles, caller, err)
	if err != nil {
		return nil, err
	}
	return whileGood(ctx, sessionCheck, func(ctx context.Context) error {
		_, err := s.accounts.AuthenticateToken(ctx, session)
		return err
	}), nil
}

// whileGood returns a context that ends with ctx, or once check says that nobody is signed in any more. What cannot be
// checked just now goes on.
func whileGood(ctx context.Context, pause time.Duration, check func(context.Context) error) context.Context {
	good, end := context.WithCancel(ctx)
	go func() {
		defer end()
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-good.Done():
				return
			case <-tick.C:
			}
			var f *fault.Error
			if err := check(good); errors.As(err, &f) && f.Code == fault.Unauthenticated {
				return
			}
		}
	}()
	return good
}

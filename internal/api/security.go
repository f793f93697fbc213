package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/ogen-go/ogen/ogenerrors"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/fault"
)

// security sets the caller of a request, and counts the request.
type security struct {
	accounts *account.Service
	limiter  limiter
	log      *slog.Logger
}

// HandleApiKeyAuth is called by the generated server when a key was sent to an operation that takes one. It comes
// first: a bad key ends the request whatever stands beside it.
func (s security) HandleApiKeyAuth(ctx context.Context, operation oas.OperationName,
	t oas.ApiKeyAuth) (context.Context, error) {
	caller, err := s.accounts.Authenticate(ctx, t.APIKey, exchangeOf(ctx).from())
	if err != nil {
		s.refused(ctx, operation, t.APIKey, err)
	}
	if documentedRules().open[operationID(operation)] {
		return recognize(ctx, operation, caller, err), nil
	}
	return s.admit(ctx, operation, t.Roles, caller, err)
}

// HandleOrgJwt is called when a bearer token was sent, also after a good key: then the token is not looked at.
func (s security) HandleOrgJwt(ctx context.Context, operation oas.OperationName,
	t oas.OrgJwt) (context.Context, error) {
	if account.Authenticated(ctx) {
		return nil, ogenerrors.ErrSkipServerSecurity
	}
	caller, err := s.accounts.AuthenticateToken(ctx, t.Token)
	if err != nil {
		s.refused(ctx, operation, "", err)
	}
	if documentedRules().open[operationID(operation)] {
		return recognize(ctx, operation, caller, err), nil
	}
	return s.admit(ctx, operation, t.Roles, caller, err)
}

// recognize sets the caller of an operation that anybody may call: who is not known is nobody. It is not counted.
func recognize(ctx context.Context, operation oas.OperationName, caller account.Caller, err error) context.Context {
	if err != nil {
		return ctx
	}
	return account.NewContext(ctx, caller, account.Operation{ID: operationID(operation), RequestID: requestID(ctx)})
}

// refused has a sign-in that failed written down. key is empty for a bearer token.
func (s security) refused(ctx context.Context, operation oas.OperationName, key string, err error) {
	s.accounts.Refused(ctx, account.SignIn{
		Key: key, Address: exchangeOf(ctx).from().String(), Operation: account.Operation{ID: operationID(operation),
			RequestID: requestID(ctx)},
	}, err)
}

// admit returns the context with its caller. It counts the request unless its caller may not make it: else a key that
// may do little could use up what other keys of its organization need. Faults: those of the authentication,
// Forbidden, RateLimited.
func (s security) admit(ctx context.Context, operation oas.OperationName, roles []string, caller account.Caller,
	err error) (context.Context, error) {
	if err != nil {
		return nil, err
	}
	counted := account.Authenticated(ctx) // a stream can have a key and a token
	ctx = account.NewContext(ctx, caller, account.Operation{ID: operationID(operation), RequestID: requestID(ctx)})
	refusal := refuse(caller, operation, roles)
	switch {
	case refusal == nil && counted:
		return ctx, nil
	case refusal == nil:
		return ctx, s.limiter.admit(ctx, operationID(operation))
	}
	if err := s.accounts.AuditDenied(ctx); err != nil {
		s.log.WarnContext(ctx, "a denied call is not in the audit log", "request_id", requestID(ctx), "error", err)
	}
	return nil, refusal
}

// operationID is the document's name of an operation; the generated code begins the same name with a capital.
func operationID(operation oas.OperationName) string {
	return strings.ToLower(operation[:1]) + operation[1:]
}

// refuse names what the document asks for that the caller lacks: the role first. Fault: Forbidden.
func refuse(caller account.Caller, operation oas.OperationName, roles []string) error {
	for _, role := range roles {
		if role != string(account.Member) && role != string(caller.Role) {
			return fault.New(fault.Forbidden, "%s role required", strings.ToUpper(role[:1])+role[1:])
		}
	}
	if caller.Link && operationID(operation) != signIn {
		return fault.New(fault.Forbidden, "The link signs in and does nothing else")
	}
	if caller.Scopes == nil {
		return nil
	}
	scope, declared := documentedRules().scopes[operationID(operation)]
	switch {
	case !declared: // a mistake of ours, which opens nothing
		return fault.New(fault.Forbidden, "A key without scopes required")
	case scope != noScope && !caller.Holds(scope):
		return fault.New(fault.Forbidden, "Scope %s required", scope).Known(fault.ScopeMissing)
	}
	return nil
}

// request does the same for a request that the generated server does not see.
func (s security) request(r *http.Request, operation oas.OperationName) (context.Context, error) {
	ctx := r.Context()
	if key := r.Header.Get("X-API-Key"); key != "" {
		return s.HandleApiKeyAuth(ctx, operation, oas.ApiKeyAuth{APIKey: key,
			Roles: oas.GetRolesForApiKeyAuth(operation)})
	}
	for _, value := range r.Header.Values("Authorization") {
		if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Bearer") {
			return s.HandleOrgJwt(ctx, operation, oas.OrgJwt{Token: token, Roles: oas.GetRolesForOrgJwt(operation)})
		}
	}
	return nil, unauthenticated
}

package api

import (
	"context"
	"net/http"
	"strings"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/fault"
)

// security sets the caller of a request.
type security struct{ accounts *account.Service }

var forbidden = fault.New(fault.Forbidden, "Admin role required")

// HandleApiKeyAuth is called by the generated server when a key was sent to an operation that takes one.
func (s security) HandleApiKeyAuth(ctx context.Context, operation oas.OperationName, t oas.ApiKeyAuth) (context.Context, error) {
	return s.authenticate(ctx, operation, t.APIKey, t.Roles)
}

// authenticate returns the context with its caller. Faults: Unauthenticated, Forbidden.
func (s security) authenticate(ctx context.Context, operation oas.OperationName, key string, roles []string) (context.Context, error) {
	caller, err := s.accounts.Authenticate(ctx, key)
	if err != nil {
		return nil, err
	}
	if err := permit(caller, roles); err != nil {
		return nil, err
	}
	return account.NewContext(ctx, caller, account.Operation{ID: operationID(operation), RequestID: requestID(ctx)}), nil
}

// operationID is the document's name of an operation; the generated code begins the same name with a capital.
func operationID(operation oas.OperationName) string {
	return strings.ToLower(operation[:1]) + operation[1:]
}

// permit returns the fault Forbidden unless the caller has every role that the document asks for.
func permit(caller account.Caller, roles []string) error {
	for _, role := range roles {
		if role != string(account.Member) && role != string(caller.Role) {
			return forbidden
		}
	}
	return nil
}

// request does the same for a request that the generated server does not see.
func (s security) request(r *http.Request, operation oas.OperationName) (context.Context, error) {
	key := r.Header.Get("X-API-Key")
	if key == "" {
		return nil, unauthenticated
	}
	return s.authenticate(r.Context(), operation, key, oas.GetRolesForApiKeyAuth(operation))
}

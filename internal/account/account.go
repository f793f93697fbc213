// Package account owns organizations, the accounts that act in them, API keys, bearer and stream tokens and the audit
// log: who is calling, with which role, and what it changed. It promises that the text of a key exists only in the
// answer to its creation, and that a key stops within one second of its revocation or expiry on every replica. It knows
// nothing of HTTP.
package account

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/cell"
	"flowlane/internal/pg"
)

// Caller is an authenticated caller. Everything that it does happens in OrgID and is attributed to AccountID.
type Caller struct {
	OrgID     uuid.UUID
	AccountID uuid.UUID
	// KeyID is the API key in use; uuid.Nil for a bearer token.
	KeyID uuid.UUID
	// SessionID is the session of a browser; uuid.Nil for whoever shows a key or a token.
	SessionID uuid.UUID
	// Link tells that the caller came with a link, which signs in and does nothing else.
	Link bool
	Grant
	// RequestLimits are what the operator set in the place of the document's x-rate-limit, in its form, by operationId.
	RequestLimits map[string]string
	// Resource is the one resource that the caller may read, where it came with a token for that alone; else empty.
	Resource string
}

// APIKey is the key in use, nil without one.
func (c Caller) APIKey() *uuid.UUID { return orNil(c.KeyID) }

func orNil(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// requestLimits reads the column organization.request_limits.
func requestLimits(stored json.RawMessage) (limits map[string]string, err error) {
	if string(stored) == "{}" { // as for most
		return nil, nil
	}
	if err := json.Unmarshal(stored, &limits); err != nil {
		return nil, fmt.Errorf("read the request limits of the organization: %w", err)
	}
	return limits, nil
}

// Actor is a caller and what it asked for.
type Actor struct {
	Caller

	operation Operation
}

type callerKey struct{}

// NewContext returns a context that carries the caller and what it asked for. What is asked of a pg.Scoped pool with it
// sees the rows of the caller's organization alone.
func NewContext(ctx context.Context, c Caller, o Operation) context.Context {
	return context.WithValue(pg.WithOrg(ctx, c.OrgID), callerKey{}, &Actor{c, o})
}

// Authenticated reports whether the context carries a caller.
func Authenticated(ctx context.Context) bool {
	return ActorFrom(ctx) != nil
}

// ActorFrom returns who acts in this context; nil where nobody called.
func ActorFrom(ctx context.Context) *Actor {
	a, _ := ctx.Value(callerKey{}).(*Actor)
	return a
}

// FromContext returns the caller of this request. It panics without one: an operation that needs a caller but is not
// secured is a mistake in the document, and must not run as nobody.
func FromContext(ctx context.Context) Caller {
	a := ActorFrom(ctx)
	if a == nil {
		panic("account: no caller in the context; the operation is not secured")
	}
	return a.Caller
}

// Org is a new organization with its service account, as which its API keys act.
type Org struct {
	ID        uuid.UUID
	Name      string
	AccountID uuid.UUID
}

// CreateOrg makes an organization and its service account. Run it in a transaction.
func CreateOrg(ctx context.Context, tx db.DBTX, name string) (Org, error) {
	orgID := cell.NewID()
	accountID := cell.NewID()
	q := db.New()
	org, err := q.OrgCreate(ctx, tx, db.OrgCreateParams{ID: orgID, Name: name})
	if err != nil {
		return Org{}, fmt.Errorf("create organization: %w", err)
	}
	_, err = q.AccountCreate(ctx, tx, db.AccountCreateParams{ID: accountID, OrgID: orgID, Name: "Service account",
		Kind: "service"})
	if err != nil {
		return Org{}, fmt.Errorf("create service account: %w", err)
	}
	return Org{ID: org.ID, Name: org.Name, AccountID: accountID}, nil
}

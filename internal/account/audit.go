package account

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/cell"
)

// Operation is what a caller asked for. The audit log names it.
type Operation struct {
	// ID is the operationId of the API's document.
	ID string
	// RequestID is the id under which the request is answered and logged.
	RequestID string
}

// Audit writes down that the caller of this request changes a resource. Every method that changes something for a
// caller calls it once, in the transaction of the change, so that neither happens without the other. What happens
// without a caller, such as due work, leaves no row.
func Audit(ctx context.Context, tx db.DBTX, resourceType, resourceID string) error {
	return AuditAll(ctx, tx, resourceType, []string{resourceID}, ActorFrom(ctx))
}

// AuditAll is Audit for several resources that each have an actor of their own; nil for none.
func AuditAll(ctx context.Context, tx db.DBTX, resourceType string, resources []string, actors ...*Actor) error {
	in := db.AuditInsertParams{ResourceType: resourceType}
	for i, a := range actors {
		if a == nil {
			continue
		}
		id := cell.NewID()
		in.Ids, in.OrgIds, in.AccountIds, in.KeyIds = append(in.Ids, id), append(in.OrgIds, a.OrgID),
			append(in.AccountIds, a.AccountID), append(in.KeyIds, a.KeyID)
		in.Actions, in.RequestIds = append(in.Actions, a.operation.ID), append(in.RequestIds, a.operation.RequestID)
		resource, name := resourceOf(resources[i])
		in.ResourceIds, in.ResourceNames = append(in.ResourceIds, resource), append(in.ResourceNames, name)
	}
	if len(in.Ids) == 0 {
		return nil
	}
	if err := db.New().AuditInsert(ctx, tx, in); err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	return nil
}

// resourceOf tells the id of a thing from the name of one that has no id; what it is not is zero.
func resourceOf(text string) (id uuid.UUID, name string) {
	if id, err := uuid.Parse(text); err == nil && id != uuid.Nil && id.String() == text {
		return id, ""
	}
	return uuid.Nil, text
}

// ResourceFilter is what rows about a resource have as id and as name; both are nil where text is nil.
func ResourceFilter(text *string) (id *uuid.UUID, name *string) {
	if text == nil {
		return nil, nil
	}
	if id, _ := resourceOf(*text); id != uuid.Nil {
		return &id, nil
	}
	return nil, text
}

// Resource is the thing that a row is about, as the API names it; nil for none.
func Resource(l *db.FlowAuditLog) *string {
	if l.ResourceID == nil {
		return l.ResourceName
	}
	text := l.ResourceID.String()
	return &text
}

// AsOperator returns a context in which the operator of the service acts on an organization by a command.
func AsOperator(ctx context.Context, orgID uuid.UUID, command string) context.Context {
	return NewContext(ctx, Caller{OrgID: orgID}, Operation{ID: command})
}

// AuthMethod is how the caller of an audit row authenticated, or tried to.
func AuthMethod(l *db.FlowAuditLog) string {
	switch {
	case l.ApiKeyID != nil:
		return "api_key"
	case l.AccountID == nil && l.Outcome != outcomeRefused:
		return "operator"
	}
	return "jwt"
}

// outcomeRefused is the outcome of a sign-in that was refused.
const outcomeRefused = "refused"

// AuditDenied writes down that the caller of this request lacks the role for what it asked.
func (s *Service) AuditDenied(ctx context.Context) error {
	a := ActorFrom(ctx)
	id := cell.NewID()
	err := db.New().AuditDenied(ctx, s.cfg.Pool, db.AuditDeniedParams{
		ID: id, OrgID: a.OrgID, AccountID: &a.AccountID, ApiKeyID: a.APIKey(), Action: a.operation.ID,
		RequestID: a.operation.RequestID,
	})
	if err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	return nil
}

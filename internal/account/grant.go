package account

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/fault"
)

// Role is what a caller may do at most.
type Role string

const (
	// Admin may read and change everything of its organization.
	Admin Role = "admin"
	// Member may read.
	Member Role = "member"
)

// Grant is what a caller may do: what its role allows, and of that only what its scopes name, where it has any.
type Grant struct {
	Role Role
	// Scopes are names of the API document, such as "credentials:read"; nil for all that the role allows.
	Scopes []string
}

// Holds reports whether the scopes, if there are any, include this one: to write a group includes to read it.
func (g Grant) Holds(scope string) bool {
	if g.Scopes == nil || slices.Contains(g.Scopes, scope) {
		return true
	}
	group, reads := strings.CutSuffix(scope, ":read")
	return reads && slices.Contains(g.Scopes, group+":write")
}

// NewKey describes a key to create.
type NewKey struct {
	OrgID uuid.UUID
	Name  string
	// Grant is what the key may do; an admin's without a role.
	Grant
	// CreatedBy is the account that asked for it; uuid.Nil means the service account of the organization.
	CreatedBy uuid.UUID
	// CreatedByKey is the key that asked for it, which can give it no more than it has itself; uuid.Nil where none did.
	CreatedByKey uuid.UUID
	// ExpiresAt is when the key stops by itself; nil for never. A time that is not in the future is refused.
	ExpiresAt *time.Time
}

// beyond says what of the new key is more than the key has that asks for it, each at its place in the request.
func (n NewKey) beyond(own db.ApiKeyMakerRow) (fields []fault.Field) {
	refuse := func(loc []string, format string, args ...any) {
		fields = append(fields, fault.Value(append([]string{"body"}, loc...), "The key that asks "+format,
			args...).Fields...)
	}
	if own.Role != string(Admin) && n.Role == Admin {
		refuse([]string{"role"}, "has the role %s: it can give no other", own.Role)
	}
	if own.Scopes != nil && n.Scopes == nil {
		refuse([]string{"scopes"}, "has scopes: name those to give, among %s", strings.Join(own.Scopes, ", "))
	}
	for i, scope := range n.Scopes {
		if !(Grant{Scopes: own.Scopes}).Holds(scope) {
			refuse([]string{"scopes", strconv.Itoa(i)}, "does not have %s itself", scope)
		}
	}
	if own.ExpiresAt != nil && (n.ExpiresAt == nil || n.ExpiresAt.After(*own.ExpiresAt)) {
		end := own.ExpiresAt.UTC().Format(time.RFC3339)
		refuse([]string{"expires_at"}, "expires itself: name a time that is not after %s", end)
	}
	return fields
}

// expired says whether the end of a new key has come before its beginning.
func (n NewKey) expired(now time.Time) (fields []fault.Field) {
	if n.ExpiresAt != nil && !n.ExpiresAt.After(now) {
		return fault.Value([]string{"body", "expires_at"}, "must be in the future").Fields
	}
	return nil
}

package forecast

import (
	"context"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/fault"
)

// budgetKey names a budget.
type budgetKey struct{ domain, bucket string }

// budgets finds those that tasks of an organization spend, and remembers the Domains that it read.
type budgets struct {
	// s answers the organization.
	s     *Service
	conn  db.DBTX
	orgID uuid.UUID
	known map[string]*Domain
}

// of returns the buckets of a Domain that a task's calls spend: those of the catalog, or where the owner of the
// credential has set limits, the one that has these.
func (b *budgets) of(ctx context.Context, t *definition.Task, domain string) (out []bucket, err error) {
	for _, name := range t.Action.Buckets {
		out = append(out, bucket{name, b.s.catalog.Bucket(t.Action, name)})
	}
	if len(out) > 0 || !t.CredentialID.Valid || t.Action.Call == nil {
		return out, nil
	}
	d, err := b.domain(ctx, domain)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil || d.limits == nil {
		return nil, err
	}
	name := t.Action.OwnerBudget()
	return []bucket{{name, d.limits.Bucket(name)}}, nil
}

// domain reads a Domain, once.
func (b *budgets) domain(ctx context.Context, id string) (*Domain, error) {
	if d := b.known[id]; d != nil {
		return d, nil
	}
	d, err := b.s.domain(ctx, b.conn, b.orgID, id)
	if err != nil {
		return nil, err
	}
	if b.known == nil {
		b.known = map[string]*Domain{}
	}
	b.known[id] = &d
	return &d, nil
}

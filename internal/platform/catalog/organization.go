package catalog

import (
	"context"
	"strings"

	"github.com/google/uuid"
)

// Organizations knows the platforms that organizations have for themselves.
type Organizations interface {
	// CatalogOf returns the catalog as the organization sees it. It is the same one as long as nothing in it changes.
	CatalogOf(ctx context.Context, orgID uuid.UUID) (*Catalog, error)
}

// ShareWith tells c who knows the platforms of organizations; without it there are none. It is called once, before c is
// used.
func (c *Catalog) ShareWith(o Organizations) { c.organizations = o }

// Of returns the catalog as an organization sees it: the platforms of c and those of its own. Who needs only what ids
// name (of platforms, services or actions) says so, and gets c itself where they are of platforms that everybody sees:
// no organization can have one of the same id.
func (c *Catalog) Of(ctx context.Context, orgID uuid.UUID, ids ...string) (*Catalog, error) {
	if c.organizations == nil || (len(ids) > 0 && c.Shared(ids)) {
		return c, nil
	}
	return c.organizations.CatalogOf(ctx, orgID) //nolint:wrapcheck // says everything
}

// Shared reports whether all ids (of platforms, services or actions) are of platforms that everybody sees, which no
// import replaces.
func (c *Catalog) Shared(ids []string) bool {
	for _, id := range ids {
		platform, _, _ := strings.Cut(id, "__")
		if _, ok := c.platforms[platform]; !ok {
			return false
		}
	}
	return true
}

// Service returns the service that the action belongs to; nil for one that is of no catalog.
func (a *Action) Service() *Service { return a.service }

// Platform returns the platform that the action belongs to; nil for one that is of no catalog.
func (a *Action) Platform() *Platform { return a.platform }

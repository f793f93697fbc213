package definition

import (
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/platform/catalog"
)

// Bounds of the plan cache, in bytes of authored text; a plan takes several times that.
const (
	defaultPlanBytes = 16 << 20
	planOverhead     = 4 << 10
)

// Plans hands out compiled plans and keeps those that were used last. Versions never change, so that a plan is out of
// date only where its organization has imported a platform again that it uses. It may be used by any number of
// goroutines.
type Plans struct {
	catalog *catalog.Catalog
	queries *db.Queries
	most    int

	mu    sync.Mutex
	bytes int
	// order has the plan that was used last in front.
	order *list.List
	byKey map[planKey]*list.Element
}

type planKey struct {
	orgID, definitionID uuid.UUID
	version             int32
}

type cachedPlan struct {
	key   planKey
	plan  *Plan
	bytes int
	// actions are those of the version, and catalog is what they were looked up in.
	actions []string
	catalog *catalog.Catalog
}

// NewPlans returns an empty cache that holds plans of up to maxBytes of authored text; 0 means 16 MiB.
func NewPlans(cat *catalog.Catalog, maxBytes int) *Plans {
	if maxBytes <= 0 {
		maxBytes = defaultPlanBytes
	}
	return &Plans{catalog: cat, queries: db.New(), most: maxBytes, order: list.New(),
		byKey: map[planKey]*list.Element{}}
}

// Plan returns the plan of one version, which must not be changed. Where the version no longer fits the catalog, its
// tasks say so. Fault: NotFound.
func (p *Plans) Plan(ctx context.Context, q db.DBTX, orgID, definitionID uuid.UUID, version int32) (*Plan, error) {
	key := planKey{orgID, definitionID, version}
	if c := p.cached(key); c != nil {
		cat, err := p.catalog.Of(ctx, orgID, c.actions...)
		if err != nil || cat == c.catalog {
			return c.plan, err //nolint:wrapcheck // says everything
		}
	}
	row, err := p.queries.DefinitionVersion(ctx, q, db.DefinitionVersionParams{OrgID: orgID, DefinitionID: definitionID,
		Version: version})
	if err != nil {
		return nil, missing(err, "read definition version")
	}
	doc, err := Decode(row.Doc)
	if err != nil {
		return nil, err
	}
	c := &cachedPlan{key: key, bytes: len(row.Doc) + planOverhead, actions: doc.actionIDs()}
	if c.catalog, err = p.catalog.Of(ctx, orgID, c.actions...); err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	if c.plan, err = compileVersion(row, doc, c.catalog); err != nil {
		return nil, err
	}
	c.plan.Imported = !p.catalog.Shared(c.actions)
	return p.keep(c), nil
}

func compileVersion(row db.FlowDefinitionVersion, doc Document, cat *catalog.Catalog) (*Plan, error) {
	var was map[string]traits
	if err := json.Unmarshal(row.Actions, &was); err != nil {
		return nil, fmt.Errorf("the actions of version %d of definition %s: %w", row.Version, row.DefinitionID, err)
	}
	plan := restore(doc, was, cat)
	plan.DefinitionID, plan.OrgID, plan.Version = row.DefinitionID, row.OrgID, row.Version
	return plan, nil
}

func (p *Plans) cached(key planKey) *cachedPlan {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.byKey[key]
	if !ok {
		return nil
	}
	p.order.MoveToFront(e)
	return e.Value.(*cachedPlan)
}

// keep adds a plan and drops those that were used longest ago. Of two goroutines that compiled the same version the
// first wins, so that all share one plan.
func (p *Plans) keep(c *cachedPlan) *Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.byKey[c.key]; ok {
		p.order.MoveToFront(e)
		if was := e.Value.(*cachedPlan); was.catalog == c.catalog {
			return was.plan
		}
		e.Value = c
		return c.plan
	}
	p.byKey[c.key] = p.order.PushFront(c)
	p.bytes += c.bytes
	for p.bytes > p.most && p.order.Len() > 1 {
		last := p.order.Remove(p.order.Back()).(*cachedPlan)
		delete(p.byKey, last.key)
		p.bytes -= last.bytes
	}
	return c.plan
}

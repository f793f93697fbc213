package api

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/platform/catalog"
)

// catalogHandler serves /catalog: what everybody sees, which does not change while the process lives, and for who signs
// in also the platforms of the organization.
type catalogHandler struct {
	catalog *catalog.Catalog
	// entityTag is of the catalog as a whole: every answer is a function of it, of the document and of the address.
	entityTag
}

// seen returns the handler of what the caller sees. ids are of what is asked for; none for lists.
func (h catalogHandler) seen(ctx context.Context, ids ...string) (catalogHandler, error) {
	if !account.Authenticated(ctx) {
		return h, nil
	}
	cat, err := h.catalog.Of(ctx, account.FromContext(ctx).OrgID, ids...)
	if err != nil || cat == h.catalog {
		return h, err //nolint:wrapcheck // says everything
	}
	exchangeOf(ctx).header.Set("Cache-Control", "private, no-cache")
	tag, err := tagOf([]any{h.tag, cat.Platforms()[len(h.catalog.Platforms()):]})
	return catalogHandler{cat, tag}, err
}

func newCatalogHandler(c *catalog.Catalog) (catalogHandler, error) {
	tag, err := tagOf(c.Platforms())
	return catalogHandler{c, tag}, err
}

//nolint:dupl // the same list of another generated type
func (h catalogHandler) ListPlatforms(ctx context.Context,
	params oas.ListPlatformsParams) (oas.ListPlatformsRes, error) {
	h, err := h.seen(ctx)
	if err != nil {
		return nil, err
	}
	p, err := pageOf("platforms", uuid.Nil, params.Limit, params.Skip, params.Cursor, params.Status.Value)
	if err != nil {
		return nil, err
	}
	all := inStatus(h.catalog.Platforms(), string(params.Status.Value),
		func(p *catalog.Platform) string { return p.Status })
	id := func(p *catalog.Platform) string { return p.ID }
	rows, err := pageFrom(p, all, id)
	if err != nil {
		return nil, err
	}
	if h.fresh(params.IfNoneMatch) {
		return h.notModified(), nil
	}
	list := oas.PlatformList(listOf(p, rows, int64(len(all)), id, convertPlatform))
	return &oas.PlatformListHeaders{ETag: oas.NewOptString(h.tag), Response: list}, nil
}

func (h catalogHandler) GetPlatform(ctx context.Context, params oas.GetPlatformParams) (oas.GetPlatformRes, error) {
	h, err := h.seen(ctx, params.PlatformID)
	if err != nil {
		return nil, err
	}
	p, ok := h.catalog.Platform(params.PlatformID)
	if !ok {
		return nil, h.catalog.MissingPlatform(params.PlatformID)
	}
	if h.fresh(params.IfNoneMatch) {
		return h.notModified(), nil
	}
	return &oas.PlatformHeaders{ETag: oas.NewOptString(h.tag), Response: convertPlatform(p)}, nil
}

func (h catalogHandler) ListPlatformServices(ctx context.Context,
	params oas.ListPlatformServicesParams) (oas.ListPlatformServicesRes, error) {
	h, err := h.seen(ctx, params.PlatformID)
	if err != nil {
		return nil, err
	}
	p, err := pageOf("services", uuid.Nil, params.Limit, params.Skip, params.Cursor, params.PlatformID, "\x00",
		params.Order.Value)
	if err != nil {
		return nil, err
	}
	list, err := h.services(p, h.catalog.Services(params.PlatformID), params.Order)
	if err != nil {
		return nil, err
	}
	if h.fresh(params.IfNoneMatch) {
		return h.notModified(), nil
	}
	return list, nil
}

func (h catalogHandler) ListServices(ctx context.Context, params oas.ListServicesParams) (oas.ListServicesRes, error) {
	h, err := h.seen(ctx)
	if err != nil {
		return nil, err
	}
	p, err := pageOf("services", uuid.Nil, params.Limit, params.Skip, params.Cursor, "\x00", params.Order.Value)
	if err != nil {
		return nil, err
	}
	list, err := h.services(p, h.catalog.AllServices(), params.Order)
	if err != nil {
		return nil, err
	}
	if h.fresh(params.IfNoneMatch) {
		return h.notModified(), nil
	}
	return list, nil
}

// services sorts by name, the only order there is.
func (h catalogHandler) services(p page, all []*catalog.Service, order oas.OptOrder) (*oas.ServiceListHeaders, error) {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b *catalog.Service) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	if order.Value == oas.OrderDesc {
		slices.Reverse(sorted)
	}
	id := func(s *catalog.Service) string { return s.ID }
	rows, err := pageFrom(p, sorted, id)
	if err != nil {
		return nil, err
	}
	list := oas.ServiceList(listOf(p, rows, int64(len(sorted)), id, convertService))
	return &oas.ServiceListHeaders{ETag: oas.NewOptString(h.tag), Response: list}, nil
}

func (h catalogHandler) GetService(ctx context.Context, params oas.GetServiceParams) (oas.GetServiceRes, error) {
	h, err := h.seen(ctx, params.ServiceID)
	if err != nil {
		return nil, err
	}
	s, ok := h.catalog.Service(params.ServiceID)
	if !ok {
		return nil, h.catalog.MissingService(params.ServiceID)
	}
	if h.fresh(params.IfNoneMatch) {
		return h.notModified(), nil
	}
	return &oas.ServiceHeaders{ETag: oas.NewOptString(h.tag), Response: convertService(s)}, nil
}

func (h catalogHandler) ListServiceActions(ctx context.Context,
	params oas.ListServiceActionsParams) (oas.ListServiceActionsRes, error) {
	h, err := h.seen(ctx, params.ServiceID)
	if err != nil {
		return nil, err
	}
	if _, ok := h.catalog.Service(params.ServiceID); !ok {
		return nil, h.catalog.MissingService(params.ServiceID)
	}
	p, err := pageOf("actions", uuid.Nil, params.Limit, params.Skip, params.Cursor, params.ServiceID)
	if err != nil {
		return nil, err
	}
	list, err := h.actions(p, h.catalog.Actions(params.ServiceID))
	if err != nil {
		return nil, err
	}
	if h.fresh(params.IfNoneMatch) {
		return h.notModified(), nil
	}
	return list, nil
}

func (h catalogHandler) ListActions(ctx context.Context, params oas.ListActionsParams) (oas.ListActionsRes, error) {
	h, err := h.seen(ctx)
	if err != nil {
		return nil, err
	}
	p, err := pageOf("actions", uuid.Nil, params.Limit, params.Skip, params.Cursor, params.Q.Value)
	if err != nil {
		return nil, err
	}
	list, err := h.actions(p, h.catalog.Search(params.Q.Value))
	if err != nil {
		return nil, err
	}
	if h.fresh(params.IfNoneMatch) {
		return h.notModified(), nil
	}
	return list, nil
}

func (h catalogHandler) actions(p page, all []*catalog.Action) (*oas.ActionListHeaders, error) {
	id := func(a *catalog.Action) string { return a.ID }
	rows, err := pageFrom(p, all, id)
	if err != nil {
		return nil, err
	}
	list := oas.ActionList(listOf(p, rows, int64(len(all)), id, convertAction))
	return &oas.ActionListHeaders{ETag: oas.NewOptString(h.tag), Response: list}, nil
}

func (h catalogHandler) GetAction(ctx context.Context, params oas.GetActionParams) (oas.GetActionRes, error) {
	h, err := h.seen(ctx, params.ActionID)
	if err != nil {
		return nil, err
	}
	a, ok := h.catalog.Action(params.ActionID)
	if !ok {
		return nil, h.catalog.MissingAction(params.ActionID)
	}
	if h.fresh(params.IfNoneMatch) {
		return h.notModified(), nil
	}
	return &oas.ActionHeaders{ETag: oas.NewOptString(h.tag), Response: convertAction(a)}, nil
}

// inStatus returns those in a status; all of them for none.
func inStatus[T any](all []T, status string, of func(T) string) []T {
	return slices.DeleteFunc(slices.Clone(all), func(t T) bool { return status != "" && of(t) != status })
}

// pageFrom returns the part of all that a page begins with. Fault: Invalid when the cursor's item is gone.
func pageFrom[T any](p page, all []T, id func(T) string) ([]T, error) {
	if p.Key != "" {
		i := slices.IndexFunc(all, func(t T) bool { return id(t) == p.Key })
		if i < 0 {
			return nil, errCursor
		}
		return all[i+1:], nil
	}
	return all[min(p.skip, len(all)):], nil
}

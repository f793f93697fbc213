package api

import (
	"context"
	"strings"
	"time"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/platform/tenant"
)

// tenantHandler serves /tenants.
type tenantHandler struct{ tenants *tenant.Service }

func (h tenantHandler) ListTenants(ctx context.Context, params oas.ListTenantsParams) (*oas.TenantList, error) {
	caller := account.FromContext(ctx)
	p, err := pageOf("tenants", caller.OrgID, params.Limit, params.Skip, params.Cursor)
	if err != nil {
		return nil, err
	}
	var after tenant.Place
	if p.Key != "" {
		if after.CreatedAt, after.ID, err = timeAndID(p.Key); err != nil {
			return nil, err
		}
	}
	rows, total, err := h.tenants.List(ctx, caller.OrgID, after, p.Skip(), p.Fetch())
	if err != nil {
		return nil, err
	}
	key := func(t *tenant.Tenant) string { return timedKey(t.CreatedAt, t.ID) }
	list := oas.TenantList(listOf(p, rows, total, key, tenantOf))
	return &list, nil
}

func (h tenantHandler) CreateTenant(ctx context.Context, req *oas.TenantCreate,
	_ oas.CreateTenantParams) (*oas.Tenant, error) {
	in := tenant.Input{PlatformID: req.PlatformID, Label: req.Label, Number: givenString(req.AccountNumber)}
	return answerTenant(h.tenants.Create(ctx, account.FromContext(ctx).OrgID, in, keepCreated(answerTenant)))
}

func (h tenantHandler) GetTenant(ctx context.Context, params oas.GetTenantParams) (*oas.Tenant, error) {
	return answerTenant(h.tenants.Get(ctx, account.FromContext(ctx).OrgID, params.TenancyID))
}

func (h tenantHandler) UpdateTenant(ctx context.Context, req *oas.TenantPatch,
	params oas.UpdateTenantParams) (*oas.Tenant, error) {
	label := optional(req.Label.Value, req.Label.Set)
	return answerTenant(h.tenants.Rename(ctx, account.FromContext(ctx).OrgID, params.TenancyID, label))
}

func (h tenantHandler) DeleteTenant(ctx context.Context, params oas.DeleteTenantParams) error {
	return h.tenants.Delete(ctx, account.FromContext(ctx).OrgID, params.TenancyID)
}

func answerTenant(t *tenant.Tenant, err error) (*oas.Tenant, error) {
	if err != nil {
		return nil, err
	}
	out := tenantOf(t)
	return &out, nil
}

func tenantOf(t *tenant.Tenant) oas.Tenant {
	return oas.Tenant{
		ID: t.ID, PlatformID: t.PlatformID, Label: t.Label, IsManual: t.Manual, AccountNumber: nilString(t.Number),
		CreatedAt: t.CreatedAt.UTC(),
	}
}

// timedKey is the cursor's key of a list that is sorted by time and then by id.
func timedKey(at time.Time, id string) string { return at.UTC().Format(time.RFC3339Nano) + " " + id }

func timeAndID(key string) (at time.Time, id string, err error) {
	text, id, _ := strings.Cut(key, " ")
	if at, err = time.Parse(time.RFC3339Nano, text); err != nil {
		return at, "", errCursor
	}
	return at, id, nil
}

var _ oas.TenantHandler = tenantHandler{}

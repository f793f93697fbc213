package api

import (
	"context"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/internal/retention"
	"flowlane/internal/run"
)

// accountHandler serves /account.
type accountHandler struct {
	pool     pg.Pool
	reads    pg.DB
	accounts *account.Service
	runs     *run.Service
	// retention is how long the operator keeps things.
	retention retention.Installation
	// publicURL gives the address under which people reach the service.
	publicURL func() string
}

func (h accountHandler) GetMe(ctx context.Context) (*oas.Me, error) {
	caller := account.FromContext(ctx)
	row, err := db.New().AccountMe(ctx, h.pool, db.AccountMeParams{OrgID: caller.OrgID, ID: caller.AccountID})
	if err != nil {
		return nil, err
	}
	me := &oas.Me{
		Account:      oas.MeAccount{ID: row.ID.String(), Name: row.Name, Kind: oas.MeAccountKind(row.Kind)},
		Organization: oas.MeOrganization{ID: row.OrgID.String(), Name: row.OrgName},
		Role:         oas.Role(caller.Role),
		Scopes:       scopesOf(caller.Scopes),
		AuthMethod:   oas.MeAuthMethodJwt,
		APIKeyID:     oas.NilString{Null: true},
	}
	if caller.KeyID != uuid.Nil {
		me.AuthMethod, me.APIKeyID = oas.MeAuthMethodAPIKey, oas.NewNilString(caller.KeyID.String())
	}
	return me, nil
}

func (h accountHandler) GetQuotas(ctx context.Context) (*oas.Quotas, error) {
	all, err := orgquota.List(ctx, h.pool, account.FromContext(ctx).OrgID)
	if err != nil {
		return nil, err
	}
	out := &oas.Quotas{Quotas: make([]oas.Quota, len(all))}
	for i, q := range all {
		out.Quotas[i] = oas.Quota{Name: oas.QuotaName(q.Name), Limit: q.Limit, Used: q.Used}
	}
	return out, nil
}

func (h accountHandler) GetRetention(ctx context.Context) (*oas.Retention, error) {
	all, err := h.retention.List(ctx, h.pool, account.FromContext(ctx).OrgID)
	return retentionOf(all), err
}

func (h accountHandler) SetRetention(ctx context.Context, req *oas.RetentionChange) (*oas.Retention, error) {
	days := map[string]int{}
	for kind, set := range map[retention.Kind]oas.OptNilInt{retention.Batches: req.Batches, retention.Calls: req.Calls,
		retention.Deliveries: req.Deliveries, retention.AuditLog: req.AuditLog, retention.Usage: req.Usage} {
		if n, ok := set.Get(); ok {
			days[kind.Name] = n
		}
	}
	all, err := h.retention.Replace(ctx, h.pool, account.FromContext(ctx).OrgID, days)
	return retentionOf(all), err
}

func retentionOf(all []retention.Period) *oas.Retention {
	out := &oas.Retention{}
	for i := range all {
		p := &all[i]
		period := oas.RetentionPeriod{Days: nilDays(p.Kept()), LongestDays: nilDays(p.Longest),
			ShortestDays: p.ShortestDays(), OwnDays: oas.NilInt{Null: true}}
		if p.Set != nil {
			period.OwnDays = oas.NewNilInt(*p.Set)
		}
		*map[retention.Kind]*oas.RetentionPeriod{retention.Batches: &out.Batches, retention.Calls: &out.Calls,
			retention.Deliveries: &out.Deliveries, retention.AuditLog: &out.AuditLog,
			retention.Usage: &out.Usage}[p.Kind] = period
	}
	return out
}

// nilDays is a time in days; null for none.
func nilDays(d time.Duration) oas.NilFloat64 {
	if d == 0 {
		return oas.NilFloat64{Null: true}
	}
	return oas.NewNilFloat64(d.Hours() / 24)
}

func (h accountHandler) ListApiKeys(ctx context.Context, params oas.ListApiKeysParams) (*oas.ApiKeyList, error) {
	caller := account.FromContext(ctx)
	status := optional(params.Status.Value, params.Status.Set)
	p, err := pageOf("api-keys", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Status.Value)
	if err != nil {
		return nil, err
	}
	after, err := p.afterID()
	if err != nil {
		return nil, err
	}
	q := db.New()
	rows, err := q.ApiKeyList(ctx, h.pool, db.ApiKeyListParams{
		OrgID: caller.OrgID, After: after, Status: status, Skip: p.Skip(), MaxRows: p.Fetch(),
	})
	if err != nil {
		return nil, err
	}
	total, err := q.ApiKeyCount(ctx, h.pool, db.ApiKeyCountParams{OrgID: caller.OrgID, Status: status})
	if err != nil {
		return nil, err
	}
	key := func(r db.ApiKeyListRow) string { return r.FlowApiKey.ID.String() }
	list := oas.ApiKeyList(listOf(p, rows, total, key, func(r db.ApiKeyListRow) oas.ApiKey {
		return convertApiKey(r.FlowApiKey, r.Status)
	}))
	return &list, nil
}

func (h accountHandler) CreateApiKey(ctx context.Context, req *oas.ApiKeyCreate) (*oas.ApiKeyCreated, error) {
	caller := account.FromContext(ctx)
	n := account.NewKey{
		OrgID: caller.OrgID, Name: req.Name, Grant: account.Grant{Role: account.Role(req.Role.Value)},
		CreatedBy: caller.AccountID, CreatedByKey: caller.KeyID,
	}
	for _, scope := range req.Scopes.Value {
		n.Scopes = append(n.Scopes, string(scope))
	}
	if at, ok := req.ExpiresAt.Get(); ok {
		n.ExpiresAt = &at
	}
	var text string
	var row db.FlowApiKey
	err := pg.InTx(ctx, h.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		text, row, err = h.accounts.CreateKey(ctx, tx, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	k := convertApiKey(row, string(oas.ApiKeyStatusActive))
	return &oas.ApiKeyCreated{
		ID: k.ID, Name: k.Name, Prefix: k.Prefix, LastFour: k.LastFour, Role: k.Role, Scopes: k.Scopes,
		Status:    k.Status,
		CreatedBy: k.CreatedBy, CreatedByKeyID: k.CreatedByKeyID, CreatedAt: k.CreatedAt, LastUsedAt: k.LastUsedAt,
		LastUsedAddress: k.LastUsedAddress, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, Key: text,
	}, nil
}

// maxMade is how many keys that a revoked key made its answer lists.
const maxMade int32 = 1000

func (h accountHandler) RevokeApiKey(ctx context.Context, params oas.RevokeApiKeyParams) (oas.RevokeApiKeyRes, error) {
	id, err := pathID("API key", params.KeyID)
	if err != nil {
		return nil, err
	}
	made, err := h.accounts.RevokeKey(ctx, account.FromContext(ctx).OrgID, id, params.Cascade.Value, maxMade)
	if err != nil {
		return nil, err
	}
	if made.Total == 0 {
		return &oas.RevokeApiKeyNoContent{}, nil
	}
	out := &oas.ApiKeyRevocation{Total: made.Total}
	for _, k := range made.Made {
		out.Made = append(out.Made, convertApiKey(k.FlowApiKey, k.Status))
	}
	return out, nil
}

func (h accountHandler) CreateStreamToken(ctx context.Context, req oas.OptStreamTokenCreate) (*oas.StreamToken, error) {
	caller := account.FromContext(ctx)
	execution := req.Value.ExecutionID.Or("")
	if !req.Value.ExecutionID.Null && req.Value.ExecutionID.Set {
		batch, position, number, ok := parseExecutionID(execution)
		if !ok {
			return nil, fault.Missing("Execution")
		}
		if _, _, err := h.runs.Execution(ctx, caller.OrgID, batch, position, number); err != nil {
			return nil, err
		}
	}
	out := &oas.StreamToken{}
	var err error
	if out.Token, out.ExpiresAt, err = h.accounts.CreateStreamToken(ctx, caller, execution); err != nil {
		return nil, err
	}
	return out, nil
}

func convertApiKey(k db.FlowApiKey, status string) oas.ApiKey {
	return oas.ApiKey{
		ID: k.ID.String(), Name: k.Name, Prefix: k.Prefix, LastFour: k.LastFour, Role: oas.Role(k.Role),
		Scopes: scopesOf(k.Scopes),
		Status: oas.ApiKeyStatus(status), CreatedBy: k.CreatedBy.String(), CreatedByKeyID: nilID(k.CreatedByKeyID),
		CreatedAt: k.CreatedAt.UTC(), LastUsedAt: nilTime(k.LastUsedAt), LastUsedAddress: nilAddress(k.LastUsedAddress),
		ExpiresAt: nilTime(k.ExpiresAt), RevokedAt: nilTime(k.RevokedAt),
	}
}

// scopesOf are the scopes of a key; nil, for one without, is written as null.
func scopesOf(names []string) (scopes []oas.Scope) {
	for _, name := range names {
		scopes = append(scopes, oas.Scope(name))
	}
	return scopes
}

func nilAddress(a *netip.Addr) oas.NilString {
	if a == nil {
		return oas.NilString{Null: true}
	}
	return oas.NewNilString(a.String())
}

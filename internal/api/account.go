package api

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

// accountHandler serves /account.
type accountHandler struct {
	pool     *pgxpool.Pool
	accounts *account.Service
	runs     *run.Service
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
		Role:         oas.MeRole(caller.Role),
		AuthMethod:   oas.MeAuthMethodJwt,
		APIKeyID:     oas.NilString{Null: true},
	}
	if caller.KeyID != uuid.Nil {
		me.AuthMethod, me.APIKeyID = oas.MeAuthMethodAPIKey, oas.NewNilString(caller.KeyID.String())
	}
	return me, nil
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
	n := account.NewKey{OrgID: caller.OrgID, Name: req.Name, CreatedBy: caller.AccountID}
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
		ID: k.ID, Name: k.Name, Prefix: k.Prefix, LastFour: k.LastFour, Status: k.Status, CreatedBy: k.CreatedBy,
		CreatedAt: k.CreatedAt, LastUsedAt: k.LastUsedAt, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, Key: text,
	}, nil
}

func (h accountHandler) RevokeApiKey(ctx context.Context, params oas.RevokeApiKeyParams) error {
	id, err := pathID("API key", params.KeyID)
	if err != nil {
		return err
	}
	return h.accounts.RevokeKey(ctx, account.FromContext(ctx).OrgID, id)
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
	err := pg.InTx(ctx, h.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		out.Token, out.ExpiresAt, err = h.accounts.CreateStreamToken(ctx, tx, caller, execution)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func convertApiKey(k db.FlowApiKey, status string) oas.ApiKey {
	return oas.ApiKey{
		ID: k.ID.String(), Name: k.Name, Prefix: k.Prefix, LastFour: k.LastFour, Status: oas.ApiKeyStatus(status),
		CreatedBy: k.CreatedBy.String(), CreatedAt: k.CreatedAt.UTC(), LastUsedAt: nilTime(k.LastUsedAt),
		ExpiresAt: nilTime(k.ExpiresAt), RevokedAt: nilTime(k.RevokedAt),
	}
}

package credential

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/listing"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/tenant"
)

// errMissing is the answer for a credential that is not there or belongs to another organization.
func errMissing() error { return fault.Missing("Credential") }

func (s *Service) read(ctx context.Context, q db.DBTX, orgID, id uuid.UUID) (*Credential, error) {
	row, err := s.queries.CredentialGet(ctx, q, db.CredentialGetParams{OrgID: orgID, ID: id})
	if pg.IsNoRows(err) {
		return nil, errMissing()
	}
	if err != nil {
		return nil, fmt.Errorf("read credential %s: %w", id, err)
	}
	if s, err = s.seenBy(ctx, orgID, row.FlowCredential.PlatformID); err != nil {
		return nil, err
	}
	c := s.credentialOf(row)
	return c, s.addUses(ctx, q, orgID, []*Credential{c})
}

func (s *Service) credentialOf(row db.CredentialGetRow) *Credential {
	if platform, ok := s.catalog.Platform(row.FlowCredential.PlatformID); ok &&
		row.FlowCredential.AuthMethod == OAuth2 {
		shown, _ := completed(platform, settingsOf(&row.FlowCredential), nil)
		c := &row.FlowCredential
		c.TokenUrl, c.AuthorizeUrl, c.Audience, c.Scopes = given(shown.tokenURL), given(shown.authorizeURL),
			given(shown.audience), shown.scopes
	}
	if len(row.AccountLimits) > 0 {
		row.FlowCredential.Limits = row.AccountLimits
	}
	return &Credential{
		FlowCredential: row.FlowCredential, Manual: row.Manual, AccountLabel: firstOf(row.Label,
			tenant.Label(row.AccountName, row.AccountNumber)),
		Origins: s.spec(settingsOf(&row.FlowCredential), nil).Origins,
	}
}

// List returns a page of the organization's credentials, and how many there are on all pages.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, f Filter, at listing.Page) ([]*Credential, int64, error) {
	total, err := s.queries.CredentialCount(ctx, pg.CustomPlan{Pool: s.pool}, db.CredentialCountParams{
		OrgID: orgID, Least: f.Created.Least, Most: f.Created.Most, Status: f.Status,
		CreatedAfter:  f.Created.CreatedAfter,
		CreatedBefore: f.Created.CreatedBefore, Name: listing.Beginning(f.Name), PlatformID: f.PlatformID,
	})
	if err != nil {
		return nil, 0, fmt.Errorf("count credentials: %w", err)
	}
	rows, err := s.rows(ctx, db.CredentialListParams{
		OrgID: orgID, Least: at.Least, Most: at.Most, Status: f.Status, CreatedAfter: at.CreatedAfter,
		CreatedBefore: at.CreatedBefore,
		Name:          listing.Beginning(f.Name), PlatformID: f.PlatformID, Skip: at.Skip, MaxRows: at.MaxRows,
	}, at.Newest)
	if err != nil {
		return nil, 0, fmt.Errorf("list credentials: %w", err)
	}
	platforms := make([]string, len(rows))
	for i := range rows {
		platforms[i] = rows[i].FlowCredential.PlatformID
	}
	if s, err = s.seenBy(ctx, orgID, platforms...); err != nil {
		return nil, 0, err
	}
	items := make([]*Credential, len(rows))
	for i, row := range rows {
		items[i] = s.credentialOf(db.CredentialGetRow(row))
	}
	return items, total, s.addUses(ctx, s.pool, orgID, items)
}

func (s *Service) rows(ctx context.Context, in db.CredentialListParams, newest bool) ([]db.CredentialListRow, error) {
	conn := pg.CustomPlan{Pool: s.pool}
	if !newest {
		return s.queries.CredentialList(ctx, conn, in)
	}
	rows, err := s.queries.CredentialListNewest(ctx, conn, db.CredentialListNewestParams(in))
	out := make([]db.CredentialListRow, len(rows))
	for i, row := range rows {
		out[i] = db.CredentialListRow(row)
	}
	return out, err
}

func (s *Service) addUses(ctx context.Context, q db.DBTX, orgID uuid.UUID, items []*Credential) error {
	byID := make(map[uuid.UUID]*Credential, len(items))
	ids := make([]uuid.UUID, 0, len(items))
	for _, c := range items {
		byID[c.ID] = c
		ids = append(ids, c.ID)
	}
	uses, err := s.queries.CredentialUses(ctx, q, db.CredentialUsesParams{OrgID: orgID, Ids: ids})
	if err != nil {
		return fmt.Errorf("read the observed use of credentials: %w", err)
	}
	for _, use := range uses {
		c := byID[use.CredentialID]
		c.Uses = append(c.Uses, use)
	}
	tokens, err := s.queries.CredentialTokens(ctx, q, db.CredentialTokensParams{OrgID: orgID, Ids: ids})
	if err != nil {
		return fmt.Errorf("read how the tokens of credentials stand: %w", err)
	}
	rows := map[uuid.UUID]*db.FlowCredentialToken{}
	for i := range tokens {
		rows[tokens[i].FlowCredentialToken.CredentialID] = &tokens[i].FlowCredentialToken
	}
	for _, c := range items {
		c.Authorization = authorizationOf(c, rows[c.ID])
	}
	return nil
}

// Placeholder returns the credential as Resolve does, with a placeholder instead of the secret, which is not read: for
// showing a call. Fault: NotFound.
func (s *Service) Placeholder(ctx context.Context, orgID, id uuid.UUID) (*Resolved, error) {
	row, err := s.queries.CredentialForUse(ctx, s.pool, db.CredentialForUseParams{OrgID: orgID, ID: id})
	if pg.IsNoRows(err) {
		return nil, errMissing()
	}
	if err != nil {
		return nil, fmt.Errorf("read credential %s: %w", id, err)
	}
	stored := &row.FlowCredential
	if s, err = s.seenBy(ctx, orgID, stored.PlatformID); err != nil {
		return nil, err
	}
	return &Resolved{
		ID: id, OrgID: orgID, PlatformID: stored.PlatformID, AuthMethod: stored.AuthMethod,
		TenancyID: textOf(stored.TenancyID),
		Status:    stored.Status, Version: row.Version, Secret: provider.Placeholder(s.spec(settingsOf(stored), nil)),
	}, nil
}

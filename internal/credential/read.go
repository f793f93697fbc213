package credential

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/tenant"
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
	c := &Credential{FlowCredential: row.FlowCredential, AccountLabel: tenant.Label(row.AccountName, row.AccountNumber)}
	return c, s.addUses(ctx, q, orgID, []*Credential{c})
}

// List returns a page of the organization's credentials.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, f Filter) (Page, error) {
	var status *string
	if f.Status != "" {
		status = &f.Status
	}
	total, err := s.queries.CredentialCount(ctx, s.pool, db.CredentialCountParams{OrgID: orgID, Status: status})
	if err != nil {
		return Page{}, fmt.Errorf("count credentials: %w", err)
	}
	// One row more than asked for tells whether there is a next page.
	rows, err := s.queries.CredentialList(ctx, s.pool, db.CredentialListParams{
		OrgID: orgID, After: f.After, Status: status, Skip: clamp(f.Skip), MaxRows: clamp(f.Limit + 1),
	})
	if err != nil {
		return Page{}, fmt.Errorf("list credentials: %w", err)
	}
	page := Page{Total: total, Items: make([]*Credential, 0, len(rows))}
	for _, row := range rows[:min(len(rows), f.Limit)] {
		page.Items = append(page.Items, &Credential{FlowCredential: row.FlowCredential, AccountLabel: tenant.Label(row.AccountName, row.AccountNumber)})
	}
	if len(rows) > f.Limit {
		page.Next = page.Items[f.Limit-1].ID
	}
	return page, s.addUses(ctx, s.pool, orgID, page.Items)
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
	return nil
}

func clamp(n int) int32 {
	return int32(max(0, min(n, math.MaxInt32))) //nolint:gosec // bounded
}

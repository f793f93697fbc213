package orgcatalog

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// List returns the platforms of an organization by id, each in its newest version, and how many there are.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, after string,
	skip, maxRows int32) ([]*Platform, int64, error) {
	total, err := s.q.CatalogImportCount(ctx, s.pool, orgID)
	if err != nil {
		return nil, 0, fmt.Errorf("count imported platforms: %w", err)
	}
	rows, err := s.q.CatalogImportList(ctx, s.pool, db.CatalogImportListParams{OrgID: orgID, After: after, Skip: skip,
		MaxRows: maxRows})
	if err != nil {
		return nil, 0, fmt.Errorf("list imported platforms: %w", err)
	}
	out := make([]*Platform, len(rows))
	for i, row := range rows {
		if out[i], err = platformOf(row); err != nil {
			return nil, 0, err
		}
	}
	return out, total, nil
}

// Get returns one platform in its newest version, with all that are kept. Fault: NotFound.
func (s *Service) Get(ctx context.Context, orgID uuid.UUID, platformID string) (*Platform, error) {
	rows, err := s.q.CatalogImportVersions(ctx, s.pool, db.CatalogImportVersionsParams{OrgID: orgID,
		PlatformID: platformID})
	if err != nil {
		return nil, fmt.Errorf("read an imported platform: %w", err)
	}
	if len(rows) == 0 {
		return nil, fault.Missing("Platform")
	}
	out, err := platformOf(db.CatalogImportListRow(rows[0]))
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		out.Versions = append(out.Versions, db.CatalogImportListRow(row))
	}
	return out, nil
}

func platformOf(row db.CatalogImportListRow) (*Platform, error) {
	out := &Platform{CatalogImportListRow: row, Stored: true}
	if err := json.Unmarshal(row.Options, &out.Options); err != nil {
		return nil, fmt.Errorf("the options of imported platform %s: %w", row.PlatformID, err)
	}
	if err := json.Unmarshal(row.Report, &out.Report); err != nil {
		return nil, fmt.Errorf("the report of imported platform %s: %w", row.PlatformID, err)
	}
	return out, nil
}

// Delete removes a platform in all its versions. Faults: NotFound; Conflict while flows use it or a credential is of
// it.
func (s *Service) Delete(ctx context.Context, orgID uuid.UUID, platformID string) error {
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := s.q.CatalogTurn(ctx, tx, orgID); err != nil {
			return fmt.Errorf("raise the generation of a catalog: %w", err)
		}
		before, err := s.newest(ctx, tx, orgID, platformID)
		if err != nil {
			return err
		}
		if before == nil {
			return fault.Missing("Platform")
		}
		p, err := s.platform([]byte(before.File), platformID)
		if err != nil {
			return err
		}
		if err := s.unused(ctx, tx, orgID, actionIDs(p), "keep the platform"); err != nil {
			return err
		}
		if err := s.noCredential(ctx, tx, orgID, platformID, "Delete it first"); err != nil {
			return err
		}
		if _, err := s.q.CatalogImportDelete(ctx, tx, db.CatalogImportDeleteParams{OrgID: orgID,
			PlatformID: platformID}); err != nil {
			return fmt.Errorf("delete an imported platform: %w", err)
		}
		return account.Audit(ctx, tx, "catalog_import", platformID)
	})
}

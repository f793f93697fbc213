package definition

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/listing"
	"flowlane/internal/pg"
)

// Filter selects a page of definitions.
type Filter struct {
	// Status is draft, active or archived; nil means all.
	Status *string
	// Name is how names begin, in upper or lower case; empty means any.
	Name    string
	Created listing.Range
}

// Count says how many definitions match the filter in all.
func (s *Service) Count(ctx context.Context, orgID uuid.UUID, f Filter) (int64, error) {
	total, err := s.queries.CountDefinitions(ctx, pg.CustomPlan{Pool: s.pool}, db.CountDefinitionsParams{
		OrgID: orgID, Least: f.Created.Least, Most: f.Created.Most, Status: f.Status,
		CreatedAfter:  f.Created.CreatedAfter,
		CreatedBefore: f.Created.CreatedBefore, Name: listing.Beginning(f.Name),
	})
	if err != nil {
		return 0, fmt.Errorf("count definitions: %w", err)
	}
	return total, nil
}

// List returns a page of the definitions.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, f Filter, at listing.Page) ([]Definition, error) {
	in := db.DefinitionsParams{
		OrgID: orgID, Least: at.Least, Most: at.Most, Status: f.Status, CreatedAfter: at.CreatedAfter,
		CreatedBefore: at.CreatedBefore,
		Name:          listing.Beginning(f.Name), RowLimit: at.MaxRows, RowOffset: at.Skip,
	}
	rows, err := s.rows(ctx, in, at.Newest)
	if err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	out := make([]Definition, 0, len(rows))
	for _, row := range rows {
		doc, err := Decode(row.Doc)
		if err != nil {
			return nil, err
		}
		out = append(out, Definition{FlowDefinition: row.FlowDefinition, Document: doc, Bytes: len(row.Doc)})
	}
	return out, nil
}

func (s *Service) rows(ctx context.Context, in db.DefinitionsParams, newest bool) ([]db.DefinitionsRow, error) {
	conn := pg.CustomPlan{Pool: s.pool}
	if !newest {
		return s.queries.Definitions(ctx, conn, in)
	}
	rows, err := s.queries.DefinitionsNewest(ctx, conn, db.DefinitionsNewestParams(in))
	out := make([]db.DefinitionsRow, len(rows))
	for i, row := range rows {
		out[i] = db.DefinitionsRow(row)
	}
	return out, err
}

// Version is one version of a definition; it never changes.
type Version struct {
	db.FlowDefinitionVersion
	Document Document
}

// Version returns one version. Faults: NotFound, for the definition or for the version.
func (s *Service) Version(ctx context.Context, orgID, id uuid.UUID, version int32) (Version, error) {
	if _, err := s.queries.DefinitionRow(ctx, s.pool, db.DefinitionRowParams{OrgID: orgID, ID: id}); err != nil {
		return Version{}, missing(err, "read definition")
	}
	row, err := s.queries.DefinitionVersion(ctx, s.pool, db.DefinitionVersionParams{OrgID: orgID, DefinitionID: id,
		Version: version})
	if pg.IsNoRows(err) {
		return Version{}, fault.Missing("Version")
	}
	if err != nil {
		return Version{}, fmt.Errorf("read definition version: %w", err)
	}
	doc, err := Decode(row.Doc)
	return Version{FlowDefinitionVersion: row, Document: doc}, err
}

// VersionFilter selects a page of versions.
type VersionFilter struct {
	// After is the last version of the page before; 0 on the first.
	After int32
	// Skip rows are passed over, then up to MaxRows are read.
	Skip, MaxRows int32
}

// CountVersions says how many versions a definition has. Fault: NotFound.
func (s *Service) CountVersions(ctx context.Context, orgID, id uuid.UUID) (int64, error) {
	if _, err := s.queries.DefinitionRow(ctx, s.pool, db.DefinitionRowParams{OrgID: orgID, ID: id}); err != nil {
		return 0, missing(err, "read definition")
	}
	total, err := s.queries.CountDefinitionVersions(ctx, s.pool, db.CountDefinitionVersionsParams{OrgID: orgID,
		DefinitionID: id})
	if err != nil {
		return 0, fmt.Errorf("count definition versions: %w", err)
	}
	return total, nil
}

// Versions returns a page of versions, oldest first.
func (s *Service) Versions(ctx context.Context, orgID, id uuid.UUID, f VersionFilter) ([]Version, error) {
	rows, err := s.queries.DefinitionVersions(ctx, s.pool, db.DefinitionVersionsParams{
		OrgID: orgID, DefinitionID: id, After: f.After, RowLimit: f.MaxRows, RowOffset: f.Skip,
	})
	if err != nil {
		return nil, fmt.Errorf("list definition versions: %w", err)
	}
	out := make([]Version, 0, len(rows))
	for _, row := range rows {
		doc, err := Decode(row.Doc)
		if err != nil {
			return nil, err
		}
		out = append(out, Version{FlowDefinitionVersion: row, Document: doc})
	}
	return out, nil
}

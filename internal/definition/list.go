package definition

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// Filter selects a page of definitions.
type Filter struct {
	// Status is draft, active or archived; nil means all.
	Status *string
	// After is the last id of the page before; uuid.Nil on the first.
	After uuid.UUID
	// Skip rows are passed over, then up to MaxRows are read.
	Skip, MaxRows int32
}

// Count says how many definitions match the filter in all.
func (s *Service) Count(ctx context.Context, orgID uuid.UUID, f Filter) (int64, error) {
	total, err := s.queries.CountDefinitions(ctx, pg.Planned{Pool: s.pool}, db.CountDefinitionsParams{OrgID: orgID, Status: f.Status})
	if err != nil {
		return 0, fmt.Errorf("count definitions: %w", err)
	}
	return total, nil
}

// List returns a page of definitions in insertion order.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, f Filter) ([]Definition, error) {
	rows, err := s.queries.Definitions(ctx, pg.Planned{Pool: s.pool}, db.DefinitionsParams{
		OrgID: orgID, Status: f.Status, After: f.After, RowLimit: f.MaxRows, RowOffset: f.Skip,
	})
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
	row, err := s.queries.DefinitionVersion(ctx, s.pool, db.DefinitionVersionParams{OrgID: orgID, DefinitionID: id, Version: version})
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
	total, err := s.queries.CountDefinitionVersions(ctx, s.pool, db.CountDefinitionVersionsParams{OrgID: orgID, DefinitionID: id})
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

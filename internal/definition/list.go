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

// List returns a page of definitions in insertion order, and how many match the filter in all.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, f Filter) ([]Definition, int64, error) {
	total, err := s.queries.CountDefinitions(ctx, s.pool, db.CountDefinitionsParams{OrgID: orgID, Status: f.Status})
	if err != nil {
		return nil, 0, fmt.Errorf("count definitions: %w", err)
	}
	rows, err := s.queries.Definitions(ctx, s.pool, db.DefinitionsParams{
		OrgID: orgID, Status: f.Status, After: f.After, RowLimit: f.MaxRows, RowOffset: f.Skip,
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list definitions: %w", err)
	}
	out := make([]Definition, 0, len(rows))
	for _, row := range rows {
		doc, err := Decode(row.Doc)
		if err != nil {
			return nil, 0, err
		}
		out = append(out, Definition{FlowDefinition: row.FlowDefinition, Document: doc})
	}
	return out, total, nil
}

// Version is one version of a definition; it never changes.
type Version struct {
	db.FlowDefinitionVersion
	Document Document
}

// Version returns one version. Faults: NotFound, for the definition or for the version.
func (s *Service) Version(ctx context.Context, orgID, id uuid.UUID, version int32) (Version, error) {
	row, err := s.queries.DefinitionVersion(ctx, s.pool, db.DefinitionVersionParams{OrgID: orgID, DefinitionID: id, Version: version})
	if pg.IsNoRows(err) {
		if _, err := s.queries.DefinitionRow(ctx, s.pool, db.DefinitionRowParams{OrgID: orgID, ID: id}); err != nil {
			return Version{}, missing(err, "read definition")
		}
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

// Versions returns a page of versions, oldest first, and how many there are in all. Fault: NotFound.
func (s *Service) Versions(ctx context.Context, orgID, id uuid.UUID, f VersionFilter) ([]Version, int64, error) {
	total, err := s.queries.CountDefinitionVersions(ctx, s.pool, db.CountDefinitionVersionsParams{OrgID: orgID, DefinitionID: id})
	if err != nil {
		return nil, 0, fmt.Errorf("count definition versions: %w", err)
	}
	if total == 0 {
		return nil, 0, fault.Missing("Definition")
	}
	rows, err := s.queries.DefinitionVersions(ctx, s.pool, db.DefinitionVersionsParams{
		OrgID: orgID, DefinitionID: id, After: f.After, RowLimit: f.MaxRows, RowOffset: f.Skip,
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list definition versions: %w", err)
	}
	out := make([]Version, 0, len(rows))
	for _, row := range rows {
		doc, err := Decode(row.Doc)
		if err != nil {
			return nil, 0, err
		}
		out = append(out, Version{FlowDefinitionVersion: row, Document: doc})
	}
	return out, total, nil
}

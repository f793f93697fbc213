package definition

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/fault"
)

// List returns up to limit definitions in insertion order, those after the given id (uuid.Nil for the first page), with a
// status if one is named, and how many there are in all.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, status *string, after uuid.UUID, limit, skip int) ([]Definition, int64, error) {
	total, err := s.queries.CountDefinitions(ctx, s.pool, db.CountDefinitionsParams{OrgID: orgID, Status: status})
	if err != nil {
		return nil, 0, fmt.Errorf("count definitions: %w", err)
	}
	rows, err := s.queries.Definitions(ctx, s.pool, db.DefinitionsParams{
		OrgID: orgID, Status: status, After: after, RowLimit: int32(limit), RowOffset: int32(skip), //nolint:gosec // bounded by the contract
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
	if err != nil {
		return Version{}, missing(err, "Version", "read definition version")
	}
	doc, err := Decode(row.Doc)
	return Version{FlowDefinitionVersion: row, Document: doc}, err
}

// Versions returns up to limit versions, oldest first, those after the given one (0 for the first page), and how many
// there are in all. Fault: NotFound.
func (s *Service) Versions(ctx context.Context, orgID, id uuid.UUID, after int32, limit, skip int) ([]Version, int64, error) {
	total, err := s.queries.CountDefinitionVersions(ctx, s.pool, db.CountDefinitionVersionsParams{OrgID: orgID, DefinitionID: id})
	if err != nil {
		return nil, 0, fmt.Errorf("count definition versions: %w", err)
	}
	if total == 0 {
		return nil, 0, fault.Missing("Definition")
	}
	rows, err := s.queries.DefinitionVersions(ctx, s.pool, db.DefinitionVersionsParams{
		OrgID: orgID, DefinitionID: id, After: after, RowLimit: int32(limit), RowOffset: int32(skip), //nolint:gosec // bounded by the contract
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

package definition

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
)

// credentialIDs are the credentials that the document names, each once.
func (d Document) credentialIDs() []uuid.UUID {
	var ids []uuid.UUID
	seen := map[uuid.UUID]bool{}
	for _, step := range d.Steps {
		for _, t := range step.Tasks {
			if id, err := t.credential(); err == nil && id.Valid && !seen[id.UUID] {
				seen[id.UUID] = true
				ids = append(ids, id.UUID)
			}
		}
	}
	return ids
}

// credentials returns those of the organization's credentials that the document names.
func (s *Service) credentials(ctx context.Context, orgID uuid.UUID,
	doc Document) (map[uuid.UUID]db.DefinitionCredentialsRow, error) {
	known := map[uuid.UUID]db.DefinitionCredentialsRow{}
	ids := doc.credentialIDs()
	if len(ids) == 0 {
		return known, nil
	}
	rows, err := s.queries.DefinitionCredentials(ctx, s.pool, db.DefinitionCredentialsParams{OrgID: orgID, Ids: ids})
	if err != nil {
		return nil, fmt.Errorf("read the credentials of a definition: %w", err)
	}
	for _, row := range rows {
		known[row.ID] = row
	}
	return known, nil
}

// holdCredentials keeps the credentials of a document from being deleted until tx ends. Fault: NotFound.
func (s *Service) holdCredentials(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, doc Document) error {
	ids := doc.credentialIDs()
	if len(ids) == 0 {
		return nil
	}
	held, err := s.queries.CredentialsHold(ctx, tx, db.CredentialsHoldParams{OrgID: orgID, Ids: ids})
	if err != nil {
		return fmt.Errorf("hold the credentials of a definition: %w", err)
	}
	if len(held) < len(ids) {
		return fault.Missing("Credential")
	}
	return nil
}

// activate makes sure that nothing of an archived definition or a draft was deleted. Fault: Conflict.
func (s *Service) activate(ctx context.Context, tx pgx.Tx, orgID, id uuid.UUID) error {
	stored, err := s.read(ctx, tx, orgID, id)
	if err != nil {
		return err
	}
	err = s.holdCredentials(ctx, tx, orgID, stored.Document)
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.Conflict,
			"Definition names a credential that was deleted: replace it with one that has another credential")
	}
	return err
}

package definition

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// Replace makes the draft the next version of a definition; batches keep the version that they started with. An empty
// status keeps the stored one. Faults: as Create, and NotFound for the definition, Conflict for a status that cannot be
// reached.
func (s *Service) Replace(ctx context.Context, orgID, id uuid.UUID, by string, d Draft) (Definition, error) {
	if _, err := s.Get(ctx, orgID, id); err != nil {
		return Definition{}, err
	}
	text, actions, err := s.accept(ctx, orgID, d, StatusDraft, StatusActive, StatusArchived)
	if err != nil {
		return Definition{}, err
	}
	var out Definition
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		old, err := s.queries.DefinitionForUpdate(ctx, tx, db.DefinitionForUpdateParams{OrgID: orgID, ID: id})
		if err != nil {
			return missing(err, "lock definition")
		}
		next := db.ReplaceDefinitionParams{
			OrgID: orgID, ID: id, Name: d.Name, Description: d.Description, Status: d.Status, Version: old.Version + 1,
		}
		if next.Status == "" {
			next.Status = old.Status
		}
		if err := move(old.Status, next.Status); err != nil {
			return err
		}
		if next.VariableSetID, err = s.holdVariables(ctx, tx, orgID, d.Document); err != nil {
			return err
		}
		if err := s.holdCredentials(ctx, tx, orgID, d.Document); err != nil {
			return err
		}
		_, err = s.queries.CreateDefinitionVersion(ctx, tx, db.CreateDefinitionVersionParams{
			DefinitionID: id, Version: next.Version, OrgID: orgID, Doc: text, Actions: actions, CreatedBy: by,
		})
		if err != nil {
			return fmt.Errorf("create definition version: %w", err)
		}
		if _, err := s.queries.ReplaceDefinition(ctx, tx, next); err != nil {
			return fmt.Errorf("replace definition: %w", err)
		}
		if out, err = s.read(ctx, tx, orgID, id); err != nil {
			return err
		}
		return account.Audit(ctx, tx, "definition", id.String())
	})
	return out, err
}

// Delete takes a definition away; what its batches did stays readable. Faults: NotFound; Conflict while a batch of it
// is not over, or a schedule, a webhook or an event subscription starts it.
func (s *Service) Delete(ctx context.Context, orgID, id uuid.UUID) error {
	return pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		// A start holds the row until it has committed, so that every batch is seen here or finds no definition.
		if _, err := s.queries.DefinitionForUpdate(ctx, tx, db.DefinitionForUpdateParams{OrgID: orgID,
			ID: id}); err != nil {
			return missing(err, "lock definition")
		}
		live, err := s.queries.DefinitionHasLiveBatch(ctx, tx, db.DefinitionHasLiveBatchParams{OrgID: orgID,
			DefinitionID: id})
		if err != nil {
			return fmt.Errorf("look for batches of a definition: %w", err)
		}
		if live {
			return fault.New(fault.Conflict, "Definition has batches that are not over: wait for them, or cancel them")
		}
		named, err := s.queries.ScheduleNames(ctx, tx, db.ScheduleNamesParams{OrgID: orgID, DefinitionID: id})
		if err != nil {
			return fmt.Errorf("look for schedules of a definition: %w", err)
		}
		if named {
			return fault.New(fault.Conflict,
				"Definition is started by a schedule: delete that first, or have it start another definition")
		}
		hooks, err := s.queries.WebhookNames(ctx, tx, db.WebhookNamesParams{OrgID: orgID, DefinitionID: id})
		if err != nil {
			return fmt.Errorf("look for webhooks of a definition: %w", err)
		}
		if hooks.Named {
			return fault.New(fault.Conflict,
				"Definition is started by a webhook: delete that first, or have it start another definition")
		}
		if hooks.Waits {
			return fault.New(fault.Conflict,
				"Definition is yet to be started by messages that a deleted webhook has accepted: "+
					"try again once they have started it")
		}
		if named, err = s.queries.EventSubscriptionNames(ctx, tx, db.EventSubscriptionNamesParams{OrgID: orgID,
			DefinitionID: id}); err != nil {
			return fmt.Errorf("look for event subscriptions of a definition: %w", err)
		}
		if named {
			return fault.New(fault.Conflict,
				"Definition is started by an event subscription: delete that first, "+
					"or have it start another definition")
		}
		if err := s.queries.DeleteDefinition(ctx, tx, db.DeleteDefinitionParams{OrgID: orgID, ID: id}); err != nil {
			return fmt.Errorf("delete definition: %w", err)
		}
		return account.Audit(ctx, tx, "definition", id.String())
	})
}

package run

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// TriggerRow is a start: one with a batch, whose id it has, or, where Status is empty, one that was refused for Reason.
type TriggerRow = db.TriggerListRow

// Triggers lists starts in the order in which they happened; after is the id of the last that is known.
func (s *Service) Triggers(ctx context.Context, orgID uuid.UUID, f BatchFilter) ([]TriggerRow, error) {
	rows, err := s.q.TriggerList(ctx, pg.Planned{Pool: s.pool}, db.TriggerListParams{OrgID: orgID, After: f.After, DefinitionID: f.DefinitionID,
		TriggerType: f.TriggerType, SkipRows: f.Skip, MaxRows: f.MaxRows})
	if err != nil {
		return nil, fmt.Errorf("list triggers: %w", err)
	}
	return rows, nil
}

// CountTriggers says how many starts a list has on all pages.
func (s *Service) CountTriggers(ctx context.Context, orgID uuid.UUID, f BatchFilter) (int64, error) {
	started, err := s.CountBatches(ctx, orgID, f)
	if err != nil {
		return 0, err
	}
	refused, err := s.q.RefusedStartTotal(ctx, pg.Planned{Pool: s.pool}, db.RefusedStartTotalParams{OrgID: orgID, DefinitionID: f.DefinitionID, TriggerType: f.TriggerType})
	return started + refused, wrap(err, "count refused starts")
}

// ReadTrigger reads one start. Fault: NotFound.
func (s *Service) ReadTrigger(ctx context.Context, orgID, id uuid.UUID) (*TriggerRow, error) {
	found, err := s.q.TriggerRead(ctx, s.pool, db.TriggerReadParams{ID: id, OrgID: orgID})
	if pg.IsNoRows(err) {
		return nil, fault.Missing("Trigger")
	}
	if err != nil {
		return nil, fmt.Errorf("read trigger %s: %w", id, err)
	}
	row := TriggerRow(found)
	return &row, nil
}

// Refused is a start that is refused though nobody who could be told asked for it.
type Refused struct {
	OrgID, DefinitionID uuid.UUID
	TriggerType         db.FlowTriggerType
	TriggerSource       string
	CreatedBy           uuid.UUID
	Reason              string
}

// NoteRefused leaves a trigger that says why nothing started.
func (s *Service) NoteRefused(ctx context.Context, tx db.DBTX, r Refused) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("trigger id: %w", err)
	}
	n, err := s.q.RefusedStartAdd(ctx, tx, db.RefusedStartAddParams{ID: id, OrgID: r.OrgID, DefinitionID: r.DefinitionID, TriggerType: r.TriggerType,
		TriggerSource: r.TriggerSource, Reason: r.Reason, CreatedBy: r.CreatedBy})
	if err != nil {
		return fmt.Errorf("note a refused start: %w", err)
	}
	if n != 1 {
		return fmt.Errorf("note a refused start: definition %s is not there", r.DefinitionID)
	}
	return nil
}

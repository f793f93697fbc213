package run

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// BatchRow is a batch with its counters, and the record set whose rows it works on.
type BatchRow = db.BatchListRow

// ReadBatch reads one batch. Fault: NotFound.
func (s *Service) ReadBatch(ctx context.Context, orgID, id uuid.UUID) (*BatchRow, error) {
	return s.readBatch(ctx, s.pool, orgID, id)
}

func (s *Service) readBatch(ctx context.Context, conn db.DBTX, orgID, id uuid.UUID) (*BatchRow, error) {
	found, err := s.q.BatchRead(ctx, conn, db.BatchReadParams{OrgID: orgID, ID: id})
	if pg.IsNoRows(err) {
		return nil, fault.Missing("Batch")
	}
	if err != nil {
		return nil, fmt.Errorf("read batch %s: %w", id, err)
	}
	row := BatchRow(found)
	return &row, nil
}

// view reads a batch with its plan. Fault: NotFound.
func (s *Service) view(ctx context.Context, conn db.DBTX, orgID, id uuid.UUID) (*batchView, error) {
	row, err := s.readBatch(ctx, conn, orgID, id)
	if err != nil {
		return nil, err
	}
	return s.viewOf(ctx, conn, row)
}

// viewOf is the view of a batch that was read.
func (s *Service) viewOf(ctx context.Context, conn db.DBTX, row *BatchRow) (*batchView, error) {
	b := &row.FlowBatch
	plan, err := s.plans.Plan(ctx, conn, b.OrgID, b.DefinitionID, b.Version)
	if err != nil {
		return nil, fmt.Errorf("plan of batch %s: %w", b.ID, err)
	}
	row.FlowBatch.Metadata = "" // no record shows it, and a list of records keeps the batches of all of them
	return &batchView{BatchRow: row, plan: plan}, nil
}

// viewsOf are the views of batches, by id.
func (s *Service) viewsOf(ctx context.Context, conn db.DBTX, which db.BatchesReadParams) (map[uuid.UUID]*batchView, error) {
	found, err := s.q.BatchesRead(ctx, conn, which)
	if err != nil {
		return nil, fmt.Errorf("read batches: %w", err)
	}
	out := make(map[uuid.UUID]*batchView, len(found))
	for _, r := range found {
		row := BatchRow(r)
		if out[row.FlowBatch.ID], err = s.viewOf(ctx, conn, &row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// JobCounts returns how many of the batch's jobs stand where.
func JobCounts(r *BatchRow) Counts { return countsOf(&r.FlowBatchCount) }

// Progress returns the share of jobs that are over, in percent; 100 for a batch without records.
func Progress(r *BatchRow) float64 {
	if r.FlowBatch.RecordCount == 0 {
		return 100
	}
	counts := JobCounts(r)
	return 100 * float64(counts.terminal()) / float64(r.FlowBatch.RecordCount)
}

package run

import (
	"context"
	"fmt"
	"slices"

	"flowlane/gen/db"
	"flowlane/internal/fault"

	"flowlane/internal/batch"

	"flowlane/internal/batch/query"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// loadCoverage reads the parts of the slices where records must be looked at one by one.
func (c *Change) loadCoverage(ctx context.Context, keys []batch.SliceKey) error {
	args := db.PartsOfSlicesParams{}
	for _, k := range keys {
		if c.coverage[k] == nil {
			args.BatchIds, args.SliceNos = append(args.BatchIds, k.Batch), append(args.SliceNos, k.No)
			c.coverage[k] = &batch.Coverage{}
		}
	}
	if len(args.SliceNos) == 0 {
		return nil
	}
	rows, err := c.s.q.PartsOfSlices(ctx, c.tx, args)
	if err != nil {
		return fmt.Errorf("read parts: %w", err)
	}
	for _, r := range rows {
		state := batch.StatusOfCall(r.CallState)
		if r.CallID != nil {
			if from, ok := c.moved[*r.CallID]; ok {
				state = from
			}
		}
		cov := c.coverage[batch.SliceKey{Batch: r.BatchID, No: r.SliceNo}]
		cov.Parts = append(cov.Parts, batch.CoveringPart{Part: batch.PartOfRow(&r), State: state,
			ClaimedAt: r.ClaimedAt})
	}
	return nil
}

// UncertainRecord is one record in a call of unknown outcome, alone in its part.
type UncertainRecord struct {
	Part   batch.Part
	CallID uuid.UUID
	// From is where the call has the record: NeedsReconcile or Unresolved.
	From batch.Status
}

// Isolate takes a record out of the parts that calls of unknown outcome hold of it and of others, so that it can be
// settled alone: one part for each of its tasks that is in doubt. The calls must be locked, and nothing else may have
// happened in the change yet. Faults: NotFound; Conflict where nothing about the record is in doubt.
func (c *Change) Isolate(ctx context.Context, orgID, batchID uuid.UUID, position int64) ([]UncertainRecord, error) {
	v, err := c.s.SliceAt(ctx, c.tx, orgID, batchID, position, "Job",
		query.Needs{Own: query.NoFragments, Inherited: query.NoFragments})
	if err != nil {
		return nil, err
	}
	var out []UncertainRecord
	offset := int32(position - v.First)
	for i := range v.Parts {
		p := &v.Parts[i]
		if p.State != batch.NeedsReconcile && p.State != batch.Unresolved || p.StepNo != v.StepOf(offset) ||
			!v.Concerns(p, offset) {
			continue
		}
		pieces, err := c.s.q.PartCut(ctx, c.tx, db.PartCutParams{BatchID: p.BatchID, Begins: p.Begins, ID: p.ID,
			SliceNo: v.No, Off: offset})
		if err != nil {
			return nil, fmt.Errorf("cut a record out of part %d: %w", p.ID, err)
		}
		own := pieces[slices.IndexFunc(pieces, func(r db.PartCutRow) bool {
			return r.SliceNo == v.No &&
				r.FromOff == offset
		})]
		alone := p.Part
		alone.ID, alone.Begins, alone.First, alone.Size = own.ID, own.SliceNo, v.First, v.Records
		alone.From, alone.To, alone.LeftOut = offset, offset+1, nil
		alone.Elements = own.Elements
		out = append(out, UncertainRecord{Part: alone, CallID: *own.CallID, From: p.State})
	}
	if len(out) == 0 {
		return nil, fault.New(fault.Conflict,
			"Job is %s; only a job that is needs_reconcile or unresolved can be resolved", v.Statuses[offset])
	}
	return out, nil
}

// Cut puts the record at an offset of a part into a part of its own, in the same call. The call must be locked, and
// nothing else may have happened in the change yet.
func (c *Change) Cut(ctx context.Context, p *batch.Part, offset int32) error {
	_, err := c.s.q.PartCut(ctx, c.tx, db.PartCutParams{BatchID: p.BatchID, Begins: p.Begins, ID: p.ID,
		SliceNo: p.SliceNo, Off: offset})
	return fault.Wrap(err, "cut a record out of part %d", p.ID)
}

// sliceRow reads one slice.
func (s *Service) sliceRow(ctx context.Context, conn db.DBTX, batchID uuid.UUID, no int32) (*db.SliceRowsRow, error) {
	rows, err := s.q.SliceRows(ctx, conn, db.SliceRowsParams{BatchID: batchID, Nos: []int32{no}})
	if err == nil && len(rows) != 1 {
		err = pgx.ErrNoRows
	}
	if err != nil {
		return nil, fmt.Errorf("read slice %d of batch %s: %w", no, batchID, err)
	}
	return &rows[0], nil
}

// EndRuns ends the runs of jobs at a step: what comes now belongs to their next ones.
func (c *Change) EndRuns(ctx context.Context, batchID uuid.UUID, positions []int64, step int16, note *string) error {
	err := c.s.q.EndedRunsInsert(ctx, c.tx, db.EndedRunsInsertParams{OrgID: c.heads[batchID].OrgID, BatchID: batchID,
		Positions: positions, StepNo: step, Note: note, EndedAt: c.Now})
	return fault.Wrap(err, "end runs of jobs of batch %s", batchID)
}

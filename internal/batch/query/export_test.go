package query

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
)

// CheckReads compares, as of one moment, what readers see of every record of a batch with the counters of its slices
// and with its own.
func (s *Reader) CheckReads(ctx context.Context, orgID, batchID uuid.UUID) error {
	return s.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		b, err := s.view(ctx, tx, orgID, batchID)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT no, first, records, detached, state, step_no,
			ARRAY[staged, queued, pending, started, needs_reconcile, completed, failed, cancelled, accepted, rejected, unprocessed, unresolved]::bigint[]
			FROM flow.all_slices WHERE batch_id = $1 ORDER BY no`, batchID)
		if err != nil {
			return err
		}
		var slices []db.SliceRowsRow
		var kept []batch.Counts
		for rows.Next() {
			var r db.SliceRowsRow
			var counts []int64
			if err := rows.Scan(&r.No, &r.First, &r.Records, &r.Detached, &r.State, &r.StepNo, &counts); err != nil {
				return err
			}
			slices, kept = append(slices, r), append(kept, batch.Counts(counts))
		}
		views := b.views(slices, Needs{})
		if err := s.open(ctx, tx, views); err != nil {
			return err
		}
		var all batch.Counts
		for i, v := range views {
			var seen batch.Counts
			for _, st := range v.Statuses {
				seen[batch.Index(st)]++
				all[batch.Index(st)]++
			}
			if b.Over() {
				for _, st := range []batch.Status{batch.Staged, batch.Queued, batch.Pending} {
					kept[i].Move(st, batch.Unprocessed, kept[i].Of(st))
				}
			}
			if seen != kept[i] {
				return fmt.Errorf("slice %d (%s, step %d, %d detached): readers see %v, its counters say %v", v.No,
					v.State, v.StepNo, v.Detached, seen, kept[i])
			}
		}
		if counts := JobCounts(b.BatchRow); all != counts {
			return fmt.Errorf("batch %s: readers see %v, its counters say %v", b.FlowBatchCount.Status, all, counts)
		}
		return nil
	})
}

package run

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// total counts the records that match, from kept counters. Only what is queued in batches under way must be looked at to
// tell pending executions from running ones.
func (w *walk) total(ctx context.Context) (int64, error) {
	if w.f.Position != nil {
		return w.one(ctx)
	}
	from, to := w.between()
	n, err := w.jobs(ctx, from, to)
	if err != nil {
		return 0, fmt.Errorf("count jobs: %w", err)
	}
	ended, err := w.endedRuns(ctx, from, to)
	if err != nil {
		return 0, err
	}
	if n += ended; w.match.begun == "" {
		return n, nil
	}
	begun, queued, err := w.queued(ctx)
	if err != nil {
		return 0, err
	}
	if w.match.begun == "yes" {
		return n - (queued - begun), nil
	}
	return n - begun, nil
}

// jobs sums up the counters of the batches between two. The counters of very many batches take time, so they are left alone
// where every status counts. A sum over all batches is planned for itself: the plan that is kept looks each of them up.
func (w *walk) jobs(ctx context.Context, from, to uuid.UUID) (int64, error) {
	var conn db.DBTX = w.tx
	if w.f.BatchID == nil {
		conn = pg.PlannedTx{Tx: w.tx}
	}
	if w.match.all() {
		return w.s.q.JobTotalAll(ctx, conn, db.JobTotalAllParams{OrgID: w.orgID, FromID: from, ToID: to}) //nolint:wrapcheck // the caller wraps
	}
	return w.s.q.JobTotal(ctx, conn, db.JobTotalParams{Statuses: w.match.statuses, OrgID: w.orgID, FromID: from, ToID: to}) //nolint:wrapcheck // the caller wraps
}

// one counts the runs of a list of a single record.
func (w *walk) one(ctx context.Context) (int64, error) {
	f := w.f
	f.FromBatch, f.FromPosition, f.Skip, f.Limit, f.Want = uuid.Nil, 0, 0, everything, Want{Runs: f.Want.Runs}
	alone := newWalk(w.s, w.tx, w.orgID, f)
	if err := alone.run(ctx); err != nil {
		return 0, err
	}
	return int64(len(alone.out)), nil
}

// queued counts the queued records of the batches listed, and those among them that were worked on before.
func (w *walk) queued(ctx context.Context) (begun, queued int64, err error) {
	const batchesAtOnce = 64
	for from, to := w.between(); ; {
		ids, err := w.s.q.BatchIDs(ctx, w.tx, db.BatchIDsParams{Statuses: []string{string(Queued)}, OrgID: w.orgID, FromID: from, ToID: to, MaxRows: batchesAtOnce})
		if err != nil {
			return 0, 0, fmt.Errorf("list batches: %w", err)
		}
		for _, b := range ids {
			n, err := w.begunIn(ctx, b.ID)
			if err != nil {
				return 0, 0, err
			}
			begun, queued = begun+n, queued+b.Matching
		}
		if len(ids) < batchesAtOnce {
			return begun, queued, nil
		}
		from = after(ids[len(ids)-1].ID)
	}
}

func (w *walk) begunIn(ctx context.Context, id uuid.UUID) (int64, error) {
	begun, err := w.s.q.QueuedBegun(ctx, w.tx, id)
	if err != nil {
		return 0, fmt.Errorf("count what is queued in batch %s: %w", id, err)
	}
	b, err := w.s.view(ctx, w.tx, w.orgID, id)
	if err != nil {
		return 0, err
	}
	for no := int32(0); ; {
		found, err := w.s.q.SlicesMixed(ctx, w.tx, db.SlicesMixedParams{BatchID: id, FromNo: no, MaxRows: walkSlices})
		if err != nil {
			return 0, fmt.Errorf("list slices of batch %s: %w", id, err)
		}
		var rows []sliceRow
		for _, r := range found {
			rows = append(rows, sliceRow{no: r.No, records: r.Records, apart: r.Apart, first: r.First, state: r.State, step: r.StepNo,
				pageOff: r.PageOff, firstStep: r.FirstStep, tasksDone: r.TasksDone})
		}
		n, err := w.begunAmong(ctx, b, rows)
		if err != nil {
			return 0, err
		}
		begun += n
		if len(found) < walkSlices {
			return begun, nil
		}
		no = found[len(found)-1].No + 1
	}
}

func (w *walk) begunAmong(ctx context.Context, b *batchView, rows []sliceRow) (begun int64, err error) {
	for len(rows) > 0 {
		views, err := w.s.openFitting(ctx, w.tx, b.views(rows), 0, false)
		if err != nil {
			return 0, err
		}
		for _, v := range views {
			k, err := v.countBegun()
			if err != nil {
				return 0, err
			}
			begun += k
		}
		rows = rows[len(views):]
	}
	return begun, nil
}

func (v *sliceView) countBegun() (n int64, err error) {
	wanted := make([]bool, v.records)
	for o, s := range v.statuses {
		wanted[o] = s == Queued
	}
	histories, _, err := v.tell(wanted, Want{History: true})
	if err != nil {
		return 0, err
	}
	for o := range v.records {
		if wanted[o] && v.begun(o, &histories[o]) {
			n++
		}
	}
	return n, nil
}

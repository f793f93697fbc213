package query

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// total counts the records that match, from kept counters. Only what is queued in batches under way must be looked at
// to tell pending executions from running ones.
func (w *recordScan) total(ctx context.Context) (int64, error) {
	from, to := w.between()
	var err error
	if w.ended, err = w.endedRuns(ctx, from, to); err != nil {
		return 0, err
	}
	if w.f.Position != nil {
		return w.one(ctx)
	}
	if err := w.countBegun(ctx, from, to); err != nil {
		return 0, err
	}
	conn, err := w.planned(ctx)
	if err != nil {
		return 0, err
	}
	var n int64
	if w.match.all() && from == uuid.Nil && to == uuid.Max {
		n, err = w.s.q.JobTotalOfAll(ctx, conn, w.orgID)
	} else {
		n, err = w.s.q.JobTotal(ctx, conn, db.JobTotalParams{Every: w.match.all(), Statuses: w.match.statuses,
			OrgID: w.orgID, FromID: from, ToID: to,
			InCompleted: w.match.in(batch.BatchCompleted), InFailed: w.match.in(batch.BatchFailed),
			InCancelled:  w.match.in(batch.BatchCancelled),
			CreatedAfter: w.f.CreatedAfter, CreatedBefore: w.f.CreatedBefore})
	}
	if err != nil {
		return 0, fmt.Errorf("count jobs: %w", err)
	}
	for _, begun := range w.begunJobs {
		n += begun
	}
	return n + w.ended, nil
}

// planned is where sums over batches are asked for: over all of them they are planned for their arguments.
func (w *recordScan) planned(ctx context.Context) (db.DBTX, error) {
	if w.f.BatchID != nil {
		return w.tx, nil
	}
	return pg.CustomPlanTx{Tx: w.tx}, w.plan(ctx, ownPlans)
}

// plan puts plans in force.
func (w *recordScan) plan(ctx context.Context, plans string) error {
	if w.plans == plans {
		return nil
	}
	w.plans = plans
	_, err := w.tx.Exec(ctx, plans)
	return fault.Wrap(err, "choose how statements are planned")
}

// one counts the runs of a list of a single record.
func (w *recordScan) one(ctx context.Context) (int64, error) {
	f := w.f
	f.FromBatch, f.FromPosition, f.Skip, f.Limit, f.Want = uuid.Nil, 0, 0, everything, Want{Runs: f.Want.Runs}
	alone := newRecordScan(w.s, w.tx, w.orgID, f)
	alone.ended = w.ended
	if err := alone.run(ctx); err != nil {
		return 0, err
	}
	return int64(len(alone.out)), nil
}

// countBegun finds the queued records of the batches between two that were worked on before, where it matters.
func (w *recordScan) countBegun(ctx context.Context, from, to uuid.UUID) error {
	if w.match.begun == "" {
		return nil
	}
	conn, err := w.planned(ctx)
	if err != nil {
		return err
	}
	found, err := w.s.q.BegunBatches(ctx, conn, db.BegunBatchesParams{OrgID: w.orgID, FromID: from, ToID: to,
		CreatedAfter: w.f.CreatedAfter, CreatedBefore: w.f.CreatedBefore})
	if err != nil {
		return fmt.Errorf("count what is queued: %w", err)
	}
	for _, b := range found {
		n, err := w.begunAmong(ctx, b.ID, b.Mixed)
		if err != nil {
			return err
		}
		if n += b.Begun; w.match.begun == "no" {
			n = -n
		}
		w.begunBatches, w.begunJobs = append(w.begunBatches, b.ID), append(w.begunJobs, n)
	}
	return nil
}

// begunAmong counts those of some slices of a batch.
func (w *recordScan) begunAmong(ctx context.Context, id uuid.UUID, nos []int32) (begun int64, err error) {
	if len(nos) == 0 {
		return 0, nil
	}
	b, err := w.s.view(ctx, w.tx, w.orgID, id)
	if err != nil {
		return 0, err
	}
	for some := range slices.Chunk(nos, ScanSlices) {
		found, err := w.s.q.SliceRows(ctx, w.tx, db.SliceRowsParams{BatchID: id, Nos: some})
		if err != nil {
			return 0, fmt.Errorf("read slices of batch %s: %w", id, err)
		}
		err = w.s.openEach(ctx, w.tx, b.views(found, Needs{Inherited: NoFragments}), func(v *Slice) error {
			n, err := v.countBegun()
			begun += n
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return begun, nil
}

func (v *Slice) countBegun() (n int64, err error) {
	wanted := make([]bool, v.Records)
	for o, s := range v.Statuses {
		wanted[o] = s == batch.Queued
	}
	histories, _, err := v.readEntries(wanted, Want{History: true})
	if err != nil {
		return 0, err
	}
	for o := range v.Records {
		if wanted[o] && v.begun(o, &histories[o]) {
			n++
		}
	}
	return n, nil
}

// matcher is the filter by status, as far as the counters of batches and slices can answer it, and the rest.
type matcher struct {
	// statuses of jobs that match by the counters, but for those that are queued and begun; over are those by the
	// counters of slices of a batch that is over, which still count as waiting what will never be sent.
	statuses, over []string
	status         *batch.Status
	exec           *batch.ExecutionStatus
	// begun is 'yes' or 'no' where a queued record matches only if it was, or was not, worked on before: most were not.
	begun string
}

func newMatcher(status *batch.Status, exec *batch.ExecutionStatus) matcher {
	m := matcher{status: status, exec: exec}
	switch pg.Value(exec) {
	case batch.ExecutionPending:
		m.begun = "no"
	case batch.ExecutionRunning:
		m.begun = "yes"
	}
	for _, s := range batch.Statuses {
		if m.job(s) && !(m.begun == "yes" && (s == batch.Staged || s == batch.Queued)) {
			m.statuses = append(m.statuses, string(s))
		}
		if m.job(s) && !batch.Unsent(s) || m.job(batch.Unprocessed) && batch.Unsent(s) {
			m.over = append(m.over, string(s))
		}
	}
	return m
}

// in reports whether batches of this status can have jobs that match.
func (m *matcher) in(b batch.BatchStatus) bool {
	return slices.ContainsFunc(batch.Statuses[:], func(s batch.Status) bool { return m.job(s) && batch.CanHold(b, s) })
}

func (m *matcher) all() bool { return len(m.statuses) == len(batch.Statuses) }

// job reports whether a record whose job has this status can match.
func (m *matcher) job(s batch.Status) bool {
	switch {
	case m.status != nil:
		return s == *m.status
	case m.exec != nil:
		return batch.ExecutionOf(s, true) == *m.exec || batch.ExecutionOf(s, false) == *m.exec
	}
	return true
}

func (m *matcher) execution(s batch.ExecutionStatus) bool { return m.exec == nil || s == *m.exec }

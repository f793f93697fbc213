package query

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/batch"
)

// RecordFilter says which records a list shows, and which page of it: from the record at FromPosition of FromBatch on,
// the first Skip matching ones passed over, at most Limit.
type RecordFilter struct {
	// Newest turns the order around: from the last record of the newest batch down.
	Newest bool
	// CreatedAfter and CreatedBefore narrow the list to records of batches that were created from the one time on,
	// until before the other; nil for any time.
	CreatedAfter, CreatedBefore *time.Time
	// BatchID and, with it, Position narrow the list; nil for all.
	BatchID  *uuid.UUID
	Position *int64
	// Status or Execution narrows it further; at most one is set.
	Status    *batch.Status
	Execution *batch.ExecutionStatus
	// Key narrows a list of one batch to records that have it; empty for all. About as many records as ScanLimit are
	// looked through for a page.
	Key       string
	ScanLimit int64

	// FromRun is the first run to show of the record at FromPosition, where runs are wanted; 0 for all. Without
	// FromBatch the list begins where it begins.
	FromBatch    uuid.UUID
	FromPosition int64
	FromRun      int32
	// Skip is how many records to pass over from there, Limit how many to return at most.
	Skip, Limit int
	Want        Want
}

// RecordPage is a page of records. It can be shorter than Limit although there are more: a page is bounded in bytes
// too.
type RecordPage struct {
	Records []Record
	More    bool
	// Total is how many records match, on all pages; where a key is looked for, how many the page has.
	Total int64
	// Stopped is the job behind which a list that looks for a key goes on, where it ended because it has looked at as
	// many as it may.
	Stopped string
}

const (
	// ScanSlices is how many slices of a batch are looked at per query, scanBytes how much of them is in memory at
	// once.
	ScanSlices = 64
	scanBytes  = 8 << 20
	// pageBytes bounds the inputs and outputs of a page.
	pageBytes = 16 << 20
)

// Records lists records of an organization in the order of batch and position, as of one moment.
func (s *Reader) Records(ctx context.Context, orgID uuid.UUID, f RecordFilter) (RecordPage, error) {
	var out RecordPage
	err := s.reading(ctx, f.plans(), func(ctx context.Context, tx pgx.Tx) (err error) {
		w := newRecordScan(s, tx, orgID, f)
		if out.Total, err = w.total(ctx); err != nil {
			return err
		}
		if out.Total == 0 {
			return nil
		}
		w.out = make([]Record, 0, min(int64(f.Limit), out.Total))
		if err := w.run(ctx); err != nil {
			return err
		}
		out.Records, out.More, out.Stopped = w.out, w.more, w.stopped
		if f.Key != "" {
			out.Total = int64(len(w.out))
		}
		return nil
	})
	return out, err
}

// snapshot runs do on one state of the database, with keptPlans.
func (s *Reader) snapshot(ctx context.Context, do func(ctx context.Context, tx pgx.Tx) error) error {
	return s.reading(ctx, keptPlans, do)
}

// How the statements of a transaction are planned from there on. Most of what readers ask names slices by their keys:
// it would be planned anew for each number of them, which takes longer than to read them and finds the same plan. What
// sums up batches is planned for its arguments, because few are looked up one by one and very many joined.
const (
	keptPlans = "set local plan_cache_mode = force_generic_plan"
	ownPlans  = "set local plan_cache_mode = auto"
)

// reading runs do, and again where it lacked what is in the store of large bodies: it must begin anew each time.
func (s *Reader) reading(ctx context.Context, plans string, do func(ctx context.Context, tx pgx.Tx) error) error {
	begin := pgx.TxOptions{BeginQuery: "begin isolation level repeatable read read only; " + plans}
	err := s.pages.Blobs.Outside(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.pool, begin, func(tx pgx.Tx) error { return do(ctx, tx) })
	})
	return err //nolint:wrapcheck // do has said what failed
}

// plans are those that a list begins with: only one of several batches sums them up.
func (f *RecordFilter) plans() string {
	if f.BatchID != nil {
		return keptPlans
	}
	return ownPlans
}

// recordScan is a list under way.
type recordScan struct {
	s     *Reader
	tx    pgx.Tx
	orgID uuid.UUID
	f     RecordFilter
	match matcher
	// plans are in force in tx.
	plans string
	// ended is how many ended runs the list has. By so many begunJobs, those queued records of begunBatches that were
	// worked on before, counters say too few running or, negative, too many pending executions. All are known once the
	// list is counted.
	ended        int64
	begunBatches []uuid.UUID
	begunJobs    []int64

	// searched is how many records were looked through for a key, stopped the last one, where that was enough.
	searched int64
	stopped  string

	skip  int64
	out   []Record
	bytes int
	more  bool
}

func newRecordScan(s *Reader, tx pgx.Tx, orgID uuid.UUID, f RecordFilter) *recordScan {
	w := &recordScan{s: s, tx: tx, orgID: orgID, f: f, match: newMatcher(f.Status, f.Execution), plans: f.plans(),
		skip: int64(f.Skip)}
	if f.Execution != nil {
		w.f.Want.History = true
	}
	return w
}

func (w *recordScan) run(ctx context.Context) error {
	const batchesAtOnce = 128
	from, to := w.rest()
	if w.f.BatchID != nil {
		if from != to {
			return nil
		}
		return w.listFound(ctx, []db.BatchIDsRow{{ID: to}})
	}
	for !w.more {
		found, err := w.batches(ctx, from, to, batchesAtOnce)
		if err != nil || len(found) == 0 {
			return err
		}
		for rest := found; len(rest) > 0 && !w.more; {
			n := w.together(rest)
			if err := w.listFound(ctx, rest[:n]); err != nil {
				return err
			}
			if w.f.Newest {
				to = before(rest[n-1].ID)
			} else {
				from = after(rest[n-1].ID)
			}
			if rest = rest[n:]; w.skip > 0 {
				break // the next one may be far from here
			}
		}
		if w.skip == 0 && len(found) < batchesAtOnce {
			return nil
		}
	}
	return nil
}

// together is how many of these batches are listed at once: as many as surely have what the page lacks, and one while
// the list passes over records.
func (w *recordScan) together(found []db.BatchIDsRow) int {
	if w.skip > 0 {
		return 1
	}
	need := w.need()
	for i, b := range found {
		if need -= w.surely(b); need <= 0 {
			return i + 1
		}
	}
	return len(found)
}

// need is how many matching records the page lacks, with those to pass over and the one that shows that there are more.
func (w *recordScan) need() int64 { return w.skip + int64(w.f.Limit-len(w.out)) + 1 }

// listFound lists the records of batches that are there.
func (w *recordScan) listFound(ctx context.Context, found []db.BatchIDsRow) error {
	if err := w.plan(ctx, keptPlans); err != nil {
		return err
	}
	which := db.BatchesReadParams{}
	for _, b := range found {
		which.OrgIds, which.Ids = append(which.OrgIds, w.orgID), append(which.Ids, b.ID)
	}
	views, err := w.s.ViewsOf(ctx, w.tx, which)
	if err != nil {
		return err
	}
	var list []*Batch
	for _, b := range found {
		if v := views[b.ID]; v != nil && w.f.created(v.FlowBatch.CreatedAt) {
			list = append(list, v)
		}
	}
	return w.list(ctx, list)
}

// batches finds the next batches between two that the list has anything of. Those that it only passes over are not
// among them: one statement sums up their counters. A batch that the list begins in the middle of has no counters for
// its rest.
func (w *recordScan) batches(ctx context.Context, from, to uuid.UUID, most int32) ([]db.BatchIDsRow, error) {
	skip := w.skip
	if w.begunAt(from, to) {
		skip = 0
	}
	conn, err := w.planned(ctx)
	if err != nil {
		return nil, err
	}
	in := db.BatchIDsParams{Every: w.match.all(), Statuses: w.match.statuses,
		InCompleted: w.match.in(batch.BatchCompleted), InFailed: w.match.in(batch.BatchFailed),
		InCancelled: w.match.in(batch.BatchCancelled),
		EndedRuns:   w.ended > 0, OfBegun: w.begunBatches, Begun: w.begunJobs, OrgID: w.orgID, FromID: from, ToID: to,
		SkipJobs: skip, MaxRows: most,
		CreatedAfter: w.f.CreatedAfter, CreatedBefore: w.f.CreatedBefore}
	found, err := w.batchIDs(ctx, conn, in)
	if err != nil {
		return nil, fmt.Errorf("list batches: %w", err)
	}
	if len(found) > 0 {
		w.skip -= found[0].Before
	}
	return found, nil
}

// Results reads what came of the records of batches of an organization, with their outputs: of as many batches as fit
// into memory.
func (s *Reader) Results(ctx context.Context, tx pgx.Tx, orgID uuid.UUID, of []*Batch) ([]Record, error) {
	w := newRecordScan(s, tx, orgID, RecordFilter{Limit: len(of), Want: Want{Output: true}})
	err := w.list(ctx, of)
	return w.out, err
}

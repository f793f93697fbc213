package run

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/recordset"
)

// RecordFilter says which records a list shows, and which page of it: from the record at FromPosition of FromBatch on, the
// first Skip matching ones passed over, at most Limit.
type RecordFilter struct {
	// BatchID and, with it, Position narrow the list; nil for all.
	BatchID  *uuid.UUID
	Position *int64
	// Status or Execution narrows it further; at most one is set.
	Status    *Status
	Execution *ExecutionStatus

	// FromRun is the first run to show of the record at FromPosition, where runs are wanted.
	FromBatch    uuid.UUID
	FromPosition int64
	FromRun      int32
	Skip, Limit  int
	Want         Want
}

// RecordPage is a page of records. It can be shorter than Limit although there are more: a page is bounded in bytes too.
type RecordPage struct {
	Records []Record
	More    bool
	// Total is how many records match, on all pages.
	Total int64
}

const (
	// walkSlices is how many slices are looked at per query, walkBytes how much of them is in memory at once.
	walkSlices = 64
	walkBytes  = 8 << 20
	// pageBytes bounds the inputs and outputs of a page.
	pageBytes = 16 << 20
)

// Records lists records of an organization in the order of batch and position, as of one moment.
func (s *Service) Records(ctx context.Context, orgID uuid.UUID, f RecordFilter) (RecordPage, error) {
	var out RecordPage
	err := s.reading(ctx, f.plans(), func(ctx context.Context, tx pgx.Tx) (err error) {
		w := newWalk(s, tx, orgID, f)
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
		out.Records, out.More = w.out, w.more
		return nil
	})
	return out, err
}

// snapshot runs do on one state of the database, with keptPlans.
func (s *Service) snapshot(ctx context.Context, do func(ctx context.Context, tx pgx.Tx) error) error {
	return s.reading(ctx, keptPlans, do)
}

// How the statements of a transaction are planned from there on. Most of what readers ask names slices by their keys: it would be
// planned anew for each number of them, which takes longer than to read them and finds the same plan. What sums up batches is
// planned for its arguments, because few are looked up one by one and very many joined.
const (
	keptPlans = "set local plan_cache_mode = force_generic_plan"
	ownPlans  = "set local plan_cache_mode = auto"
)

func (s *Service) reading(ctx context.Context, plans string, do func(ctx context.Context, tx pgx.Tx) error) error {
	begin := pgx.TxOptions{BeginQuery: "begin isolation level repeatable read read only; " + plans}
	err := pgx.BeginTxFunc(ctx, s.pool, begin, func(tx pgx.Tx) error { return do(ctx, tx) })
	return err //nolint:wrapcheck // do has said what failed
}

// plans are those that a list begins with: only one of several batches sums them up.
func (f *RecordFilter) plans() string {
	if f.BatchID != nil {
		return keptPlans
	}
	return ownPlans
}

// walk is a list under way.
type walk struct {
	s     *Service
	tx    pgx.Tx
	orgID uuid.UUID
	f     RecordFilter
	match matcher
	// plans are in force in tx.
	plans string
	// ended is how many ended runs the list has, begun what counters do not tell. Both are known once it is counted.
	ended int64
	begun begunJobs
	skip  int64
	out   []Record
	bytes int
	more  bool
}

func newWalk(s *Service, tx pgx.Tx, orgID uuid.UUID, f RecordFilter) *walk {
	w := &walk{s: s, tx: tx, orgID: orgID, f: f, match: newMatcher(f.Status, f.Execution), plans: f.plans(), skip: int64(f.Skip)}
	if f.Execution != nil {
		w.f.Want.History = true
	}
	return w
}

func (w *walk) run(ctx context.Context) error {
	const batchesAtOnce = 64
	from, to := w.between()
	from = greater(from, w.f.FromBatch)
	if w.f.BatchID != nil {
		if from != to {
			return nil
		}
		err := w.batch(ctx, to)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	}
	for !w.more {
		found, err := w.batches(ctx, from, to, batchesAtOnce)
		if err != nil || len(found) == 0 {
			return err
		}
		if err := w.plan(ctx, keptPlans); err != nil {
			return err
		}
		for _, b := range found {
			if err := w.batch(ctx, b.ID); err != nil || w.more {
				return err
			}
			from = after(b.ID)
			if w.skip > 0 {
				break // the next one may be far from here
			}
		}
		if w.skip == 0 && len(found) < batchesAtOnce {
			return nil
		}
	}
	return nil
}

// batches finds the next batches between two that the list has anything of. Those that it only passes over are not among them:
// one statement sums up their counters. A batch that the list begins in the middle of has no counters for its rest.
func (w *walk) batches(ctx context.Context, from, to uuid.UUID, most int32) ([]db.BatchIDsRow, error) {
	skip := w.skip
	if _, whole := w.start(from); whole > 0 {
		skip = 0
	}
	conn, err := w.planned(ctx)
	if err != nil {
		return nil, err
	}
	found, err := w.s.q.BatchIDs(ctx, conn, db.BatchIDsParams{Every: w.match.all(), Statuses: w.match.statuses,
		InCompleted: w.match.in(BatchCompleted), InFailed: w.match.in(BatchFailed), InCancelled: w.match.in(BatchCancelled),
		EndedRuns: w.ended > 0, OfBegun: w.begun.batches, Begun: w.begun.jobs, OrgID: w.orgID, FromID: from, ToID: to, SkipJobs: skip, MaxRows: most})
	if err != nil {
		return nil, fmt.Errorf("list batches: %w", err)
	}
	if len(found) > 0 {
		w.skip -= found[0].Before
	}
	return found, nil
}

// between returns the first and the last batch that the list can have.
func (w *walk) between() (from, to uuid.UUID) {
	if w.f.BatchID != nil {
		return *w.f.BatchID, *w.f.BatchID
	}
	return uuid.Nil, uuid.Max
}

func greater(a, b uuid.UUID) uuid.UUID {
	if bytes.Compare(a[:], b[:]) > 0 {
		return a
	}
	return b
}

// after returns the least id that is greater.
func after(id uuid.UUID) uuid.UUID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}

// batch lists the records of one batch.
func (w *walk) batch(ctx context.Context, id uuid.UUID) error {
	b, err := w.s.view(ctx, w.tx, w.orgID, id)
	if err != nil {
		return err
	}
	ended := int64(0)
	if w.ended > 0 {
		if ended, err = w.endedRuns(ctx, id, id); err != nil {
			return err
		}
	}
	start, whole := w.start(id)
	if ended == 0 {
		start = whole
	}
	end := b.FlowBatch.RecordCount
	if b.retry() {
		end = math.MaxInt64
	}
	if p := w.f.Position; p != nil {
		if *p < start {
			return nil
		}
		start, end = *p, min(*p+1, end)
	} else if w.match.all() && ended == 0 && !b.retry() {
		start, w.skip = start+w.skip, 0
		if start >= end {
			w.skip = start - end
			return nil
		}
	}
	if start >= end {
		return nil
	}
	no := int32(0)
	if start > 0 {
		if no, err = w.s.q.SliceAt(ctx, w.tx, db.SliceAtParams{BatchID: id, Place: start}); err != nil {
			return fmt.Errorf("find position %d of batch %s: %w", start, id, err)
		}
	}
	statuses, begun := w.match.ofSlices(b.over())
	for !w.more {
		found, err := w.s.q.SlicesFrom(ctx, w.tx, db.SlicesFromParams{Statuses: statuses, Begun: begun, EndedRuns: ended > 0, OrgID: w.orgID, BatchID: id,
			FromNo: no, MaxRows: walkSlices})
		if err != nil {
			return fmt.Errorf("list slices of batch %s: %w", id, err)
		}
		if err := w.slices(ctx, b, w.enough(found, whole, end), start, end); err != nil {
			return err
		}
		if len(found) == 0 || w.more {
			return nil
		}
		last := found[len(found)-1]
		if len(found) < walkSlices || last.First+int64(last.Records) >= end {
			return nil
		}
		no = last.No + 1
	}
	return nil
}

// start returns the first position that the list can show of a batch, and the first of which it can show all runs.
func (w *walk) start(id uuid.UUID) (start, whole int64) {
	switch {
	case id != w.f.FromBatch:
		return 0, 0
	case w.f.FromRun > 1:
		return w.f.FromPosition, w.f.FromPosition + 1
	}
	return w.f.FromPosition, w.f.FromPosition
}

// enough leaves out the slices that the skip passes over. Their counters are exact but for what is queued and begun.
func (w *walk) enough(found []db.SlicesFromRow, start, end int64) []sliceRow {
	var out []sliceRow
	for _, r := range found {
		if r.First >= end {
			break
		}
		if len(out) == 0 && w.match.begun == "" && r.First >= start && w.skip >= r.Matching {
			w.skip -= r.Matching
			continue
		}
		out = append(out, sliceRow{no: r.No, records: r.Records, apart: r.Apart, first: r.First, matching: r.Matching, state: r.State, step: r.StepNo,
			pageOff: r.PageOff, firstStep: r.FirstStep, tasksDone: r.TasksDone})
	}
	return out
}

// slices lists the records of these slices, opening as few at once as the page can need and as fit into memory.
func (w *walk) slices(ctx context.Context, b *batchView, rows []sliceRow, start, end int64) error {
	from := w.f.Want.fragments(b)
	for len(rows) > 0 && !w.more {
		need, n := w.skip+int64(w.f.Limit-len(w.out))+1, 0
		for need > 0 && n < len(rows) {
			need -= min(rows[n].matching, rows[n].first+int64(rows[n].records)-start)
			n++
		}
		views, err := w.s.openFitting(ctx, w.tx, b.views(rows[:n]), from, w.f.Want.Input)
		if err != nil {
			return err
		}
		if w.f.Want.Runs {
			if err := w.s.readRuns(ctx, w.tx, views); err != nil {
				return err
			}
		}
		if err := w.take(ctx, b, views, start, end); err != nil {
			return err
		}
		rows = rows[len(views):]
	}
	return nil
}

// take appends the matching records of opened slices to the page.
func (w *walk) take(ctx context.Context, b *batchView, views []*sliceView, start, end int64) error {
	var pages map[int32]*recordset.Page
	if w.f.Want.Input {
		var err error
		if pages, err = readInputs(ctx, w.tx, b, views); err != nil {
			return err
		}
		defer func() {
			for _, p := range pages {
				p.Release()
			}
		}()
	}
	for _, v := range views {
		var rows [][]byte
		if p := pages[v.no]; p != nil {
			var err error
			if rows, err = v.rows(p); err != nil {
				return err
			}
		}
		if err := w.takeSlice(v, rows, start, end); err != nil || w.more {
			return err
		}
	}
	return nil
}

// rows returns the raw records of the slice from its page.
func (v *sliceView) rows(p *recordset.Page) ([][]byte, error) {
	rows, err := p.Rows()
	if err != nil {
		return nil, fmt.Errorf("records from %d of batch %s: %w", v.first, v.batch.FlowBatch.ID, err)
	}
	return rows[v.pageOff:][:v.records], nil
}

// readInputs reads the pages of slices, by slice.
func readInputs(ctx context.Context, tx pgx.Tx, b *batchView, views []*sliceView) (map[int32]*recordset.Page, error) {
	spans := make([]span, len(views))
	for i, v := range views {
		spans[i] = span{no: v.no, page: v.first - int64(v.pageOff)}
	}
	return readSpans(ctx, tx, b.FlowBatch.ID, b.FlowBatch.PageSet, spans)
}

func (w *walk) takeSlice(v *sliceView, rows [][]byte, start, end int64) error {
	step := v.atOnce()
	for from := int32(0); from < v.records && !w.more; from += step {
		if err := w.takeSome(v, from, min(from+step, v.records), rows, start, end); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) takeSome(v *sliceView, from, to int32, rows [][]byte, start, end int64) error {
	wanted := make([]bool, v.records)
	some := false
	for o := from; o < to; o++ {
		at := v.first + int64(o)
		wanted[o] = at >= start && at < end && (w.match.job(v.statuses[o]) || len(v.runs[o]) > 0 && w.showsRuns())
		some = some || wanted[o]
	}
	if !some {
		return nil
	}
	found, err := v.list(wanted, w.f.Want, rows)
	if err != nil {
		return err
	}
	for _, r := range found {
		if w.takeRecord(v, r); w.more {
			return nil
		}
	}
	return nil
}

package query

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/recordset"
)

// batchList is a batch of which a part is listed, of slices from a number on, or down.
type batchList struct {
	*Batch
	stretch
	no int32
}

// list lists the records of batches; a list that passes over records takes one at a time.
func (w *recordScan) list(ctx context.Context, batches []*Batch) error {
	var rest []*batchList
	for _, b := range batches {
		if w.f.Key != "" && !b.keys() {
			continue
		}
		l, err := w.begin(ctx, b)
		if err != nil {
			return err
		}
		if l.start < l.end {
			rest = append(rest, l)
		}
	}
	for len(rest) > 0 && !w.more {
		var err error
		if rest, err = w.listSome(ctx, rest); err != nil {
			return err
		}
	}
	return nil
}

// begin finds where the list begins in a batch.
func (w *recordScan) begin(ctx context.Context, b *Batch) (*batchList, error) {
	id := b.FlowBatch.ID
	positions := b.FlowBatch.RecordCount
	if b.retry() {
		positions = math.MaxInt64
	}
	l := &batchList{Batch: b, stretch: w.stretch(id, positions)}
	if p := w.f.Position; p != nil {
		l.start, l.end = max(*p, l.start), min(*p+1, l.end)
	} else if w.skip > 0 && w.match.all() && !b.retry() && w.f.Key == "" {
		ended := w.ended
		if ended > 0 {
			var err error
			if ended, err = w.endedRuns(ctx, id, id); err != nil {
				return nil, err
			}
		}
		if ended == 0 { // each record has one run
			w.skip = l.pass(w.skip, w.f.Newest)
		}
	}
	place := l.start
	if w.f.Newest {
		place = l.end - 1
	}
	if place == 0 || l.start >= l.end {
		return l, nil
	}
	no, err := w.s.q.SliceAt(ctx, w.tx, db.SliceAtParams{BatchID: id, Place: place})
	l.no = no
	return l, fault.Wrap(err, "find position %d of batch %s", place, id)
}

// listSome lists the records of the next slices of batches, and returns what is left of them.
func (w *recordScan) listSome(ctx context.Context, list []*batchList) (rest []*batchList, err error) {
	in := db.SlicesFromParams{Statuses: w.match.statuses, OverStatuses: w.match.over, Begun: w.match.begun,
		EndedRuns: w.ended > 0,
		OrgID:     w.orgID, MaxRows: ScanSlices}
	for _, l := range list {
		in.BatchIds, in.FromNos, in.Over = append(in.BatchIds, l.FlowBatch.ID), append(in.FromNos, l.no),
			append(in.Over, l.Over())
	}
	found, err := w.slicesFrom(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("list slices of batch %s: %w", in.BatchIds[0], err)
	}
	var views []*Slice
	for i := range found {
		r := &found[i]
		l, records := list[r.I], int64(r.Records)
		switch {
		case r.First >= l.end, r.First+records <= l.start:
		case len(views) == 0 && w.match.begun == "" && w.f.Key == "" && l.holds(r.First, records, w.f.Newest) &&
			w.skip >= r.Matching:
			w.skip -= r.Matching // counters are exact but for what is queued and begun
		default:
			v := l.found(r)
			v.needs = w.f.Want.of(l.Batch)
			v.from, v.to = int32(min(max(l.start-r.First, 0), records)), int32(min(l.end-r.First, records))
			views = append(views, v)
		}
		// the batch has more
		if last := i + 1 - ScanSlices; last >= 0 && found[last].I == r.I && l.goesOn(r.First, records, w.f.Newest) {
			if l.no = r.No + 1; w.f.Newest {
				l.no = r.No - 1
			}
			rest = list[r.I:]
			break
		}
	}
	return rest, w.slices(ctx, views)
}

// slices lists the records of these slices, opening as few at once as the page can need and as fit into memory.
func (w *recordScan) slices(ctx context.Context, views []*Slice) error {
	if w.f.Key != "" {
		return w.search(ctx, views)
	}
	for len(views) > 0 && !w.more {
		need, n := w.need(), 0
		for need > 0 && n < len(views) {
			need -= min(views[n].matching, int64(views[n].to-views[n].from))
			n++
		}
		opened, err := w.s.openFitting(ctx, w.tx, views[:n], len(w.f.Want.rowsOf(views[:n])) > 0)
		if err != nil {
			return err
		}
		if err := w.take(ctx, opened); err != nil {
			return err
		}
		views = views[len(opened):]
	}
	return nil
}

// take appends the matching records of opened slices to the page.
func (w *recordScan) take(ctx context.Context, views []*Slice) error {
	release, err := w.s.readInputs(ctx, w.tx, w.f.Want.rowsOf(views))
	if err != nil {
		return err
	}
	defer release()
	for _, v := range views {
		if err := w.takeSlice(v); err != nil || w.more {
			return err
		}
	}
	return nil
}

// pageSet is where the records of a batch stand.
func pageSet(b *db.FlowBatch) uuid.UUID {
	if b.PageSet == nil {
		return b.ID
	}
	return *b.PageSet
}

// readInputs reads the raw records of slices, which are there until they are released. Slices that lie in one page
// share it, so that it is unpacked once.
func (s *Reader) readInputs(ctx context.Context, tx pgx.Tx, views []*Slice) (release func(), err error) {
	refs := make([]recordset.PageRef, len(views))
	for i, v := range views {
		refs[i] = recordset.PageRef{Set: pageSet(&v.Batch.FlowBatch), First: v.First - int64(v.PageOff)}
	}
	if len(refs) == 0 {
		return func() {}, nil
	}
	pages, err := s.pages.Of(ctx, tx, refs)
	if err != nil {
		return nil, err
	}
	release = func() {
		for _, p := range pages {
			p.Release()
		}
	}
	for i, v := range views {
		rows, err := pages[refs[i]].Rows()
		if err != nil {
			release()
			return nil, fmt.Errorf("records from %d of batch %s: %w", v.First, v.Batch.FlowBatch.ID, err)
		}
		v.rows = rows[v.PageOff:][:v.Records]
	}
	return release, nil
}

// takeSlice appends the matching records of a slice to the page.
func (w *recordScan) takeSlice(v *Slice) error {
	step := v.atOnce()
	for from := v.from; from < v.to && !w.more; from += step {
		low, high := from, min(from+step, v.to)
		if w.f.Newest { // the same from the other end
			low, high = v.to-(high-v.from), v.to-(from-v.from)
		}
		wanted := make([]bool, v.Records)
		for o := low; o < high; o++ {
			if v.keyed != nil && !v.keyed[o] {
				continue
			}
			wanted[o] = w.match.job(v.Statuses[o]) || len(v.runs[o]) > 0 && w.showsRuns()
		}
		if !slices.Contains(wanted, true) {
			continue
		}
		found, err := v.list(wanted, w.f.Want)
		if err != nil {
			return err
		}
		if w.f.Newest {
			slices.Reverse(found)
		}
		for _, r := range found {
			w.takeRecord(v, r)
		}
	}
	return nil
}

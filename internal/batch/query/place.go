package query

import (
	"bytes"
	"context"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/listing"
)

// A list of records goes from its first batch on, or from its newest down. What a page goes on behind is the record at
// FromPosition of FromBatch, which lies on the way in either order.

// Behind lets the list go on behind a record that it has shown.
func (f *RecordFilter) Behind(last *Record) {
	f.BehindRun(last.Batch.FlowBatch.ID, last.Position, last.Run)
}

// BehindRun is Behind by what names the record; the run does not matter where runs are not wanted.
func (f *RecordFilter) BehindRun(batchID uuid.UUID, position int64, run int32) {
	f.FromBatch, f.FromPosition, f.FromRun = batchID, position, 0
	switch {
	case f.Want.Runs && !f.Newest:
		f.FromRun = run + 1
	case f.Want.Runs && run > 1:
		f.FromRun = run - 1
	case f.Newest:
		f.FromPosition--
	default:
		f.FromPosition++
	}
}

// between returns the first and the last batch that the list can have.
func (w *recordScan) between() (from, to uuid.UUID) {
	if w.f.BatchID != nil {
		return *w.f.BatchID, *w.f.BatchID
	}
	r := listing.Created(w.f.CreatedAfter, w.f.CreatedBefore)
	return r.Least, r.Most
}

// rest is between for what the list has left.
func (w *recordScan) rest() (from, to uuid.UUID) {
	from, to = w.between()
	at := w.f.FromBatch
	switch {
	case at == uuid.Nil:
	case w.f.Newest && bytes.Compare(at[:], to[:]) < 0:
		to = at
	case !w.f.Newest && bytes.Compare(at[:], from[:]) > 0:
		from = at
	}
	return from, to
}

// created reports whether the list has records of a batch that was created then.
func (f *RecordFilter) created(at time.Time) bool {
	return (f.CreatedAfter == nil || !at.Before(*f.CreatedAfter)) && (f.CreatedBefore == nil ||
		at.Before(*f.CreatedBefore))
}

func (w *recordScan) batchIDs(ctx context.Context, conn db.DBTX, in db.BatchIDsParams) ([]db.BatchIDsRow, error) {
	if !w.f.Newest {
		return w.s.q.BatchIDs(ctx, conn, in) //nolint:wrapcheck // the caller says what it is for
	}
	found, err := w.s.q.BatchIDsNewest(ctx, conn, db.BatchIDsNewestParams(in))
	out := make([]db.BatchIDsRow, len(found))
	for i := range found {
		out[i] = db.BatchIDsRow(found[i])
	}
	return out, err //nolint:wrapcheck // the caller says what it is for
}

func (w *recordScan) slicesFrom(ctx context.Context, in db.SlicesFromParams) ([]db.SlicesFromRow, error) {
	if !w.f.Newest {
		return w.s.q.SlicesFrom(ctx, w.tx, in) //nolint:wrapcheck // the caller says what it is for
	}
	found, err := w.s.q.SlicesBack(ctx, w.tx, db.SlicesBackParams(in))
	out := make([]db.SlicesFromRow, len(found))
	for i := range found {
		out[i] = db.SlicesFromRow(found[i])
	}
	return out, err //nolint:wrapcheck // the caller says what it is for
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

// before returns the greatest id that is less.
func before(id uuid.UUID) uuid.UUID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]--; id[i] != 0xff {
			break
		}
	}
	return id
}

// stretch is a part of a batch: the positions from start until before end, of which those from whole on, or below whole
// in a list from the newest down, can be shown with all their runs.
type stretch struct{ start, whole, end int64 }

// stretch is what the list can show of a batch with so many positions.
func (w *recordScan) stretch(id uuid.UUID, positions int64) stretch {
	at, runs := w.f.FromPosition, w.f.FromRun
	switch {
	case id != w.f.FromBatch && w.f.Newest:
		return stretch{whole: positions, end: positions}
	case id != w.f.FromBatch:
		return stretch{end: positions}
	case w.f.Newest && runs > 0:
		return stretch{whole: min(at, positions), end: min(at+1, positions)}
	case w.f.Newest:
		return stretch{whole: min(at+1, positions), end: min(at+1, positions)}
	case runs > 1:
		return stretch{start: at, whole: at + 1, end: positions}
	}
	return stretch{start: at, whole: at, end: positions}
}

// surely is how many matching records of a batch the list has left at least.
func (w *recordScan) surely(b db.BatchIDsRow) int64 {
	if w.f.Newest && b.ID == w.f.FromBatch {
		return 0 // how many are behind the place is not known
	}
	return max(b.Matching-w.stretch(b.ID, 0).start, 0)
}

// begunAt reports whether a list of what is left, between two batches, begins in the middle of one.
func (w *recordScan) begunAt(from, to uuid.UUID) bool {
	if w.f.Newest {
		return to == w.f.FromBatch
	}
	return w.stretch(from, 0).whole > 0
}

// pass lets a list whose records have one run each begin behind so many of a part of a batch; it returns how many are
// left to pass.
func (r *stretch) pass(skip int64, newest bool) int64 {
	if newest {
		r.end = r.whole - skip
		skip = max(-r.end, 0)
		r.end = max(r.end, 0)
		return skip
	}
	r.start = r.whole + skip
	return max(r.start-r.end, 0)
}

// holds reports whether all of a slice can be shown with all its runs.
func (r *stretch) holds(first, records int64, newest bool) bool {
	if newest {
		return first+records <= r.whole
	}
	return first >= r.whole
}

// goesOn reports whether the part has more behind a slice.
func (r *stretch) goesOn(first, records int64, newest bool) bool {
	if newest {
		return first > r.start
	}
	return first+records < r.end
}

// runsOf are the first and the last run that the list can show of a record with so many.
func (w *recordScan) runsOf(v *Slice, position int64, runs int32) (first, last int32) {
	switch {
	case !w.f.Want.Runs:
		return runs, runs
	case v.Batch.FlowBatch.ID != w.f.FromBatch || position != w.f.FromPosition || w.f.FromRun == 0:
		return 1, runs
	case w.f.Newest:
		return 1, min(w.f.FromRun, runs)
	}
	return w.f.FromRun, runs
}

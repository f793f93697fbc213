package query

import (
	"context"
	"io"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
)

// Export is the results of a batch as text, read as they are needed: memory holds a few slices, whatever the size of
// the batch. Each record is shown as it stands when it is read. It is not safe for concurrent use.
type Export struct {
	ctx   context.Context //nolint:containedctx // an io.Reader has no other place for it
	s     *Reader
	batch *Batch
	match matcher
	// key narrows the results to records that have it; empty for all.
	key string
	// release gives back the rows of views.
	release func()
	// from is the first position to show, skip how many matching ones to pass over before.
	from, skip int64
	no         int32
	views      []*Slice
	// offset is the next record of the first view.
	offset int32
	done   bool
	buf    []byte
	at     int
	// write appends one result.
	write func(b []byte, r *Record) []byte
}

// exported is what an export tells of each record.
var exported = Want{Output: true, Key: true}

// Export opens the results of the filter's batch in position order, each as write appends it: of those that match by
// status and key, from FromPosition on, all but the first Skip. It heeds nothing else of the filter. Fault: NotFound.
func (s *Reader) Export(ctx context.Context, orgID uuid.UUID, f RecordFilter,
	write func(b []byte, r *Record) []byte) (*Export, error) {
	e := &Export{ctx: ctx, s: s, write: write, match: newMatcher(f.Status, nil), from: f.FromPosition,
		skip: int64(f.Skip), key: f.Key}
	err := s.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if e.batch, err = s.view(ctx, tx, orgID, *f.BatchID); err != nil {
			return err
		}
		e.done = e.key != "" && !e.batch.keys()
		if e.match.all() && !e.batch.retry() && e.key == "" {
			e.from, e.skip = e.from+e.skip, 0
		}
		if e.from > 0 {
			e.no, err = s.q.SliceAt(ctx, tx, db.SliceAtParams{BatchID: *f.BatchID, Place: e.from})
		}
		return err
	})
	return e, err
}

// Read implements io.Reader.
func (e *Export) Read(p []byte) (int, error) {
	for e.at == len(e.buf) {
		if err := e.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, e.buf[e.at:])
	e.at += n
	return n, nil
}

// fill writes the next slice, or a part of a large one, into the buffer.
func (e *Export) fill() error {
	e.buf, e.at = e.buf[:0], 0
	if len(e.views) == 0 {
		if e.done {
			return io.EOF
		}
		return e.s.snapshot(e.ctx, e.load)
	}
	v, from := e.views[0], e.offset
	to := min(from+v.atOnce(), v.Records)
	if e.offset = to; to == v.Records {
		e.views[0] = nil
		e.views, e.offset = e.views[1:], 0
	}
	return e.add(v, from, to)
}

// load reads the next slices, and the batch again: it may have been cancelled meanwhile, or deleted, and its rows then
// go piece by piece.
func (e *Export) load(ctx context.Context, tx pgx.Tx) error {
	b, err := e.s.view(ctx, tx, e.batch.FlowBatch.OrgID, e.batch.FlowBatch.ID)
	if err != nil {
		return err
	}
	e.batch = b
	found, err := e.batch.NextSlices(ctx, e.s, tx, e.no, e.match.statuses, e.match.over)
	if err != nil {
		return err
	}
	for _, v := range found {
		v.needs = exported.of(e.batch)
	}
	if e.views, err = e.s.openFitting(ctx, tx, found, e.batch.keys()); err != nil {
		return err
	}
	if e.release != nil {
		e.release()
	}
	if e.release, err = e.s.readInputs(ctx, tx, exported.rowsOf(e.views)); err != nil {
		return err
	}
	n := len(e.views)
	e.done = n == len(found) && n < ScanSlices
	if n > 0 {
		e.no = found[n-1].No + 1
	}
	return nil
}

func (e *Export) add(v *Slice, from, to int32) error {
	var has func(record []byte) bool
	if e.key != "" {
		has = v.Batch.Plan.Key.Is(e.key)
	}
	wanted := make([]bool, v.Records)
	for o := from; o < to; o++ {
		wanted[o] = v.First+int64(o) >= e.from && e.match.job(v.Statuses[o]) && (has == nil || has(v.rows[o]))
		if wanted[o] && e.skip > 0 {
			e.skip--
			wanted[o] = false
		}
	}
	return v.each(wanted, exported, func(r *Record) { e.buf = e.write(e.buf, r) })
}

package run

import (
	"context"
	"io"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
)

// Export is the results of a batch as text, read as they are needed: memory holds a few slices, whatever the size of the batch. Each
// record is shown as it stands when it is read. It is not safe for concurrent use.
type Export struct {
	ctx   context.Context //nolint:containedctx // an io.Reader has no other place for it
	s     *Service
	batch *batchView
	match matcher
	// from is the first position to show, skip how many matching ones to pass over before.
	from, skip int64
	no         int32
	views      []*sliceView
	// offset is the next record of the first view.
	offset int32
	done   bool
	buf    []byte
	at     int
	// write appends one result.
	write func(b []byte, r *Record) []byte
}

// Export opens the results of a batch in position order, each as write appends it: from position from on, of the matching ones all but
// the first skip. Fault: NotFound.
func (s *Service) Export(ctx context.Context, orgID, batchID uuid.UUID, status *Status, from, skip int64, write func(b []byte, r *Record) []byte) (*Export, error) {
	e := &Export{ctx: ctx, s: s, write: write, match: newMatcher(status, nil), from: from, skip: skip}
	err := s.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if e.batch, err = s.view(ctx, tx, orgID, batchID); err != nil {
			return err
		}
		if e.match.all() && !e.batch.retry() {
			e.from, e.skip = from+skip, 0
		}
		if e.from > 0 {
			e.no, err = s.q.SliceAt(ctx, tx, db.SliceAtParams{BatchID: batchID, Place: e.from})
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

// load reads the next slices, and the batch again: it may have been cancelled meanwhile.
func (e *Export) load(ctx context.Context, tx pgx.Tx) error {
	b := &e.batch.FlowBatch
	if !e.batch.over() {
		var err error
		if e.batch, err = e.s.view(ctx, tx, b.OrgID, b.ID); err != nil {
			return err
		}
	}
	found, err := e.batch.next(ctx, e.s, tx, e.no, e.match.statuses, e.match.over)
	if err != nil {
		return err
	}
	for _, v := range found {
		v.needs = Want{Output: true}.of(e.batch)
	}
	if e.views, err = e.s.openFitting(ctx, tx, found, false); err != nil {
		return err
	}
	n := len(e.views)
	e.done = n == len(found) && n < walkSlices
	if n > 0 {
		e.no = found[n-1].No + 1
	}
	return nil
}

func (e *Export) add(v *sliceView, from, to int32) error {
	wanted := make([]bool, v.Records)
	for o := from; o < to; o++ {
		wanted[o] = v.First+int64(o) >= e.from && e.match.job(v.statuses[o])
		if wanted[o] && e.skip > 0 {
			e.skip--
			wanted[o] = false
		}
	}
	return v.each(wanted, Want{Output: true}, func(r *Record) { e.buf = e.write(e.buf, r) })
}

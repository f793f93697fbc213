package recordset

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// sheetsAhead is how many pages may wait to be compressed and sent while the next ones are hashed: it bounds memory.
const sheetsAhead = 8

var pageColumns = []string{"set_id", "first", "rows", "raw_bytes", "body"}

// writePages stores count rows as pages of a set from position first on, and returns their digest. Two goroutines share
// the work: one lays out pages and hashes them, one compresses them and feeds COPY.
func writePages(ctx context.Context, tx pgx.Tx, setID uuid.UUID, first int64, count int,
	rowAt func(int) []byte) (Digest, error) {
	ctx, cancel := context.WithCancel(ctx)
	src := &pageSource{setID: setID, ready: make(chan *sheet, sheetsAhead), digest: make(chan Digest, 1)}
	go src.layOut(ctx, first, count, rowAt)
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"flow", "page"}, pageColumns, src)
	cancel()
	// The rows belong to the caller: wait until the other goroutine has let go of them.
	digest := <-src.digest
	if src.last != nil {
		src.last.release()
	}
	if err != nil {
		return Digest{}, fmt.Errorf("write pages: %w", err)
	}
	return digest, nil
}

// onePage lays rows out that fit one page; nil where they do not.
func onePage(count int, rowAt func(int) []byte) *Sheet {
	s := sheets.Get().(*sheet)
	defer s.release()
	if s.fill(0, count, rowAt) < count {
		return nil
	}
	s.compress()
	rows, raw := int32(s.rows), int32(len(s.text)) //nolint:gosec // a page is bounded by its body
	return &Sheet{Rows: rows, RawBytes: raw, Body: slices.Clone(s.body)}
}

// pageSource is the pgx.CopyFromSource of pages.
type pageSource struct {
	setID  uuid.UUID
	ready  chan *sheet
	digest chan Digest
	last   *sheet
}

// layOut makes the pages until all are made or ctx ends.
func (p *pageSource) layOut(ctx context.Context, first int64, count int, rowAt func(int) []byte) {
	h := sha256.New()
	defer func() { p.digest <- sum(h) }()
	defer close(p.ready)
	for next := 0; next < count; {
		s := sheets.Get().(*sheet)
		s.first = first + int64(next)
		next = s.fill(next, count, rowAt)
		h.Write(s.text[s.data:])
		select {
		case p.ready <- s:
		case <-ctx.Done():
			return
		}
	}
}

func sum(h hash.Hash) Digest { return Digest(h.Sum(nil)) }

func (p *pageSource) Next() bool {
	if p.last != nil {
		p.last.release()
	}
	var more bool
	p.last, more = <-p.ready
	return more
}

func (p *pageSource) Values() ([]any, error) {
	s := p.last
	s.compress()
	rows, raw := int32(s.rows), int32(len(s.text)) //nolint:gosec // a page is bounded by its body
	return []any{[16]byte(p.setID), s.first, rows, raw, s.body}, nil
}

func (p *pageSource) Err() error { return nil }

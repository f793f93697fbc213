package recordset

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/blob"
	"flowlane/internal/cell"
	"flowlane/internal/pg"
)

// PageRef names a page: of a set, the one that begins at position First.
type PageRef struct {
	Set   uuid.UUID
	First int64
}

// Pages reads pages, those of blobs from Blobs; nil where there are none.
type Pages struct{ Blobs *blob.Cache }

// Read reads the pages of a set that begin at these positions, in the order of position. A missing one is an error.
func (p Pages) Read(ctx context.Context, conn db.DBTX, setID uuid.UUID, firsts []int64) ([]Page, error) {
	refs := make([]PageRef, len(firsts))
	for i, first := range firsts {
		refs[i] = PageRef{setID, first}
	}
	found, err := p.Of(ctx, conn, refs)
	if err != nil {
		return nil, err
	}
	pages := make([]Page, 0, len(found))
	for _, page := range found {
		pages = append(pages, *page)
	}
	slices.SortFunc(pages, func(a, b Page) int { return cmp.Compare(a.First, b.First) })
	return pages, nil
}

// Of reads pages of any sets, each once. A missing one is an error. Inside of a transaction it asks no store:
// blob.Cache.Outside is around that. Fault: blob.ErrUnavailable.
func (p Pages) Of(ctx context.Context, conn db.DBTX, refs []PageRef) (map[PageRef]*Page, error) {
	in, pages := db.PageReadParams{}, make(map[PageRef]*Page, len(refs))
	for _, r := range refs {
		if _, known := pages[r]; !known {
			pages[r] = nil
			in.SetIds, in.Firsts = append(in.SetIds, r.Set), append(in.Firsts, r.First)
		}
	}
	found, err := db.New().PageRead(ctx, conn, in)
	if err != nil {
		return nil, fmt.Errorf("read pages: %w", err)
	}
	if len(found) != len(pages) {
		return nil, fmt.Errorf("read pages of %s: %d of %d are there", refs[0].Set, len(found), len(pages))
	}
	var away []*Page
	for _, f := range found {
		page := &Page{First: f.First, Count: int(f.Rows), rawBytes: int(f.RawBytes), body: f.Body}
		if pages[PageRef{f.SetID, f.First}] = page; page.away() {
			away = append(away, page)
		}
	}
	return pages, p.fetch(ctx, conn, away)
}

// peekBytes is after how many bytes of records no more are shown at once.
const peekBytes = 1 << 20

// Peeked is a record with its position in the set.
type Peeked struct {
	Position int64
	Record   []byte
}

// Peek returns up to most records of a set from a position on. Fault: NotFound.
func (s *Service) Peek(ctx context.Context, orgID, id uuid.UUID, from int64, most int) ([]Peeked, error) {
	if _, err := s.Get(ctx, orgID, id); err != nil {
		return nil, err
	}
	var out []Peeked
	size := 0
	for len(out) < most && size < peekBytes {
		row, err := db.New().PageFrom(ctx, s.pool, db.PageFromParams{SetID: id, Behind: from - pageRows, FromRow: from})
		if pg.IsNoRows(err) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("peek into set %s: %w", id, err)
		}
		page := Page{First: row.First, Count: int(row.Rows), rawBytes: int(row.RawBytes), body: row.Body}
		if err := s.pages().fetch(ctx, s.pool, page.ifAway()); err != nil {
			return nil, err
		}
		rows, err := page.Rows()
		if err != nil {
			return nil, err
		}
		for i, record := range rows {
			at := row.First + int64(i)
			if at >= from && len(out) < most && size < peekBytes {
				out = append(out, Peeked{at, bytes.Clone(record)})
				size += len(record)
			}
		}
		page.Release()
		from = row.First + int64(row.Rows)
	}
	return out, nil
}

// Each calls do with each record of a set of pages, in the order of their positions, one page in memory at a time. Of a
// set that is uploaded just now it finds what has come. The record must not be kept.
func (p Pages) Each(ctx context.Context, conn db.DBTX, setID uuid.UUID, do func(record []byte) error) error {
	// The only page of a batch may stand in its row, where no other query finds it.
	first, err := db.New().PageRead(ctx, conn, db.PageReadParams{SetIds: []uuid.UUID{setID}, Firsts: []int64{0}})
	if err != nil {
		return fmt.Errorf("read the records of set %s: %w", setID, err)
	}
	from := int64(0)
	for _, f := range first {
		page := Page{First: f.First, Count: int(f.Rows), rawBytes: int(f.RawBytes), body: f.Body}
		if err := p.fetch(ctx, conn, page.ifAway()); err != nil {
			return err
		}
		if from, err = page.each(do); err != nil {
			return err
		}
	}
	for {
		f, err := db.New().PageFrom(ctx, conn, db.PageFromParams{SetID: setID, Behind: from - pageRows, FromRow: from})
		if pg.IsNoRows(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the records of set %s: %w", setID, err)
		}
		page := Page{First: f.First, Count: int(f.Rows), rawBytes: int(f.RawBytes), body: f.Body}
		if err := p.fetch(ctx, conn, page.ifAway()); err != nil {
			return err
		}
		if from, err = page.each(do); err != nil {
			return err
		}
	}
}

// each calls do with the records of a page, and returns the position behind them.
func (p *Page) each(do func(record []byte) error) (next int64, err error) {
	rows, err := p.Rows()
	if err != nil {
		return 0, err
	}
	defer p.Release()
	for _, record := range rows {
		if err := do(record); err != nil {
			return 0, err
		}
	}
	return p.First + int64(p.Count), nil
}

// at reads the page that begins at a position.
func (p Pages) at(ctx context.Context, conn db.DBTX, setID uuid.UUID, first int64) (*Page, error) {
	pages, err := p.Read(ctx, conn, setID, []int64{first})
	if err != nil {
		return nil, err
	}
	return &pages[0], nil
}

// Sheet is the only page of what a trigger brought, ready to be stored.
type Sheet struct {
	// Rows is how many records it holds, RawBytes how large their text is.
	Rows, RawBytes int32
	Body           []byte
}

// OneSheet lays records out that fit one page; nil where they do not, or there are none. Each record is the text of one
// JSON object that was checked before.
func OneSheet(records [][]byte) *Sheet {
	if len(records) == 0 {
		return nil
	}
	return onePage(len(records), func(i int) []byte { return records[i] })
}

// Page is what a reader of the stored sheet gets.
func (s *Sheet) Page() *Page {
	return &Page{Count: int(s.Rows), rawBytes: int(s.RawBytes), body: s.Body}
}

// AddInline stores the rows of a trigger that brought its own as pages of a fresh set, in the caller's transaction,
// with positions from 0 on. Each record is the text of one JSON object that was checked before.
func AddInline(ctx context.Context, tx pgx.Tx, records [][]byte) (setID uuid.UUID, err error) {
	setID = cell.NewID()
	if len(records) == 0 {
		return setID, nil
	}
	if _, err := writePages(ctx, tx, setID, 0, len(records), func(i int) []byte { return records[i] }); err != nil {
		return setID, fmt.Errorf("store records: %w", err)
	}
	return setID, nil
}

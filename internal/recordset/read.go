package recordset

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
)

// ReadPages reads the pages of a set that begin at these positions, in the order of position. A missing one is an error.
func ReadPages(ctx context.Context, conn db.DBTX, setID uuid.UUID, firsts []int64) ([]Page, error) {
	found, err := db.New().PageRead(ctx, conn, db.PageReadParams{SetID: setID, Firsts: firsts})
	if err != nil {
		return nil, fmt.Errorf("read pages: %w", err)
	}
	if len(found) != len(firsts) {
		return nil, fmt.Errorf("read pages of %s: %d of %d are there", setID, len(found), len(firsts))
	}
	pages := make([]Page, len(found))
	for i, f := range found {
		pages[i] = Page{First: f.First, Count: int(f.Rows), rawBytes: int(f.RawBytes), body: f.Body}
	}
	return pages, nil
}

// pageAt reads the page that begins at a position.
func pageAt(ctx context.Context, conn db.DBTX, setID uuid.UUID, first int64) (*Page, error) {
	pages, err := ReadPages(ctx, conn, setID, []int64{first})
	if err != nil {
		return nil, err
	}
	return &pages[0], nil
}

// AddInline stores the rows of a trigger that brought its own as pages of a fresh set, in the caller's transaction, with
// positions from 0 on. Each record is the text of one JSON object that was checked before.
func AddInline(ctx context.Context, tx pgx.Tx, records [][]byte) (setID uuid.UUID, count int64, err error) {
	if setID, err = uuid.NewV7(); err != nil {
		return uuid.Nil, 0, fmt.Errorf("make a set id: %w", err)
	}
	if len(records) == 0 {
		return setID, 0, nil
	}
	if _, err := writePages(ctx, tx, setID, 0, len(records), func(i int) []byte { return records[i] }); err != nil {
		return uuid.Nil, 0, err
	}
	return setID, int64(len(records)), nil
}

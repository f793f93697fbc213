package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"flowlane/internal/cell"
)

// Cell is the number of the cell that a migrated database is.
func Cell(ctx context.Context, db DB) (n int, err error) {
	if err = db.QueryRow(ctx, "SELECT no FROM flow.cell").Scan(&n); err != nil {
		return 0, fmt.Errorf("read which cell this is: %w", err)
	}
	return n, nil
}

// SetCell makes a migrated database the cell of a number. db is connected as the owner of the tables. Error: CellError
// where organizations have ids and keys that carry another number.
func SetCell(ctx context.Context, db Beginner, n int) error {
	if err := cell.Check(n); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	return InTx(ctx, db, func(ctx context.Context, tx pgx.Tx) error {
		// Nobody makes an organization meanwhile.
		if _, err := tx.Exec(ctx, "LOCK TABLE flow.organization IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return fmt.Errorf("keep organizations from being made: %w", err)
		}
		now, err := Cell(ctx, tx)
		if err != nil || now == n {
			return err
		}
		var used bool
		// Also one that is gone has left ids behind.
		err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM flow.organization) OR EXISTS (SELECT FROM flow.deletion)").
			Scan(&used)
		if err != nil {
			return fmt.Errorf("look for organizations: %w", err)
		}
		if used {
			return CellError{Is: now, Wanted: n}
		}
		if _, err := tx.Exec(ctx, "SELECT flow.set_cell($1)", n); err != nil {
			return fmt.Errorf("set which cell this is: %w", err)
		}
		return nil
	})
}

// CellError tells that a database stays the cell that it is.
type CellError struct{ Is, Wanted int }

func (e CellError) Error() string {
	return fmt.Sprintf("the database is cell %d and has, or had, organizations whose ids and keys carry that: "+
		"it cannot become cell %d; make another database for that cell", e.Is, e.Wanted)
}

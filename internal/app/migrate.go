package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/pg"
)

// prepare brings the database up to date, where it is asked to, and says why this program cannot run on it.
func prepare(ctx context.Context, pool *pgxpool.Pool, migrate bool) error {
	err := pg.CheckSchema(ctx, pool)
	older, ok := errors.AsType[pg.SchemaOlderError](err)
	if !ok {
		return err //nolint:wrapcheck // says what to do
	}
	if !migrate {
		return older
	}
	err = pg.Migrate(ctx, pool)
	if pg.IsRefused(err) {
		return fmt.Errorf("the database lacks %d migrations, and this user may not make them: run `flowlane migrate up` first, as the "+
			"owner of the tables: %w", older.Missing, err)
	}
	if err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return nil
}

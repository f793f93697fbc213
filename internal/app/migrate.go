package app

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/pg"
)

// prepare migrates the database, or says what it lacks.
func prepare(ctx context.Context, pool *pgxpool.Pool, migrate bool) error {
	missing, err := pending(ctx, pool)
	if err != nil || missing == 0 {
		return err
	}
	if !migrate {
		return fmt.Errorf("the database lacks %d migrations: run `flowlane migrate up` first", missing)
	}
	err = pg.Migrate(ctx, pool)
	if pg.IsRefused(err) {
		return fmt.Errorf("the database lacks %d migrations, and this user may not make them: run `flowlane migrate up` first, as the "+
			"owner of the tables: %w", missing, err)
	}
	if err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return nil
}

// pending counts the migrations that the database lacks. Error: pg.SchemaDiffersError.
func pending(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	all, err := pg.Status(ctx, pool)
	if err != nil {
		return 0, fmt.Errorf("read the migrations of the database: %w", err)
	}
	if err := pg.Differing(all); err != nil {
		return 0, err //nolint:wrapcheck // says what to do
	}
	missing := 0
	for _, m := range all {
		if !m.Applied {
			missing++
		}
	}
	return missing, nil
}

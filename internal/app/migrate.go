package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/internal/pg"
)

// outdatedEvery is how often a process looks whether a later version has migrated the database so that this one must
// end.
const outdatedEvery = 5 * time.Second

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
		return fmt.Errorf("the database lacks %d migrations, and this user may not make them: "+
			"run `flowlane migrate up` first, as the owner of the tables: %w", older.Missing, err)
	}
	if err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return nil
}

// watchSchema has the process end, as when it is told to stop, once the database takes later versions alone.
func (a *App) watchSchema(ctx context.Context, failed chan<- error) {
	tick := time.NewTicker(outdatedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := pg.CheckOutdated(ctx, a.Pool)
		if newer, ok := errors.AsType[pg.SchemaNewerError](err); ok {
			a.cfg.Log.ErrorContext(ctx, "the database was migrated for later versions alone: this process ends",
				"because", newer)
			failed <- newer
			return
		}
	}
}

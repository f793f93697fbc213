package pg

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivermigrate"

	"flowlane/internal/moment"
	"flowlane/internal/pg/ddl"
)

const (
	// firstPause and mostPause are the shortest and the longest time between two attempts to get a lock.
	firstPause, mostPause = time.Second, 30 * time.Second
)

// runner applies migrations on the connection that holds the lock of migrators, so that it is held while a statement
// runs.
type runner struct {
	conn  *pgxpool.Conn
	watch *pgxpool.Pool
	// timeout bounds the wait for one lock, wait that of a migration for all that it needs.
	timeout, wait time.Duration
}

// statementError tells which statement failed.
type statementError struct {
	place, statement string
	err              error
}

func (e *statementError) Error() string { return e.place + ": " + e.statement + ": " + e.err.Error() }
func (e *statementError) Unwrap() error { return e.err }

func (r *runner) exec(ctx context.Context, db DB, f migration, s ddl.Statement) error {
	if _, err := db.Exec(ctx, s.Text); err != nil {
		return &statementError{fmt.Sprintf("%s:%d", f.Name, s.Line), s.Short(), err}
	}
	return nil
}

// apply applies one migration of flow and writes down that it is applied.
func (r *runner) apply(ctx context.Context, f migration) error {
	if f.Transaction {
		return r.patiently(ctx, f.Name, r.timeout, func(ctx context.Context) error {
			return InTx(ctx, r.conn, func(ctx context.Context, tx pgx.Tx) error {
				for _, s := range f.Statements {
					if err := r.exec(ctx, tx, f, s); err != nil {
						return err
					}
				}
				return f.note(ctx, tx)
			})
		})
	}
	for _, s := range f.Statements {
		if err := r.alone(ctx, f, s); err != nil {
			return err
		}
	}
	return f.note(ctx, r.conn)
}

// alone runs a statement outside a transaction. One that keeps nobody from changing rows may wait for its lock for
// long.
func (r *runner) alone(ctx context.Context, f migration, s ddl.Statement) error {
	m := s.Meaning()
	timeout := r.wait
	for _, e := range m.Effects {
		if e.Lock.BlocksWrites() {
			timeout = r.timeout
		}
	}
	return r.patiently(ctx, f.Name, timeout, func(ctx context.Context) error {
		if m.Builds != "" {
			if err := dropInvalid(ctx, r.conn, m.Builds); err != nil {
				return err
			}
		}
		return r.exec(ctx, r.conn, f, s)
	})
}

// dropInvalid drops what is left of an index whose CREATE INDEX CONCURRENTLY was cut off: rows are written to it, and
// no query uses it.
func dropInvalid(ctx context.Context, db DB, index string) error {
	name := pgx.Identifier(strings.Split(index, ".")).Sanitize()
	var invalid bool
	err := db.QueryRow(ctx, `
SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid)`, name).Scan(&invalid)
	if err != nil {
		return fmt.Errorf("look for the index %s: %w", index, err)
	}
	if !invalid {
		return nil
	}
	slog.InfoContext(ctx, "dropping an index that was not built to its end", "index", index)
	if _, err := db.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+name); err != nil {
		return fmt.Errorf("drop the index %s, which was not built to its end: %w", index, err)
	}
	return nil
}

// note writes down that the migration is applied.
func (f migration) note(ctx context.Context, db DB) error {
	_, err := db.Exec(ctx, "INSERT INTO "+versionTable+
		" (version_id, content_sha256, least_program) VALUES ($1, $2, $3)",
		f.Version, f.sum, f.LeastProgram)
	if err != nil {
		return fmt.Errorf("write down that %s is applied: %w", f.Name, err)
	}
	return nil
}

// river applies River's migrations, each of them in a transaction.
func (r *runner) river(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := riverMigrator(pool)
	if err != nil {
		return err
	}
	return r.patiently(ctx, RiverSchema, r.timeout, func(ctx context.Context) error {
		if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("migrate schema river: %w", err)
		}
		return nil
	})
}

// patiently tries again, after pauses that grow, what does not get its locks. Error: LockError once the time is over.
func (r *runner) patiently(
	ctx context.Context, name string, timeout time.Duration, do func(context.Context) error,
) error {
	if _, err := r.conn.Exec(ctx, "SELECT set_config('lock_timeout', $1, false)", milliseconds(timeout)); err != nil {
		return fmt.Errorf("bound the wait for locks: %w", err)
	}
	began := time.Now()
	var seen []Blocker
	for attempts := 1; ; attempts++ {
		blockers := r.watchBlockers(ctx, timeout)
		err := do(ctx)
		if now := blockers(); len(now) > 0 {
			seen = now
		}
		if !IsLocked(err) {
			return err
		}
		next := moment.Backoff(attempts-1, firstPause, mostPause)
		if waited := time.Since(began); waited+next > r.wait {
			return &LockError{Migration: name, Attempts: attempts, Waited: waited, Blockers: seen, err: err}
		}
		slog.WarnContext(ctx, "a migration does not get its locks, and is tried again", "migration", name, "error", err,
			"in_its_way", describe(seen), "after", next)
		if err := sleep(ctx, next); err != nil {
			return fmt.Errorf("wait for locks of %s: %w", name, err)
		}
	}
}

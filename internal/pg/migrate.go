package pg

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"flowlane/internal/pg/ddl"
	"flowlane/schema"
)

const (
	// RiverSchema is the schema of River's tables.
	RiverSchema = "river"
	// versionTable has what was applied; the first migration makes it.
	versionTable = "flow.schema_version"
	// migrateLock is the advisory lock that lets one process migrate while the others wait.
	migrateLock = 0x666c6f77_6c616e65
	// migratorName is by what sessions that migrate are known in pg_stat_activity.
	migratorName = "flowlane migrate"
	// migrateConns: one for the lock and flow, one for River, one that looks who is in the way, and one to spare.
	migrateConns = 4

	// defaultLockTimeout and defaultLockWait are those of a Migrator that names none.
	defaultLockTimeout = 3 * time.Second
	defaultLockWait    = 10 * time.Minute
	// lookForLock is how often a migrator looks whether another one has ended.
	lookForLock = 200 * time.Millisecond
)

// Migrator brings databases up to date. The zero value is good.
type Migrator struct {
	// Files has the migrations of the schema flow at its root; nil for those of this program.
	Files fs.FS
	// LockTimeout is how long a statement waits for a lock: whoever wants the same table waits behind it for as long.
	// Then it is tried again, after a pause.
	LockTimeout time.Duration
	// LockWait is how long that goes on for one migration.
	LockWait time.Duration
}

// Migrate is Up of the zero Migrator.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error { return Migrator{}.Up(ctx, pool) }

// Up brings the database of pool up to date: the schema flow with the views of ops, then River's, then, as far as the
// user may, the roles of row-level security (RowSecurityAdvice tells), and the one that reads those views (OpsAdvice
// tells). It may be called by several processes at once, on an empty database too. It uses connections of its own, so
// that a small pool does not block it. A migration that fails leaves nothing behind, unless it runs outside a
// transaction; those before it stay. Errors: SchemaDiffersError and SchemaNewerError, before anything is changed;
// LockError.
func (m Migrator) Up(ctx context.Context, pool *pgxpool.Pool) error {
	files, err := m.migrations()
	if err != nil {
		return err
	}
	if pooled(pool.Config().ConnConfig.RuntimeParams) {
		return errMigratePooled
	}
	own, err := m.connect(ctx, pool)
	if err != nil {
		return err
	}
	defer own.Close()
	conn, err := own.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to migrate: %w", err)
	}
	defer conn.Release()
	if err := lockMigrations(ctx, conn); err != nil {
		return err
	}
	defer func() {
		_, _ = conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(migrateLock))
	}()
	state, err := readSchema(ctx, conn, files)
	if err != nil {
		return err
	}
	if err := state.usable(); err != nil {
		return err
	}
	run := runner{conn: conn, watch: own, timeout: m.LockTimeout, wait: m.LockWait}
	for i, f := range files {
		if state.flow[i].Applied {
			continue
		}
		if state.newer.Has > 0 { // not an empty database
			slog.InfoContext(ctx, "migrating", "migration", f.Name)
		}
		if err := run.apply(ctx, f); err != nil {
			return err
		}
	}
	if err := ensureSchema(ctx, conn, RiverSchema); err != nil {
		return err
	}
	if err := run.river(ctx, own); err != nil {
		return err
	}
	err = run.patiently(ctx, "row-level security", m.LockTimeout, func(ctx context.Context) error {
		return secureRows(ctx, conn)
	})
	if err != nil {
		return err
	}
	return grantOps(ctx, conn, OpsRole)
}

// migration is a file and the digest of its content, in hex.
type migration struct {
	ddl.File

	sum string
}

// ownMigrations are those of this program.
var ownMigrations = sync.OnceValues(func() ([]migration, error) { return readMigrations(schema.FS) })

// migrations are those of flow, in their order, after what is left out was filled in.
func (m *Migrator) migrations() ([]migration, error) {
	m.LockTimeout = cmp.Or(m.LockTimeout, defaultLockTimeout)
	m.LockWait = cmp.Or(m.LockWait, defaultLockWait)
	if m.Files == nil {
		return ownMigrations()
	}
	return readMigrations(m.Files)
}

func readMigrations(files fs.FS) ([]migration, error) {
	paths, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("look for migrations: %w", err)
	}
	var out []migration
	for _, path := range paths {
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", path, err)
		}
		f, err := ddl.Parse(path, string(text))
		if err != nil {
			return nil, fmt.Errorf("read migration %w", err)
		}
		sum := sha256.Sum256(text)
		out = append(out, migration{f, hex.EncodeToString(sum[:])})
	}
	slices.SortFunc(out, func(a, b migration) int { return cmp.Compare(a.Version, b.Version) })
	return out, nil
}

// connect returns a pool whose sessions wait for locks no longer than they should, and for the rest as long as it
// takes.
func (m *Migrator) connect(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	cfg := pool.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = migrateConns, 0, 0
	if pooled(cfg.ConnConfig.RuntimeParams) {
		return connect(ctx, cfg) // to read only: others get the session next
	}
	maps.Copy(cfg.ConnConfig.RuntimeParams, map[string]string{
		"application_name": migratorName, "lock_timeout": milliseconds(m.LockTimeout), "statement_timeout": "0",
		"idle_in_transaction_session_timeout": "0",
		// What checks all rows should not go by an index, as statements of the service do.
		"enable_seqscan": "on", "enable_hashjoin": "on", "enable_mergejoin": "on",
	})
	return connect(ctx, cfg)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// lockMigrations waits until no other process migrates. It asks again and again: a session that waits in Postgres has
// a snapshot, and the other one would wait for that before it ends to build an index.
func lockMigrations(ctx context.Context, conn *pgxpool.Conn) error {
	for logged := false; ; logged = true {
		var got bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(migrateLock)).Scan(&got); err != nil {
			return fmt.Errorf("look whether another process migrates: %w", err)
		}
		if got {
			return nil
		}
		if !logged {
			slog.InfoContext(ctx, "another process migrates the database: this one goes on when that has ended")
		}
		if err := sleep(ctx, lookForLock); err != nil {
			return fmt.Errorf("wait for another migration: %w", err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// ensureSchema asks before it creates, so that a role without the right to create may run against a migrated database.
func ensureSchema(ctx context.Context, db DB, name string) error {
	var exists bool
	err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", name).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for schema %s: %w", name, err)
	}
	if exists {
		return nil
	}
	if _, err := db.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		return fmt.Errorf("create schema %s (the database role needs CREATE on the database): %w", name, err)
	}
	return nil
}

func riverMigrator(pool *pgxpool.Pool) (*rivermigrate.Migrator[pgx.Tx], error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: RiverSchema})
	if err != nil {
		return nil, fmt.Errorf("read the migrations of schema river: %w", err)
	}
	return migrator, nil
}

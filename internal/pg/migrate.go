package pg

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"flowlane/schema"
)

const (
	// RiverSchema is the schema of River's tables.
	RiverSchema = "river"
	// versionTable is where goose keeps what was applied.
	versionTable = "flow.schema_version"
	// migrateLock is the advisory lock that lets one process migrate while the others wait.
	migrateLock = 0x666c6f77_6c616e65
	// migrateConns: the lock, goose, River, and one to spare.
	migrateConns = 4
)

// Migration is one step of the schema and whether the database has it.
type Migration struct {
	// Line is "flow" for our own migrations and "river" for those of the job queue.
	Line    string
	Version int64
	Name    string
	Applied bool
	// Differs is true for one of flow that is applied, but was another when it was: the program expects other tables.
	Differs bool
	// AppliedAt is zero where it is not known or not applied.
	AppliedAt time.Time
}

// SchemaDiffersError is what becomes of a database that another version of the program made in another way.
type SchemaDiffersError struct {
	// Name is the first migration that differs.
	Name string
}

func (e SchemaDiffersError) Error() string {
	return "another version of Flowlane made the tables of this database (" + e.Name +
		" was another file then): start that version, or name an empty database"
}

// Differing returns a SchemaDiffersError for the first migration that differs; nil for none.
func Differing(all []Migration) error {
	for _, m := range all {
		if m.Differs {
			return SchemaDiffersError{m.Name}
		}
	}
	return nil
}

// Migrate brings the database of pool up to date: the schema flow with the views of ops, then River's, then, as far as the user
// may, the role that reads those views (OpsAdvice tells). It may be called by several processes at once, on an empty database
// too. It uses connections of its own, so that a small pool does not block it. Error: SchemaDiffersError, before anything is changed.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	own, err := migrationPool(ctx, pool)
	if err != nil {
		return err
	}
	defer own.Close()
	lock, err := own.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to migrate: %w", err)
	}
	defer lock.Release()
	if _, err := lock.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(migrateLock)); err != nil {
		return fmt.Errorf("wait for another migration: %w", err)
	}
	defer func() {
		_, _ = lock.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(migrateLock))
	}()

	all, err := flowStatus(ctx, own)
	if err != nil {
		return err
	}
	if err := Differing(all); err != nil {
		return err
	}
	// The version table lives in the schema that the first migration creates, so the schema has to come before it.
	for _, name := range []string{"flow", RiverSchema} {
		if err := ensureSchema(ctx, lock, name); err != nil {
			return err
		}
	}
	if err := migrateFlow(ctx, own); err != nil {
		return err
	}
	if err := migrateRiver(ctx, own); err != nil {
		return err
	}
	return grantOps(ctx, lock, OpsRole)
}

// ensureSchema asks before it creates, so that a role without the right to create may run against a migrated database.
func ensureSchema(ctx context.Context, db DB, name string) error {
	var exists bool
	if err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", name).Scan(&exists); err != nil {
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

func migrateFlow(ctx context.Context, pool *pgxpool.Pool) error {
	provider, closeDB, err := gooseProvider(pool)
	if err != nil {
		return err
	}
	defer closeDB()
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate schema flow: %w", err)
	}
	for _, source := range provider.ListSources() {
		sum, err := digest(source.Path)
		if err != nil {
			return err
		}
		_, err = pool.Exec(ctx, "UPDATE "+versionTable+" SET content_sha256 = $2 WHERE version_id = $1 AND content_sha256 IS NULL", source.Version, sum)
		if err != nil {
			return fmt.Errorf("note the digest of %s: %w", source.Path, err)
		}
	}
	return nil
}

// digest is that of a migration's file, in hex.
func digest(path string) (string, error) {
	text, err := schema.FS.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read migration %s: %w", path, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

func migrateRiver(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: RiverSchema})
	if err != nil {
		return fmt.Errorf("prepare the migration of schema river: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate schema river: %w", err)
	}
	return nil
}

// Status lists every migration that this program knows, oldest first, those of flow before those of River.
func Status(ctx context.Context, pool *pgxpool.Pool) ([]Migration, error) {
	own, err := migrationPool(ctx, pool)
	if err != nil {
		return nil, err
	}
	defer own.Close()
	flow, err := flowStatus(ctx, own)
	if err != nil {
		return nil, err
	}
	river, err := riverStatus(ctx, own)
	if err != nil {
		return nil, err
	}
	return append(flow, river...), nil
}

// flowStatus reads the version table itself: goose's own status would create it.
func flowStatus(ctx context.Context, pool *pgxpool.Pool) ([]Migration, error) {
	provider, closeDB, err := gooseProvider(pool)
	if err != nil {
		return nil, err
	}
	defer closeDB()
	applied, err := appliedFlow(ctx, pool)
	if err != nil {
		return nil, err
	}
	var out []Migration
	for _, source := range provider.ListSources() {
		m := Migration{Line: "flow", Version: source.Version, Name: source.Path}
		if row, ok := applied[source.Version]; ok {
			sum, err := digest(source.Path)
			if err != nil {
				return nil, err
			}
			m.Applied, m.AppliedAt, m.Differs = true, row.at, row.sum != nil && *row.sum != sum
		}
		out = append(out, m)
	}
	return out, nil
}

// appliedRow is when a migration was applied, and the digest of its file then. That is nil where a program ended between the two,
// and empty where one applied it that knew no digests.
type appliedRow struct {
	at  time.Time
	sum *string
}

func appliedFlow(ctx context.Context, pool *pgxpool.Pool) (map[int64]appliedRow, error) {
	applied := map[int64]appliedRow{}
	var exists bool
	if err := pool.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", versionTable).Scan(&exists); err != nil {
		return nil, fmt.Errorf("look for %s: %w", versionTable, err)
	}
	if !exists {
		return applied, nil
	}
	rows, err := pool.Query(ctx, `SELECT v.version_id, v.tstamp::timestamptz,
		CASE WHEN to_jsonb(v) ? 'content_sha256' THEN to_jsonb(v) ->> 'content_sha256' ELSE '' END FROM `+versionTable+" v WHERE v.is_applied")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", versionTable, err)
	}
	var version int64
	var row appliedRow
	_, err = pgx.ForEachRow(rows, []any{&version, &row.at, &row.sum}, func() error {
		applied[version] = row
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", versionTable, err)
	}
	return applied, nil
}

func riverStatus(ctx context.Context, pool *pgxpool.Pool) ([]Migration, error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: RiverSchema})
	if err != nil {
		return nil, fmt.Errorf("prepare the status of schema river: %w", err)
	}
	existing, err := migrator.ExistingVersions(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the versions of schema river: %w", err)
	}
	applied := map[int]bool{}
	for _, m := range existing {
		applied[m.Version] = true
	}
	var out []Migration
	for _, m := range migrator.AllVersions() {
		out = append(out, Migration{Line: RiverSchema, Version: int64(m.Version), Name: m.Name, Applied: applied[m.Version]})
	}
	return out, nil
}

func gooseProvider(pool *pgxpool.Pool) (*goose.Provider, func(), error) {
	db := stdlib.OpenDBFromPool(pool)
	db.SetMaxIdleConns(0)
	provider, err := goose.NewProvider(goose.DialectPostgres, db, schema.FS, goose.WithTableName(versionTable))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read the migrations of schema flow: %w", err), closeSQL(db))
	}
	return provider, func() { _ = closeSQL(db) }, nil
}

func closeSQL(db *sql.DB) error {
	if err := db.Close(); err != nil {
		return fmt.Errorf("close the migration connection: %w", err)
	}
	return nil
}

func migrationPool(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	cfg := pool.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = migrateConns, 0, 0
	// A long migration leaves the connection that holds the lock idle, and a DDL statement may take its time.
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	return connect(ctx, cfg)
}

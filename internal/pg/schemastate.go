package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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

// SchemaOlderError is what becomes of a database that lacks migrations which the program needs.
type SchemaOlderError struct{ Missing int }

func (e SchemaOlderError) Error() string {
	return fmt.Sprintf("the database lacks %d migrations: run `flowlane migrate up` first", e.Missing)
}

// SchemaNewerError is what becomes of a program on a database in which it would break something: a newer one has
// migrated it.
type SchemaNewerError struct {
	// Knows is the newest migration of flow that the program knows, Needs the one that it must know, and Has the
	// newest that is applied.
	Knows, Needs, Has int64
}

func (e SchemaNewerError) Error() string {
	return fmt.Sprintf("the database is too new for this version of Flowlane: it has migration %d and takes programs "+
		"that know %d, and this one knows %d: start the version that migrated it, or a newer one", e.Has, e.Needs,
		e.Knows)
}

// schemaState is how far a database is, as a program sees it.
type schemaState struct {
	// flow and river are the migrations that the program knows.
	flow, river []Migration
	newer       SchemaNewerError
}

// usable says whether this program may migrate the database. Errors: SchemaDiffersError, SchemaNewerError.
func (s *schemaState) usable() error {
	for _, m := range s.flow {
		if m.Differs {
			return SchemaDiffersError{m.Name}
		}
	}
	if s.newer.Needs > s.newer.Knows {
		return s.newer
	}
	return nil
}

// CheckSchema says whether this program may run on the database. Errors: SchemaDiffersError, SchemaNewerError,
// SchemaOlderError.
func CheckSchema(ctx context.Context, db DB) error {
	state, err := Migrator{}.read(ctx, db)
	if err == nil {
		err = state.usable()
	}
	if err != nil {
		return err
	}
	missing := 0
	for _, m := range append(state.flow, state.river...) {
		if !m.Applied {
			missing++
		}
	}
	if missing > 0 {
		return SchemaOlderError{missing}
	}
	return nil
}

// CheckOutdated says whether a migration was applied since CheckSchema after which this program must not run: a query
// of little work. Error: SchemaNewerError.
func CheckOutdated(ctx context.Context, db DB) error {
	files, err := ownMigrations()
	if err != nil {
		return err
	}
	newer := SchemaNewerError{Knows: files[len(files)-1].Version}
	err = db.QueryRow(ctx, "SELECT max(version_id), max(least_program) FROM "+versionTable).Scan(&newer.Has,
		&newer.Needs)
	if err != nil {
		return fmt.Errorf("read %s: %w", versionTable, err)
	}
	if newer.Needs > newer.Knows {
		return newer
	}
	return nil
}

// Status is that of the zero Migrator.
func Status(ctx context.Context, pool *pgxpool.Pool) ([]Migration, error) {
	return Migrator{}.Status(ctx, pool)
}

// Status lists every migration that this program knows, oldest first, those of flow before those of River.
func (m Migrator) Status(ctx context.Context, db DB) ([]Migration, error) {
	state, err := m.read(ctx, db)
	if err != nil {
		return nil, err
	}
	return append(state.flow, state.river...), nil
}

func (m Migrator) read(ctx context.Context, db DB) (*schemaState, error) {
	files, err := m.migrations()
	if err != nil {
		return nil, err
	}
	return readSchema(ctx, db, files)
}

func readSchema(ctx context.Context, db DB, files []migration) (*schemaState, error) {
	s := &schemaState{}
	applied, err := appliedFlow(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		m := Migration{Line: "flow", Version: f.Version, Name: f.Name}
		if row, ok := applied[f.Version]; ok {
			m.Applied, m.Differs = true, row.Sum != f.sum
			if row.At != nil {
				m.AppliedAt = *row.At
			}
		}
		s.flow = append(s.flow, m)
		s.newer.Knows = f.Version
	}
	for version, row := range applied {
		s.newer.Has, s.newer.Needs = max(s.newer.Has, version), max(s.newer.Needs, row.Least)
	}
	s.river, err = riverStatus(ctx, db)
	return s, err
}

// appliedRow is when a migration was applied, the digest of its file then, and the least program that it takes. Of a
// row that an early program wrote nothing is known but its version.
type appliedRow struct {
	Version int64
	At      *time.Time
	Sum     string
	Least   int64
}

func appliedFlow(ctx context.Context, db DB) (map[int64]appliedRow, error) {
	applied := map[int64]appliedRow{}
	if there, err := exists(ctx, db, versionTable); err != nil || !there {
		return applied, err
	}
	rows, err := db.Query(ctx, `
SELECT j.version_id, j.applied_at, coalesce(j.content_sha256, ''), coalesce(j.least_program, 0)
FROM `+versionTable+` v CROSS JOIN LATERAL jsonb_to_record(to_jsonb(v))
    AS j(version_id bigint, applied_at timestamptz, content_sha256 text, least_program bigint)`)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", versionTable, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[appliedRow])
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", versionTable, err)
	}
	for _, row := range all {
		applied[row.Version] = row
	}
	return applied, nil
}

func exists(ctx context.Context, db DB, table string) (there bool, err error) {
	if err = db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&there); err != nil {
		err = fmt.Errorf("look for %s: %w", table, err)
	}
	return there, err
}

// riverStatus reads River's table itself: River's own status fails on a database that a newer River has migrated.
func riverStatus(ctx context.Context, db DB) ([]Migration, error) {
	const table = RiverSchema + ".river_migration"
	applied := map[int64]bool{}
	there, err := exists(ctx, db, table)
	if err != nil {
		return nil, err
	}
	if there {
		rows, err := db.Query(ctx, "SELECT version FROM "+table)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", table, err)
		}
		versions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", table, err)
		}
		for _, v := range versions {
			applied[v] = true
		}
	}
	migrator, err := riverMigrator(nil)
	if err != nil {
		return nil, err
	}
	var out []Migration
	for _, m := range migrator.AllVersions() {
		version := int64(m.Version)
		out = append(out, Migration{Line: RiverSchema, Version: version, Name: m.Name, Applied: applied[version]})
	}
	return out, nil
}

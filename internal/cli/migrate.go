package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

type migrateCommand struct {
	Up     migrateUp     `cmd:"" help:"Apply every migration that the database lacks."`
	Status migrateStatus `cmd:"" help:"List the migrations and which are applied."`
	Plan   migratePlan   `cmd:"" help:"Print what the database lacks, and what each statement will lock, read and rewrite. Changes nothing."`
}

type migrateUp struct {
	database
	output

	LockTimeout time.Duration `env:"FLOWLANE_LOCK_TIMEOUT" default:"3s" help:"How long a statement waits for a lock, and others behind it, before it is tried again."`
	LockWait    time.Duration `env:"FLOWLANE_LOCK_WAIT" default:"10m" help:"How long a migration is tried again that does not get its locks."`
	Cell        *int          `env:"FLOWLANE_CELL" placeholder:"N" help:"Make the database the cell of this number, 0 to 4095, by which ids and API keys made in it tell it apart. Only before it has organizations. Default: it stays what it is, at first 0."`
	Join        string        `name:"join-database-url" env:"FLOWLANE_JOIN_DATABASE_URL" help:"Postgres address of another cell of the installation, whose root key this one gets, so that organizations can be moved between them."`
	RuntimeRole string        `env:"FLOWLANE_RUNTIME_ROLE" placeholder:"NAME" help:"Make this role, where there is none, and give it what a running service needs: the rows of all tables, and no right to change tables, clock or audit log. Services connect as a member of it."`
}

// Run applies what is missing.
func (c *migrateUp) Run(ctx context.Context, p *process) error {
	pool, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	before, err := pg.Status(ctx, pool)
	if err != nil {
		return fmt.Errorf("read the migrations of the database: %w", err)
	}
	migrator := pg.Migrator{LockTimeout: c.LockTimeout, LockWait: c.LockWait}
	if err := migrator.Up(ctx, pool); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	if c.Cell != nil {
		if err := pg.SetCell(ctx, pool, *c.Cell); err != nil {
			return fmt.Errorf("--cell: %w", err)
		}
	}
	if c.Join != "" {
		if err := c.join(ctx, pool); err != nil {
			return fmt.Errorf("--join-database-url: %w", err)
		}
	}
	if c.RuntimeRole != "" {
		if err := pg.GrantRuntime(ctx, pool, c.RuntimeRole); err != nil {
			return fmt.Errorf("--runtime-role: %w", err)
		}
	}
	advice, err := pg.OpsAdvice(ctx, pool)
	if err != nil {
		return fmt.Errorf("look who may read the views of the database: %w", err)
	}
	if advice != "" {
		fmt.Fprintln(p.stderr, advice)
	}
	if advice, err = pg.RowSecurityAdvice(ctx, pool); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	if advice != "" {
		fmt.Fprintln(p.stderr, advice)
	}
	facts := struct {
		Applied int `json:"applied"`
		Total   int `json:"total"`
	}{Total: len(before)}
	for _, m := range before {
		if !m.Applied {
			facts.Applied++
		}
	}
	return c.print(p, facts, func(w io.Writer) {
		if facts.Applied == 0 {
			fmt.Fprintln(w, "The database is up to date.")
			return
		}
		fmt.Fprintf(w, "Applied %d of %d migrations; the database is up to date.\n", facts.Applied, facts.Total)
	})
}

// join takes over the root key of another cell, unless the database has one. It is encrypted there, and stays so.
func (c *migrateUp) join(ctx context.Context, pool *pgxpool.Pool) error {
	other, err := pg.Open(ctx, c.Join, pg.Options{MaxConns: 1})
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	defer other.Close()
	q := db.New()
	root, err := q.VaultRootGet(ctx, other)
	if pg.IsNoRows(err) {
		return errors.New("the cell has no root key yet: start a process there first")
	}
	if err == nil {
		err = q.VaultRootAdd(ctx, pool, db.VaultRootAddParams(root))
	}
	if err != nil {
		return fmt.Errorf("copy the root key: %w", err)
	}
	return nil
}

type migrateStatus struct {
	database
	output
}

type migrationFacts struct {
	Line      string     `json:"line"`
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	Applied   bool       `json:"applied"`
	Differs   bool       `json:"differs"`
	AppliedAt *time.Time `json:"applied_at"`
}

// Run lists the migrations.
func (c *migrateStatus) Run(ctx context.Context, p *process) error {
	pool, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	all, err := pg.Status(ctx, pool)
	if err != nil {
		return fmt.Errorf("read the migrations of the database: %w", err)
	}
	facts := make([]migrationFacts, len(all))
	for i, m := range all {
		facts[i] = migrationFacts{Line: m.Line, Version: m.Version, Name: m.Name, Applied: m.Applied,
			Differs: m.Differs}
		if !m.AppliedAt.IsZero() {
			facts[i].AppliedAt = &m.AppliedAt
		}
	}
	return c.print(p, facts, func(w io.Writer) {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		defer table.Flush()
		for _, m := range facts {
			state := "pending"
			if m.Applied {
				state = "applied"
			}
			if m.Differs {
				state = "applied by another version of Flowlane, with other content"
			}
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", m.Line, m.Version, m.Name, state)
		}
	})
}

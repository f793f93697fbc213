package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"flowlane/internal/pg"
	"flowlane/schema"
)

const (
	templatePrefix = "flowlane_template_"
	templateLock   = 0x7067_7465_7374
	// runtimeUser is by whom services connect.
	runtimeUser = databasePrefix + "service"
)

// template returns the name of the database that tests are cloned from.
func (s *server) template(ctx context.Context) (string, error) {
	s.once.Do(func() { s.name, s.templateErr = s.ensureTemplate(ctx) })
	return s.name, s.templateErr
}

// ensureTemplate makes the template unless another process has. One that is complete is marked as a template; any other
// of that name is what a killed process left.
func (s *server) ensureTemplate(ctx context.Context) (string, error) {
	name, err := templateName()
	if err != nil {
		return "", err
	}
	conn, err := s.admin.Acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", templateLock); err != nil {
		return "", fmt.Errorf("wait for another template: %w", err)
	}
	defer func() {
		_, _ = conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", templateLock)
	}()
	var complete bool
	const ask = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)"
	if err := conn.QueryRow(ctx, ask, name).Scan(&complete); err != nil || complete {
		return name, err //nolint:wrapcheck // wrapped by the caller
	}
	if err := dropOldTemplates(ctx, conn.Conn()); err != nil {
		return "", err
	}
	return name, s.buildTemplate(ctx, conn.Conn(), name)
}

func (s *server) buildTemplate(ctx context.Context, conn *pgx.Conn, name string) error {
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)", "CREATE DATABASE " + name +
		" TEMPLATE template0"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	pool, err := pg.Open(ctx, withDatabase(s.dsn, name), pg.Options{MaxConns: 1})
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	err = prepare(ctx, pool, passwordOf(s.dsn))
	pool.Close()
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "ALTER DATABASE "+name+" IS_TEMPLATE true"); err != nil {
		return fmt.Errorf("mark the template: %w", err)
	}
	return nil
}

// prepare migrates a database, and lets the user of services in, whom the server makes with its first template.
func prepare(ctx context.Context, pool *pgxpool.Pool, password string) error {
	if err := pg.Migrate(ctx, pool); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	if err := pg.GrantRuntime(ctx, pool, runtimeUser); err != nil {
		return err //nolint:wrapcheck // says everything
	}
	login := fmt.Sprintf("ALTER ROLE %s LOGIN PASSWORD '%s'", runtimeUser, strings.ReplaceAll(password, "'", "''"))
	if _, err := pool.Exec(ctx, login); err != nil {
		return fmt.Errorf("let the user of services in: %w", err)
	}
	return nil
}

// passwordOf returns the password in an address, which the user of services has as well; empty where none is needed.
func passwordOf(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return ""
	}
	password, _ := u.User.Password()
	return password
}

// dropOldTemplates removes the templates of earlier migrations that are some hours old: younger ones may be in use by
// processes that were built before.
func dropOldTemplates(ctx context.Context, conn *pgx.Conn) error {
	const old = `SELECT datname FROM pg_database WHERE datistemplate AND datname LIKE $1
AND (pg_stat_file('base/' || oid || '/PG_VERSION', true)).modification < now() - interval '3 hours'`
	rows, err := conn.Query(ctx, old, templatePrefix+"%")
	if err != nil {
		return fmt.Errorf("list old templates: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil //nolint:nilerr // reading file times takes a right that a server of the user's own may not grant
	}
	for _, name := range names {
		if _, err := conn.Exec(ctx, "ALTER DATABASE "+name+" IS_TEMPLATE false"); err == nil {
			_, _ = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name)
		}
	}
	return nil
}

// templateName depends on everything that the migrations consist of.
func templateName() (string, error) {
	sum := sha256.New()
	files, err := fs.Glob(schema.FS, "*.sql")
	if err != nil {
		return "", fmt.Errorf("list the migrations: %w", err)
	}
	for _, file := range files {
		content, err := fs.ReadFile(schema.FS, file)
		if err != nil {
			return "", fmt.Errorf("read a migration: %w", err)
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", file, len(content), content)
	}
	for _, grant := range pg.RuntimeGrants() {
		_, _ = fmt.Fprintln(sum, grant)
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(nil), &rivermigrate.Config{Schema: pg.RiverSchema})
	if err != nil {
		return "", fmt.Errorf("read River's migrations: %w", err)
	}
	for _, m := range migrator.AllVersions() {
		_, _ = fmt.Fprintf(sum, "river %d\n%s", m.Version, m.SQLUp)
	}
	return templatePrefix + hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

func databases(ctx context.Context, pool *pgxpool.Pool, prefix string) ([]string, error) {
	rows, err := pool.Query(ctx, "SELECT datname FROM pg_database WHERE datname LIKE $1", prefix+"%")
	if err != nil {
		return nil, fmt.Errorf("list databases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list databases: %w", err)
	}
	return names, nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// psqlCommand is the database in psql. Its address goes there by the environment: the arguments of a process are there
// for all to read, and a password stands in it.
type psqlCommand struct {
	database

	Args []string `arg:"" optional:"" passthrough:"" help:"Arguments of psql, after --."`
}

// Run becomes psql.
func (c *psqlCommand) Run(_ context.Context, _ *process) error {
	dsn, err := c.setting(c.DatabaseURL, varDatabase)
	if err != nil {
		return err
	}
	if dsn == "" {
		return fmt.Errorf("no database: set %s, or start a development server here with `flowlane dev`", varDatabase)
	}
	cfg, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("%s is no address of a database", varDatabase)
	}
	path, err := exec.LookPath("psql")
	if err != nil {
		return errors.New("psql is not installed: on Debian it is in the package postgresql-client")
	}
	env := append(os.Environ(), "PGHOST="+cfg.Host, "PGPORT="+strconv.Itoa(int(cfg.Port)), "PGUSER="+cfg.User,
		"PGPASSWORD="+cfg.Password, "PGDATABASE="+cfg.Database)
	switch {
	case strings.Contains(dsn, "sslmode="): // as it is written there
		_, mode, _ := strings.Cut(dsn, "sslmode=")
		env = append(env, "PGSSLMODE="+strings.FieldsFunc(mode, func(r rune) bool { return r == '&' || r == ' ' })[0])
	case cfg.TLSConfig == nil:
		env = append(env, "PGSSLMODE=disable")
	}
	args := c.Args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	//nolint:gosec,wrapcheck // that is what was asked for
	return syscall.Exec(path, append([]string{"psql"}, args...), env)
}

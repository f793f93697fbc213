package app_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/internal/pg/devpg"
	"flowlane/test/pgtest"
)

// losing is a database that loses commits: those after point, once it is restored, at the address that restore returns.
type losing struct {
	dsn     string
	point   func(*testing.T)
	restore func(*testing.T) (dsn string)
}

// losses are the ways in which a database may lose commits.
var losses = map[string]func(*testing.T) losing{"dump": losesToDump, "point in time": losesToPoint,
	"standby": losesToStandby}

func losesToDump(t *testing.T) losing {
	t.Helper()
	dsn, _ := pgtest.NewDatabase(t)
	dump := filepath.Join(t.TempDir(), "dump")
	return losing{dsn, func(t *testing.T) {
		t.Helper()
		tool(t, "pg_dump", "--format=custom", "--file="+dump, dsn)
	}, func(t *testing.T) string {
		t.Helper()
		elsewhere, _ := pgtest.NewEmpty(t)
		tool(t, "pg_restore", "--dbname="+elsewhere, dump)
		return elsewhere
	}}
}

// losesToPoint is a base backup that is rolled forward by the archived log, up to a point.
func losesToPoint(t *testing.T) losing {
	t.Helper()
	primary := newServer(t)
	archive := primary.reachable(t)
	primary.exec(t, "ALTER SYSTEM SET archive_mode = on", "ALTER SYSTEM SET archive_command = 'cp %p "+archive+"/%f'")
	primary.restart(t)
	backup := primary.backup(t)
	return losing{primary.dsn(), func(t *testing.T) {
		t.Helper()
		primary.exec(t, "SELECT pg_create_restore_point('lost from here on')")
	}, func(t *testing.T) string {
		t.Helper()
		var last string
		require.NoError(t, primary.pool.QueryRow(t.Context(), "SELECT pg_walfile_name(pg_switch_wal())").Scan(&last))
		require.Eventually(t, func() bool {
			var at *string
			err := primary.pool.QueryRow(t.Context(), "SELECT last_archived_wal FROM pg_stat_archiver").Scan(&at)
			return err == nil && at != nil && *at >= last
		}, 20*time.Second, 20*time.Millisecond)
		primary.end(t, true)
		backup.write(t, "recovery.signal", "")
		backup.set(t, "archive_mode = off", "restore_command = 'cp "+archive+"/%f %p'",
			"recovery_target_name = 'lost from here on'",
			"recovery_target_action = promote")
		backup.start(t)
		backup.awaitPrimary(t)
		return backup.dsn()
	}}
}

// losesToStandby is a standby that the last commits did not reach, and that is promoted.
func losesToStandby(t *testing.T) losing {
	t.Helper()
	primary := newServer(t)
	standby := primary.backup(t, "--write-recovery-conf")
	standby.start(t)
	return losing{primary.dsn(), func(t *testing.T) {
		t.Helper()
		var at string
		require.NoError(t, primary.pool.QueryRow(t.Context(), "SELECT pg_current_wal_lsn()").Scan(&at))
		require.Eventually(t, func() bool {
			var has bool
			err := standby.pool.QueryRow(t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", at).Scan(&has)
			return err == nil && has
		}, 20*time.Second, 20*time.Millisecond)
		standby.exec(t, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
		require.Eventually(t, func() bool {
			var gone bool
			err := standby.pool.QueryRow(t.Context(), "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)").Scan(
				&gone)
			return err == nil && gone
		}, 20*time.Second, 20*time.Millisecond)
	}, func(t *testing.T) string {
		t.Helper()
		primary.end(t, false)
		standby.exec(t, "SELECT pg_promote()")
		standby.awaitPrimary(t)
		return standby.dsn()
	}}
}

// server is a Postgres of the test's own.
type server struct {
	// files has the data, under the name that devpg gives it.
	files, data string
	running     *devpg.Server
	pool        *pgxpool.Pool
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{files: t.TempDir()}
	s.start(t)
	require.NoError(t, s.pool.QueryRow(t.Context(), "SHOW data_directory").Scan(&s.data))
	return s
}

func (s *server) dsn() string { return s.running.DSN() }

func (s *server) start(t *testing.T) {
	t.Helper()
	var err error
	s.running, err = devpg.Start(t.Context(), devpg.Options{DataDir: s.files})
	require.NoError(t, err)
	s.pool, err = pg.Open(t.Context(), s.dsn(), pg.Options{MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(func() { s.end(t, false) })
}

// end stops the server: in order, or at once.
func (s *server) end(t *testing.T, inOrder bool) {
	t.Helper()
	if s.running == nil {
		return
	}
	s.pool.Close()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	if !inOrder {
		cancel()
	}
	require.NoError(t, s.running.Stop(ctx))
	s.running = nil
}

func (s *server) restart(t *testing.T) {
	t.Helper()
	s.end(t, true)
	s.start(t)
}

func (s *server) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := s.pool.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
}

// awaitPrimary waits until the server takes writes.
func (s *server) awaitPrimary(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		var is bool
		err := s.pool.QueryRow(t.Context(), "SELECT NOT pg_is_in_recovery()").Scan(&is)
		return err == nil && is
	}, time.Minute, 20*time.Millisecond)
}

// backup makes a base backup, as a server that is not started.
func (s *server) backup(t *testing.T, args ...string) *server {
	t.Helper()
	out := &server{files: t.TempDir(), data: filepath.Join(s.reachable(t), "data")}
	tool(t, "pg_basebackup", append(args, "--dbname="+s.dsn(), "--pgdata="+out.data, "--checkpoint=fast")...)
	s.give(t, out.data)
	name := filepath.Base(s.data)
	require.NoError(t, os.Symlink(out.data, filepath.Join(out.files, name)))
	password, err := os.ReadFile(filepath.Join(s.files, name+".password"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(out.files, name+".password"), password, 0o600))
	return out
}

// set adds lines to the configuration of a server that does not run.
func (s *server) set(t *testing.T, lines ...string) {
	t.Helper()
	const name = "postgresql.auto.conf"
	had, err := os.ReadFile(filepath.Join(s.data, name))
	require.NoError(t, err)
	s.write(t, name, string(had)+strings.Join(lines, "\n")+"\n")
}

func (s *server) write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.data, name), []byte(text), 0o600))
	s.give(t, s.data)
}

// reachable makes a folder for the user of the server.
func (s *server) reachable(t *testing.T) string {
	t.Helper()
	//nolint:usetesting // the folders above that of a test are closed to other users
	dir, err := os.MkdirTemp("", "flowlane-restored-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.give(t, dir)
	return dir
}

// give hands a folder with all that is in it to the user of the server.
func (s *server) give(t *testing.T, dir string) {
	t.Helper()
	var of syscall.Stat_t
	require.NoError(t, syscall.Stat(s.owner(), &of))
	tool(t, "chown", "-R", fmt.Sprintf("%d:%d", of.Uid, of.Gid), dir)
}

// owner is a folder of the user of the server.
func (s *server) owner() string { return s.data }

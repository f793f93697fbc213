package pg_test

import (
	"context"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/internal/pg/devpg"
	"flowlane/test/pgtest"
)

// dump writes a dump of a database to a file, in Postgres's own format.
func dump(t *testing.T, dsn string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dump")
	tool(t, "pg_dump", "--format=custom", "--file="+file, dsn)
	return file
}

func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := osexec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}

func moved(t *testing.T, db pg.DB) string {
	t.Helper()
	why, err := pg.Moved(t.Context(), db, false)
	require.NoError(t, err)
	return why
}

// TestMark_Together: of processes that start together on a new database one writes down which it is. A second row would
// say that somebody has confirmed a restore, and would be written without anybody who looked.
func TestMark_Together(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	const processes = 8
	for range 5 {
		errs := make([]error, processes)
		var group sync.WaitGroup
		for i := range processes {
			group.Go(func() { errs[i] = pg.Mark(t.Context(), pool) })
		}
		group.Wait()
		require.NoError(t, errors.Join(errs...))
		var rows int
		require.NoError(t, pool.QueryRow(t.Context(), "WITH gone AS (DELETE FROM flow.identity RETURNING 1) "+
			"SELECT count(*) FROM gone").Scan(&rows))
		require.Equal(t, 1, rows)
	}
}

// TestMoved: a database is the one on which Flowlane ran last until it comes out of a dump, is copied, or is declared
// to be restored; and again once that is confirmed. What vacuum does to its rows is not taken for a restore.
func TestMoved(t *testing.T) {
	t.Parallel()
	dsn, pool := pgtest.NewDatabase(t)
	assert.Empty(t, moved(t, pool), "nothing has run on it")
	require.NoError(t, pg.Mark(t.Context(), pool))
	require.NoError(t, pg.Mark(t.Context(), pool))
	assert.Empty(t, moved(t, pool))
	file := dump(t, dsn)
	tool(t, "pg_restore", "--clean", "--if-exists", "--dbname="+dsn, file)
	assert.Contains(t, moved(t, pool), "dump", "it was restored in its place")

	elsewhere, other := pgtest.NewEmpty(t)
	tool(t, "pg_restore", "--dbname="+elsewhere, file)
	assert.Contains(t, moved(t, other), "a copy of another database")
	since := time.Now().Add(-time.Hour)
	require.NoError(t, pg.Confirm(t.Context(), other, &since))
	assert.Empty(t, moved(t, other))
	for _, sql := range []string{"VACUUM (FREEZE) flow.identity", "VACUUM FULL flow.identity",
		"CLUSTER flow.identity USING identity_pkey"} {
		_, err := other.Exec(t.Context(), sql)
		require.NoError(t, err)
		assert.Empty(t, moved(t, other), sql)
	}
	require.NoError(t, pg.Declare(t.Context(), other))
	assert.Contains(t, moved(t, other), "declared")
	require.NoError(t, pg.Confirm(t.Context(), other, nil))
	assert.Empty(t, moved(t, other))
}

// TestMoved_Copy: a copy that the server makes of the files of a database is not that database.
func TestMoved_Copy(t *testing.T) {
	t.Parallel()
	dsn, pool := pgtest.NewDatabase(t)
	require.NoError(t, pg.Mark(t.Context(), pool))
	pool.Reset()
	copied, admin := pgtest.NewCopy(t, dsn)
	assert.Contains(t, moved(t, admin), "a copy of another database", copied)
}

// TestMoved_Timeline: a server that was restored to a point of its log, or promoted, begins another timeline, and may
// have forgotten what came after.
func TestMoved_Timeline(t *testing.T) {
	t.Parallel()
	options := devpg.Options{DataDir: t.TempDir()}
	server, err := devpg.Start(t.Context(), options)
	require.NoError(t, err)
	pool, err := pg.Open(t.Context(), server.DSN(), pg.Options{MaxConns: 1})
	require.NoError(t, err)
	require.NoError(t, pg.Migrate(t.Context(), pool))
	require.NoError(t, pg.Mark(t.Context(), pool))
	var data string
	require.NoError(t, pool.QueryRow(t.Context(), "SHOW data_directory").Scan(&data))
	_, err = pool.Exec(t.Context(), "ALTER SYSTEM SET restore_command = 'false'")
	require.NoError(t, err)
	pool.Close()
	require.NoError(t, server.Stop(t.Context()))
	server, pool = restart(t, options)
	assert.Empty(t, moved(t, pool), "a restart is no restore")
	pool.Close()
	require.NoError(t, server.Stop(t.Context()))

	require.NoError(t, os.WriteFile(filepath.Join(data, "recovery.signal"), nil, 0o644))
	server, pool = restart(t, options)
	defer func() { require.NoError(t, server.Stop(context.WithoutCancel(t.Context()))) }()
	defer pool.Close()
	require.NotEmpty(t, moved(t, pool), "a standby, until its log is read")
	require.Eventually(t, func() bool { return strings.Contains(moved(t, pool), "point in time") }, time.Minute,
		20*time.Millisecond)
	trusted, err := pg.Moved(t.Context(), pool, true)
	require.NoError(t, err)
	assert.Empty(t, trusted)
	require.NoError(t, pg.Confirm(t.Context(), pool, nil))
	assert.Empty(t, moved(t, pool))
}

func restart(t *testing.T, options devpg.Options) (*devpg.Server, *pgxpool.Pool) {
	t.Helper()
	server, err := devpg.Start(t.Context(), options)
	require.NoError(t, err)
	pool, err := pg.Open(t.Context(), server.DSN(), pg.Options{MaxConns: 1})
	require.NoError(t, err)
	return server, pool
}

// TestOpen_Moved: connections to a database that was restored read and write nothing, and say why; those that are made
// once it is confirmed write.
func TestOpen_Moved(t *testing.T) {
	t.Parallel()
	dsn, owner := pgtest.NewDatabase(t)
	require.NoError(t, pg.Mark(t.Context(), owner))
	require.NoError(t, pg.Declare(t.Context(), owner))
	var told []string
	pool, err := pg.Open(t.Context(), pgtest.RuntimeDSN(t, dsn), pg.Options{MaxConns: 1,
		Moved: func(why string) { told = append(told, why) }})
	require.NoError(t, err)
	defer pool.Close()
	write := func() error {
		_, err := pool.Exec(t.Context(), "DELETE FROM flow.due")
		return err
	}
	assert.True(t, pg.IsReadOnly(write()))
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "declared")
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM flow.due").Scan(&n))
	require.NoError(t, pg.Confirm(t.Context(), owner, nil))
	assert.True(t, pg.IsReadOnly(write()), "the connection is an old one")
	pool.Reset()
	require.NoError(t, write())
	assert.Len(t, told, 1)
}

// TestLosses: a connection finds out what restores have lost before it is used; what was there in several of them may
// have gone from the first on.
func TestLosses(t *testing.T) {
	t.Parallel()
	dsn, owner := pgtest.NewDatabase(t)
	require.NoError(t, pg.Mark(t.Context(), owner))
	var losses pg.Losses
	pool, err := pg.Open(t.Context(), dsn, pg.Options{MaxConns: 1, Moved: func(string) {}, Losses: &losses})
	require.NoError(t, err)
	defer pool.Close()
	assert.Nil(t, losses.Last())
	assert.False(t, losses.Last().MayHaveGone(time.Time{}))
	restore := func(since *time.Time) *pg.Loss {
		require.NoError(t, pg.Confirm(t.Context(), owner, since))
		pool.Reset()
		require.NoError(t, pool.Ping(t.Context()))
		return losses.Last()
	}
	began := time.Now().Truncate(time.Millisecond)
	hour, minute := began.Add(-time.Hour), began.Add(-time.Minute)
	first := restore(&hour)
	assert.True(t, first.Since.Equal(hour))
	assert.True(t, first.MayHaveGone(began) && !first.MayHaveGone(time.Now().Add(time.Second)))
	assert.Same(t, first, restore(nil), "nothing more is lost")
	between := first.Until.Add(time.Microsecond)
	second := restore(&minute)
	for from, since := range map[time.Time]time.Time{began: hour, between: minute} {
		of := second.Of(from)
		require.NotNil(t, of)
		assert.True(t, of.Since.Equal(since) && of.Until.Equal(second.Until), "%+v", of)
	}
	assert.Nil(t, second.Of(second.Until.Add(time.Microsecond)))
}

package app_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/internal/recordset"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// TestRun_Pooled: processes behind a pooler of transactions do what others do, also what another process has made due;
// they write nothing once the pooler leads to a database that was restored, until somebody confirms it, and then go
// on.
func TestRun_Pooled(t *testing.T) {
	t.Parallel()
	sim := dialersim.New(dialersim.Options{})
	platform := httptest.NewServer(sim)
	t.Cleanup(platform.Close)
	t.Cleanup(sim.Close)
	dsn, _ := pgtest.NewDatabase(t)
	pooler := pgtest.NewPgBouncer(t, dsn)
	through := pooler.DSN(t, pgtest.RuntimeDSN(t, dsn))
	p := startWith(t, func(c *app.Config) {
		c.DatabaseURL, c.Pooled, c.Workers, c.BaseURLs = through, true, false, map[string]string{"dialer": platform.URL}
	})
	flow := p.define(t)
	p.trigger(t, flow)
	worker := startWith(t, func(c *app.Config) {
		c.DatabaseURL, c.Pooled, c.BaseURLs = through, true, map[string]string{"dialer": platform.URL}
	})
	p.await(t, "SELECT count(*) FROM flow.batch_count WHERE status = 'completed'")
	sent := map[string]int{"1": 1, "2": 1}
	require.Equal(t, sent, sim.Arrivals("l"))
	// What a process makes due that does not work is looked for long before its lease ends, and without a notification.
	key := uuid.NewString()
	require.NoError(t, pg.InTx(t.Context(), p.Pool, func(ctx context.Context, tx pgx.Tx) error {
		return p.Scheduler.Wake(ctx, tx, recordset.ExpiryKind, key, time.Time{})
	}))
	p.await(t, "SELECT (count(*) = 0)::int FROM flow.due WHERE key = '"+key+"'")

	elsewhere, restored := pgtest.NewEmpty(t)
	dump := filepath.Join(t.TempDir(), "dump")
	tool(t, "pg_dump", "--format=custom", "--file="+dump, dsn)
	tool(t, "pg_restore", "--dbname="+elsewhere, dump)
	pooler.Lead(t, dsn, elsewhere)
	client := apitest.NewClient(t, p.URL(), p.key)
	trigger := func() int {
		return client.Do("POST", "/flows/definitions/"+flow+"/trigger", `{"records": [{"id": "3"}]}`).Status
	}
	assert.Equal(t, http.StatusServiceUnavailable, trigger())
	require.NoError(t, pg.Confirm(t.Context(), restored, nil))
	require.Eventually(t, func() bool { return trigger() == http.StatusOK }, 60*time.Second, 100*time.Millisecond)
	require.NoError(t, worker.stop())
}

// TestNew_Pooled: a process says what an operator has to do who leaves out that there is a pooler, or what its
// connections lack.
func TestNew_Pooled(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewEmpty(t)
	said := &bytes.Buffer{}
	cfg := app.Config{
		DatabaseURL: pgtest.NewPgBouncer(t, dsn).DSN(t, dsn), KEK: testKEK(t), Migrate: true,
		Log: slog.New(slog.NewTextHandler(said, nil)),
	}
	_, err := app.New(t.Context(), cfg)
	require.ErrorContains(t, err, "--pooled or FLOWLANE_POOLED")
	cfg.Pooled = true
	_, err = app.New(t.Context(), cfg)
	require.ErrorContains(t, err, "flowlane migrate up", "migrations need a session")

	migrated, _ := pgtest.NewDatabase(t)
	cfg.DatabaseURL = pgtest.NewPgBouncer(t, migrated).DSN(t, migrated)
	a, err := app.New(t.Context(), cfg)
	require.NoError(t, err)
	a.Close()
	assert.Contains(t, said.String(), "SET enable_seqscan = 'off'")
}

package app_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/pg"
	"flowlane/internal/pg/ddl"
	"flowlane/internal/platform/provider/dialersim"
	"flowlane/test/apitest"
	"flowlane/test/pgtest"
)

// migrateLater has a later version of the program migrate the database.
func migrateLater(t *testing.T, p *process, later map[string]string) {
	t.Helper()
	require.NoError(t, pg.Migrator{Files: pgtest.Migrations(t, later)}.Up(t.Context(), p.Pool))
}

// TestRun_Outdated: a process ends once the database takes later versions alone, and none starts on it any more.
func TestRun_Outdated(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	cfg := app.Config{
		DatabaseURL: dsn, Listen: "127.0.0.1:0", Workers: true, KEK: testKEK(t), Migrate: true,
		Log: slog.New(slog.DiscardHandler),
	}
	a, err := app.New(t.Context(), cfg)
	require.NoError(t, err)
	defer a.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	p := &process{App: a}
	migrateLater(t, p, map[string]string{"90001_later.sql": "ALTER TABLE flow.batch ADD COLUMN note text"})
	require.NoError(t, pg.CheckOutdated(t.Context(), a.Pool))
	migrateLater(t, p, map[string]string{
		"90001_later.sql": "ALTER TABLE flow.batch ADD COLUMN note text",
		"90002_end.sql":   "-- migrate: least program 90001\nALTER TABLE flow.batch DROP COLUMN note",
	})
	newer, ok := errors.AsType[pg.SchemaNewerError](<-done)
	require.True(t, ok)
	require.EqualValues(t, 90001, newer.Needs)
	_, err = app.New(t.Context(), cfg)
	require.ErrorAs(t, err, &pg.SchemaNewerError{})
	require.ErrorContains(t, err, "start the version that migrated it, or a newer one")
}

// TestRun_BesideLater: this program works while a later one migrates the database, and beside it from then on: all
// that is started before, during and after that is done, once.
func TestRun_BesideLater(t *testing.T) {
	t.Parallel()
	var files []ddl.File
	for name, sql := range laterVersion {
		f, err := ddl.Parse(name, sql)
		require.NoError(t, err)
		files = append(files, f)
	}
	require.Empty(t, ddl.Lint(files, 1))
	sim := dialersim.New(dialersim.Options{})
	platform := httptest.NewServer(sim)
	t.Cleanup(platform.Close)
	t.Cleanup(sim.Close)
	p := startWith(t, func(c *app.Config) { c.BaseURLs = map[string]string{"dialer": platform.URL} })
	flow := p.define(t)
	client := apitest.NewClient(t, p.URL(), p.key)
	var batches []string
	begin := func(n int) {
		for range n {
			batches = append(batches, startBatch(t, client, flow, 3))
		}
	}
	begin(5)
	migrated := make(chan error, 1)
	m := pg.Migrator{Files: pgtest.Migrations(t, laterVersion)}
	go func() { migrated <- m.Up(context.Background(), p.Pool) }()
	for during := true; during; begin(1) {
		select {
		case err := <-migrated:
			require.NoError(t, err)
			during = false
		default:
		}
	}
	begin(5)

	second, err := app.New(t.Context(), app.Config{
		DatabaseURL: p.Pool.Config().ConnString(), Listen: "127.0.0.1:0", Workers: true, KEK: testKEK(t),
		BaseURLs: map[string]string{"dialer": platform.URL}, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err, "a program that does not know the newest migrations starts")
	runs(t, second)
	client = apitest.NewClient(t, second.URL(), p.key)
	begin(5)
	for _, batch := range batches {
		awaitCounts(t, client, batch, "accepted", 3)
	}
	var rows int
	require.NoError(t, p.Pool.QueryRow(t.Context(), "SELECT count(*) FROM flow.batch WHERE later_note = 'none'").Scan(
		&rows))
	require.Equal(t, len(batches), rows)
	arrived := 0
	for _, n := range sim.Arrivals("l") {
		arrived += n
	}
	require.Equal(t, 3*len(batches), arrived)
	require.Equal(t, http.StatusOK, client.Do("GET", "/flows/batches?limit=100", nil).Status)
	t.Logf("%d batches, of which %d while it was migrated", len(batches), len(batches)-15)
}

// laterVersion changes the tables that work uses most, in each way that the lint lets pass.
var laterVersion = map[string]string{
	"90001_batch.sql": `
ALTER TABLE flow.batch ADD COLUMN later_note text NOT NULL DEFAULT 'none'`,
	"90002_part.sql": `
ALTER TABLE flow.part ADD COLUMN later_n int`,
	"90003_call.sql": `
ALTER TABLE flow.call ADD COLUMN later_at timestamptz DEFAULT now();
ALTER TABLE flow.call ADD CONSTRAINT later_check CHECK (records >= 0) NOT VALID`,
	"90004_index.sql": `
-- migrate: outside a transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS batch_later ON flow.batch (later_note, id);
CREATE INDEX CONCURRENTLY IF NOT EXISTS call_later ON flow.call (later_at)`,
	"90005_check.sql": `
-- migrate: outside a transaction
ALTER TABLE flow.call VALIDATE CONSTRAINT later_check`,
	"90006_table.sql": `
CREATE TABLE flow.later (batch_id uuid PRIMARY KEY)`,
}

package app_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flowlane/internal/app"
	"flowlane/internal/pg"
	"flowlane/internal/pg/pgtest"
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
		DatabaseURL: dsn, Listen: "127.0.0.1:0", Workers: true, KEK: testKEK(t), Migrate: true, Log: slog.New(slog.DiscardHandler),
	}
	a, err := app.New(t.Context(), cfg)
	require.NoError(t, err)
	defer a.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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

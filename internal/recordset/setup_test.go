package recordset

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg/pgtest"
)

// woken is a Waker that keeps what it was asked for.
type woken struct {
	kind, key string
	at        time.Time
}

func (w *woken) Wake(_ context.Context, _ pgx.Tx, kind, key string, at time.Time) error {
	*w = woken{kind, key, at}
	return nil
}

// bundle is a database with one organization.
type bundle struct {
	*Service
	ctx  context.Context
	pool *pgxpool.Pool
	org  uuid.UUID
	wake *woken
}

func setup(t testing.TB) *bundle {
	t.Helper()
	b := &bundle{ctx: t.Context(), pool: pgtest.New(t), wake: &woken{}}
	b.Service = New(b.pool, b.wake)
	b.org = b.addOrg(t)
	return b
}

func (b *bundle) addOrg(t testing.TB) uuid.UUID {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	_, err = b.pool.Exec(b.ctx, "INSERT INTO flow.organization (id, name) VALUES ($1, 'test')", id)
	require.NoError(t, err)
	return id
}

package pg_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// TestOpen_Pooled: through a pooler of transactions, values of all kinds come and go whichever server they meet,
// statements that go together included; who does not say that there is a pooler is told to.
func TestOpen_Pooled(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.NewDatabase(t)
	through := pgtest.NewPgBouncer(t, dsn).DSN(t, dsn)
	_, err := pg.Open(t.Context(), through, pg.Options{})
	require.ErrorContains(t, err, "FLOWLANE_POOLED")
	pool, err := pg.Open(t.Context(), through, pg.Options{MaxConns: 4, Pooled: true})
	require.NoError(t, err)
	defer pool.Close()
	require.ErrorContains(t, pg.Migrate(t.Context(), pool), "--no-pooled")

	// One connection meets servers that others have prepared for, others the one that it has.
	var held []*pgxpool.Conn
	for range 3 {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		held = append(held, conn)
		kinds(t, conn.Conn())
	}
	for _, conn := range held {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
		kinds(t, tx)
	}
	var one, two int
	require.NoError(t, pg.QueryBatch(t.Context(), pool, func(db pg.DB) error {
		return db.QueryRow(t.Context(), "SELECT $1::int", 1).Scan(&one)
	}, func(db pg.DB) error {
		return db.QueryRow(t.Context(), "SELECT $1::int + 1", one).Scan(&two)
	}))
	assert.Equal(t, []int{1, 1}, []int{one, two})

	unset, err := pg.Unset(t.Context(), pool)
	require.NoError(t, err)
	require.Len(t, unset, 5, "%q", unset) // all but the zone, which the server has anyway
	for _, sql := range unset {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		exec(t, tx, sql)
		require.NoError(t, tx.Rollback(t.Context()), "they are of all databases")
	}
}

// kinds sends values of the kinds that queries have, and reads them back.
func kinds(t *testing.T, db pg.DB) {
	t.Helper()
	id, at, text := uuid.New(), time.Now().UTC().Truncate(time.Microsecond), "queued"
	var ids []uuid.UUID
	var doc, none []byte
	var status string
	var when time.Time
	var n float64
	err := db.QueryRow(t.Context(),
		"SELECT $1::uuid[], $2::jsonb, $3::bytea, $4::flow.batch_status, $5::timestamptz, $6::float8",
		[]uuid.UUID{id}, []byte(`{"a": [1]}`), nil, text, at, 1.5).Scan(&ids, &doc, &none, &status, &when, &n)
	require.NoError(t, err)
	assert.Equal(t, []uuid.UUID{id}, ids)
	assert.JSONEq(t, `{"a": [1]}`, string(doc))
	assert.Nil(t, none)
	assert.Equal(t, text, status)
	assert.True(t, at.Equal(when))
	assert.InDelta(t, 1.5, n, 0)
}

// TestInTx_PooledMoved: behind a pooler, a transaction that begins on another database than its connection was made
// for asks first what that is: one that was restored is not written to, also by connections that were there before.
func TestInTx_PooledMoved(t *testing.T) {
	t.Parallel()
	dsn, owner := pgtest.NewDatabase(t)
	require.NoError(t, pg.Mark(t.Context(), owner))
	pooler := pgtest.NewPgBouncer(t, dsn)
	told := make(chan string, 100)
	var losses pg.Losses
	pool, err := pg.Open(t.Context(), pooler.DSN(t, dsn), pg.Options{
		MaxConns: 3, Pooled: true, Losses: &losses, Moved: func(why string) { told <- why },
	})
	require.NoError(t, err)
	defer pool.Close()
	write := func() error {
		return pg.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "DELETE FROM flow.due")
			return err
		})
	}
	connections(t, pool, 3)
	require.NoError(t, write())

	file := dump(t, dsn)
	elsewhere, restored := pgtest.NewEmpty(t)
	tool(t, "pg_restore", "--dbname="+elsewhere, file)
	pooler.Lead(t, dsn, elsewhere)
	require.True(t, pg.IsReadOnly(write()))
	assert.Contains(t, <-told, "a copy of another database")
	assert.Nil(t, losses.Last())
	since := time.Now().Add(-time.Hour)
	require.NoError(t, pg.Confirm(t.Context(), restored, &since))
	assert.True(t, pg.IsReadOnly(write()), "the connection is an old one")
	pool.Reset()
	require.NoError(t, write())
	require.NotNil(t, losses.Last())
	connections(t, pool, 3)

	// Back again: one that may be written to is written to at once, whatever connection is taken.
	pooler.Lead(t, dsn, dsn)
	require.NoError(t, write())
	assert.Empty(t, told)
}

// connections has a pool make so many.
func connections(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	var held []*pgxpool.Conn
	for range n {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		held = append(held, conn)
	}
	for _, conn := range held {
		conn.Release()
	}
}

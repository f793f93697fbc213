package pg_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// number asks for one number and keeps it in n.
func number(ctx context.Context, n *int, sql string, args ...any) pg.Query {
	return func(db pg.DB) error { return db.QueryRow(ctx, sql, args...).Scan(n) }
}

// TestQueryBatch: statements and then questions, each with the answer that it would have had alone after those before
// it.
func TestQueryBatch(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	ctx := t.Context()
	_, err := pool.Exec(ctx, "CREATE TABLE t (n int PRIMARY KEY)")
	require.NoError(t, err)
	var one, inserted, two int
	var all []int
	require.NoError(t, pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		p := pg.NewPipeline(tx)
		_, err := p.Exec(ctx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		p.MustTouch(1, errors.New("it was not inserted"))
		return p.Send(ctx, tx, number(ctx, &one, "SELECT n FROM t"), func(db pg.DB) error {
			tag, err := db.Exec(ctx, "INSERT INTO t VALUES ($1)", 2)
			inserted = int(tag.RowsAffected())
			return err
		}, func(pg.DB) error { return nil }, number(ctx, &two, "SELECT max(n) FROM t"), func(db pg.DB) error {
			rows, err := db.Query(ctx, "SELECT n FROM t ORDER BY n")
			if err != nil {
				return err
			}
			all, err = pgx.CollectRows(rows, pgx.RowTo[int])
			return err
		})
	}))
	require.Equal(t, []int{1, 1, 2, 1, 2}, append([]int{one, inserted, two}, all...))
	require.NoError(t, pg.QueryBatch(ctx, pool))
	require.NoError(t, pg.QueryBatch(ctx, pool, number(ctx, &two, "SELECT 3"), number(ctx, &one, "SELECT 4")),
		"without a transaction")
	require.Equal(t, []int{4, 3}, []int{one, two})
}

// TestQueryBatch_Fails: the first error comes back as its question gave it, and nothing of the others remains.
func TestQueryBatch_Fails(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	ctx := t.Context()
	_, err := pool.Exec(ctx, "CREATE TABLE t (n int PRIMARY KEY)")
	require.NoError(t, err)
	refused := errors.New("refused")
	var n int
	add := func(db pg.DB) error {
		_, err := db.Exec(ctx, "INSERT INTO t VALUES (1)")
		return err
	}
	twice := func(db pg.DB) error { return errors.Join(add(db), add(db)) }
	cases := map[string]struct {
		asks []pg.Query
		is   func(error) bool
	}{
		"the database": {[]pg.Query{add, add, number(ctx, &n, "SELECT 1")}, func(err error) bool {
			return pg.IsUnique(err,
				"t_pkey")
		}},
		"no row": {[]pg.Query{add, number(ctx, &n, "SELECT n FROM t WHERE n = 7"), number(ctx, &n, "SELECT 1")},
			pg.IsNoRows},
		"the asker": {[]pg.Query{add, func(db pg.DB) error {
			return errors.Join(number(ctx, &n, "SELECT 5")(db),
				refused)
		}, number(ctx, &n, "SELECT 1")},
			func(err error) bool { return errors.Is(err, refused) }},
		"before it asks": {[]pg.Query{add, func(pg.DB) error { return refused }},
			func(err error) bool { return errors.Is(err, refused) }},
		"asked twice": {[]pg.Query{twice}, func(err error) bool { return err != nil }},
	}
	for name, c := range cases {
		err := pg.InTx(ctx, pool,
			func(ctx context.Context, tx pgx.Tx) error { return pg.QueryBatch(ctx, tx, c.asks...) })
		require.Truef(t, c.is(err), "%s: %v", name, err)
		require.Zero(t, count(t, pool, "SELECT count(*) FROM t"), name)
	}
	failing := pg.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		p := pg.NewPipeline(tx)
		_, err := p.Exec(ctx, "DELETE FROM t")
		require.NoError(t, err)
		p.MustTouch(1, refused)
		return p.Send(ctx, tx, add)
	})
	require.ErrorIs(t, failing, refused)
}

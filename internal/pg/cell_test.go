package pg_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// TestSetCell: an empty database becomes a cell, with numbers of its own; one with organizations stays what it is.
func TestSetCell(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.New(t)
	number := func(sql string) (n int64) {
		require.NoError(t, pool.QueryRow(ctx, sql).Scan(&n))
		return n
	}
	is := func() int {
		n, err := pg.Cell(ctx, pool)
		require.NoError(t, err)
		return n
	}
	assert.Zero(t, is())
	first := number("SELECT nextval('flow.part_id_seq')")
	assert.Less(t, first, int64(1)<<50)
	require.Error(t, pg.SetCell(ctx, pool, 4096))
	for _, n := range []int{7, 7, 4095} { // again, and another one
		require.NoError(t, pg.SetCell(ctx, pool, n))
		assert.Equal(t, n, is())
	}
	const most = int64(4095) << 50
	assert.Equal(t, most+1, number(`SELECT min(nextval(format('%I.%I', schemaname, sequencename)::regclass))
		FROM pg_sequences WHERE schemaname = 'flow' AND sequencename <> 'identity_no_seq'`))

	_, err := pool.Exec(ctx, "INSERT INTO flow.organization (id, name) VALUES (gen_random_uuid(), 'Acme')")
	require.NoError(t, err)
	require.NoError(t, pg.SetCell(ctx, pool, 4095))
	refused, ok := errors.AsType[pg.CellError](pg.SetCell(ctx, pool, 8))
	assert.True(t, ok)
	assert.Equal(t, pg.CellError{Is: 4095, Wanted: 8}, refused)
	assert.Equal(t, 4095, is())
}

package recordset

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

func (b *bundle) expire(id uuid.UUID) (again time.Time, err error) {
	err = pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		again, err = b.Expire(ctx, tx, id)
		return err
	})
	return again, err
}

func TestExpire(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 1)
	pgtest.MoveClock(t, b.pool, Staging-time.Minute)
	for i := range eraseRows + 1 {
		b.send(t, m.ID, chunkBody(i, i, i+1))
	}
	pgtest.MoveClock(t, b.pool, 2*time.Minute)
	again, err := b.expire(m.ID)
	require.NoError(t, err)
	now, err := b.Get(b.ctx, b.org, m.ID)
	require.NoError(t, err, "an accepted chunk starts the time anew")
	assert.Equal(t, *now.StagingExpiresAt, again)

	pgtest.MoveClock(t, b.pool, Staging)
	_, err = b.Get(b.ctx, b.org, m.ID)
	assert.True(t, fault.Is(err, fault.NotFound), "an expired set is gone before it is reclaimed")
	_, err = b.Append(b.ctx, b.org, m.ID, chunkBody(200, 0, 1))
	assert.True(t, fault.Is(err, fault.NotFound))
	_, err = b.Seal(b.ctx, b.org, m.ID, 0)
	assert.True(t, fault.Is(err, fault.NotFound))
	_, err = b.consume(b.org, m.ID)
	assert.True(t, fault.Is(err, fault.NotFound))
	total, err := b.Count(b.ctx, b.org, Filter{})
	require.NoError(t, err)
	assert.Zero(t, total)

	again, err = b.expire(m.ID)
	require.NoError(t, err)
	assert.Zero(t, again)
	pgtest.MoveClock(t, b.pool, -2*Staging)
	_, err = b.consume(b.org, m.ID)
	assert.True(t, fault.Is(err, fault.NotFound), "a set of which something is deleted does not come back with the clock")
	var left []string
	require.NoError(t, b.pool.QueryRow(b.ctx, "SELECT array_agg(batch_id::text) FROM flow.erasure").Scan(&left))
	assert.Equal(t, []string{m.ID.String()}, left, "housekeeping takes the rest of its rows")
	again, err = b.expire(m.ID)
	require.NoError(t, err)
	assert.Zero(t, again)

	small := b.create(t, 1)
	b.send(t, small.ID, chunkBody(0, 0, 1))
	pgtest.MoveClock(t, b.pool, 2*Staging)
	_, err = b.expire(small.ID)
	require.NoError(t, err)
	b.requireNothing(t, small.ID)
}

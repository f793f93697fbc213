package recordset

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

func TestSeal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		chunks   [][3]int
		expected int64
		detail   string
	}{
		"empty":      {nil, 0, ""},
		"one full":   {[][3]int{{0, 0, 10}}, 10, ""},
		"short last": {[][3]int{{0, 0, 10}, {1, 10, 11}}, 11, ""},
		"too few": {[][3]int{{0, 0, 10}}, 35,
			"expected_count is 35 but 10 records were received; missing chunk_index: 1-3"},
		"none":     {nil, 5, "expected_count is 5 but 0 records were received; missing chunk_index: 0"},
		"too many": {[][3]int{{0, 0, 10}}, 9, "expected_count is 9 but 10 records were received"},
		"gaps":     {[][3]int{{1, 0, 10}, {5, 0, 10}}, 20, "missing chunk_index: 0, 2-4"},
		"short middle": {[][3]int{{0, 0, 10}, {1, 0, 3}, {2, 0, 10}}, 23,
			"only the last chunk may hold fewer than 10 records; short chunk_index: 1"},
		"all at once": {[][3]int{{0, 0, 3}, {2, 0, 10}}, 50,
			"expected_count is 50 but 13 records were received; missing chunk_index: 1, 3-4; " +
				"only the last chunk may hold fewer than 10 records; short chunk_index: 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			m := b.create(t, 10)
			for _, k := range c.chunks {
				b.send(t, m.ID, chunkBody(k[0], k[1], k[2]))
			}
			sealed, err := b.Seal(b.ctx, b.org, m.ID, c.expected)
			if c.detail != "" {
				requireConflict(t, err, "Record set cannot be sealed: "+c.detail)
				after, err := b.Get(b.ctx, b.org, m.ID)
				require.NoError(t, err)
				assert.Equal(t, Open, after.Status)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, Sealed, sealed.Status)
			assert.Equal(t, c.expected, *sealed.ExpectedCount)
			assert.InDelta(t, Staging.Seconds(), sealed.StagingExpiresAt.Sub(*sealed.SealedAt).Seconds(), 1)
			again, err := b.Seal(b.ctx, b.org, m.ID, c.expected)
			require.NoError(t, err)
			assert.Equal(t, sealed, again)
			_, err = b.Seal(b.ctx, b.org, m.ID, c.expected+1)
			requireConflict(t, err, fmt.Sprintf("Record set is already sealed with %d records, not %d", c.expected,
				c.expected+1))
		})
	}
}

func (b *bundle) consume(orgID, id uuid.UUID) (n int64, err error) {
	err = pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		n, err = Consume(ctx, tx, orgID, id, uuid.New())
		return err
	})
	return n, err
}

func TestConsume(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.create(t, 10)
	b.send(t, m.ID, chunkBody(0, 0, 4))
	_, err := b.consume(b.org, m.ID)
	requireConflict(t, err, "Record set is not sealed")
	_, err = b.Seal(b.ctx, b.org, m.ID, 4)
	require.NoError(t, err)
	_, err = b.consume(b.addOrg(t), m.ID)
	assert.True(t, fault.Is(err, fault.NotFound))

	failed := errors.New("a start that fails")
	err = pg.InTx(b.ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := Consume(ctx, tx, b.org, m.ID, uuid.New())
		return errors.Join(err, failed)
	})
	require.ErrorIs(t, err, failed)
	n, err := b.consume(b.org, m.ID)
	require.NoError(t, err, "a start that failed leaves the set sealed")
	assert.EqualValues(t, 4, n)
	_, err = b.consume(b.org, m.ID)
	requireConflict(t, err, "Record set is already consumed")
	requireConflict(t, b.Delete(b.ctx, b.org, m.ID), "Record set is already consumed")

	pgtest.MoveClock(t, b.pool, 10*Staging)
	got, err := b.Get(b.ctx, b.org, m.ID)
	require.NoError(t, err, "a consumed set does not expire")
	assert.Nil(t, got.StagingExpiresAt)
	_, err = b.expire(m.ID)
	require.NoError(t, err)
	assert.Len(t, b.allRows(t, m.ID), 4)
}

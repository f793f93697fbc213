package orgquota_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/test/pgtest"
)

// bundle is a process and an organization with a quota of open batches.
type bundle struct {
	t     *testing.T
	pool  *pgxpool.Pool
	meter *orgquota.Meter
	org   uuid.UUID
	now   time.Time
}

func setup(t *testing.T, most int64) *bundle {
	t.Helper()
	b := &bundle{t: t, pool: pgtest.New(t), now: time.Unix(1_800_000_000, 0)}
	b.meter = orgquota.NewMeter(orgquota.OpenBatches, func() time.Time { return b.now })
	org, err := account.CreateOrg(t.Context(), b.pool, "Acme")
	require.NoError(t, err)
	b.org = org.ID
	b.set(most)
	return b
}

func (b *bundle) set(most int64) {
	b.t.Helper()
	require.NoError(b.t, db.New().QuotaSet(b.t.Context(), b.pool, db.QuotaSetParams{OrgID: b.org, Name: "open_batches",
		Most: most}))
}

func (b *bundle) take(ctx context.Context, conn db.DBTX, want int64) int64 {
	b.t.Helper()
	g, err := b.meter.Take(ctx, conn, b.org, want)
	require.NoError(b.t, err)
	return g.Taken
}

// write writes open batches.
func (b *bundle) write(ctx context.Context, tx pgx.Tx, n int) {
	b.t.Helper()
	_, err := tx.Exec(ctx, `INSERT INTO flow.batch_count (batch_id, org_id, updated_at, record_count, queued)
		SELECT gen_random_uuid(), $1, flow.clock(), 1, 1 FROM generate_series(1, $2)`, b.org, n)
	require.NoError(b.t, err)
}

// TestMeter_UnderWay: what a transaction has taken is nobody else's while that is under way, though no count sees it,
// and is given back where it is not committed.
func TestMeter_UnderWay(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	rolledBack := errors.New("rolled back")
	err := pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		assert.EqualValues(t, 1, b.take(ctx, tx, 1))
		b.write(ctx, tx, 1)
		assert.Zero(t, b.take(t.Context(), b.pool, 1))
		b.now = b.now.Add(time.Minute)
		assert.Zero(t, b.take(t.Context(), b.pool, 1))
		return rolledBack
	})
	require.ErrorIs(t, err, rolledBack)
	require.NoError(t, pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		assert.EqualValues(t, 1, b.take(ctx, tx, 1), "it was given back")
		b.write(ctx, tx, 1)
		return nil
	}))
	b.now = b.now.Add(time.Minute)
	assert.Zero(t, b.take(t.Context(), b.pool, 1))
}

// TestMeter_GiveBack: what a transaction gives back is others' at once, and what it keeps is counted once, whether it is
// committed or not, and however often was counted meanwhile.
func TestMeter_GiveBack(t *testing.T) {
	t.Parallel()
	for _, recounted := range []bool{false, true} {
		for _, commits := range []bool{false, true} {
			b := setup(t, 5)
			undone := errors.New("undone")
			err := pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
				assert.EqualValues(t, 5, b.take(ctx, tx, 10))
				assert.Zero(t, b.take(t.Context(), b.pool, 1))
				if recounted {
					b.now = b.now.Add(time.Minute)
					assert.Zero(t, b.take(t.Context(), b.pool, 1))
				}
				b.meter.GiveBack(ctx, tx, b.org, 3)
				b.write(ctx, tx, 2)
				assert.EqualValues(t, 3, b.take(t.Context(), b.pool, 10))
				if !commits {
					return undone
				}
				return nil
			})
			b.now = b.now.Add(time.Minute)
			if commits {
				require.NoError(t, err)
				assert.EqualValues(t, 3, b.take(t.Context(), b.pool, 10))
			} else {
				require.ErrorIs(t, err, undone)
				assert.EqualValues(t, 5, b.take(t.Context(), b.pool, 10))
			}
		}
	}
}

// TestMeter_Again: what a transaction has written counts once when it takes more.
func TestMeter_Again(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	require.NoError(t, pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		for n := range 5 {
			assert.EqualValues(t, 1, b.take(ctx, tx, 1), n)
			b.write(ctx, tx, 1)
		}
		assert.Zero(t, b.take(ctx, tx, 1))
		return nil
	}))
}

// TestMeter_Changed: another quota acts a second later, also where there was room for many without a count.
func TestMeter_Changed(t *testing.T) {
	t.Parallel()
	b := setup(t, 1_000_000)
	require.NoError(t, pg.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		assert.EqualValues(t, 3, b.take(ctx, tx, 3))
		b.write(ctx, tx, 3)
		return nil
	}))
	b.set(3)
	assert.EqualValues(t, 1, b.take(t.Context(), b.pool, 1), "not yet")
	b.now = b.now.Add(time.Second)
	assert.Zero(t, b.take(t.Context(), b.pool, 1))
	b.set(1_000_000)
	b.now = b.now.Add(time.Second)
	assert.EqualValues(t, 1000, b.take(t.Context(), b.pool, 1000))
}

// TestMeter_Silent: starts of an organization that has little ask the database for its quota once a second, and count
// nothing.
func TestMeter_Silent(t *testing.T) {
	t.Parallel()
	b := setup(t, 1_000_000)
	b.take(t.Context(), b.pool, 1)
	before := b.pool.Stat().AcquireCount()
	for range 999 {
		assert.EqualValues(t, 1, b.take(t.Context(), b.pool, 1))
	}
	assert.Equal(t, before, b.pool.Stat().AcquireCount())
}

package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"flowlane/internal/pg"
	"flowlane/internal/quota"
	"flowlane/test/pgtest"
)

func testMeter(skew time.Duration, caps map[int]int) *meter {
	return &meter{key: budgetKey{"d", "b"}, loc: time.UTC, caps: quota.Caps{Aligned: caps}, skew: skew}
}

// spent reads the ledger as own spend by {length, start}.
func spent(t *testing.T, pool *pgxpool.Pool) map[[2]int64]int32 {
	t.Helper()
	return windowSums(t, pool, "own")
}

// attributed sums up the calls that the windows lay to credentials.
func attributed(t *testing.T, pool *pgxpool.Pool) map[[2]int64]int32 {
	t.Helper()
	return windowSums(t, pool, "(SELECT coalesce(sum(value::int), 0)::int FROM jsonb_each_text(by_credential))")
}

func windowSums(t *testing.T, pool *pgxpool.Pool, what string) map[[2]int64]int32 {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT window_seconds, extract(epoch FROM starts_at)::bigint, "+what+
		" FROM flow.ledger")
	require.NoError(t, err)
	out := map[[2]int64]int32{}
	var seconds, start int64
	var n int32
	_, err = pgx.ForEachRow(rows, []any{&seconds, &start, &n}, func() error {
		out[[2]int64{seconds, start}] = n
		return nil
	})
	require.NoError(t, err)
	return out
}

// Whoever debits and releases at once, around the edges of windows, no window is ever spent above its cap, and the
// ledger holds what those debited who succeeded, less what they gave back.
func TestLedger_Concurrent(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	_, err := pool.Exec(t.Context(), `ALTER TABLE flow.ledger ADD CHECK (own + foreign_spend <=
		CASE window_seconds WHEN 60 THEN 25 WHEN 3600 THEN 60 ELSE 90 END)`)
	require.NoError(t, err)
	m := testMeter(2*time.Second, map[int]int{60: 25, 3600: 60, 86400: 90})
	edge := time.Date(2026, 1, 6, 0, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	var all sync.WaitGroup
	left, moved := map[[2]int64]int32{}, 0
	for i := range 8 {
		random, who := rand.New(rand.NewPCG(7, uint64(i))), uuid.UUID{15: byte(1 + i/2)}
		all.Go(func() {
			var held []quota.CountsIn
			for range 60 {
				r := releases{key: m.key, calls: map[string]map[[2]int64]quota.Tally{}}
				var spans []quota.Window
				n, at := 1+random.IntN(3), edge.Add(time.Duration(random.IntN(240)-120)*time.Second)
				release := len(held) > 0 && random.IntN(5) < 2
				err := pg.InTx(context.Background(), pool, func(ctx context.Context, tx pgx.Tx) (err error) {
					if release {
						r.add(held[len(held)-1], who, costs(nil).of)
						return r.write(ctx, tx)
					}
					if spans, err = m.spans(ctx, tx, at, at.Add(10*time.Second)); err != nil {
						return err
					}
					return m.debit(ctx, tx, spans, func(string) quota.Tally { return quota.Tally{who: n} })
				})
				mu.Lock()
				switch {
				case errors.Is(err, errBudgetMoved):
					moved++
				case err != nil:
					t.Errorf("debit or release: %v", err)
				case release:
					held = held[:len(held)-1]
					for k, n := range r.calls[m.key.bucket] {
						left[k] -= int32(n.Sum())
					}
				default:
					for range n {
						held = append(held, quota.CountsOf(spans))
					}
					for _, s := range spans {
						left[[2]int64{int64(s.Seconds), s.Start.Unix()}] += int32(n)
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.Positive(t, moved, "no debit met a full window")
	require.Equal(t, left, spent(t, pool))
	require.Equal(t, left, attributed(t, pool), "each call has its credential")
}

func TestLedger_DebitIsAllOrNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	m := testMeter(0, map[int]int{60: 5, 3600: 3})
	at := time.Date(2026, 1, 6, 10, 0, 30, 0, time.UTC)
	debit := func(n int) error {
		return pg.InTx(t.Context(), pool, func(ctx context.Context, tx pgx.Tx) error {
			spans, err := m.spans(ctx, tx, at, at)
			if err != nil {
				return err
			}
			return m.debit(ctx, tx, spans, func(string) quota.Tally { return quota.Tally{uuid.Nil: n} })
		})
	}
	require.ErrorIs(t, debit(4), errBudgetMoved, "more than the hour has")
	require.Empty(t, spent(t, pool))
	require.NoError(t, debit(2))
	want := map[[2]int64]int32{{60, at.Unix() - 30}: 2, {3600, at.Unix() - 30}: 2}
	require.Equal(t, want, spent(t, pool))
	require.ErrorIs(t, debit(2), errBudgetMoved)
	require.Equal(t, want, spent(t, pool))
	_, err := pool.Exec(t.Context(), "UPDATE flow.ledger SET foreign_spend = 1 WHERE window_seconds = 3600")
	require.NoError(t, err)
	require.ErrorIs(t, debit(1), errBudgetMoved, "what others spent counts")
	require.NoError(t, debit(0))

	r := releases{key: m.key, calls: map[string]map[[2]int64]quota.Tally{"b": {{60, at.Unix() - 30}: {uuid.Nil: 9},
		{3600, at.Unix() - 30}: {uuid.Nil: 1}, {86400, 0}: {uuid.Nil: 1}}}}
	require.NoError(t, pg.InTx(t.Context(), pool, r.write))
	require.Equal(t, map[[2]int64]int32{{60, at.Unix() - 30}: 0, {3600, at.Unix() - 30}: 1}, spent(t, pool))
}

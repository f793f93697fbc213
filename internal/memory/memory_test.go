package memory

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const quarter = Least / 4

var one, two, three = uuid.New(), uuid.New(), uuid.New()

// waits starts what has to wait, and returns how it came out once it no longer does.
func waits(t *testing.T, do func() error) <-chan error {
	t.Helper()
	out := make(chan error, 1)
	go func() { out <- do() }()
	synctest.Wait()
	select {
	case err := <-out:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	return out
}

func taken(t *testing.T, b *Budget, org uuid.UUID, bytes int64) *Grant {
	t.Helper()
	g, err := b.Take(t.Context(), org, bytes)
	require.NoError(t, err)
	return g
}

// TestTake_Share: an organization that has its share waits for itself, and lets others pass.
func TestTake_Share(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Least)
		g := taken(t, b, one, quarter)
		assert.True(t, b.Full(one, 1))
		assert.False(t, b.Full(two, quarter))
		out := waits(t, func() error { _, err := b.Take(t.Context(), one, 1); return err })
		taken(t, b, two, quarter)
		g.Release()
		assert.NoError(t, <-out)
	})
}

// TestTake_Order: who needs much is not passed by who needs little, and who gives up is out of the way.
func TestTake_Order(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Least)
		first := taken(t, b, one, quarter)
		taken(t, b, two, quarter)
		taken(t, b, three, 1)
		ctx, giveUp := context.WithCancel(t.Context())
		big := waits(t, func() error { _, err := b.Take(ctx, uuid.New(), quarter); return err })
		small := waits(t, func() error { _, err := b.Take(t.Context(), uuid.New(), 1); return err })
		giveUp()
		require.ErrorIs(t, <-big, context.Canceled)
		require.NoError(t, <-small)
		big = waits(t, func() error { _, err := b.Take(t.Context(), uuid.New(), quarter); return err })
		first.Release()
		assert.NoError(t, <-big)
	})
}

// TestGrow_All: when everything that may be open is, each that needs more comes to its end, one after the other.
func TestGrow_All(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Least)
		var grants []*Grant
		for range 3 {
			org := uuid.New()
			for range 4 {
				g := taken(t, b, org, 1)
				require.NoError(t, g.Grow(t.Context(), quarter/4-1, quarter))
				grants = append(grants, g)
			}
		}
		var done sync.WaitGroup
		for _, g := range grants {
			done.Go(func() {
				assert.NoError(t, g.Grow(t.Context(), quarter/2, quarter))
				g.Keep(0)
				g.Release()
			})
		}
		done.Wait()
		bytes, peak := b.Held()
		assert.Zero(t, bytes)
		assert.LessOrEqual(t, peak, int64(Least))
		assert.Empty(t, b.orgs)
	})
}

// TestSplit: parts of a grant are released one by one.
func TestSplit(t *testing.T) {
	t.Parallel()
	b := New(Least)
	g := taken(t, b, one, 10)
	part := g.Split(4)
	g.Release()
	bytes, _ := b.Held()
	assert.EqualValues(t, 4, bytes)
	require.NoError(t, part.Grow(t.Context(), 3, 9))
	bytes, _ = b.Held()
	assert.EqualValues(t, 7, bytes)
	part.Release()
	part.Release()
	bytes, _ = b.Held()
	assert.Zero(t, bytes)
	assert.Zero(t, b.all.open)
}

// TestBudget_Property: whatever work does, the budget is never exceeded, no organization has more than half, and all
// comes to its end.
func TestBudget_Property(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			b := New(Least)
			orgs := []uuid.UUID{one, two, three}
			var all sync.WaitGroup
			for i := range 60 {
				all.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(i)))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if random.IntN(8) == 0 {
						cancel()
					}
					g, err := b.Take(ctx, orgs[random.IntN(3)], random.Int64N(quarter)>>random.IntN(8))
					if err != nil {
						return
					}
					part := g.Split(random.Int64N(quarter))
					g.Release()
					defer part.Release()
					most := random.Int64N(quarter - part.base + 1)
					for n := int64(1); n < most; n *= 8 {
						if part.Grow(ctx, n, most) != nil {
							return
						}
						b.mu.Lock()
						assert.LessOrEqual(t, b.all.bytes, int64(Least))
						assert.LessOrEqual(t, b.all.open, b.all.bytes)
						for _, own := range b.orgs {
							assert.LessOrEqual(t, own.bytes, int64(2*quarter))
						}
						b.mu.Unlock()
					}
				})
			}
			all.Wait()
			assert.Zero(t, b.all.bytes)
			assert.Zero(t, b.all.open)
			assert.Empty(t, b.orgs)
			assert.Zero(t, b.growing.Len()+b.starting.Len())
		})
	}
}

package stream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"

	"flowlane/internal/batch"
	"flowlane/internal/batch/query"
)

// TestListenBatch: one reading a second for all who listen, of each batch once; a listener gets what is new to it, and
// the newest of what it did not take.
func TestListenBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, b, end := open(t, 0)
		defer end()
		moving, still := uuid.New(), uuid.New()
		state := func(records int64) query.BatchState {
			return query.BatchState{Status: batch.BatchRunning,
				Records: records}
		}
		set := func(n int64) {
			b.set(func(b *book) { b.states = map[uuid.UUID]query.BatchState{moving: state(n), still: state(0)} })
			<-time.After(BatchInterval)
			synctest.Wait()
		}
		b.states = map[uuid.UUID]query.BatchState{moving: state(1), still: state(0)}
		p, q, r := take(t, h, uuid.New()), take(t, h, uuid.New()), take(t, h, uuid.New())
		quick, slow, waits := p.ListenBatch(moving, state(1)), q.ListenBatch(moving, state(0)),
			r.ListenBatch(still, state(0))
		synctest.Wait()
		assert.Empty(t, quick.States, "it has seen that")
		assert.Len(t, slow.States, 1)
		set(2)
		assert.Equal(t, state(2), <-quick.States)
		b.set(func(b *book) { b.fails = true })
		set(3)
		assert.Empty(t, quick.States)
		b.set(func(b *book) { b.fails = false })
		set(4)
		assert.Equal(t, state(4), <-quick.States)
		set(4)
		assert.Empty(t, quick.States)
		assert.Equal(t, state(4), <-slow.States)
		assert.Empty(t, slow.States)
		assert.Empty(t, waits.States)
		for _, n := range b.asked {
			assert.Equal(t, 2, n, "two batches")
		}
		assert.InDelta(t, 5, len(b.asked), 1)
		held := make(chan struct{})
		b.set(func(b *book) { b.held = held })
		set(4)
		late := take(t, h, uuid.New())
		latest := late.ListenBatch(moving, state(5))
		b.set(func(b *book) { b.held = nil })
		close(held)
		synctest.Wait()
		assert.Empty(t, latest.States, "it came after that was read, and has seen what is newer")
		for _, place := range []*Place{p, q, r, late} {
			place.GiveBack()
		}
		<-time.After(BatchInterval)
		synctest.Wait()
		asked := len(b.asked)
		<-time.After(10 * BatchInterval)
		assert.Len(t, b.asked, asked, "nobody listens")
		assert.False(t, h.pollingWhole)
		p = take(t, h, uuid.New())
		p.ListenBatch(moving, state(1))
		p.GiveBack()
		<-time.After(BatchInterval)
	})
}

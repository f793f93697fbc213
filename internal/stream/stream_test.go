package stream

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/batch/query"
	"flowlane/internal/fault"
)

// book is a Source whose logs the test writes: every record of a slice has the same.
type book struct {
	mu     sync.Mutex
	last   int64
	mark   int64
	fails  bool
	panics bool
	looks  int
	read   int
	// alone, if set, is told of each look at that batch and no other.
	alone map[uuid.UUID]chan struct{}
	// held, if set, is waited for within a look, after the marks were read.
	held chan struct{}
	// states are where batches stand, and asked how often somebody asked for how many.
	states map[uuid.UUID]query.BatchState
	asked  []int
}

func (b *book) BatchStates(_ context.Context, orgIDs, ids []uuid.UUID) (map[uuid.UUID]query.BatchState, error) {
	b.mu.Lock()
	states, held, fails := maps.Clone(b.states), b.held, b.fails
	b.asked = append(b.asked, len(ids))
	b.mu.Unlock()
	if fails || len(orgIDs) != len(ids) {
		return nil, errors.New("the database is away")
	}
	if held != nil {
		<-held
	}
	return states, nil
}

func (b *book) Follow(_ context.Context, watched []query.Watched, do func(i int, mark int64, logs []query.Log)) error {
	b.mu.Lock()
	last, mark, fails, panics, held := b.last, b.mark, b.fails, b.panics, b.held
	b.looks++
	if seen := b.alone[watched[0].BatchID]; seen != nil && len(watched) == 1 {
		seen <- struct{}{}
	}
	b.mu.Unlock()
	if panics {
		panic("out of order")
	}
	if fails {
		return errors.New("the database is away")
	}
	if held != nil {
		<-held
	}
	for i, w := range watched {
		if w.Mark == mark {
			continue
		}
		b.mu.Lock()
		b.read++
		b.mu.Unlock()
		logs := make([]query.Log, len(w.Runs))
		for j := range logs {
			for no := int64(2); no <= last; no++ {
				logs[j].Events = append(logs[j].Events, query.Event{No: no, Kind: query.EventJobStatus})
			}
			logs[j].Last = last
		}
		do(i, mark, logs)
	}
	return nil
}

func (b *book) set(change func(b *book)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

func (b *book) write(n int64) { b.set(func(b *book) { b.last, b.mark = b.last+n, b.mark+1 }) }

func open(t *testing.T, most int) (*Hub, *book, context.CancelFunc) {
	t.Helper()
	life, end := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(end)
	b := &book{last: 2, mark: 1}
	return New(life, b, Options{Most: most, Log: slog.New(slog.DiscardHandler)}), b, end
}

func take(t *testing.T, h *Hub, org uuid.UUID) *Place {
	t.Helper()
	p, err := h.Take(org)
	require.NoError(t, err)
	return p
}

func next(t *testing.T, l *Listener) (nos []int64) {
	t.Helper()
	select {
	case events := <-l.Events:
		for _, e := range events {
			nos = append(nos, e.No)
		}
		return nos
	case <-time.After(60 * time.Second):
		t.Fatal("nothing came")
		return nil
	}
}

func TestListen_GoesOnBehindWhatWasSeen(t *testing.T) {
	t.Parallel()
	h, b, _ := open(t, 0)
	batch := uuid.New()
	p := take(t, h, uuid.New())
	first := p.Listen(batch, 3, 7, 1, 2)
	b.write(2)
	assert.Equal(t, []int64{3, 4}, next(t, first))
	q := take(t, h, uuid.New())
	late := q.Listen(batch, 3, 8, 1, 3) // of the same slice, whose mark is known by now
	assert.Equal(t, []int64{4}, next(t, late))
	b.write(1)
	assert.Equal(t, []int64{5}, next(t, first))
	assert.Equal(t, []int64{5}, next(t, late))
	p.GiveBack()
	q.GiveBack()
	assert.Empty(t, h.batches)
}

// TestListen_SlowReader: what a reader does not take comes later, with the rest, and holds up nobody else.
func TestListen_SlowReader(t *testing.T) {
	t.Parallel()
	h, b, _ := open(t, 0)
	batch := uuid.New()
	p := take(t, h, uuid.New())
	slow, quick := p.Listen(batch, 0, 0, 1, 2), take(t, h, uuid.New()).Listen(batch, 0, 1, 1, 2)
	for no := int64(3); no <= 6; no++ {
		b.write(1)
		assert.Equal(t, []int64{no}, next(t, quick))
	}
	var got []int64
	for len(got) < 4 {
		got = append(got, next(t, slow)...)
	}
	assert.Equal(t, []int64{3, 4, 5, 6}, got)
}

// TestListen_JoinsDuringALook: what is read for those who were there must not count as read for who came.
func TestListen_JoinsDuringALook(t *testing.T) {
	t.Parallel()
	h, b, _ := open(t, 0)
	batch, held := uuid.New(), make(chan struct{})
	b.held = held
	b.write(1)
	p := take(t, h, uuid.New())
	first := p.Listen(batch, 0, 0, 1, 2)
	require.Eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.looks > 0 }, 60*time.Second,
		time.Millisecond)
	second := take(t, h, uuid.New()).Listen(batch, 0, 1, 1, 2)
	b.set(func(b *book) { b.held = nil })
	close(held)
	assert.Equal(t, []int64{3}, next(t, first))
	assert.Equal(t, []int64{3}, next(t, second))
}

// TestLook_OnlyWhileSomebodyListens, and what has not changed is not read again.
func TestLook_OnlyWhileSomebodyListens(t *testing.T) {
	t.Parallel()
	h, b, _ := open(t, 0)
	looks := func() int { b.mu.Lock(); defer b.mu.Unlock(); return b.looks }
	for range 2 {
		began := looks()
		p := take(t, h, uuid.New())
		p.Listen(uuid.New(), 0, 0, 1, 2)
		require.Eventually(t, func() bool { return looks() > began+2 }, 60*time.Second, time.Millisecond)
		p.GiveBack()
		require.Eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return !h.polling }, 60*time.Second,
			time.Millisecond)
	}
	assert.Equal(t, 2, b.read, "once for each who came")
}

// TestChanged: what this process has changed is looked at without the rest, and nothing else is.
func TestChanged(t *testing.T) {
	t.Parallel()
	h, b, _ := open(t, 0)
	moving, still := uuid.New(), uuid.New()
	seen := make(chan struct{}, 1000)
	b.alone = map[uuid.UUID]chan struct{}{moving: seen}
	p := take(t, h, uuid.New())
	waits := take(t, h, uuid.New()).Listen(still, 0, 0, 1, 2)
	follows := p.Listen(moving, 0, 0, 1, 2)
	for no := int64(3); no < 6; no++ {
		b.write(1)
		h.Changed([]uuid.UUID{uuid.New(), moving})
		select {
		case <-seen:
		case <-time.After(60 * time.Second):
			t.Fatal("nobody looked at what has changed alone")
		}
		assert.Equal(t, []int64{no}, next(t, follows))
		assert.Equal(t, []int64{no}, next(t, waits), "by a look at everything")
	}
	p.GiveBack()
	require.Eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return !h.pollingOwn }, 60*time.Second,
		time.Millisecond)
	h.Changed([]uuid.UUID{moving})
	h.mu.Lock()
	defer h.mu.Unlock()
	assert.False(t, h.pollingOwn, "nobody follows it any more")
}

// TestLook_Fails: a failure, or a panic, is waited out.
func TestLook_Fails(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(b *book, bad bool){
		"error": func(b *book, bad bool) { b.fails = bad },
		"panic": func(b *book, bad bool) { b.panics = bad },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, b, _ := open(t, 0)
			b.set(func(b *book) { spoil(b, true) })
			l := take(t, h, uuid.New()).Listen(uuid.New(), 0, 0, 1, 2)
			require.Eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.looks > 0 }, 60*time.Second,
				time.Millisecond)
			b.write(1)
			b.set(func(b *book) { spoil(b, false) })
			assert.Equal(t, []int64{3}, next(t, l))
		})
	}
}

func TestTake(t *testing.T) {
	t.Parallel()
	h, _, end := open(t, 4)
	one, two, three := uuid.New(), uuid.New(), uuid.New()
	a := take(t, h, one)
	take(t, h, one)
	refused := func(org uuid.UUID, why string) {
		_, err := h.Take(org)
		require.True(t, fault.Is(err, fault.Unavailable), why)
		var f *fault.Error
		require.ErrorAs(t, err, &f)
		assert.Equal(t, retryAfter, f.RetryAfter)
	}
	refused(one, "half of the places are for one organization")
	take(t, h, two)
	take(t, h, two)
	refused(three, "no place is left")
	a.GiveBack()
	a.GiveBack()
	assert.Equal(t, 3, h.Listeners())
	l := take(t, h, three).Listen(uuid.New(), 0, 0, 1, 2)
	end()
	<-l.Done()
	refused(one, "the process ends")
}

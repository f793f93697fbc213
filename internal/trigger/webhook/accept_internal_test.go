package webhook

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"

	"flowlane/gen/db"
)

func TestLeft(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	assert.Equal(t, time.Duration(1), left(began, began.Add(minute-1)))
	assert.Equal(t, minute, left(began, began.Add(-time.Second)), "never more than a minute")
}

func TestRetry_After(t *testing.T) {
	t.Parallel()
	r := &Retry{MaxAttempts: 4, Backoff: Backoff{Initial: 1.5, Factor: 10, Max: 100}}
	for attempts, want := range map[int]time.Duration{1: 1500 * time.Millisecond, 2: 15 * time.Second,
		3: 100 * time.Second} {
		pause, again := r.After(attempts)
		assert.True(t, again)
		assert.Equal(t, want, pause)
	}
	_, again := r.After(4)
	assert.False(t, again)
	_, again = (*Retry)(nil).After(1)
	assert.False(t, again, "one attempt where authors say nothing")
	pause, again := (&Retry{MaxAttempts: 20, Backoff: Backoff{Initial: 3600, Factor: 10, Max: 86400}}).After(19)
	assert.True(t, again)
	assert.Equal(t, 24*time.Hour, pause)
}

func TestTogether(t *testing.T) {
	t.Parallel()
	of := func(sizes ...int) (all []*arrival) {
		for _, n := range sizes {
			all = append(all, &arrival{message: Message{Body: make([]byte, n)}})
		}
		return all
	}
	assert.Equal(t, 3, groupSize(of(1, 2, 3)))
	assert.Equal(t, 1, groupSize(of(acceptBytes+1, 1)), "one at least")
	assert.Equal(t, 2, groupSize(of(acceptBytes/2, acceptBytes/2, 1)))
	assert.Equal(t, acceptRows, groupSize(of(make([]int, acceptRows+1)...)))
}

// Items of one key are served in their order, none twice, never two parts at once; what comes meanwhile is served
// together.
func TestLines(t *testing.T) {
	t.Parallel()
	var l lines[int]
	id := uuid.New()
	began, goOn := make(chan struct{}), make(chan struct{})
	var served [][]int
	var group sync.WaitGroup
	group.Add(4)
	serve := func(items []int) {
		served = append(served, items)
		if len(served) == 1 {
			close(began)
			<-goOn
		}
		for range items {
			group.Done()
		}
	}
	l.join(id, 1, serve)
	<-began
	for i := range 3 {
		l.join(id, 2+i, serve)
	}
	other := make(chan []int, 1)
	l.join(uuid.New(), 9, func(items []int) { other <- items })
	assert.Equal(t, []int{9}, <-other, "others do not wait")
	close(goOn)
	group.Wait()
	assert.Equal(t, [][]int{{1}, {2, 3, 4}}, served)
	assert.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.waiting) == 0
	}, time.Minute, time.Millisecond, "nothing is kept of what is over")
}

// A copy of secrets counts only for its version.
func TestCopies(t *testing.T) {
	t.Parallel()
	var c copies
	id := uuid.New()
	_, ok := c.get(id, 1)
	assert.False(t, ok)
	c.put(uuid.New(), id, secrets{Current: "a"}, 1)
	got, ok := c.get(id, 1)
	assert.True(t, ok)
	assert.Equal(t, "a", got.Current)
	_, ok = c.get(id, 2)
	assert.False(t, ok)
	now := time.Now()
	_, ok = c.recent(id, now)
	assert.False(t, ok, "nobody has seen it open")
	c.saw(id, 1, now.Add(time.Hour), now)
	found, ok := c.recent(id, now.Add(recentFor-1))
	assert.True(t, ok)
	assert.Equal(t, now.Add(time.Hour+recentFor-1), found.now)
	_, ok = c.recent(id, now.Add(recentFor))
	assert.False(t, ok)
	c.saw(uuid.New(), 1, now, now)
	assert.Len(t, c.of, 1, "what is not kept is not seen")
	for range 2 * maxCopies {
		c.put(uuid.New(), uuid.New(), secrets{}, 1)
	}
	assert.LessOrEqual(t, len(c.of), maxCopies)
}

func TestSecrets_Valid(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s := secrets{Current: "c", Previous: []previous{{Secret: "a", Until: now},
		{Secret: "b", Until: now.Add(time.Hour)}}}
	assert.Equal(t, []string{"c", "a", "b"}, s.valid(now.Add(-1)))
	assert.Equal(t, []string{"c", "b"}, s.valid(now))
	assert.Equal(t, []string{"c"}, s.valid(now.Add(time.Hour)))
	assert.Equal(t, []string{"b"}, (&secrets{Current: "b"}).valid(time.Time{}))
}

func TestWriting(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	of := func(message string, version int64, at time.Time) *arrival {
		return &arrival{message: Message{ID: message}, secretVersion: version, at: at}
	}
	a1, old, b, a2 := of("a", 2, now), of("a", 1, now.Add(-time.Hour)), of("b", 2, now.Add(time.Second)),
		of("a", 2, time.Time{})
	w := newWriting(uuid.New(), []*arrival{a1, old, b, a2})
	assert.Equal(t, [][]*arrival{{a1, a2}, {b}}, w.groups)
	assert.Equal(t, []any{int64(2), 2}, []any{w.secretVersion, w.needed})
	assert.ErrorIs(t, old.err, errChanged, "it was verified with secrets that are others by now")
	assert.Equal(t, []time.Time{now.Add(time.Second - drift), now.Add(drift)}, []time.Time{w.earliest, w.latest},
		"no clock that was not asked may be off")
	w.outdate(now.Add(drift/2 + 1))
	assert.ErrorIs(t, a1.err, errChanged, "it was verified too long ago")
	assert.Equal(t, [][]*arrival{{a2}, {b}}, w.groups, "the others go on")
	assert.NoError(t, errors.Join(b.err, a2.err))
	assert.Equal(t, []any{2, now.Add(time.Second - drift), now.Add(time.Second + drift)}, []any{w.needed, w.earliest,
		w.latest})
	asked := newWriting(uuid.New(), []*arrival{a2})
	assert.True(t, asked.earliest.Before(now.AddDate(-1, 0, 0)) && asked.latest.After(now.AddDate(100, 0, 0)),
		"one that was asked may take its time")
}

func TestWriting_Fit(t *testing.T) {
	t.Parallel()
	var all []*arrival
	for _, id := range []string{"a", "b", "c", "b", "d", "d"} {
		all = append(all, &arrival{message: Message{ID: id}})
	}
	w := newWriting(uuid.New(), all)
	w.fit(&db.WebhookAcceptRow{Most: 10, Used: 8}, []string{"c"})
	assert.Equal(t, 2, w.needed, "what is known needs no room")
	assert.Len(t, w.groups, 3)
	refused := func() (ids []string) {
		for _, a := range all {
			if a.err != nil {
				ids = append(ids, a.message.ID)
			}
		}
		return ids
	}
	assert.Empty(t, refused(), "the minute is not full before they are written")
	assert.Equal(t, []string{"a", "b", "c", "d"}, w.messages())
	w.fit(&db.WebhookAcceptRow{Most: 10, Used: 10}, []string{"b", "c", "d"})
	assert.Equal(t, []string{"a"}, refused(), "others took the room")
	assert.Zero(t, w.needed)
	assert.Equal(t, []string{"b", "c", "d"}, w.messages())
}

// Ids sort by arrival, and what is written by message.
func TestParams(t *testing.T) {
	t.Parallel()
	s := &Service{Deps: Deps{Due: noDue{}}}
	var all []*arrival
	for _, id := range []string{"c", "a", "c", "b"} {
		all = append(all, newArrival(Message{ID: id, Body: []byte(id)}, 1, time.Time{}))
	}
	in := s.params(newWriting(uuid.New(), all))
	assert.Equal(t, []string{"a", "b", "c"}, in.MessageIds)
	assert.Equal(t, [][]byte{[]byte("a"), []byte("b"), []byte("c")}, in.Bodies)
	assert.Equal(t, []int64{0, 0, 1}, in.Copies)
	at := func(i int) string { return in.Ids[i].String() }
	assert.True(t, at(2) < at(0) && at(0) < at(1), in.Ids)
}

type noDue struct{ Scheduler }

func (noDue) Lease(string) time.Duration { return time.Second }

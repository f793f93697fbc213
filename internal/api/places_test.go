package api

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// placeLine takes places and tells which are waited for.
type placeLine struct {
	*places

	t *testing.T
}

// takes begins to take a place.
func (l placeLine) takes(org uuid.UUID) <-chan *place {
	got := make(chan *place, 1)
	go func() {
		h, err := l.take(l.t.Context(), org)
		assert.NoError(l.t, err)
		got <- h
	}()
	synctest.Wait()
	return got
}

// TestPlaces: an organization that has its share waits, another one does not; who has fewer comes first.
func TestPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := placeLine{newPlaces(4), t}
		one, two, three := uuid.New(), uuid.New(), uuid.New()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		held := []*place{<-s.takes(one), <-s.takes(one)}
		_, err := s.take(over, one)
		require.ErrorIs(t, err, context.Canceled, "it has half of all")
		held = append(held, <-s.takes(two), <-s.takes(two))
		_, err = s.take(over, three)
		require.ErrorIs(t, err, context.Canceled, "all are taken")

		first, second, third := s.takes(one), s.takes(three), s.takes(three)
		require.Empty(t, first)
		held[2].release()
		last := []*place{<-second}
		assert.Empty(t, first, "it has more")
		held[0].release()
		last = append(last, <-first)
		held[1].release()
		last = append(last, <-third, held[3])
		for _, h := range last {
			h.release()
		}
		assert.Empty(t, s.of)
		assert.Empty(t, s.queued)
		assert.Zero(t, s.taken)
	})
}

// TestPlaces_Turn: who has had a place for a turn gives it back to an organization that has fewer; one at a time, of the
// organization that has the most.
func TestPlaces_Turn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := placeLine{newPlaces(6), t}
		one, two, three := uuid.New(), uuid.New(), uuid.New()
		a, b, c := <-s.takes(one), <-s.takes(one), <-s.takes(one)
		d, e := <-s.takes(two), <-s.takes(two)
		f := <-s.takes(three)
		yield := func() (all []bool) {
			for _, h := range []*place{a, b, c, d, e, f} {
				all = append(all, h.yields(time.Now()))
			}
			return all
		}
		none := []bool{false, false, false, false, false, false}
		<-time.After(placeTurn)
		assert.Equal(t, none, yield(), "nobody waits")
		own, same := s.takes(one), s.takes(two)
		assert.Equal(t, none, yield(), "it would have as many as those have who give it one")
		fewer := s.takes(uuid.New())
		assert.False(t, d.yields(time.Now()), "another organization has more")
		assert.Equal(t, []bool{true, false, false, false, false, false}, yield())
		assert.Equal(t, none, yield(), "one is on its way")
		a.release()
		a = <-fewer
		assert.Equal(t, none, yield(), "they are shared as well as can be")
		last := s.takes(uuid.New())
		assert.Equal(t, []bool{false, true, false, false, false, false}, yield(), "whose turn has just begun keeps it")
		b.release()
		b = <-last
		for _, h := range []*place{a, b, c, d, e, f} {
			h.release()
		}
		(<-own).release()
		(<-same).release()
		assert.Zero(t, s.taken)
		assert.False(t, s.yielding)

		a = <-s.takes(one)
		<-time.After(placeTurn - 1)
		for range s.all {
			s.takes(uuid.New())
		}
		assert.False(t, a.yields(time.Now()))
		<-time.After(1)
		assert.True(t, a.yields(time.Now()), "an organization has none")
		a.release()

		s = placeLine{newPlaces(6), t}
		for _, org := range []uuid.UUID{one, one, two, three, uuid.New()} {
			<-s.takes(org)
		}
		a = <-s.takes(one)
		second := s.takes(two)
		<-time.After(placeTurn)
		assert.True(t, a.yields(time.Now()), "another has one, and would have fewer with two")
		a.release()
		<-second
	})
}

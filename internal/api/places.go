package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// places bounds how many large things are in memory at once. The next place goes to the organization that has the
// fewest, of those to the request that has waited longest. One organization gets half of them at most, so that its
// slow clients do not hold up everybody else's.
type places struct {
	all, share int

	mu    sync.Mutex
	taken int
	// of is how many each organization has that has any.
	of     map[uuid.UUID]int
	queued []*placeWaiter
	// yielding is set from when a place is asked back until it is.
	yielding bool
}

type placeWaiter struct {
	org   uuid.UUID
	ready chan struct{}
}

// place is one that is taken. Release it once.
type place struct {
	places *places
	org    uuid.UUID
	since  time.Time
	// yielding tells that it was asked back.
	yielding bool
}

// placeTurn is how long a place is had whoever waits.
const placeTurn = 10 * time.Second

func newPlaces(n int) *places { return &places{all: n, share: max(n/2, 1), of: map[uuid.UUID]int{}} }

// take waits for a place.
func (s *places) take(ctx context.Context, orgID uuid.UUID) (*place, error) {
	w := &placeWaiter{orgID, make(chan struct{})}
	s.mu.Lock()
	s.queued = append(s.queued, w)
	s.serve()
	waits := slices.Contains(s.queued, w)
	s.mu.Unlock()
	if waits {
		select {
		case <-w.ready:
		case <-ctx.Done():
			s.leave(w)
			return nil, fmt.Errorf("wait for room: %w", ctx.Err())
		}
	}
	return &place{places: s, org: orgID, since: time.Now()}, nil
}

// leave takes a request out of the line.
func (s *places) leave(w *placeWaiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.queued, w); at >= 0 {
		s.queued = slices.Delete(s.queued, at, at+1)
		return
	}
	s.free(w.org) // it came at the same time
}

// serve gives free places to those who wait.
func (s *places) serve() {
	for s.taken < s.all {
		next := -1
		for i, w := range s.queued {
			if n := s.of[w.org]; n < s.share && (next < 0 || n < s.of[s.queued[next].org]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := s.queued[next]
		s.queued = slices.Delete(s.queued, next, next+1)
		s.taken++
		s.of[w.org]++
		close(w.ready)
	}
}

func (s *places) free(org uuid.UUID) {
	s.taken--
	if s.of[org]--; s.of[org] == 0 {
		delete(s.of, org)
	}
	s.serve()
}

func (h *place) release() {
	h.places.mu.Lock()
	defer h.places.mu.Unlock()
	if h.yielding {
		h.places.yielding = false
	}
	h.places.free(h.org)
}

// yields reports whether a place must be released before its work is done: its turn is over, another organization waits
// that has none, or fewer even with one more, and no organization has more than its own. One place at a time is asked
// back.
func (h *place) yields(now time.Time) bool {
	if now.Sub(h.since) < placeTurn {
		return false
	}
	s := h.places
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[h.org]
	if s.yielding || own < slices.Max(slices.Collect(maps.Values(s.of))) {
		return false
	}
	h.yielding = slices.ContainsFunc(s.queued, func(w *placeWaiter) bool {
		n := s.of[w.org]
		return n == 0 || n+1 < own
	})
	s.yielding = h.yielding
	return h.yielding
}

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

// slots bounds how many large things are in memory at once. The next slot goes to the organization that has the fewest,
// of those to the request that has waited longest. One organization gets half of them at most, so that its slow
// clients do not hold up everybody else's.
type slots struct {
	all, share int

	mu    sync.Mutex
	taken int
	// of is how many each organization has that has any.
	of     map[uuid.UUID]int
	queued []*slotWaiter
	// yielding is set from when a slot is asked back until it is.
	yielding bool
}

type slotWaiter struct {
	org   uuid.UUID
	ready chan struct{}
}

// slot is one that is taken. Release it once.
type slot struct {
	slots *slots
	org   uuid.UUID
	since time.Time
	// yielding tells that it was asked back.
	yielding bool
}

// slotTurn is how long a slot is had whoever waits.
const slotTurn = 10 * time.Second

func newSlots(n int) *slots { return &slots{all: n, share: max(n/2, 1), of: map[uuid.UUID]int{}} }

// take waits for a slot.
func (s *slots) take(ctx context.Context, orgID uuid.UUID) (*slot, error) {
	w := &slotWaiter{orgID, make(chan struct{})}
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
	return &slot{slots: s, org: orgID, since: time.Now()}, nil
}

// leave takes a request out of the line.
func (s *slots) leave(w *slotWaiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.queued, w); at >= 0 {
		s.queued = slices.Delete(s.queued, at, at+1)
		return
	}
	s.free(w.org) // it came at the same time
}

// serve gives free slots to those who wait.
func (s *slots) serve() {
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

func (s *slots) free(org uuid.UUID) {
	s.taken--
	if s.of[org]--; s.of[org] == 0 {
		delete(s.of, org)
	}
	s.serve()
}

func (h *slot) release() {
	h.slots.mu.Lock()
	defer h.slots.mu.Unlock()
	if h.yielding {
		h.slots.yielding = false
	}
	h.slots.free(h.org)
}

// yields reports whether a slot must be released before its work is done: its turn is over, another organization waits
// that has none, or fewer even with one more, and no organization has more than its own. One slot at a time is asked
// back.
func (h *slot) yields(now time.Time) bool {
	if now.Sub(h.since) < slotTurn {
		return false
	}
	s := h.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[h.org]
	if s.yielding || own < slices.Max(slices.Collect(maps.Values(s.of))) {
		return false
	}
	h.yielding = slices.ContainsFunc(s.queued, func(w *slotWaiter) bool {
		n := s.of[w.org]
		return n == 0 || n+1 < own
	})
	s.yielding = h.yielding
	return h.yielding
}

package api

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/uuid"
)

// slots bounds how many large things are in memory at once. One organization gets half of them at most, so that its slow
// clients do not hold up everybody else's.
type slots struct {
	all   chan struct{}
	share int

	mu sync.Mutex
	of map[uuid.UUID]*orgSlots
}

// orgSlots are those of one organization, for as long as a request of it waits for one or has one.
type orgSlots struct {
	taken chan struct{}
	users int
}

func newSlots(n int) *slots {
	return &slots{all: make(chan struct{}, n), share: max(n/2, 1), of: map[uuid.UUID]*orgSlots{}}
}

// take waits for a slot; release gives it back.
func (s *slots) take(ctx context.Context, orgID uuid.UUID) (release func(), err error) {
	own := s.join(orgID)
	select {
	case own.taken <- struct{}{}:
	case <-ctx.Done():
		s.leave(orgID, own)
		return nil, fmt.Errorf("wait for room: %w", ctx.Err())
	}
	giveBack := func() {
		<-own.taken
		s.leave(orgID, own)
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		giveBack()
		return nil, fmt.Errorf("wait for room: %w", ctx.Err())
	}
	return func() {
		<-s.all
		giveBack()
	}, nil
}

func (s *slots) join(orgID uuid.UUID) *orgSlots {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[orgID]
	if own == nil {
		own = &orgSlots{taken: make(chan struct{}, s.share)}
		s.of[orgID] = own
	}
	own.users++
	return own
}

func (s *slots) leave(orgID uuid.UUID, own *orgSlots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(s.of, orgID)
	}
}

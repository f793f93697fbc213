package credential

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/fault"
	"flowlane/internal/moment"
	"flowlane/internal/platform/provider"
)

// keepLeast and keepMost bound the pause before another try to store tokens.
const (
	keepLeast = 100 * time.Millisecond
	keepMost  = time.Second
)

// unkept are the credentials whose new tokens this process has in memory only, because they could not be stored. They
// may be what replaced a refresh token that was good once.
type unkept struct {
	mu   sync.Mutex
	of   map[uuid.UUID]int
	stop chan struct{}
	once sync.Once
}

func newUnkept() *unkept { return &unkept{of: map[uuid.UUID]int{}, stop: make(chan struct{})} }

func (u *unkept) add(id uuid.UUID, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[id] += n; u.of[id] == 0 {
		delete(u.of, id)
	}
}

func (u *unkept) has(id uuid.UUID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.of[id] > 0
}

func (u *unkept) empty() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.of) == 0
}

// keepTrying stores tokens as soon as that can be done, unless there are newer ones then or the credential is gone.
// Even a credential that is lost by then, since somebody asked with the old refresh token, is good again with them.
func (s *Service) keepTrying(ctx context.Context, t turn, got provider.Tokens) {
	ctx = context.WithoutCancel(ctx)
	s.unkept.add(t.id, 1)
	go func() {
		defer s.unkept.add(t.id, -1)
		for n := 0; ; n++ {
			select {
			case <-s.unkept.stop:
				return
			case <-time.After(moment.Backoff(n, keepLeast, keepMost)):
			}
			if _, err := s.keep(ctx, t, got); err == nil || fault.Is(err, fault.NotFound) {
				return
			}
		}
	}()
}

// Finish waits for tokens that are not stored yet, until ctx ends; nothing is stored after it.
func (s *Service) Finish(ctx context.Context) {
	for !s.unkept.empty() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(askEvery):
		}
	}
	s.unkept.once.Do(func() { close(s.unkept.stop) })
}

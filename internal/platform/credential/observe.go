package credential

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
)

const (
	// stampEvery is how often uses of one kind that follow each other are written: a batch makes thousands of calls a
	// minute.
	stampEvery = 30 * time.Second
	// changeEvery is how often a kind is written that takes turns with others.
	changeEvery = time.Second
)

// Use is one attempt with a credential.
type Use struct {
	OrgID, CredentialID uuid.UUID
	ServiceID           string
	At                  time.Time
	// Failure is one of the classes of package provider; empty for a success.
	Failure string
}

// Observe records a use by a worker. A kind of use that is new, success or a class of failure, is written at once;
// while nothing changes a record may be stampEvery older than the newest call. What is left out costs no statement.
func (s *Service) Observe(ctx context.Context, use Use) error {
	if !s.stamps.due(use) {
		return nil
	}
	err := s.stamp(ctx, s.pool, use)
	if err != nil {
		s.stamps.forget(use)
	}
	return err
}

func (s *Service) stamp(ctx context.Context, q db.DBTX, use Use) error {
	var class *string
	if use.Failure != "" {
		class = &use.Failure
	}
	err := s.queries.CredentialStamp(ctx, q, db.CredentialStampParams{
		OrgID: use.OrgID, ID: use.CredentialID, ServiceID: use.ServiceID, UsedAt: use.At, FailureClass: class,
	})
	if err != nil {
		return fmt.Errorf("record the use of credential %s: %w", use.CredentialID, err)
	}
	return nil
}

type stampKey struct {
	credential uuid.UUID
	service    string
}

// stamped says when each kind of use (a failure class, or empty) was last written, and which one last.
type stamped struct {
	at     map[string]time.Time
	latest string
}

// stamps remembers what this process has written.
type stamps struct {
	mu   sync.Mutex
	last map[stampKey]*stamped
}

func newStamps() *stamps { return &stamps{last: map[stampKey]*stamped{}} }

// due tells whether a use is to be written, and takes it for written.
func (s *stamps) due(use Use) bool {
	key := stampKey{use.CredentialID, use.ServiceID}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last[key]
	if last == nil {
		if len(s.last) >= maxPaused {
			clear(s.last) // an extra write each is cheaper than a list by age
		}
		last = &stamped{at: map[string]time.Time{}}
		s.last[key] = last
	}
	every := stampEvery
	if use.Failure != last.latest {
		every = changeEvery
	}
	if at, ok := last.at[use.Failure]; ok && use.At.Sub(at) < every {
		return false
	}
	last.at[use.Failure], last.latest = use.At, use.Failure
	return true
}

// forget makes the next use due again.
func (s *stamps) forget(use Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, stampKey{use.CredentialID, use.ServiceID})
}

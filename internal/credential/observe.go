package credential

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
)

// stampEvery is how often the same kind of use of a credential is written: a batch makes thousands of calls a minute.
const stampEvery = 30 * time.Second

// Use is one attempt with a credential.
type Use struct {
	OrgID, CredentialID uuid.UUID
	ServiceID           string
	At                  time.Time
	// Failure is one of the classes of package provider; empty for a success.
	Failure string
}

// Observe records a use by a worker. Uses of one kind within stampEvery of a written one are left out, so that the record
// may be that much older than the newest call.
func (s *Service) Observe(ctx context.Context, q db.DBTX, use Use) error {
	if !s.stamps.due(use) {
		return nil
	}
	return s.stamp(ctx, q, use)
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
	failure    string
}

// stamps remembers when each kind of use was last written.
type stamps struct {
	mu   sync.Mutex
	last map[stampKey]time.Time
}

func newStamps() *stamps { return &stamps{last: map[stampKey]time.Time{}} }

func (s *stamps) due(use Use) bool {
	key := stampKey{use.CredentialID, use.ServiceID, use.Failure}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.last[key]; ok && use.At.Sub(last) < stampEvery {
		return false
	}
	if len(s.last) >= maxHeld {
		clear(s.last) // an extra write each is cheaper than a list by age
	}
	s.last[key] = use.At
	return true
}

package account

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/cell"
)

// RefusalError is why a sign-in was refused. Callers see no more of it than the fault that it wraps.
type RefusalError struct {
	// Reason is one of Reasons.
	Reason string
	// OrgID, AccountID and KeyID say whose it was, as far as that is known.
	OrgID, AccountID, KeyID uuid.UUID
}

const (
	malformedKey   = "malformed_key"
	unknownKey     = "unknown_key"
	badToken       = "bad_token"
	badSession     = "bad_session"
	unknownOrg     = "unknown_organization"
	suspended      = "suspended"
	reasonOfStatus = "_key" // behind what the status of a key is
)

// Reasons are all reasons for which a sign-in is refused.
var Reasons = []string{
	malformedKey, unknownKey, "revoked" + reasonOfStatus, "expired" + reasonOfStatus, badToken, badSession, unknownOrg,
	suspended,
}

func refused(reason string) error { return &RefusalError{Reason: reason} }

// Error implements error.
func (r *RefusalError) Error() string { return "the sign-in was refused: " + r.Reason }

// Unwrap returns an Unauthenticated fault.
func (r *RefusalError) Unwrap() error { return errUnauthenticated }

// SignIn is somebody who wants to be let in.
type SignIn struct {
	// Key is the API key, empty for a bearer token.
	Key string
	// Address is the network address of the client, or of the proxy in front of it.
	Address string
	// Operation is what the client asked for.
	Operation Operation
}

// shownChars are the characters of a secret that may be told; 256 random bits lose nothing by it.
const shownChars = 4

// prefix is how the key begins. What is no key may be another secret, of which nothing is told.
func (in SignIn) prefix() string {
	prefix := prefixOf(in.Key)
	if prefix == "" {
		return ""
	}
	return in.Key[:len(prefix)+shownChars]
}

// Refused counts a sign-in that was refused with err, and writes down the first of equal ones in a minute: in the log,
// and in the audit log of its organization where that is known. Other errors are none of its business.
func (s *Service) Refused(ctx context.Context, in SignIn, err error) {
	var r *RefusalError
	if !errors.As(err, &r) {
		return
	}
	if s.cfg.Refused != nil {
		s.cfg.Refused(r.Reason)
	}
	if !s.refusals.first(s.cfg.Now(), in.prefix(), in.Address, r.Reason, r.OrgID.String()) {
		return
	}
	s.cfg.Log.InfoContext(ctx, "a sign-in was refused", "reason", r.Reason, "key_prefix", in.prefix(), "address",
		in.Address,
		"org_id", r.OrgID, "request_id", in.Operation.RequestID)
	if r.OrgID == uuid.Nil {
		return
	}
	err = db.New().AuditRefused(ctx, s.cfg.Pool, db.AuditRefusedParams{
		ID: cell.NewID(), OrgID: r.OrgID, AccountID: orNil(r.AccountID), ApiKeyID: orNil(r.KeyID),
		Action: in.Operation.ID, Reason: r.Reason, Address: in.Address, RequestID: in.Operation.RequestID,
	})
	if err != nil {
		s.cfg.Log.WarnContext(ctx, "a refused sign-in is not in the audit log", "request_id", in.Operation.RequestID,
			"error", err)
	}
}

const (
	// seldomEvery is how long something that was told is not told again.
	seldomEvery = time.Minute
	// seldomMost bounds what is told in that time, and what is remembered: whoever changes his address each time fills
	// neither the disk nor the memory.
	seldomMost = 1000
)

// seldom tells the first of equal things from its repetitions.
type seldom struct {
	mu     sync.Mutex
	logged map[[sha256.Size]byte]time.Time
}

// first reports whether something was not told within seldomEvery of now, and may be told.
func (s *seldom) first(now time.Time, what ...string) bool {
	h := sha256.New()
	for _, text := range what {
		sum := sha256.Sum256([]byte(text))
		h.Write(sum[:])
	}
	key := [sha256.Size]byte(h.Sum(nil))
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.logged[key]; ok && now.Sub(at) < seldomEvery {
		return false
	}
	if len(s.logged) >= seldomMost {
		for k, at := range s.logged {
			if now.Sub(at) >= seldomEvery {
				delete(s.logged, k)
			}
		}
		if len(s.logged) >= seldomMost {
			return false
		}
	}
	if s.logged == nil {
		s.logged = map[[sha256.Size]byte]time.Time{}
	}
	s.logged[key] = now
	return true
}

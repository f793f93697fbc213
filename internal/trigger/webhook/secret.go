package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
)

// overlap is for how long the secret before a rotation stays valid, however often it is rotated meanwhile.
const overlap = 24 * time.Hour

// maxPrevious bounds the secrets beside the current one: every delivery is compared with all of them.
const maxPrevious = 10

// secrets are those of one webhook, as the vault keeps them.
type secrets struct {
	Current string `json:"current"`
	// Previous are those that were the current one, oldest first.
	Previous []previous `json:"previous,omitempty"`
}

// previous is a secret that is valid up to a time.
type previous struct {
	Secret string    `json:"secret"`
	Until  time.Time `json:"until"`
}

const redacted = "[redacted]"

// String hides them from logs and errors.
func (secrets) String() string { return redacted }

// GoString hides them from %#v.
func (secrets) GoString() string { return redacted }

// String hides it from logs and errors.
func (previous) String() string { return redacted }

// GoString hides it from %#v.
func (previous) GoString() string { return redacted }

// seal stores the secrets of a webhook and returns their version.
func (s *Service) seal(ctx context.Context, tx pgx.Tx, orgID, id uuid.UUID, all secrets) (int64, error) {
	plain, err := json.Marshal(all)
	if err != nil {
		return 0, fmt.Errorf("encode the secrets of webhook %s: %w", id, err)
	}
	return s.Vault.Put(ctx, tx, orgID, id, plain)
}

// open returns the secrets of a webhook, and their version.
func (s *Service) open(ctx context.Context, q db.DBTX, orgID, id uuid.UUID) (secrets, int64, error) {
	plain, version, err := s.Vault.Get(ctx, q, orgID, id)
	if err != nil {
		return secrets{}, 0, err
	}
	var all secrets
	if json.Unmarshal(plain, &all) != nil {
		// The decoder's error could quote the text.
		return secrets{}, 0, errors.New("the stored secrets of a webhook cannot be read")
	}
	return all, version, nil
}

// Rotate makes a new secret, and says until when the one before is valid. Those before that stay valid up to their own
// times. Faults: NotFound; Conflict while maxPrevious of them are.
func (s *Service) Rotate(ctx context.Context, orgID, id uuid.UUID) (secret string, previousUntil time.Time, err error) {
	if secret, err = NewSecret(); err != nil {
		return "", time.Time{}, err
	}
	err = s.locked(ctx, orgID, id, func(ctx context.Context, tx pgx.Tx, _ *Webhook, now time.Time) error {
		old, _, err := s.open(ctx, tx, orgID, id)
		if err != nil {
			return err
		}
		previousUntil = now.Add(overlap)
		all, err := old.rotated(secret, now, previousUntil)
		if err != nil {
			return err
		}
		version, err := s.seal(ctx, tx, orgID, id, all)
		if err != nil {
			return err
		}
		if err := s.q.WebhookRotate(ctx, tx, db.WebhookRotateParams{OrgID: orgID, ID: id, SecretVersion: version,
			Now: now}); err != nil {
			return fmt.Errorf("rotate the secret of webhook %s: %w", id, err)
		}
		_, err = s.changed(ctx, tx, orgID, id)
		return err
	})
	return secret, previousUntil, err
}

// copyFor is how long a process keeps a copy of secrets. It is used only while its version is the current one.
const copyFor = 5 * time.Second

// recentFor is for how long a good signature need not look again: what it says is checked once more when the message is
// accepted, but for the organization, which may be suspended. A bad one always looks.
const recentFor = 800 * time.Millisecond

// maxCopies bounds how many webhooks a process has the secrets of.
const maxCopies = 1000

// copies are the secrets that a process holds.
type copies struct {
	mu sync.Mutex
	of map[uuid.UUID]copied
}

type copied struct {
	orgID   uuid.UUID
	secrets secrets
	version int64
	at      time.Time
	// asked is when the webhook was last seen open, clock the time of the database then.
	asked, clock time.Time
}

func (c *copies) get(id uuid.UUID, version int64) (secrets, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.of[id]
	return found.secrets, ok && found.version == version && time.Since(found.at) < copyFor
}

func (c *copies) put(orgID, id uuid.UUID, all secrets, version int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.of, func(_ uuid.UUID, old copied) bool { return time.Since(old.at) >= copyFor })
	if c.of == nil || len(c.of) >= maxCopies {
		c.of = map[uuid.UUID]copied{}
	}
	c.of[id] = copied{orgID: orgID, secrets: all, version: version, at: time.Now()}
}

// saw notes that a webhook is open whose secrets are of a version: asked at a time of this process, when the clock of
// the database was at another. An answer that took long says too little about the clock.
func (c *copies) saw(id uuid.UUID, version int64, clock, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one, ok := c.of[id]; ok && one.version == version && time.Since(asked) < drift/2 {
		one.clock, one.asked = clock, asked
		c.of[id] = one
	}
}

// recent is what was found lately; false where that is too long ago.
func (c *copies) recent(id uuid.UUID, now time.Time) (found, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, ok := c.of[id]
	age := now.Sub(one.asked)
	if !ok || one.asked.IsZero() || age >= recentFor {
		return found{}, false
	}
	clock := one.clock.Add(age)
	return found{open: true, orgID: one.orgID, now: clock, secrets: one.secrets.valid(clock),
		secretVersion: one.version}, true
}

// owner is the organization of a webhook; false where the process does not hold its secrets.
func (c *copies) owner(id uuid.UUID) (uuid.UUID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.of[id]
	return found.orgID, ok
}

// current returns the secrets of a webhook whose version is this one, or a newer one, with their version.
func (s *Service) current(ctx context.Context, orgID, id uuid.UUID, version int64) (secrets, int64, error) {
	if all, ok := s.copies.get(id, version); ok {
		return all, version, nil
	}
	all, version, err := s.open(ctx, s.Pool, orgID, id)
	if err == nil {
		s.copies.put(orgID, id, all, version)
	}
	return all, version, err
}

// rotated are the secrets with a new current one at a time; the one before stays valid until another. Fault: Conflict.
func (s *secrets) rotated(secret string, now, until time.Time) (secrets, error) {
	kept := s.live(now)
	if len(kept) >= maxPrevious {
		again := kept[0].Until.UTC().Truncate(time.Second).Add(time.Second) // not before it, however it is rounded
		return secrets{}, fault.New(fault.Conflict,
			"The webhook has %d earlier secrets that are still valid; it can be rotated again at %s", len(kept),
			again.Format(time.RFC3339))
	}
	return secrets{Current: secret, Previous: append(kept, previous{Secret: s.Current, Until: until})}, nil
}

// live are the earlier secrets that are valid at a time, in a slice of their own.
func (s *secrets) live(now time.Time) []previous {
	return slices.DeleteFunc(slices.Clone(s.Previous), func(p previous) bool { return !now.Before(p.Until) })
}

// valid are the secrets that may sign at a time.
func (s *secrets) valid(now time.Time) []string {
	all := []string{s.Current}
	for _, p := range s.Previous {
		if now.Before(p.Until) {
			all = append(all, p.Secret)
		}
	}
	return all
}

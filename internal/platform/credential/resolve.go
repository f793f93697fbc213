package credential

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
	"flowlane/internal/platform/vault"
)

const (
	// holdFor is how long a worker may go on with a copy: other processes see a rotation within this time. This one
	// sees its own at once.
	holdFor = 5 * time.Second
	// maxPaused bounds the copies in memory.
	maxPaused = 10_000
	// loadTries bounds how often a read that met a rotation half way begins again.
	loadTries = 5
)

// Resolved is a credential with its secret, for an outgoing request. It is shared: nobody changes it.
type Resolved struct {
	ID, OrgID  uuid.UUID
	PlatformID string
	AuthMethod string
	Secret     provider.Secret
	// TenancyID is empty until the account is identified.
	TenancyID string
	// Status is active, expired or revoked; only an active credential may be used.
	Status string
	// Version counts the rotations of the secret, from 1.
	Version int64
}

// loaded is a Resolved before its secret is made ready for a request.
type loaded struct {
	Resolved
	material secret
}

// Resolve returns the credential with its secret, at most holdFor old. A credential that is not there is a NotFound
// fault; one whose stored secret cannot be sent is an error that wraps provider.ErrSecretShape.
func (s *Service) Resolve(ctx context.Context, orgID, id uuid.UUID) (*Resolved, error) {
	key := cacheKey{orgID, id}
	held, mark := s.held.get(key)
	if held != nil {
		return held, nil
	}
	fresh, err := s.load(ctx, orgID, id)
	if err != nil {
		return nil, err
	}
	if s, err = s.seenBy(ctx, orgID, fresh.PlatformID); err != nil {
		return nil, err
	}
	if fresh.Secret, err = s.outgoingStored(fresh); err != nil {
		return nil, fmt.Errorf("credential %s: %w", id, err)
	}
	s.held.put(key, &fresh.Resolved, mark)
	return &fresh.Resolved, nil
}

// Held is Resolve for a credential that this process holds already; nil for another.
func (s *Service) Held(orgID, id uuid.UUID) *Resolved {
	held, _ := s.held.get(cacheKey{orgID, id})
	return held
}

// load reads the row and then the secret; the secret's version in both tells that they belong together.
func (s *Service) load(ctx context.Context, orgID, id uuid.UUID) (*loaded, error) {
	for range loadTries {
		row, err := s.queries.CredentialForUse(ctx, s.pool, db.CredentialForUseParams{OrgID: orgID, ID: id})
		if pg.IsNoRows(err) {
			return nil, errMissing()
		}
		if err != nil {
			return nil, fmt.Errorf("read credential %s: %w", id, err)
		}
		plain, version, err := s.vault.Get(ctx, s.pool, orgID, id)
		if errors.Is(err, vault.ErrMissing) {
			return nil, errMissing()
		}
		if err != nil {
			return nil, err
		}
		if version != row.Version {
			continue
		}
		fields, err := decodeFields(plain)
		if err != nil {
			return nil, fmt.Errorf("credential %s: %w", id, err)
		}
		stored := &row.FlowCredential
		return &loaded{
			Resolved: Resolved{
				ID: id, OrgID: orgID, PlatformID: stored.PlatformID, AuthMethod: stored.AuthMethod,
				TenancyID: textOf(stored.TenancyID), Status: stored.Status, Version: version,
			},
			material: secret{settings: settingsOf(stored), fields: fields},
		}, nil
	}
	return nil, fmt.Errorf("read credential %s: it was rotated %d times meanwhile", id, loadTries)
}

type cacheKey struct{ orgID, id uuid.UUID }

type cacheEntry struct {
	held  *Resolved
	until time.Time
}

// cache holds copies for a short time. A copy that was read before a drop is not put in after it.
type cache struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[cacheKey]cacheEntry
	drops   uint64
}

func newCache(now func() time.Time) *cache {
	return &cache{now: now, entries: map[cacheKey]cacheEntry{}}
}

// get returns the held copy, or nil and a mark for put.
func (c *cache) get(key cacheKey) (*Resolved, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok && c.now().Before(e.until) {
		return e.held, c.drops
	}
	return nil, c.drops
}

func (c *cache) put(key cacheKey, fresh *Resolved, mark uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drops != mark {
		return
	}
	now := c.now()
	if len(c.entries) >= maxPaused {
		for k, e := range c.entries {
			if !now.Before(e.until) {
				delete(c.entries, k)
			}
		}
	}
	if len(c.entries) < maxPaused {
		c.entries[key] = cacheEntry{held: fresh, until: now.Add(holdFor)}
	}
}

func (c *cache) drop(orgID, id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drops++
	delete(c.entries, cacheKey{orgID, id})
}

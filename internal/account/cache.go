package account

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/fault"
)

const (
	// cacheFor is how long an answer is good. It is counted from before the question, and leaves a margin below the one
	// second within which a revoked key must stop everywhere.
	cacheFor = 800 * time.Millisecond
	// cacheMax bounds the memory: past it the cache starts anew.
	cacheMax = 10_000
)

// cache remembers which keys or tokens are good, by a digest of their text, and asks once for many that want to know
// the same. Refusals are not remembered: a key must work as soon as it is created.
type cache struct {
	now     func() time.Time
	mu      sync.Mutex
	entries map[[32]byte]*cacheEntry
	// epoch counts forgettings: an answer to a question from before one is not kept.
	epoch uint64
}

type cacheEntry struct {
	caller    Caller
	err       error
	requested time.Time
	ready     chan struct{}
}

func newCache(now func() time.Time) *cache {
	return &cache{now: now, entries: make(map[[32]byte]*cacheEntry)}
}

func (c *cache) get(ctx context.Context, digest [32]byte, load func(context.Context) (Caller, error)) (Caller, error) {
	c.mu.Lock()
	e, ok := c.entries[digest]
	if !ok || c.now().Sub(e.requested) >= cacheFor {
		if len(c.entries) >= cacheMax {
			clear(c.entries)
		}
		e = &cacheEntry{requested: c.now(), ready: make(chan struct{})}
		c.entries[digest] = e
		go c.fill(ctx, digest, e, c.epoch, load)
	}
	c.mu.Unlock()

	select {
	case <-e.ready:
		return e.caller, e.err
	case <-ctx.Done():
		return Caller{}, ctx.Err()
	}
}

func (c *cache) fill(ctx context.Context, digest [32]byte, e *cacheEntry, epoch uint64,
	load func(context.Context) (Caller, error)) {
	caller, err := safely(ctx, load)
	c.mu.Lock()
	defer c.mu.Unlock()
	e.caller, e.err = caller, err
	close(e.ready)
	if c.entries[digest] == e && (err != nil || c.epoch != epoch) {
		delete(c.entries, digest)
	}
}

// safely makes an error of a panic, which would end the process here and is only logged in a request.
func safely(ctx context.Context, load func(context.Context) (Caller, error)) (caller Caller, err error) {
	defer fault.Recovered(&err)
	return load(ctx)
}

// forget drops what is known of keys.
func (c *cache) forget(keyIDs map[uuid.UUID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	for digest, e := range c.entries {
		if keyIDs[e.caller.KeyID] {
			delete(c.entries, digest)
		}
	}
}

// drop forgets everything.
func (c *cache) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	clear(c.entries)
}

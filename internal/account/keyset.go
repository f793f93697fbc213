package account

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"

	"flowlane/internal/fault"
)

const (
	// keysFresh is the age from which on keys are read again; what was read before is used meanwhile.
	keysFresh = 5 * time.Minute
	// keysUsable is the age from which on keys are not used any more: the provider may have withdrawn them, and what it
	// signed is hardly valid for longer.
	keysUsable = time.Hour
	// keysEvery is the least time between two readings, however many tokens name keys that nobody knows.
	keysEvery = 10 * time.Second
	// keysTimeout bounds one reading.
	keysTimeout = 5 * time.Second
)

// errNoKeys is no refusal: the token may be good.
var errNoKeys = &fault.Error{Code: fault.Unavailable, Detail: "The identity provider does not answer; try again later",
	RetryAfter: keysEvery}

// keySet is the identity provider's public keys, as storage for keyfunc. They are read when a token needs them: at once
// for a key that is not known, in the background once they are old. There is one reading at a time, shared by all who
// wait for it; jwkset's own HTTP storage has each unknown key wait for a reading of its own.
type keySet struct {
	*jwkset.MemoryJWKSet

	fetch func(ctx context.Context) ([]byte, error)
	now   func() time.Time
	log   *slog.Logger

	mu sync.Mutex
	// asOf is when the reading that gave keys began, tried when the latest one did; zero before the first.
	asOf, tried time.Time
	// reading is closed when the reading under way ends; nil when there is none.
	reading chan struct{}
}

// KeyRead returns the key of this id. Faults: Unauthenticated for a key that the provider does not have, Unavailable
// while nobody knows its keys.
func (s *keySet) KeyRead(ctx context.Context, id string) (jwkset.JWK, error) {
	key, reading, err := s.lookup(ctx, id)
	if err == nil || reading == nil {
		return key, err
	}
	select {
	case <-reading:
	case <-ctx.Done():
		return jwkset.JWK{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(ctx, id)
}

// find is KeyRead of what is known.
func (s *keySet) find(ctx context.Context, id string) (jwkset.JWK, error) {
	if s.asOf.IsZero() || s.now().Sub(s.asOf) >= keysUsable {
		return jwkset.JWK{}, errNoKeys
	}
	key, err := s.MemoryJWKSet.KeyRead(ctx, id)
	if err != nil {
		return jwkset.JWK{}, errUnauthenticated
	}
	return key, nil
}

// lookup is find, and begins a reading where one is due. reading is nil where none is under way.
func (s *keySet) lookup(ctx context.Context, id string) (key jwkset.JWK, reading <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err = s.find(ctx, id)
	now := s.now()
	due := err != nil || now.Sub(s.asOf) >= keysFresh
	if due && s.reading == nil && (s.tried.IsZero() || now.Sub(s.tried) >= keysEvery) {
		s.tried, s.reading = now, make(chan struct{})
		go s.read(context.WithoutCancel(ctx), now)
	}
	return key, s.reading, err
}

// read replaces the keys. It does not end with the request that began it, because others wait for it too.
func (s *keySet) read(ctx context.Context, began time.Time) {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	text, err := s.fetch(ctx)
	var keys []jwkset.JWK
	if err == nil {
		keys, err = parseKeys(text)
	}
	if err != nil {
		s.log.WarnContext(ctx, "could not read the keys of the identity provider", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.KeyReplaceAll(ctx, keys) == nil {
		s.asOf = began
	}
	close(s.reading)
	s.reading = nil
}

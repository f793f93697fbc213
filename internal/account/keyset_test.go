package account

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/fault"
)

// provider is an identity provider whose answers the test gives, and a clock that it moves.
type provider struct {
	*keySet

	mu    sync.Mutex
	at    time.Time
	ids   []string
	err   error
	reads atomic.Int64
	// gate holds readings back until it is closed, and began tells of each; without a gate they pass.
	gate, began chan struct{}
}

func newProvider(ids ...string) *provider {
	p := &provider{at: time.Unix(1_700_000_000, 0), ids: ids}
	p.keySet = &keySet{MemoryJWKSet: jwkset.NewMemoryStorage(), fetch: p.fetch, now: p.now,
		log: slog.New(slog.DiscardHandler)}
	return p
}

func (p *provider) now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// set changes what is served, after a while.
func (p *provider) set(after time.Duration, err error, ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.err, p.ids = p.at.Add(after), err, ids
}

func (p *provider) fetch(context.Context) ([]byte, error) {
	p.reads.Add(1)
	if p.gate != nil {
		p.began <- struct{}{}
		<-p.gate
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []any
	for _, id := range p.ids {
		keys = append(keys, jwkOf(id, nil))
	}
	text, _ := json.Marshal(map[string]any{"keys": append([]any{}, keys...)})
	return text, p.err
}

var testKey = sync.OnceValue(func() *rsa.PublicKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return &key.PublicKey
})

func number(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }

func jwkOf(id string, changes map[string]any) map[string]any {
	k := map[string]any{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": id, "n": number(testKey().N), "e": "AQAB"}
	for name, value := range changes {
		k[name] = value
	}
	return k
}

func (p *provider) want(t *testing.T, id string, code fault.Code, reads int64) {
	t.Helper()
	key, err := p.KeyRead(t.Context(), id)
	if code == "" {
		require.NoError(t, err, id)
		assert.Equal(t, testKey(), key.Key())
	} else {
		assert.True(t, fault.Is(err, code), "%s: %v, want %s", id, err, code)
	}
	assert.Equal(t, reads, p.reads.Load(), "readings after %s", id)
}

// settled waits for the reading in the background.
func (p *provider) settled() {
	p.keySet.mu.Lock()
	reading := p.reading
	p.keySet.mu.Unlock()
	if reading != nil {
		<-reading
	}
}

func TestKeySet_UnknownKey(t *testing.T) {
	t.Parallel()
	p := newProvider("a")
	p.want(t, "a", "", 1)
	p.want(t, "b", fault.Unauthenticated, 1)
	p.set(keysEvery-time.Millisecond, nil, "a", "b")
	p.want(t, "b", fault.Unauthenticated, 1)
	p.set(time.Millisecond, nil, "a", "b")
	p.want(t, "b", "", 2)
	p.want(t, "c", fault.Unauthenticated, 2)
	p.want(t, "a", "", 2)
}

// TestKeySet_Stampede: many who ask for keys that nobody has cause one reading, and do not hold up those with known
// keys.
func TestKeySet_Stampede(t *testing.T) {
	t.Parallel()
	p := newProvider("a")
	p.want(t, "a", "", 1)
	p.set(keysEvery, nil, "a", "b")
	p.gate, p.began = make(chan struct{}), make(chan struct{}, 1)
	var waiting sync.WaitGroup
	var good, bad atomic.Int64
	for i := range 200 {
		waiting.Go(func() {
			id := "b"
			if i%2 == 0 {
				id = "x" + strings.Repeat("y", i)
			}
			if _, err := p.KeyRead(t.Context(), id); err == nil {
				good.Add(1)
			} else if fault.Is(err, fault.Unauthenticated) {
				bad.Add(1)
			}
		})
	}
	<-p.began
	p.want(t, "a", "", 2)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.KeyRead(gone, "b")
	require.ErrorIs(t, err, context.Canceled, "who has gone does not wait")
	close(p.gate)
	waiting.Wait()
	assert.Equal(t, []int64{100, 100, 2}, []int64{good.Load(), bad.Load(), p.reads.Load()})
}

// TestKeySet_OneReading: there is no second reading beside one that takes long.
func TestKeySet_OneReading(t *testing.T) {
	t.Parallel()
	p := newProvider("a")
	p.gate, p.began = make(chan struct{}), make(chan struct{}, 2)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		_, err := p.KeyRead(gone, "a")
		require.ErrorIs(t, err, context.Canceled)
		p.set(keysEvery, nil, "a")
	}
	<-p.began
	close(p.gate)
	p.settled()
	assert.Equal(t, int64(1), p.reads.Load())
}

func TestKeySet_Age(t *testing.T) {
	t.Parallel()
	p := newProvider("a", "b")
	p.want(t, "a", "", 1)
	p.set(keysFresh-time.Second, nil, "b")
	p.want(t, "a", "", 1)
	p.set(time.Second, nil, "b")
	p.gate, p.began = make(chan struct{}), make(chan struct{}, 1)
	key, err := p.KeyRead(t.Context(), "a")
	require.NoError(t, err, "old keys are used while new ones are read")
	assert.NotNil(t, key.Key())
	close(p.gate)
	p.settled()
	p.want(t, "a", fault.Unauthenticated, 2)
	p.want(t, "b", "", 2)
}

func TestKeySet_ProviderIsDown(t *testing.T) {
	t.Parallel()
	p := newProvider("a")
	p.set(0, errors.New("no answer"))
	p.want(t, "a", fault.Unavailable, 1)
	p.want(t, "a", fault.Unavailable, 1)
	p.set(keysEvery, nil, "a")
	p.want(t, "a", "", 2)
	p.set(keysUsable-time.Second, errors.New("no answer"))
	_, err := p.KeyRead(t.Context(), "a")
	require.NoError(t, err, "keys are used for an hour without their provider")
	p.settled()
	p.want(t, "b", fault.Unauthenticated, 3)
	p.set(time.Second, errors.New("no answer"))
	p.want(t, "a", fault.Unavailable, 3)
	p.set(keysEvery, nil, "a")
	p.want(t, "a", "", 4)
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	small, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // must be refused
	require.NoError(t, err)
	keys := []any{
		jwkOf("good", nil), jwkOf("no use", map[string]any{"use": nil}), jwkOf("no alg", map[string]any{"alg": nil}),
		jwkOf("good", map[string]any{"e": "Aw"}),
		jwkOf("", nil), jwkOf("encrypts", map[string]any{"use": "enc"}), jwkOf("RS512", map[string]any{"alg": "RS512"}),
		jwkOf("HS256", map[string]any{"alg": "HS256"}), jwkOf("oct", map[string]any{"kty": "oct", "k": "AAAA"}),
		jwkOf("EC", map[string]any{"kty": "EC"}), jwkOf("padded", map[string]any{"e": "AQAB="}),
		jwkOf("no modulus", map[string]any{"n": nil}),
		jwkOf("small", map[string]any{"n": number(small.N)}),
		jwkOf("huge", map[string]any{"n": number(new(big.Int).Lsh(big.NewInt(1), 9000))}),
		jwkOf("even", map[string]any{"e": "AQAA"}), jwkOf("one", map[string]any{"e": "AQ"}),
		jwkOf("large e", map[string]any{"e": "AQAAAAE"}),
		jwkOf("number", map[string]any{"n": 7}), 7, nil,
	}
	text, err := json.Marshal(map[string]any{"keys": keys, "more": 1})
	require.NoError(t, err)
	got, err := parseKeys(text)
	require.NoError(t, err)
	var ids []string
	for _, key := range got {
		assert.Equal(t, testKey(), key.Key())
		ids = append(ids, key.Marshal().KID)
	}
	assert.Equal(t, []string{"good", "no use", "no alg"}, ids)
	for _, bad := range []string{``, `{}`, `[]`, `{"keys":null}`, `{"keys":{}}`, `<html>`} {
		_, err := parseKeys([]byte(bad))
		assert.Error(t, err, bad)
	}
	none, err := parseKeys([]byte(`{"keys":[]}`))
	require.NoError(t, err)
	assert.Empty(t, none)
}

package blob_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/blob"
)

// memoryStore counts what is read of it.
type memoryStore struct {
	bodies map[string][]byte
	reads  []string
	down   bool
}

func (m *memoryStore) Put(_ context.Context, key string, body []byte) error {
	m.bodies[key] = body
	return nil
}

func (m *memoryStore) Get(_ context.Context, key string, off, n int64) ([]byte, error) {
	if m.down {
		return nil, blob.ErrUnavailable
	}
	m.reads = append(m.reads, fmt.Sprintf("%s %d+%d", key, off>>10, n>>10))
	body, ok := m.bodies[key]
	if !ok {
		return nil, blob.ErrNotFound
	}
	return body[min(off, int64(len(body))):min(off+n, int64(len(body)))], nil
}

func (m *memoryStore) Delete(context.Context, ...string) error { return nil }

func (m *memoryStore) List(context.Context, string, string, int) ([]string, error) {
	if m.down {
		return nil, blob.ErrUnavailable
	}
	return nil, nil
}

func (m *memoryStore) took() (reads []string) {
	reads, m.reads = m.reads, nil
	return reads
}

// TestCache: what is read together, or near to what was, is one request; what is kept stays within its bytes, and is
// right.
func TestCache(t *testing.T) {
	t.Parallel()
	body := make([]byte, 900<<10)
	for i := range body {
		body[i] = byte(i * 7 >> 3)
	}
	m := &memoryStore{bodies: map[string][]byte{"a": body, "b": body}}
	c := blob.NewCache(m, 1<<20, nil)
	read := func(spans ...blob.Range) {
		t.Helper()
		got, err := c.Read(t.Context(), spans, false)
		require.NoError(t, err)
		for i, s := range spans {
			require.Equal(t, body[s.Off:s.Off+s.Len], got[i], s)
		}
	}
	read(blob.Range{Key: "a", Off: 10, Len: 20}, blob.Range{Key: "a", Off: 256<<10 - 5, Len: 10},
		blob.Range{Key: "a", Off: 300 << 10, Len: 1 << 10})
	assert.Equal(t, []string{"a 0+512"}, m.took(), "neighbours in one request")
	read(blob.Range{Key: "a", Off: 100 << 10, Len: 300 << 10})
	assert.Empty(t, m.took(), "they are kept")
	read(blob.Range{Key: "a", Off: 400 << 10, Len: 500 << 10})
	assert.Equal(t, []string{"a 512+512"}, m.took(), "only what is not")
	read(blob.Range{Key: "b", Off: 0, Len: 900 << 10})
	assert.Equal(t, []string{"b 0+1024"}, m.took())
	read(blob.Range{Key: "a", Off: 0, Len: 1})
	assert.Equal(t, []string{"a 0+256"}, m.took(), "what was read before it had to go")

	_, err := c.Read(t.Context(), []blob.Range{{Key: "a", Off: 890 << 10, Len: 20 << 10}}, false)
	require.ErrorIs(t, err, blob.ErrNotFound, "a body that ends early")
	_, err = c.Read(t.Context(), []blob.Range{{Key: "c", Off: 0, Len: 1}}, false)
	require.ErrorIs(t, err, blob.ErrNotFound)
}

// TestCache_Outside: inside of a transaction nothing is asked of the store. What it lacks is read outside of it,
// however little is kept.
func TestCache_Outside(t *testing.T) {
	t.Parallel()
	m := &memoryStore{bodies: map[string][]byte{"a": make([]byte, 1<<20), "b": make([]byte, 1<<20)}}
	c := blob.NewCache(m, 1, nil)
	inside, runs := false, 0
	err := c.Outside(t.Context(), func(ctx context.Context) error {
		inside = true
		defer func() { inside = false; assert.Empty(t, m.reads) }()
		m.took()
		runs++
		for _, key := range []string{"a", "b"} {
			if _, err := c.Read(ctx, []blob.Range{{Key: key, Off: 0, Len: 1 << 20}}, inside); err != nil {
				return fmt.Errorf("in the transaction: %w", err)
			}
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, 3, runs)
	_, err = c.Read(t.Context(), []blob.Range{{Key: "a", Off: 0, Len: 1}}, true)
	require.ErrorContains(t, err, "inside of a transaction")

	m.down = true
	err = c.Outside(t.Context(), func(ctx context.Context) error {
		_, err := c.Read(ctx, []blob.Range{{Key: "a", Off: 0, Len: 1}}, true)
		return err
	})
	assert.True(t, blob.IsUnavailable(err))
	assert.False(t, c.Down(t.Context()).IsZero())
	m.down = false
	_, err = c.List(t.Context(), "", "", 1)
	require.NoError(t, err)
	assert.True(t, c.Down(t.Context()).IsZero())

	var none *blob.Cache
	failed := errors.New("as it came")
	require.ErrorIs(t, none.Outside(t.Context(), func(context.Context) error { return failed }), failed)
	_, err = none.Read(t.Context(), []blob.Range{{}}, false)
	require.ErrorContains(t, err, "--blob-url")
}

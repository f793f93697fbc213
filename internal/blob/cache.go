package blob

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// blockBytes is the size of the parts in which bodies are read, and kept: neighbours of what is read are mostly read
// next.
const blockBytes = 256 << 10

// Range is a part of a body.
type Range struct {
	Key      string
	Off, Len int64
}

type block struct {
	key string
	no  int64
}

// Cache is a Store that keeps what was read last. Bodies never change, so that nothing of it is ever stale. All
// methods may be called concurrently.
type Cache struct {
	store   Store
	most    int64
	observe func(operation string, failed bool)

	mu     sync.Mutex
	blocks map[block]*list.Element
	// order has the blocks from the one that was read last on, bytes is how much they are.
	order list.List
	bytes int64
	// downSince is since when no request has come out well, asked when the last was made; zero for a store that
	// answers.
	downSince, asked time.Time
}

type cached struct {
	block

	body []byte
}

// NewCache keeps up to most bytes of a store. observe is told of each request; nil for nobody.
func NewCache(store Store, most int64, observe func(operation string, failed bool)) *Cache {
	return &Cache{store: store, most: most, observe: observe, blocks: map[block]*list.Element{}}
}

// fetchedKey is where a context has the blocks that were read for it, a map of them.
type fetchedKey struct{}

// missError asks for spans that a transaction would have had to wait for.
type missError struct{ spans []Range }

func (e *missError) Error() string {
	return fmt.Sprintf("%d bodies are in the store, which nobody asks inside of a transaction", len(e.spans))
}

// Outside runs do, which may call Read inside of a transaction: no transaction waits for the store. What is not in
// memory ends it, is read, and do is run again. It ends, since each time do has what it lacked before.
func (c *Cache) Outside(ctx context.Context, do func(ctx context.Context) error) error {
	if c == nil {
		return do(ctx)
	}
	fetched := map[block][]byte{}
	ctx = context.WithValue(ctx, fetchedKey{}, fetched)
	for {
		err := do(ctx)
		var miss *missError
		if !errors.As(err, &miss) {
			return err
		}
		if err := c.fetch(ctx, miss.spans, fetched); err != nil {
			return err
		}
	}
}

// Read returns parts of bodies, in their order; do not write to them. inTx is set inside of a transaction: then what
// is not in memory is an error, by which Outside knows what to read. Errors: those of Store; ErrNotFound, too, where
// a body ends before the span does.
func (c *Cache) Read(ctx context.Context, spans []Range, inTx bool) ([][]byte, error) {
	if c == nil {
		return nil, errors.New("records are in a store of large bodies: set --blob-url")
	}
	fetched, _ := ctx.Value(fetchedKey{}).(map[block][]byte)
	had := map[block][]byte{}
	var missing []Range
	for _, s := range spans {
		for no := s.Off / blockBytes; no*blockBytes < s.Off+s.Len; no++ {
			b := block{s.Key, no}
			body, ok := fetched[b]
			if !ok {
				body, ok = c.get(b)
			}
			if had[b] = body; !ok {
				missing = append(missing, s)
				break
			}
		}
	}
	if len(missing) > 0 && inTx {
		return nil, &missError{missing}
	}
	if err := c.fetch(ctx, missing, had); err != nil {
		return nil, err
	}
	out := make([][]byte, len(spans))
	for i, s := range spans {
		var err error
		if out[i], err = s.cut(had); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cut takes a span out of its blocks.
func (s Range) cut(from map[block][]byte) ([]byte, error) {
	first := s.Off / blockBytes
	at, end := s.Off-first*blockBytes, s.Off+s.Len-first*blockBytes
	body := from[block{s.Key, first}]
	if end > blockBytes { // it goes over an edge
		body = body[:len(body):len(body)]
		for no := first + 1; no*blockBytes < s.Off+s.Len; no++ {
			body = append(body, from[block{s.Key, no}]...)
		}
	}
	if end > int64(len(body)) {
		return nil, fmt.Errorf("%s ends before byte %d: %w", s.Key, s.Off+s.Len, ErrNotFound)
	}
	return body[at:end:end], nil
}

// fetch reads the blocks of spans that are not in had, those that follow each other in one request, and adds them to
// it.
func (c *Cache) fetch(ctx context.Context, spans []Range, had map[block][]byte) error {
	for i := 0; i < len(spans); {
		run := spans[i]
		first, end := run.Off/blockBytes, (run.Off+run.Len+blockBytes-1)/blockBytes
		for i++; i < len(spans) && spans[i].Key == run.Key && spans[i].Off/blockBytes >= first &&
			spans[i].Off/blockBytes <= end; i++ {
			end = max(end, (spans[i].Off+spans[i].Len+blockBytes-1)/blockBytes)
		}
		for first < end && had[block{run.Key, first}] != nil {
			first++
		}
		if first == end {
			continue
		}
		body, err := c.store.Get(ctx, run.Key, first*blockBytes, (end-first)*blockBytes)
		c.noted("get", err)
		if err != nil {
			return err //nolint:wrapcheck // says everything
		}
		for no := first; no < end; no++ {
			part := body[min(int64(len(body)), (no-first)*blockBytes):min(int64(len(body)), (no-first+1)*blockBytes)]
			b := block{run.Key, no}
			had[b] = append([]byte{}, part...) // of its own: what is kept shall not hold all that came with it
			c.put(b, had[b])
		}
	}
	return nil
}

func (c *Cache) get(b block) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.blocks[b]
	if at == nil {
		return nil, false
	}
	c.order.MoveToFront(at)
	return at.Value.(*cached).body, true //nolint:forcetypeassert // nothing else is in it
}

func (c *Cache) put(b block, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks[b] != nil {
		return
	}
	c.blocks[b] = c.order.PushFront(&cached{b, body})
	c.bytes += int64(len(body))
	for c.bytes > c.most {
		last := c.order.Remove(c.order.Back()).(*cached) //nolint:forcetypeassert // nothing else is in it
		delete(c.blocks, last.block)
		c.bytes -= int64(len(last.body))
	}
}

// Put writes a body. Errors as those of Store.
func (c *Cache) Put(ctx context.Context, key string, body []byte) error {
	err := c.store.Put(ctx, key, body)
	c.noted("put", err)
	return err //nolint:wrapcheck // says everything
}

// Delete deletes bodies. Errors as those of Store.
func (c *Cache) Delete(ctx context.Context, keys ...string) error {
	err := c.store.Delete(ctx, keys...)
	c.noted("delete", err)
	return err //nolint:wrapcheck // says everything
}

// List lists keys. Errors as those of Store.
func (c *Cache) List(ctx context.Context, prefix, behind string, most int) ([]string, error) {
	keys, err := c.store.List(ctx, prefix, behind, most)
	c.noted("list", err)
	return keys, err //nolint:wrapcheck // says everything
}

func (c *Cache) noted(operation string, err error) {
	failed := IsUnavailable(err)
	if c.observe != nil {
		c.observe(operation, failed)
	}
	if err != nil && !failed && !errors.Is(err, ErrNotFound) {
		return // it was given up, which says nothing of the store
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = time.Now()
	if !failed {
		c.downSince = time.Time{}
	} else if c.downSince.IsZero() {
		c.downSince = c.asked
	}
}

// askAgain is how old an answer may be by which a store is called down.
const askAgain = 2 * time.Second

// Down returns since when the store has not answered; zero where it does. One that did not is asked once more.
func (c *Cache) Down(ctx context.Context) time.Time {
	c.mu.Lock()
	since, asked := c.downSince, c.asked
	c.mu.Unlock()
	if since.IsZero() || time.Since(asked) < askAgain {
		return since
	}
	if _, err := c.List(ctx, probePrefix, "", 1); err != nil {
		return since
	}
	return time.Time{}
}

// Package memory owns the bytes that a process may hold at once of what others decide the size of: requests that it
// makes, the answers to them, and the outputs that flows build. It promises that never more is given out than the
// budget has, that no organization holds more than half of it, that who waits is served in order, and that no two
// wait for each other. It does not know what the bytes are.
//
// Two things take bytes. New work takes what it begins with while it holds nothing (Take), so it waits for nobody who
// waits for it. Work under way may need more (Grow), which it says with the most that it will ever need: it gets a
// little at once while a quarter of the budget stays free, and else waits until it may have all of that. Who has that
// needs nothing more and comes to its end, so that the quarter always comes back and the next in the line has it.
package memory

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/google/uuid"
)

const (
	// Default is the budget of a process in bytes for the calls that it makes, Least the smallest that has room for the
	// largest request and answer.
	Default = 256 << 20
	Least   = 128 << 20
)

// Budget is the bytes of one process. All methods may be called concurrently; those of a nil Budget grant everything.
type Budget struct {
	// quarter of it is what one grant may hold, and what stays free of grants that may still grow.
	quarter int64

	mu sync.Mutex
	// all counts every organization.
	all  held
	orgs map[uuid.UUID]*held
	// growing waits before starting: what is under way goes first.
	growing, starting list.List
}

// held is what grants hold: open is the part of those that may still grow.
type held struct{ bytes, open, peak int64 }

// New returns a budget of so many bytes.
func New(bytes int64) *Budget { return &Budget{quarter: bytes / 4, orgs: map[uuid.UUID]*held{}} }

// Most is the most that one grant may hold.
func (b *Budget) Most() int64 {
	if b == nil {
		return 1 << 62
	}
	return b.quarter
}

// Held returns how much is given out, and the most that ever was.
func (b *Budget) Held() (bytes, peak int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.bytes, b.all.peak
}

// Grant is what one piece of work holds. Release it when the work is over; a nil Grant holds nothing and may always
// grow.
type Grant struct {
	b   *Budget
	org uuid.UUID
	// base is what it began with, bytes what it holds.
	base, bytes int64
	open        bool
}

// waiter is who waits to hold so many bytes more.
type waiter struct {
	grant *Grant
	bytes int64
	ready chan struct{}
}

// Take waits for room for new work of an organization, which must not hold anything of the budget yet. More than Most
// counts as Most.
func (b *Budget) Take(ctx context.Context, org uuid.UUID, bytes int64) (*Grant, error) {
	if b == nil {
		return nil, nil
	}
	g := b.Begin(org)
	if err := b.wait(ctx, &waiter{grant: g, bytes: min(bytes, b.quarter)}, &b.starting); err != nil {
		return nil, err
	}
	return g, nil
}

// Full reports whether new work of this size would have to wait for the organization's own.
func (b *Budget) Full(org uuid.UUID, bytes int64) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.ownRoom(org, min(bytes, b.quarter))
}

// Begin is for work that holds nothing of the budget yet, and whose size shows while it goes on.
func (b *Budget) Begin(org uuid.UUID) *Grant {
	if b == nil {
		return nil
	}
	return &Grant{b: b, org: org, open: true}
}

// Grow makes the grant hold bytes more than it began with, now or when it may hold most more, which is all that it
// will ever need. It may be called again as long as bytes is less than most. Where ctx ends first it returns its
// error.
func (g *Grant) Grow(ctx context.Context, bytes, most int64) error {
	if g == nil {
		return nil
	}
	b := g.b
	b.mu.Lock()
	more := g.base + bytes - g.bytes
	switch {
	case more <= 0 || !g.open:
		b.mu.Unlock()
		return nil
	case bytes < most && b.growing.Len() == 0 && b.roomForOpen(g.org, more):
		b.add(g, more)
		b.mu.Unlock()
		return nil
	}
	more = g.base + min(most, b.quarter) - g.bytes
	b.mu.Unlock()
	return b.wait(ctx, &waiter{grant: g, bytes: max(more, 0)}, &b.growing)
}

// Split moves bytes of a grant, as far as it has them, to one of their own.
func (g *Grant) Split(bytes int64) *Grant {
	if g == nil {
		return nil
	}
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	bytes = min(bytes, g.bytes)
	g.bytes -= bytes
	return &Grant{b: g.b, org: g.org, base: bytes, bytes: bytes, open: g.open}
}

// Keep gives back all but what the grant began with and so many bytes more. It will not grow again.
func (g *Grant) Keep(bytes int64) {
	if g != nil {
		g.shrink(g.base + bytes)
	}
}

// Release gives all back.
func (g *Grant) Release() {
	if g != nil {
		g.shrink(0)
	}
}

func (g *Grant) shrink(bytes int64) {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	g.b.close(g)
	g.b.add(g, min(bytes, g.bytes)-g.bytes)
	g.b.serve()
}

// wait waits in a line until the budget has room.
func (b *Budget) wait(ctx context.Context, w *waiter, line *list.List) error {
	w.ready = make(chan struct{})
	b.mu.Lock()
	at := line.PushBack(w)
	b.serve()
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	default:
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // it came at the same time
		return nil
	default:
	}
	line.Remove(at)
	b.serve() // it may have stood before others
	return fmt.Errorf("wait for memory: %w", ctx.Err())
}

// serve gives room to those who wait, in order. Who waits for its organization's share alone is passed over; who
// waits for the budget lets nobody pass, so that much is not starved by little.
func (b *Budget) serve() {
	behind := map[uuid.UUID]bool{}
	for at := b.growing.Front(); at != nil; {
		next, w := at.Next(), at.Value.(*waiter)
		switch {
		case behind[w.grant.org] || b.own(w.grant.org).bytes+w.bytes > 2*b.quarter:
			behind[w.grant.org] = true
		case b.all.bytes+w.bytes > 4*b.quarter:
			return
		default:
			b.close(w.grant)
			b.grant(&b.growing, at)
		}
		at = next
	}
	for at := b.starting.Front(); at != nil; {
		next, w := at.Next(), at.Value.(*waiter)
		switch {
		case behind[w.grant.org] || !b.ownRoom(w.grant.org, w.bytes):
			behind[w.grant.org] = true
		case !b.room(w.bytes):
			return
		default:
			b.grant(&b.starting, at)
			w.grant.base = w.bytes
		}
		at = next
	}
}

func (b *Budget) grant(line *list.List, at *list.Element) {
	w := line.Remove(at).(*waiter) //nolint:forcetypeassert // nothing else stands in a line
	b.add(w.grant, w.bytes)
	close(w.ready)
}

// roomForOpen reports whether grants that may still grow can have so much more.
func (b *Budget) roomForOpen(org uuid.UUID, bytes int64) bool {
	return b.room(bytes) && b.ownRoom(org, bytes)
}

func (b *Budget) room(bytes int64) bool {
	return b.all.open+bytes <= 3*b.quarter && b.all.bytes+bytes <= 4*b.quarter
}

func (b *Budget) ownRoom(org uuid.UUID, bytes int64) bool {
	own := b.own(org)
	return own.open+bytes <= b.quarter && own.bytes+bytes <= 2*b.quarter
}

func (b *Budget) own(org uuid.UUID) held {
	if own := b.orgs[org]; own != nil {
		return *own
	}
	return held{}
}

// add changes what a grant holds.
func (b *Budget) add(g *Grant, bytes int64) {
	g.bytes += bytes
	own := b.orgs[g.org]
	if own == nil {
		own = &held{}
		b.orgs[g.org] = own
	}
	for _, h := range []*held{&b.all, own} {
		h.bytes += bytes
		if g.open {
			h.open += bytes
		}
		h.peak = max(h.peak, h.bytes)
	}
	if own.bytes == 0 {
		delete(b.orgs, g.org)
	}
}

// close notes that a grant will not grow any more.
func (b *Budget) close(g *Grant) {
	if g.open && g.bytes > 0 {
		b.all.open -= g.bytes
		b.orgs[g.org].open -= g.bytes
	}
	g.open = false
}

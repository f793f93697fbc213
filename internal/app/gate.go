package app

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// gate shares places in this process among organizations: the next place goes to the one that has the fewest, of
// those to the one that has waited longest. Whose organization has many that wait already is told to come back when
// it may be its turn, so that others always find room to wait.
type gate struct {
	places, share int
	// turn is how long a place is taken, at most.
	turn time.Duration

	mu     sync.Mutex
	taken  int
	orgs   map[uuid.UUID]*gateOrg
	queued []*gateWaiter
}

// gateOrg is what an organization has of the gate: places, those that wait, and those that were told to come back.
type gateOrg struct{ taken, waiting, away int }

type gateWaiter struct {
	org   uuid.UUID
	ready chan struct{}
}

func newGate(places, share int, turn time.Duration) *gate {
	return &gate{places: places, share: share, turn: turn, orgs: map[uuid.UUID]*gateOrg{}}
}

// enter waits for a place. Where more of the organization wait than may, later says when to come back instead.
func (g *gate) enter(ctx context.Context, org uuid.UUID) (leave func(), later time.Duration, err error) {
	g.mu.Lock()
	own := g.orgs[org]
	if own == nil {
		own = &gateOrg{}
		g.orgs[org] = own
	}
	if own.waiting >= g.share {
		own.away++
		later = g.turn * time.Duration(own.away+g.places) / time.Duration(g.places)
		g.mu.Unlock()
		return nil, min(later, time.Minute), nil
	}
	w := &gateWaiter{org, make(chan struct{})}
	own.waiting++
	g.queued = append(g.queued, w)
	g.serve()
	g.mu.Unlock()
	leave = sync.OnceFunc(func() { g.leave(org) })
	select {
	case <-w.ready:
		return leave, 0, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	at := slices.Index(g.queued, w)
	if at >= 0 {
		g.queued = slices.Delete(g.queued, at, at+1)
		own.waiting--
		g.forget(org)
	}
	g.mu.Unlock()
	if at < 0 { // it came at the same time
		leave()
	}
	return nil, 0, fmt.Errorf("wait for a place: %w", ctx.Err())
}

func (g *gate) leave(org uuid.UUID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken--
	g.orgs[org].taken--
	g.forget(org)
	g.serve()
}

// forget drops an organization that has nothing of the gate.
func (g *gate) forget(org uuid.UUID) {
	if own := g.orgs[org]; own.taken == 0 && own.waiting == 0 {
		delete(g.orgs, org)
	}
}

// serve gives free places to those who wait.
func (g *gate) serve() {
	for g.taken < g.places && len(g.queued) > 0 {
		next := 0
		for i, w := range g.queued {
			if g.orgs[w.org].taken < g.orgs[g.queued[next].org].taken {
				next = i
			}
		}
		w := g.queued[next]
		g.queued = slices.Delete(g.queued, next, next+1)
		own := g.orgs[w.org]
		own.waiting, own.taken, own.away = own.waiting-1, own.taken+1, max(own.away-1, 0)
		g.taken++
		close(w.ready)
	}
}

package stream

import (
	"context"

	"github.com/google/uuid"

	"flowlane/internal/batch/query"
)

// BatchInterval is the pause between two looks at where batches stand.
const BatchInterval = pauseMax

// BatchListener follows one batch.
type BatchListener struct {
	// States has where the batch stands, if that is not what the listener got last. What it does not take, what comes
	// later replaces.
	States <-chan query.BatchState

	states chan query.BatchState
	hub    *Hub
	org    uuid.UUID
	batch  uuid.UUID
	seen   query.BatchState
}

// Done ends with the process.
func (l *BatchListener) Done() <-chan struct{} { return l.hub.life.Done() }

// ListenBatch follows a batch whose state is known so far, until the place is given back.
func (p *Place) ListenBatch(batch uuid.UUID, seen query.BatchState) *BatchListener {
	states := make(chan query.BatchState, 1)
	l := &BatchListener{States: states, states: states, hub: p.hub, org: p.org, batch: batch, seen: seen}
	h := p.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.whole[l] = struct{}{}
	p.leave = func() { delete(h.whole, l) }
	if !h.pollingWhole {
		h.pollingWhole = true
		go h.repeat(BatchInterval, h.nextBatches)
	}
	return l
}

// nextBatches returns what reads the batches that somebody follows, or nil if nobody does: then looking at them is
// over.
func (h *Hub) nextBatches() func(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.whole) == 0 {
		h.pollingWhole = false
		return nil
	}
	orgs, listening := map[uuid.UUID]uuid.UUID{}, make([]*BatchListener, 0, len(h.whole))
	for l := range h.whole {
		orgs[l.batch], listening = l.org, append(listening, l)
	}
	var orgIDs, ids []uuid.UUID
	for id, org := range orgs {
		orgIDs, ids = append(orgIDs, org), append(ids, id)
	}
	return func(ctx context.Context) error {
		states, err := h.source.BatchStates(ctx, orgIDs, ids)
		if err == nil {
			h.notify(listening, states)
		}
		return err
	}
}

// notify gives each of those who listened when states were read the state of its batch, unless it has it. Who came
// since has seen a newer one.
func (h *Hub) notify(listening []*BatchListener, states map[uuid.UUID]query.BatchState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range listening {
		state, read := states[l.batch]
		if _, there := h.whole[l]; !there || !read || state == l.seen {
			continue
		}
		select {
		case <-l.states:
		default:
		}
		l.states <- state // nobody else sends: there is room
		l.seen = state
	}
}

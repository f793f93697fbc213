// Package stream owns who follows executions and batches in this process, and reads for all of them together: one look
// at the marks of their slices ten times a second, and one reading of those that changed, however many listeners there
// are. What this process itself has changed is looked at at once. It promises that a listener gets every event of its
// execution behind the one that it has seen, once and in order, and that it costs a place in a table and no query.
// Where followed batches stand it reads once a second, and a listener gets the newest. It knows nothing of HTTP, and
// nothing of what events mean.
package stream

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/batch/query"
	"flowlane/internal/fault"
)

const (
	// interval is the pause between two looks at everything, breath the one after a look at what this process has
	// changed.
	interval = 100 * time.Millisecond
	breath   = 20 * time.Millisecond
	// effort bounds the share of the time that looking may take: a pause is at least so many times what the look took.
	effort = 2
	// pauseMax bounds that pause, and the one after a failure.
	pauseMax = time.Second
	// retryAfter is when to come back if there is no room.
	retryAfter = 10 * time.Second
	// maxStreams is how many listeners a process has, unless told otherwise; one organization has half of them at most.
	maxStreams = 10_000
)

// Source reads what has happened to executions and batches: run.Service.
type Source interface {
	Follow(ctx context.Context, watched []query.Watched, do func(i int, mark int64, logs []query.Log)) error
	BatchStates(ctx context.Context, orgIDs, ids []uuid.UUID) (map[uuid.UUID]query.BatchState, error)
}

// Options are what a Hub may be told.
type Options struct {
	// Most is how many listeners there may be; 0 for maxStreams.
	Most int
	Log  *slog.Logger
}

// Hub has the listeners of a process. Safe for concurrent use.
type Hub struct {
	source Source
	opts   Options
	// life ends with the process.
	life context.Context //nolint:containedctx // the life of the process

	mu      sync.Mutex
	batches map[uuid.UUID]map[int32]*slice
	// changed are followed batches that this process has changed since it last looked at such.
	changed map[uuid.UUID]struct{}
	// whole are those who follow batches.
	whole     map[*BatchListener]struct{}
	listeners int
	of        map[uuid.UUID]int
	// polling, pollingOwn and lookingAtWhole tell that somebody looks at everything, at what is in changed, and at
	// batches.
	polling, pollingOwn, pollingWhole bool
}

// slice is one of which records are followed.
type slice struct {
	org  uuid.UUID
	mark int64
	// joined counts those who came: what was read before the last of them may lack what it has not seen.
	joined    int
	listeners map[*Listener]struct{}
	// who are the listeners with what they follow, in one order; nil when somebody came or left.
	who  []*Listener
	runs []query.WatchedRun
}

// New returns a Hub without listeners. When life ends, so do all that it has, and it takes no more.
func New(life context.Context, source Source, opts Options) *Hub {
	if opts.Most == 0 {
		opts.Most = maxStreams
	}
	return &Hub{source: source, opts: opts, life: life, batches: map[uuid.UUID]map[int32]*slice{},
		changed: map[uuid.UUID]struct{}{},
		whole:   map[*BatchListener]struct{}{}, of: map[uuid.UUID]int{}}
}

// Changed says that this process has changed these batches. It does not wait for anything.
func (h *Hub) Changed(batchIDs []uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range batchIDs {
		if h.batches[id] != nil {
			h.changed[id] = struct{}{}
		}
	}
	if len(h.changed) > 0 && !h.pollingOwn {
		h.pollingOwn = true
		go h.pollOwn()
	}
}

// Listeners returns how many there are.
func (h *Hub) Listeners() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listeners
}

// Place is a place among the listeners, for one of them.
type Place struct {
	hub  *Hub
	org  uuid.UUID
	once sync.Once
	// leave ends what listens at it, in the hub's lock; nil for nothing.
	leave func()
}

// Take takes a place for a listener of an organization. Give it back. Fault: Unavailable if there is none.
func (h *Hub) Take(org uuid.UUID) (*Place, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Err() != nil || h.listeners >= h.opts.Most || h.of[org] >= max(h.opts.Most/2, 1) {
		err := fault.New(fault.Unavailable, "Too many streams are open; close some, or come back later").
			Known(fault.StreamsExhausted)
		err.RetryAfter = retryAfter
		return nil, err
	}
	h.listeners++
	h.of[org]++
	return &Place{hub: h, org: org}, nil
}

// GiveBack frees the place, and ends what listens at it.
func (p *Place) GiveBack() {
	p.once.Do(func() {
		p.hub.mu.Lock()
		defer p.hub.mu.Unlock()
		if p.leave != nil {
			p.leave()
		}
		p.hub.listeners--
		if p.hub.of[p.org]--; p.hub.of[p.org] == 0 {
			delete(p.hub.of, p.org)
		}
	})
}

// Listener follows one execution.
type Listener struct {
	// Events has what is new, in order. A listener that does not take it gets it later, with what comes after it.
	Events <-chan []query.Event

	events   chan []query.Event
	hub      *Hub
	batch    uuid.UUID
	sliceNo  int32
	position int64
	run      int32
	// seen is the number of the last entry that was given out.
	seen int64
}

// Done ends with the process.
func (l *Listener) Done() <-chan struct{} { return l.hub.life.Done() }

// Listen follows a run of the record at a position of a batch, which is in this slice, from behind an entry of its log
// on, until the place is given back.
func (p *Place) Listen(batch uuid.UUID, sliceNo int32, position int64, number int32, seen int64) *Listener {
	events := make(chan []query.Event, 1)
	l := &Listener{Events: events, events: events, hub: p.hub, batch: batch, sliceNo: sliceNo, position: position,
		run: number, seen: seen}
	h := p.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.batches[batch] == nil {
		h.batches[batch] = map[int32]*slice{}
	}
	s := h.batches[batch][sliceNo]
	if s == nil {
		s = &slice{org: p.org, listeners: map[*Listener]struct{}{}}
		h.batches[batch][sliceNo] = s
	}
	s.listeners[l], s.who = struct{}{}, nil
	p.leave = l.leave
	s.joined++
	s.mark = 0
	if !h.polling {
		h.polling = true
		go h.poll()
	}
	return l
}

// leave ends it.
func (l *Listener) leave() {
	h := l.hub
	s := h.batches[l.batch][l.sliceNo]
	delete(s.listeners, l)
	if s.who = nil; len(s.listeners) > 0 {
		return
	}
	if delete(h.batches[l.batch], l.sliceNo); len(h.batches[l.batch]) == 0 {
		delete(h.batches, l.batch)
	}
}

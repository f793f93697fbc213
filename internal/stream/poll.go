package stream

import (
	"context"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/batch/query"
	"flowlane/internal/fault"
)

// poll looks for changes as long as anybody listens.
func (h *Hub) poll() {
	h.repeat(interval, func() func(context.Context) error {
		if found := h.everything(); found != nil {
			return func(ctx context.Context) error { return h.read(ctx, found) }
		}
		return nil
	})
}

// repeat does what next returns, with a pause after each, until that is nil.
func (h *Hub) repeat(interval time.Duration, next func() func(context.Context) error) {
	failures := 0
	for {
		began := time.Now()
		do := next()
		if do == nil || h.life.Err() != nil {
			return
		}
		pause := interval
		if err := h.once(do); err != nil && h.life.Err() == nil {
			if failures++; failures == 1 {
				h.opts.Log.Warn("streams wait: changes cannot be read", "error", err)
			}
			pause = pauseMax
		} else {
			failures = 0
		}
		if !h.wait(pause, time.Since(began)) {
			return
		}
	}
}

// pollOwn looks at what this process has changed until there is no more. It does not wait for a look at everything,
// which may have much to ask; where both read a slice, a listener gets what is new by the one and nothing by the other.
// What it cannot read is left to that.
func (h *Hub) pollOwn() {
	for {
		began := time.Now()
		found := h.own()
		if found == nil || h.life.Err() != nil {
			return
		}
		_ = h.once(func(ctx context.Context) error { return h.read(ctx, found) })
		if !h.wait(breath, time.Since(began)) {
			return
		}
	}
}

// wait pauses after a look that took so long; false at the end of the process.
func (h *Hub) wait(least, took time.Duration) bool {
	timer := time.NewTimer(min(max(least, effort*took), pauseMax))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-h.life.Done():
		return false
	}
}

// watching is what is looked at at once.
type watching struct {
	watched []query.Watched
	slices  []*slice
	joined  []int
	// who listens to the runs of each.
	who [][]*Listener
}

// everything returns what somebody listens to, or nil if nobody does: then looking is over.
func (h *Hub) everything() *watching {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.batches) == 0 {
		h.polling = false
		return nil
	}
	w := &watching{}
	for id := range h.batches {
		w.add(h, id)
	}
	return w
}

// own returns what somebody listens to of what this process has changed, or nil where there is none: then looking at it
// is over.
func (h *Hub) own() *watching {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &watching{}
	for id := range h.changed {
		w.add(h, id)
	}
	clear(h.changed)
	if len(w.watched) == 0 {
		h.pollingOwn = false
		return nil
	}
	return w
}

func (w *watching) add(h *Hub, batch uuid.UUID) {
	for no, s := range h.batches[batch] {
		if s.who == nil {
			s.line()
		}
		w.watched = append(w.watched, query.Watched{OrgID: s.org, BatchID: batch, SliceNo: no, Mark: s.mark,
			Runs: s.runs})
		w.slices, w.joined, w.who = append(w.slices, s), append(w.joined, s.joined), append(w.who, s.who)
	}
}

// line puts the listeners in one order. What a look has keeps the order in which it was.
func (s *slice) line() {
	n := len(s.listeners)
	s.who, s.runs = make([]*Listener, 0, n), make([]query.WatchedRun, 0, n)
	for l := range s.listeners {
		s.who, s.runs = append(s.who, l), append(s.runs, query.WatchedRun{Position: l.position, Run: l.run})
	}
}

// once looks once. A panic must not end the process; in a request it would not either.
func (h *Hub) once(do func(context.Context) error) (err error) {
	defer fault.Recovered(&err)
	ctx, cancel := context.WithTimeout(h.life, 10*time.Second)
	defer cancel()
	return do(ctx)
}

// read reads what has changed, and hands it out.
func (h *Hub) read(ctx context.Context, w *watching) error {
	return h.source.Follow(ctx, w.watched, func(i int, mark int64, logs []query.Log) {
		h.mu.Lock()
		defer h.mu.Unlock()
		s := w.slices[i]
		if s.joined == w.joined[i] {
			s.mark = mark
		}
		for j, l := range w.who[i] {
			if !l.give(logs[j].After(l.seen)) {
				s.mark = 0 // what it did not take must be read again
			}
		}
	})
}

// give hands events to the listener; false where it has not taken those before.
func (l *Listener) give(events []query.Event) bool {
	if len(events) == 0 {
		return true
	}
	select {
	case l.events <- events:
		l.seen = events[len(events)-1].No
		return true
	default:
		return false
	}
}

package stream

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/run"
)

// look looks for changes as long as anybody listens.
func (h *Hub) look() {
	failures := 0
	// When the next look at everything may begin, and the next one at what this process has changed.
	var everything, changed time.Time
	for {
		began := time.Now()
		all := !began.Before(everything)
		found := h.watched(all)
		if found == nil || h.life.Err() != nil {
			return
		}
		pause := interval
		if err := h.once(found); err != nil && h.life.Err() == nil {
			if failures++; failures == 1 {
				h.opts.Log.Warn("streams wait: changes of executions cannot be read", "error", err)
			}
			pause = pauseMax
		} else {
			failures = 0
		}
		took := time.Since(began)
		if all {
			everything = time.Now().Add(rest(pause, took))
		}
		changed = time.Now().Add(rest(breath, took))
		if !h.wait(everything, changed) {
			return
		}
	}
}

// rest is the pause after a look that took so long.
func rest(least, took time.Duration) time.Duration { return min(max(least, effort*took), pauseMax) }

// wait waits until everything is to be looked at, or something that this process has changed, which happens not before
// changed; false at the end of the process.
func (h *Hub) wait(everything, changed time.Time) bool {
	woken := h.woken
	timer := time.NewTimer(time.Until(everything))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-woken:
			if woken = nil; changed.Before(everything) {
				timer.Reset(time.Until(changed))
			}
		case <-h.life.Done():
			return false
		}
	}
}

// watching is what is looked at at once.
type watching struct {
	watched []run.Watched
	slices  []*slice
	joined  []int
	// who listens to the positions of each.
	who [][]*Listener
}

// watched returns what somebody listens to, all of it or what this process has changed; nil if nobody listens: then looking
// is over.
func (h *Hub) watched(all bool) *watching {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.batches) == 0 {
		h.looking = false
		return nil
	}
	w := &watching{}
	if all {
		for id := range h.batches {
			w.add(h, id)
		}
	} else {
		for id := range h.changed {
			w.add(h, id)
		}
	}
	clear(h.changed)
	return w
}

func (w *watching) add(h *Hub, batch uuid.UUID) {
	for no, s := range h.batches[batch] {
		if s.who == nil {
			s.line()
		}
		w.watched = append(w.watched, run.Watched{OrgID: s.org, BatchID: batch, SliceNo: no, Mark: s.mark, Positions: s.positions, Runs: s.runs})
		w.slices, w.joined, w.who = append(w.slices, s), append(w.joined, s.joined), append(w.who, s.who)
	}
}

// line puts the listeners in one order. What a look has keeps the order in which it was.
func (s *slice) line() {
	n := len(s.listeners)
	s.who, s.positions, s.runs = make([]*Listener, 0, n), make([]int64, 0, n), make([]int32, 0, n)
	for l := range s.listeners {
		s.who, s.positions, s.runs = append(s.who, l), append(s.positions, l.position), append(s.runs, l.run)
	}
}

// once looks once. A panic must not end the process; in a request it would not either.
func (h *Hub) once(w *watching) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	if len(w.watched) == 0 {
		return nil // who followed it has left
	}
	ctx, cancel := context.WithTimeout(h.life, 10*time.Second)
	defer cancel()
	return h.source.Follow(ctx, w.watched, func(i int, mark int64, logs []run.Log) {
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
func (l *Listener) give(events []run.Event) bool {
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

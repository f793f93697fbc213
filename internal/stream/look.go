package stream

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"flowlane/internal/run"
)

// look looks for changes as long as anybody listens.
func (h *Hub) look() {
	failures := 0
	for {
		began := time.Now()
		found := h.watched()
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
		timer := time.NewTimer(min(max(pause, effort*time.Since(began)), pauseMax))
		select {
		case <-timer.C:
		case <-h.life.Done():
			timer.Stop()
			return
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

// watched returns what somebody listens to, or nil if nobody does: then looking is over.
func (h *Hub) watched() *watching {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.slices) == 0 {
		h.looking = false
		return nil
	}
	w := &watching{}
	for k, s := range h.slices {
		positions := make([]int64, 0, len(s.listeners))
		runs := make([]int32, 0, len(s.listeners))
		who := make([]*Listener, 0, len(s.listeners))
		for l := range s.listeners {
			positions, runs, who = append(positions, l.position), append(runs, l.run), append(who, l)
		}
		w.watched = append(w.watched, run.Watched{OrgID: s.org, BatchID: k.batch, SliceNo: k.no, Mark: s.mark, Positions: positions, Runs: runs})
		w.slices, w.joined, w.who = append(w.slices, s), append(w.joined, s.joined), append(w.who, who)
	}
	return w
}

// once looks once. A panic must not end the process; in a request it would not either.
func (h *Hub) once(w *watching) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
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

package due

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"flowlane/internal/pg"
)

// hands carry out what the process that makes it due can begin at once. A job would take it through the database once more: its
// insertion, the notification, the worker's fetch and the beginning of its lease are what a start else waits for most. A process
// that dies in between costs a lease, like one that dies at work. Each kind has as many places as it has workers for jobs, beside
// these, so that neither way keeps the other waiting; who finds none free inserts a job.
type hands struct {
	mu sync.Mutex
	// process is the context of what is handed over; nil while this process does not work.
	process context.Context //nolint:containedctx // the time in which the process works
	cancel  context.CancelFunc
	taken   map[string]int
	busy    sync.WaitGroup
}

// Open lets this process carry out what it makes due, until Close.
func (s *Scheduler) Open(ctx context.Context) {
	h := &s.hands
	h.mu.Lock()
	defer h.mu.Unlock()
	h.process, h.cancel = context.WithCancel(ctx)
	h.taken = map[string]int{}
}

// Close takes on nothing more and waits for the handlers that work. When soft ends their contexts are cancelled, and when hard
// ends it returns an error.
func (s *Scheduler) Close(soft, hard context.Context) error {
	h := &s.hands
	h.mu.Lock()
	cancel := h.cancel
	h.process = nil
	h.mu.Unlock()
	if cancel == nil {
		return nil
	}
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.busy.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-soft.Done():
		cancel()
	}
	select {
	case <-done:
		return nil
	case <-hard.Done():
		return fmt.Errorf("handlers still run: %w", hard.Err())
	}
}

// handOver has this process work under a lease that the transaction of ctx has asked for, as soon as that is committed. It returns
// false where the process does not work, or has no place free. Where nobody knows whether the commit happened, the lease runs out.
func (s *Scheduler) handOver(ctx context.Context, l *Lease) bool {
	process := s.hands.take(l.Kind, s.places(l.Kind))
	if process == nil {
		return false
	}
	ok := pg.AtEnd(ctx, func(committed bool) {
		if !committed {
			s.hands.give(l.Kind)
			return
		}
		go func() {
			defer s.hands.give(l.Kind)
			l.workAtOnce(process)
		}()
	})
	if !ok {
		s.hands.give(l.Kind)
	}
	return ok
}

// workAtOnce works under a lease that was just granted, and needs no beginning: nobody else has its number.
func (l *Lease) workAtOnce(ctx context.Context) {
	work, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	l.lose = lose
	l.lasts(l.asked)
	if ctx.Err() != nil { // the process stops: others need not wait for the lease to run out
		l.end(ctx, Now(), errors.New("the process stops"))
		return
	}
	l.work(ctx, work)
}

// take takes a place; nil where there is none.
func (h *hands) take(kind string, most int) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.process == nil || h.taken[kind] >= most {
		return nil
	}
	h.taken[kind]++
	h.busy.Add(1)
	return h.process
}

func (h *hands) give(kind string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken[kind]--
	h.busy.Done()
}

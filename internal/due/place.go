package due

import (
	"context"
	"time"
)

// placeFor is how long a handler keeps its place while it waits for what only others can bring.
const placeFor = 50 * time.Millisecond

// LeavePlace gives the handler's place to whose turn it is. The handler goes on under its lease, and only waits for
// others from now on: however many wait, they keep nobody from working. In a process that stops it keeps its place. It
// may be called by anybody and at any time, and again.
func (l *Lease) LeavePlace() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.left && !l.over && l.leave != nil {
		l.left = l.leave()
	}
}

// Waiting has the handler leave its place where it waits for longer than placeFor, until done is called.
func (l *Lease) Waiting() (done func()) {
	timer := time.AfterFunc(placeFor, l.LeavePlace)
	return func() { timer.Stop() }
}

// Left reports whether the handler has left its place: it should end soon once it has waited.
func (l *Lease) Left() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}

// leaves reports whether the handler, which has ended, had left its place.
func (l *Lease) leaves() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	return l.left
}

// passOn has whose turn it is work in a place that its handler leaves.
func (s *Scheduler) passOn(process context.Context, in *line) {
	if next := s.local.leave(in); next != nil {
		s.local.busy.Go(func() { s.occupy(process, in, next) })
	}
}

// outlive keeps a handler in this process beyond the job that began it; false where the process does not work. process
// is what ends it then, and ended must be called once it has.
func (w *localWorkers) outlive() (process context.Context, ended func(), works bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil {
		return nil, nil, false
	}
	w.busy.Add(1)
	return w.process, w.busy.Done, true
}

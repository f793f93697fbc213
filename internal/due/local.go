package due

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// localWorkers carry out what the process that makes it due can begin by itself. A job would take it through the
// database once more: its insertion, the notification, the worker's fetch and the beginning of its lease are what a
// start else waits for most. A process that dies in between costs a lease, like one that dies at work. Each kind has as
// many places as it has workers for jobs, beside these, so that neither way keeps the other waiting. Work that finds no
// place free waits in the line of its kind.
type localWorkers struct {
	mu sync.Mutex
	// process is the context of the work; nil while this process does not work.
	process context.Context //nolint:containedctx // the time in which the process works
	cancel  context.CancelFunc
	lines   map[string]*line
	busy    sync.WaitGroup
}

// line is what waits for a place of a kind. Groups of keys take turns, so that who has much to do keeps nobody waiting
// but itself.
type line struct {
	// taken counts the places in which handlers work, waiting the leases in line.
	taken, waiting int
	groups         map[string][]*Lease
	// turns are the groups that wait, the next first.
	turns []string
}

// lineMax bounds the leases in line; what comes after them becomes a job.
const lineMax = 10_000

func (l *line) add(group string, lease *Lease) {
	if len(l.groups[group]) == 0 {
		l.turns = append(l.turns, group)
	}
	l.groups[group] = append(l.groups[group], lease)
	l.waiting++
}

// next takes the lease whose turn it is; nil where none waits.
func (l *line) next() *Lease {
	if len(l.turns) == 0 {
		return nil
	}
	group := l.turns[0]
	l.turns = l.turns[1:]
	lease := l.groups[group][0]
	if rest := l.groups[group][1:]; len(rest) > 0 {
		l.groups[group] = rest
		l.turns = append(l.turns, group)
	} else {
		delete(l.groups, group)
	}
	l.waiting--
	return lease
}

// Open lets this process carry out what it makes due, until Close.
func (s *Scheduler) Open(ctx context.Context) {
	w := &s.local
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process, w.cancel = context.WithCancel(ctx)
	w.lines = map[string]*line{}
}

// Close takes on nothing more, gives back what waits, and waits for the handlers that work. When soft ends their
// contexts are cancelled, and when hard ends it returns an error.
func (s *Scheduler) Close(soft, hard context.Context) error {
	w := &s.local
	w.mu.Lock()
	cancel, lines := w.cancel, w.lines
	w.process, w.lines = nil, nil
	w.mu.Unlock()
	if cancel == nil {
		return nil
	}
	defer cancel()
	for _, l := range lines {
		for lease := w.take(l); lease != nil; lease = w.take(l) {
			lease.giveBack(hard)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.busy.Wait()
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

// runLocally has this process work under a lease that the transaction of ctx has asked for, once that is committed. It
// returns false where the process does not work, or has too much in line. Where nobody knows whether the commit
// happened, the lease runs out.
func (s *Scheduler) runLocally(ctx context.Context, l *Lease) bool {
	w := &s.local
	w.mu.Lock()
	accepts := w.process != nil && w.line(l.Kind).waiting < lineMax
	w.mu.Unlock()
	return accepts && pg.AtEnd(ctx, func(committed bool) {
		if committed {
			s.enter(l)
		}
	})
}

// enter begins the work at once where a place is free, else in turn.
func (s *Scheduler) enter(l *Lease) {
	k, err := s.kind(l.Kind)
	if err != nil {
		return // nobody registered it: the lease runs out
	}
	w := &s.local
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil { // it stopped meanwhile: others need not wait for the lease to run out
		w.busy.Go(func() { l.giveBack(context.Background()) })
		return
	}
	if line := w.line(l.Kind); line.taken >= k.workers {
		line.add(k.groupOf(l.Key), l)
	} else {
		line.taken++
		process := w.process
		w.busy.Go(func() { s.occupy(process, line, l) })
	}
}

// occupy works in a place, on one lease after the other, until none waits for it, or a handler leaves it to others.
func (s *Scheduler) occupy(process context.Context, in *line, l *Lease) {
	for l != nil {
		l.leave = func() bool {
			s.passOn(process, in)
			return true
		}
		l.workLocally(process)
		if l.leaves() {
			return
		}
		l = s.local.leave(in)
	}
}

// take takes the lease whose turn it is out of its line, beside handlers that end or leave their place; nil where none
// waits.
func (w *localWorkers) take(l *line) *Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	return l.next()
}

// leave gives a place to whose turn it is; nil where nobody waits.
func (w *localWorkers) leave(l *line) *Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := l.next()
	if next == nil {
		l.taken--
	}
	return next
}

// waiting is how many leases of a kind are in line.
func (w *localWorkers) waiting(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil {
		return 0
	}
	return w.line(kind).waiting
}

// line returns the line of a kind; mu is held.
func (w *localWorkers) line(kind string) *line {
	l := w.lines[kind]
	if l == nil {
		l = &line{groups: map[string][]*Lease{}}
		w.lines[kind] = l
	}
	return l
}

// workLocally works under a lease that was granted to this process. One that was just granted needs no beginning:
// nobody else has its number.
func (l *Lease) workLocally(ctx context.Context) {
	work, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	l.lose = lose
	if ctx.Err() != nil {
		l.giveBack(ctx)
		return
	}
	if asked := l.grantedAt(); time.Since(asked) < l.length/2 {
		l.lasts(asked)
	} else if err := l.begin(ctx); err != nil {
		if !errors.Is(err, ErrLost) {
			l.s.opts.Log.Error("due work could not begin; it is taken up again when its lease runs out",
				l.about("error", err)...)
		}
		return
	}
	l.work(ctx, work)
}

// giveBack makes work that was not begun due again.
func (l *Lease) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := l.finish(ctx, Now()); err != nil && !errors.Is(err, ErrLost) {
		l.s.opts.Log.Error("due work could not be given back; it is taken up again when its lease runs out",
			l.about("error", err)...)
	}
}

// grantedAt is when the lease was asked for, or extended last, before its work began.
func (l *Lease) grantedAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

// keepWaiting extends the leases in line of which a third is over.
func (s *Scheduler) keepWaiting(ctx context.Context) error {
	for kind, leases := range s.waitingLeases() {
		params, byNo := db.DueExtendManyParams{Kind: kind}, map[int64]*Lease{}
		for _, l := range leases {
			if time.Since(l.grantedAt()) > l.length/3 {
				params.Keys, params.LeaseNos = append(params.Keys, l.Key), append(params.LeaseNos, l.no)
				byNo[l.no] = l
			}
		}
		if len(byNo) == 0 {
			continue
		}
		asked := time.Now()
		kept, err := db.New().DueExtendMany(ctx, s.pool, params)
		if err != nil {
			return fmt.Errorf("extend the leases that wait in line: %w", err)
		}
		for _, no := range kept {
			l := byNo[no]
			l.mu.Lock()
			l.asked = asked
			l.mu.Unlock()
		}
	}
	return nil
}

// waitingLeases are those in line, by kind.
func (s *Scheduler) waitingLeases() map[string][]*Lease {
	w := &s.local
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string][]*Lease{}
	for kind, line := range w.lines {
		for _, leases := range line.groups {
			out[kind] = append(out[kind], leases...)
		}
	}
	return out
}

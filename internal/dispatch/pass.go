package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/due"
	"flowlane/internal/pg"
	"flowlane/internal/provider"
)

const (
	// glance is how often a pass with calls in flight looks for new work and new room.
	glance = 20 * time.Millisecond
	// holdFor is how long rendered calls wait for room before they are tried again, unless one in flight settles.
	holdFor = 200 * time.Millisecond
	// settleMax bounds the calls that are settled in one transaction.
	settleMax = 256
	// linger is how long the first of a group waits for others: many in one transaction cost little more than one.
	linger = 2 * time.Millisecond
	// restMax is the longest time between two calls that a pass waits for itself.
	restMax = 2 * time.Second
	// drainFor is how long a pass that is stopped waits for its calls in flight.
	drainFor = 8 * time.Second
	// patience is how long an answer is kept for a database that is away.
	patience = 30 * time.Second
)

// finished is a call whose round trip is over.
type finished struct {
	call   *prepared
	answer provider.Answer
}

// pass sends what waits for one budget until nothing is ready and nothing is in flight.
type pass struct {
	d     *Dispatcher
	key   budgetKey
	owner string
	// inFlight counts calls under way, maxInFlight is how many may be, as the last claim saw it.
	inFlight, maxInFlight int
	// flying counts the calls under way by lane; full are lanes of which others have as many under way as may be.
	flying map[LaneKey]int
	full   map[LaneKey]bool
	// sent counts the calls that were sent and not gathered yet, senders those that may still hand over an answer.
	sent    atomic.Int64
	senders sync.WaitGroup
	done    chan finished
	settled chan []finished
	failed  chan error
	// opened is what was ready when the pass began, until it is looked at.
	opened  []db.QueueChooseRow
	blocked map[queueKey]bool
	// held are calls that were rendered and could not go: an exclusive one barred their way, or the budget had no room. They
	// are tried again from heldUntil on; meanwhile their queues are blocked, and others go.
	held      []*prepared
	heldUntil time.Time
	// roomSince is when a little room opened; more may follow at once.
	roomSince time.Time
	// waitUntil is when to look at the budget again that had no room, unless a call settles before.
	waitUntil time.Time
	// spacing is the least time between two calls of the budget; the next may go at spacedAt by the database's clock, which
	// is spacedUntil here.
	spacing               time.Duration
	spacedAt, spacedUntil time.Time
}

// Pass is the handler of due rows of kind run.DueDispatch.
func (d *Dispatcher) Pass(ctx context.Context, lease *due.Lease) (next time.Time, err error) {
	domain, bucket, ok := strings.Cut(lease.Key, "\n")
	if !ok {
		return time.Time{}, fmt.Errorf("dispatch: %q names no budget", lease.Key)
	}
	p := &pass{d: d, key: budgetKey{domain, bucket}, owner: d.opts.Owner, done: make(chan finished, 1024), settled: make(chan []finished, 1024),
		failed: make(chan error, 1), blocked: map[queueKey]bool{}, flying: map[LaneKey]int{}, full: map[LaneKey]bool{}}
	budget, err := p.open(ctx)
	if err != nil {
		return time.Time{}, err
	}
	p.maxInFlight = int(budget.MaxInFlight)
	if m, err := d.windows(&budget); err == nil && m != nil {
		p.spacing = m.spacing
	}
	d.readFirst(ctx, &budget)
	// Settling outlives a stop, and the loss of the lease: what is in flight should be settled, not left to reconciliation.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(drainTime(ctx), cancel) })
	defer stop()
	ended := make(chan struct{})
	go func() { defer close(ended); p.settle(work) }()
	next, err = p.loop(ctx, work)
	// Nothing is in flight, or the time to drain is over: who still sends is told to stop, and is left to reconciliation.
	cancel()
	p.senders.Wait()
	close(p.done)
	<-ended
	return next, err
}

// open ends the backoff whose time is over, and reads the budget and what is ready in it.
func (p *pass) open(ctx context.Context) (budget db.FlowBudget, err error) {
	err = pg.Together(ctx, p.d.Pool, func(tx pg.DB) error {
		return p.d.q.HoldExpire(ctx, tx, db.HoldExpireParams{Domain: p.key.domain, Bucket: p.key.bucket})
	}, func(tx pg.DB) (err error) {
		budget, err = p.d.q.BudgetRead(ctx, tx, db.BudgetReadParams{Domain: p.key.domain, Bucket: p.key.bucket})
		return err
	}, func(tx pg.DB) (err error) {
		p.opened, err = p.d.ready(ctx, tx, p.key, nil)
		return err
	})
	if err != nil {
		return budget, fmt.Errorf("open budget %s: %w", p.key, err)
	}
	return budget, nil
}

// drainTime is how long a pass may go on to settle. One that lost its lease, as happens when the database is away, has the
// time that answers are kept for.
func drainTime(ctx context.Context) time.Duration {
	if errors.Is(context.Cause(ctx), due.ErrLost) {
		return patience
	}
	return drainFor
}

// loop claims and sends until there is nothing to do; next is when to come back.
func (p *pass) loop(ctx, work context.Context) (next time.Time, err error) {
	for {
		var wait time.Time
		progress := false
		if ctx.Err() == nil {
			if progress, wait, err = p.step(ctx, work); err != nil {
				p.drain(work)
				return time.Time{}, err
			}
		}
		if progress {
			p.collect(work, 0)
			continue
		}
		if p.inFlight == 0 {
			if ctx.Err() != nil {
				return time.Time{}, ctx.Err()
			}
			if p.rest(ctx) {
				continue
			}
			return p.next(ctx, wait)
		}
		p.collect(work, p.pause())
		select {
		case err := <-p.failed:
			p.drain(work)
			return time.Time{}, err
		default:
		}
		if work.Err() != nil {
			return time.Time{}, work.Err()
		}
	}
}

// rest waits for the time between two calls to pass, where that is too short to come back for.
func (p *pass) rest(ctx context.Context) bool {
	left := time.Until(p.spacedUntil)
	if left <= 0 || left > restMax {
		return false
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return true
}

// pause is how long to wait for a call to settle before looking again.
func (p *pass) pause() time.Duration {
	if !p.roomSince.IsZero() {
		return linger
	}
	return glance
}

// step claims once and sends what it got. progress tells that there may be more at once.
func (p *pass) step(ctx, work context.Context) (progress bool, wait time.Time, err error) {
	switch now := time.Now(); {
	case now.Before(p.spacedUntil):
		return false, p.spacedAt, nil
	case now.Before(p.waitUntil):
		return false, wait, nil
	}
	calls := p.held
	if len(calls) > 0 && !time.Now().Before(p.heldUntil) {
		p.held = nil
		for _, call := range calls {
			for _, k := range call.queues {
				delete(p.blocked, k)
			}
		}
	} else if calls, err = p.choose(ctx); err != nil || len(calls) == 0 {
		return false, wait, err
	}
	got, err := p.d.checked(ctx, p.key, calls, p.owner)
	if err != nil {
		return false, wait, err
	}
	if got.maxInFlight > 0 {
		p.maxInFlight = got.maxInFlight
	}
	for _, call := range got.calls {
		p.inFlight++
		p.flying[call.laneKey()]++
		p.sent.Add(1)
		p.senders.Go(func() { p.send(work, call) })
	}
	if got.spaced > 0 {
		p.spacedAt, p.spacedUntil = got.nextAt, time.Now().Add(got.spaced)
	} else if !got.nextAt.IsZero() {
		p.waitUntil = time.Now().Add(holdFor)
	}
	if len(got.calls) > 0 || got.decided {
		return got.nextAt.IsZero(), got.nextAt, nil
	}
	for _, k := range got.blocked {
		p.blocked[k] = true
	}
	if got.full != nil {
		p.full[*got.full] = true
	}
	if p.inFlight > 0 && p.held == nil && (!got.nextAt.IsZero() || got.busy && len(calls) == 1) {
		p.held, p.heldUntil = calls, time.Now().Add(holdFor)
	}
	return len(got.blocked) > 0, got.nextAt, nil
}

// choose renders what may go next, where there is room.
func (p *pass) choose(ctx context.Context) ([]*prepared, error) {
	free := p.maxInFlight - p.inFlight
	if p.inFlight > 0 && free < min(groupMax, p.maxInFlight)/2 {
		if p.roomSince.IsZero() || free <= 0 {
			p.roomSince = time.Now()
		}
		if free <= 0 || time.Since(p.roomSince) < linger {
			return nil, nil
		}
	}
	p.roomSince = time.Time{}
	if p.spacing > 0 {
		free = 1
	}
	ready := p.opened
	if p.opened = nil; ready == nil {
		var err error
		if ready, err = p.d.ready(ctx, p.d.Pool, p.key, p.blocked); err != nil {
			return nil, err
		}
	}
	return p.d.choose(ctx, ready, p.blocked, func(row *queueRow) int {
		switch lane := row.laneKey(); {
		case p.full[lane]:
			return 0
		case row.MaxCalls > 0:
			return min(free, int(row.MaxCalls)-p.flying[lane])
		}
		return free
	})
}

// send makes one round trip. It is the only place from which records leave.
func (p *pass) send(ctx context.Context, call *prepared) {
	p.done <- finished{call: call, answer: p.d.Sender.Send(ctx, call.request)}
}

// settle settles finished calls, many in one transaction where they come in fast.
func (p *pass) settle(ctx context.Context) {
	for first := range p.done {
		group := p.gather(first)
		p.sent.Add(-int64(len(group)))
		if err := p.d.settle(ctx, p.key, group); err != nil {
			level := slog.LevelError
			if ctx.Err() != nil {
				level = slog.LevelInfo // we stop: reconciliation finds out about them
			}
			p.d.opts.Log.Log(ctx, level, "settle calls", "domain", p.key.domain, "bucket", p.key.bucket, "calls", len(group), "error", err)
			select {
			case p.failed <- err:
			default:
			}
		}
		p.settled <- group
	}
}

// gather waits a little for calls that finish together.
func (p *pass) gather(first finished) []finished {
	group := []finished{first}
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for len(group) < settleMax && int64(len(group)) < p.sent.Load() {
		select {
		case f, ok := <-p.done:
			if !ok {
				return group
			}
			group = append(group, f)
		case <-timer.C:
			return group
		}
	}
	return group
}

// patiently repeats what failed because the database was away: an answer that is given up costs a lookup, or is lost for
// good where there is none. do must be harmless to repeat.
func (d *Dispatcher) patiently(ctx context.Context, do func() error) error {
	began := time.Now()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := do()
		if err == nil || !passing(err) || time.Since(began) > patience {
			return err
		}
		d.opts.Log.Warn("the database is away; trying again", "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// passing reports whether the same work may succeed a little later.
func passing(err error) bool {
	return pg.IsConnection(err) || pg.CommitUnknown(err) || pg.IsSerialization(err)
}

// collect counts settled calls; it waits for the first one at most this long.
func (p *pass) collect(ctx context.Context, wait time.Duration) {
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case group := <-p.settled:
			p.free(group)
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	for {
		select {
		case group := <-p.settled:
			p.free(group)
		default:
			return
		}
	}
}

func (p *pass) free(group []finished) {
	p.inFlight -= len(group)
	for i := range group {
		p.flying[group[i].call.laneKey()]--
	}
	p.waitUntil, p.heldUntil = time.Time{}, time.Time{}
	clear(p.blocked)
	clear(p.full)
	for _, call := range p.held {
		for _, k := range call.queues {
			p.blocked[k] = true
		}
	}
}

// drain waits until nothing is in flight any more, or no longer may be.
func (p *pass) drain(ctx context.Context) {
	for p.inFlight > 0 && ctx.Err() == nil {
		p.collect(ctx, glance)
	}
}

// next says when the budget must be looked at again: when there is room, or when delayed work is ready.
func (p *pass) next(ctx context.Context, wait time.Time) (time.Time, error) {
	if !wait.IsZero() {
		return wait, nil
	}
	at, err := p.d.q.QueueNextReady(ctx, p.d.Pool, db.QueueNextReadyParams{Domain: p.key.domain, Bucket: p.key.bucket})
	if err != nil {
		return time.Time{}, fmt.Errorf("read what waits for %s: %w", p.key, err)
	}
	if len(p.blocked) > 0 || len(p.full) > 0 || p.held != nil {
		// Another process, or an unknown outcome, bars the way: it wakes this budget when it settles, and this is the belt.
		now, err := p.d.q.Clock(ctx, p.d.Pool)
		if err != nil {
			return time.Time{}, fmt.Errorf("read the clock: %w", err)
		}
		soon := now.Add(time.Second)
		if at.IsZero() || soon.Before(at) {
			at = soon
		}
	}
	return at, nil
}

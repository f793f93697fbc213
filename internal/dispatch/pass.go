package dispatch

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/due"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
	"flowlane/internal/quota"
)

const (
	// batchWait is how long a pass without work waits for more before it gives its lease and its place back.
	batchWait = 30 * time.Millisecond
	// placesWait is how long a pass with work left waits for more places than one.
	placesWait = 2 * time.Millisecond
	// passTurn is how long a pass goes on before others get its place.
	passTurn = time.Second
	// recheckAfter is when a pass comes back that left work behind which something bars: who bars it wakes the budget,
	// and this is the belt.
	recheckAfter = time.Second
)

// pass claims what waits for one budget, and has it sent, until nothing more may go now. It does not wait for answers.
type pass struct {
	d      *Dispatcher
	key    budgetKey
	lease  *due.Lease
	flight *flight
	// settled is how many settlements of the flight this pass knows of.
	settled int
	// maxInFlight is how many calls of an organization may be under way, as the last claim saw it.
	maxInFlight int
	// opened is what was ready when it was looked for last, and was not chosen since.
	opened []queueRow
	// openedAt is when they were read.
	openedAt time.Time
	// ready is how many records were ready when calls were chosen last, up to some.
	ready int
	// blocked are queues, full lanes that something bars until a call settles.
	blocked map[queueKey]bool
	full    map[quota.LaneKey]bool
	// otherBudget are blocked queues whose calls spend another budget too that has no room before again is over.
	otherBudget map[queueKey]bool
	again       quota.Delay
	// againLocal is, by this process's clock, when the first of them may go again that waits for what its call counts
	// for; zero for none.
	againLocal time.Time
	// delay is what keeps all calls of the budget, by the database's clock, waitLocal until when by this process's;
	// zero while nothing does.
	delay     quota.Delay
	waitLocal time.Time
	// spaced: the budget grants one call at a time.
	spaced bool
	// unread: the budget is nearly spent, and the provider's counters are to be read before the next claim.
	unread bool
	// chosenAt is a time by the database's clock before the last look at what is ready.
	chosenAt time.Time
}

// Pass is the handler of due rows of kind run.DueDispatch, which must be registered as one that looks again
// (due.Rechecks).
func (d *Dispatcher) Pass(ctx context.Context, lease *due.Lease) (next time.Time, err error) {
	k, err := budgetOfLease(lease)
	if err != nil {
		return time.Time{}, err
	}
	p := &pass{d: d, key: k, lease: lease, blocked: map[queueKey]bool{}, full: map[quota.LaneKey]bool{},
		otherBudget: map[queueKey]bool{}}
	p.flight = d.join(p.key)
	defer func() { p.flight.leave(ctx, p.waits(), p.settled) }()
	p.settled = p.flight.settlements()
	if err := p.open(ctx); err != nil {
		return time.Time{}, err
	}
	return p.loop(ctx)
}

// open ends the backoffs of the account whose time is over, and reads the budget and what is ready in it.
func (p *pass) open(ctx context.Context) error {
	var budget db.FlowBudget
	var others []db.CallsOfOthersRow
	err := pg.GenericPlan(ctx, p.d.Pool, func(tx pg.DB) error {
		return p.d.q.BackoffsExpire(ctx, tx, p.key.domain)
	}, func(tx pg.DB) (err error) {
		budget, err = p.d.q.BudgetRead(ctx, tx, db.BudgetReadParams{Domain: p.key.domain, Bucket: p.key.bucket})
		return err
	}, func(tx pg.DB) (err error) {
		others, err = p.d.q.CallsOfOthers(ctx, tx, db.CallsOfOthersParams{Domain: p.key.domain, Bucket: p.key.bucket,
			Owner: p.d.opts.Owner})
		return err
	}, func(tx pg.DB) (err error) {
		p.openedAt = time.Now()
		p.opened, _, _, err = p.d.ready(ctx, tx, p.key, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("open budget %s: %w", p.key, err)
	}
	p.maxInFlight = int(budget.MaxInFlight)
	p.flight.besides(others, p.maxInFlight)
	if m, err := p.d.windows(&budget); err == nil && m != nil {
		p.spaced = m.spacing > 0
		// Where the last reading is old, what others spent is known then, and no call of ours is too young for the
		// reading.
		if m.askEvery > 0 && p.d.beforeSending.due(m.key.domain, m.askEvery, time.Now()) {
			p.refresh(ctx)
		}
	}
	return nil
}

// refresh reads the counters of the account. A provider that takes its time takes no place meanwhile.
func (p *pass) refresh(ctx context.Context) {
	defer p.lease.Waiting()()
	p.d.refreshCounters(ctx, p.key.domain)
}

// loop claims until nothing more may go now, and looks once more when nobody can wake it unseen any more. A time comes
// back only where the lease is to go on: others have their turn, also where the pass has left its place, but not
// between a reading of the counters and the claim that it was for.
func (p *pass) loop(ctx context.Context) (time.Time, error) {
	for began := time.Now(); ; {
		progress, err := p.step(ctx)
		switch {
		case ctx.Err() != nil:
			return time.Time{}, context.Cause(ctx) //nolint:wrapcheck // why the lease ended
		case err != nil:
			return time.Time{}, err
		case !p.unread && (p.lease.Left() || time.Since(began) > passTurn):
			return due.Now(), nil
		case progress || p.await(ctx):
			continue
		}
		more, err := p.lease.EndUnless(ctx, p.recheck)
		if err != nil || !more {
			return time.Time{}, err //nolint:wrapcheck // says everything
		}
	}
}

// await waits a little for what may let more go: an answer, a settlement, a start, the end of a short wait.
func (p *pass) await(ctx context.Context) bool {
	p.flight.want(p.waits())
	waited := time.After(batchWait)
	var over <-chan time.Time
	if left := time.Until(p.waitLocal); left > 0 && left <= batchWait {
		over = time.After(left)
	}
	for {
		select {
		case <-p.flight.changed:
			barred, full := p.waits(), len(p.full) > 0
			p.noteSettled()
			if full {
				p.gather(ctx)
			}
			if barred {
				return true
			}
		case <-p.lease.Woken():
			return true
		case <-over:
			return true
		case <-ctx.Done():
			return true
		case <-waited:
			return false
		}
	}
}

// gather waits a moment until more places are free than the first: a claim of several calls costs little more than one.
func (p *pass) gather(ctx context.Context) {
	over := time.After(placesWait)
	for p.flight.free(p.maxInFlight) < p.maxInFlight/4 {
		select {
		case <-p.flight.changed:
			p.noteSettled()
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// noteSettled takes note of settlements: what was barred may go.
func (p *pass) noteSettled() {
	clear(p.full)
	settled := p.flight.settlements()
	if settled == p.settled {
		return
	}
	p.settled, p.delay, p.waitLocal = settled, quota.Delay{}, time.Time{}
	p.blocked = maps.Clone(p.otherBudget)
}

// waits reports whether work is left for which a settlement may make room.
func (p *pass) waits() bool {
	return len(p.blocked) > len(p.otherBudget) || len(p.full) > 0 || !p.delay.IsZero()
}

// recheck finds out whether there is more to do, once nobody can wake the budget any more without being seen, and else
// when there will be.
func (p *pass) recheck(ctx context.Context, tx pgx.Tx) (more bool, next time.Time, err error) {
	if !p.delay.IsZero() {
		return false, p.delay.Until, nil // who makes room earlier wakes the budget again (run.Waker)
	}
	p.openedAt = time.Now()
	var wholeIn time.Duration
	err = pg.QueryBatch(ctx, tx, func(conn pg.DB) (err error) {
		p.chosenAt, err = p.d.clock(ctx, conn)
		return err
	}, func(conn pg.DB) (err error) {
		p.opened, _, wholeIn, err = p.d.ready(ctx, conn, p.key, p.blocked)
		return err
	})
	if err != nil {
		return false, next, err //nolint:wrapcheck // says everything
	}
	for i := range p.opened {
		if free, _ := p.room(&p.opened[i]); free > 0 {
			return true, next, nil
		}
	}
	if wholeIn > 0 { // to look for what gets ready would walk over all that this read passed by
		next = p.chosenAt.Add(wholeIn)
	} else if next, err = p.d.q.QueueNextReady(ctx, tx, db.QueueNextReadyParams{
		Domain: p.key.domain, Bucket: p.key.bucket, ChosenAt: p.chosenAt,
	}); err != nil {
		return false, next, fmt.Errorf("read what waits for %s: %w", p.key, err)
	}
	if soon := p.chosenAt.Add(recheckAfter); (p.waits() || len(p.d.deferred.keys()) > 0) &&
		(next.IsZero() || soon.Before(next)) {
		next = soon
	}
	return false, moment.Soonest(next, p.again.Until), nil
}

// step claims once and sends what it got. progress tells that there may be more at once.
func (p *pass) step(ctx context.Context) (progress bool, err error) {
	if time.Now().Before(p.waitLocal) {
		return false, nil
	}
	p.delay, p.waitLocal = quota.Delay{}, time.Time{}
	fresh := p.unread
	if fresh {
		p.refresh(ctx)
		p.unread = false
	}
	p.reopen()
	calls := p.flight.takeRendered(p.blocked)
	if len(calls) == 0 {
		if calls, err = p.choose(ctx); err != nil || len(calls) == 0 {
			return false, err
		}
	}
	var got reserved
	var held bool
	defer func() {
		if !held {
			letGo(calls, got.calls...)
		}
	}()
	got, err = p.d.reserve(ctx, p.key, calls, p.flight, fresh)
	if err != nil || len(got.calls) < len(calls) {
		p.opened = nil // something else is ready than was read
	}
	if err == nil && got.escalated && !got.decided {
		p.unread = true // what was rendered is let go: the provider may take its time
		return true, nil
	}
	if err != nil {
		got.calls, err = p.isolate(ctx, calls, err)
		return err == nil, err
	}
	if got.maxInFlight > 0 {
		p.maxInFlight = got.maxInFlight
	}
	p.flight.start(&got)
	if len(got.calls) < len(calls) {
		p.countDelays(got.delay, got.scopeDelay)
	}
	held = got.exclusive && len(calls) == 1 && p.flight.keepRendered(calls[0])
	p.bar(&got)
	if !got.delay.IsZero() && !got.elsewhere {
		p.delay, p.waitLocal = got.delay, time.Now().Add(got.delay.Until.Sub(got.now))
		return false, nil
	}
	all := p.ready == len(calls) && len(got.calls) == len(calls) // what was ready goes: nothing more is known of
	return !all && (len(got.calls) > 0 || got.decided || len(got.blocked)+len(got.scopeFull) > 0 || len(got.full) > 0),
		nil
}

// countDelays counts what keeps calls that were not claimed.
func (p *pass) countDelays(delays ...quota.Delay) {
	for _, delay := range delays {
		if !delay.IsZero() && p.d.opts.Delayed != nil {
			p.d.opts.Delayed(delay.Reason)
		}
	}
}

// bar notes what cannot go before something settles, or before a time.
func (p *pass) bar(got *reserved) {
	for _, k := range got.blocked {
		p.blocked[k] = true
		if got.elsewhere {
			p.otherBudget[k], p.again = true, p.again.Or(got.delay)
		}
	}
	for _, k := range got.scopeFull {
		p.blocked[k], p.otherBudget[k] = true, true
		p.again, p.againLocal = p.again.Or(got.scopeDelay),
			moment.Soonest(p.againLocal, time.Now().Add(got.scopeDelay.Until.Sub(got.now)))
	}
	for _, lane := range got.full {
		p.full[lane] = true
	}
}

// reopen lets queues go again for whose next call there is room by now.
func (p *pass) reopen() {
	if p.againLocal.IsZero() || time.Now().Before(p.againLocal) {
		return
	}
	for k := range p.otherBudget {
		delete(p.blocked, k)
	}
	clear(p.otherBudget)
	p.again, p.againLocal = quota.Delay{}, time.Time{}
}

// choose renders what may go next, where there is room.
func (p *pass) choose(ctx context.Context) ([]*outboundCall, error) {
	ready := p.opened
	if p.opened = nil; ready == nil || time.Since(p.openedAt) > restFor {
		p.openedAt = time.Now()
		var scan queueScan
		err := pg.GenericPlan(ctx, p.d.Pool, func(tx pg.DB) (err error) {
			ready, scan, _, err = p.d.ready(ctx, tx, p.key, p.blocked)
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := p.d.noteScan(ctx, p.key, scan); err != nil {
			return nil, err
		}
	}
	p.ready = len(ready) / bulkQueues // there may be more
	for i := range ready {
		p.ready += int(min(ready[i].ReadyRecords, groupMax+1))
	}
	calls, err := p.d.choose(ctx, ready, p.blocked, p.room)
	p.opened = p.rest(ready, calls)
	return calls, err
}

// restFor is how long queues count as ready that were read for an earlier claim; a claim finds out which of them are
// not.
const restFor = 50 * time.Millisecond

// rest are the queues that can go next after calls without a look at what else is ready: none where it is another's
// turn, of a lane that shares the budget or of a queue that has more, and none where they would make a smaller claim.
func (p *pass) rest(ready []queueRow, calls []*outboundCall) []queueRow {
	taken := map[queueKey]bool{}
	for _, call := range calls {
		for _, k := range call.queues {
			taken[k] = true
		}
	}
	var rest []queueRow
	for i := range ready {
		row := &ready[i]
		k := keyOf(row)
		if row.laneKey() != ready[0].laneKey() || row.Allowance != nil || taken[k] && row.ReadyRecords > 1 {
			return nil
		}
		if !taken[k] && !p.blocked[k] {
			rest = append(rest, *row)
		}
	}
	if len(rest) < max(p.maxInFlight, bulkQueues/2) {
		return nil
	}
	return rest
}

// room is how many calls of a queue's lane, and of its organization, may go now.
func (p *pass) room(row *queueRow) (ofLane, ofOrg int) {
	ofOrg = max(p.flight.room(row.laneKey(), p.maxInFlight, 0), 0)
	if p.spaced {
		ofOrg = min(ofOrg, 1)
	}
	if p.blocked[keyOf(row)] || p.full[row.laneKey()] {
		return 0, ofOrg
	}
	ofLane = max(min(ofOrg, p.flight.room(row.laneKey(), p.maxInFlight, int(row.MaxCalls))), 0)
	if ofLane == 0 {
		p.full[row.laneKey()] = true
	}
	return ofLane, ofOrg
}

// isolate goes on where a claim failed for a reason that lies in one of its calls: each is claimed by itself, the
// records of one that cannot be written down fail, and the queue of one that fails otherwise is passed over for a
// while. It returns what was sent.
func (p *pass) isolate(ctx context.Context, calls []*outboundCall, cause error) (sent []*outboundCall, err error) {
	if mayPass(ctx, cause) {
		return nil, cause
	}
	for _, call := range calls {
		got, err := p.reserveOne(ctx, call)
		if err != nil && pg.IsDataError(err) && !call.empty() {
			call.refuse(call.r.failure(codeParams,
				"The call cannot be stored: a key or a parameter of it holds a NUL, or is too long"))
			got, err = p.reserveOne(ctx, call)
		}
		if err != nil {
			for _, k := range call.queues {
				if err := p.d.deferQueue(ctx, k, err); err != nil {
					return sent, err
				}
			}
			continue
		}
		p.flight.start(&got)
		sent = append(sent, got.calls...)
	}
	return sent, nil
}

// reserveOne claims one call by itself, after a look at the provider's counters where that is due.
func (p *pass) reserveOne(ctx context.Context, call *outboundCall) (reserved, error) {
	defer p.lease.Waiting()()
	return p.d.reserveFresh(ctx, p.key, []*outboundCall{call}, p.flight)
}

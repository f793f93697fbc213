package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

const (
	// settleMax bounds the calls that are settled in one transaction.
	settleMax = 256
	// settleWait is how long the first of a group waits for others: many in one transaction cost little more than one.
	settleWait = 2 * time.Millisecond
	// answeredMost is how many times as many calls as may be under way may be answered and not settled.
	answeredMost = 4
	// markAfter is how long a call is under way before its batch is marked as running: most batches of one call are
	// over by then, and the row with the most indexes is written once less.
	markAfter = 100 * time.Millisecond
	// renderedMost is how long a call is kept that was rendered too early: it takes memory.
	renderedMost = time.Second
)

// finished is a call whose round trip is over.
type finished struct {
	call   *outboundCall
	answer provider.Answer
}

// flight is what this process has under way for one budget: calls from their claim to their settlement. It needs no
// lease and no place: however many calls wait for their answers, what they take is memory.
type flight struct {
	d   *Dispatcher
	key budgetKey

	mu sync.Mutex
	// lanes and orgs count the calls that are not answered yet. open are those that are not settled.
	lanes map[quota.LaneKey]int
	orgs  map[uuid.UUID]int
	open  map[uuid.UUID]struct{}
	// others are the calls that other processes may have under way, and most how many an organization may, as the last
	// pass or start saw it when it began; 0 before the first.
	others map[quota.LaneKey]int
	most   int
	// rendered was rendered and waits for an exclusive call that is under way here, until the timer lets it go.
	rendered      *outboundCall
	renderedTimer *time.Timer
	// answered wait for their settlement.
	answered []finished
	working  bool
	// passes are those that work on the budget in this process, starts the transactions that may claim calls of batches
	// that they start; settled counts settlements.
	passes, starts int
	settled        int
	// waits: a pass has left work for which a settlement may make room. wanted: one waits for that.
	waits, wanted bool
	// changed tells the pass of answers and settlements, more that another answer came.
	changed, more chan struct{}
}

// flights are those of a dispatcher, by budget.
type flights struct {
	mu sync.Mutex
	of map[budgetKey]*flight
	// sending counts calls that are not settled, and starts that may claim some.
	sending sync.WaitGroup
	// claiming: starts may claim calls.
	claiming bool
}

// get returns the flight of a budget, whose mu the caller has.
func (f *flights) get(d *Dispatcher, k budgetKey) *flight {
	out := f.of[k]
	if out == nil {
		out = &flight{d: d, key: k, lanes: map[quota.LaneKey]int{}, orgs: map[uuid.UUID]int{},
			open:    map[uuid.UUID]struct{}{},
			changed: make(chan struct{}, 1), more: make(chan struct{}, 1)}
		f.of[k] = out
	}
	return out
}

// full reports whether an organization has no place in a budget, as far as that is known here.
func (f *flights) full(k budgetKey, org uuid.UUID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.of[k]
	if of == nil {
		return false
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.most > 0 && of.roomLocked(quota.LaneKey{Org: org}, of.most, 0) <= 0
}

// join returns the flight of a budget for a pass, which must leave it.
func (d *Dispatcher) join(k budgetKey) *flight {
	d.flights.mu.Lock()
	defer d.flights.mu.Unlock()
	f := d.flights.get(d, k)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.passes++
	f.waits = false
	return f
}

// leave ends a pass. waits tells that it leaves work for which a settlement may make room; seen is the number of
// settlements that it knows of. It wakes the budget where there was one since, which nobody else will tell it of.
func (f *flight) leave(ctx context.Context, waits bool, seen int) {
	f.mu.Lock()
	f.passes--
	f.waits, f.wanted = f.waits || waits, false
	missed := f.waits && f.settled != seen
	f.mu.Unlock()
	f.d.drop(f)
	if missed {
		f.wake(ctx)
	}
}

// wake has the budget looked at: there may be room.
func (f *flight) wake(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	err := pg.InTx(ctx, f.d.Pool, func(ctx context.Context, tx pgx.Tx) error {
		return f.d.Due.Wake(ctx, tx, run.DueDispatch, f.key.String(), time.Time{})
	})
	if err != nil {
		f.d.opts.Log.Warn("wake a budget that has room again", "budget", f.key, "error", err)
	}
}

// drop forgets a flight without calls and passes. One that holds a call waits for the pass that takes it, or for its
// timer.
func (d *Dispatcher) drop(f *flight) {
	d.flights.mu.Lock()
	defer d.flights.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.open) == 0 && f.passes+f.starts == 0 && f.rendered == nil && d.flights.of[f.key] == f {
		delete(d.flights.of, f.key)
	}
}

// keepRendered keeps a rendered call for the pass that comes once an exclusive one is settled, so that rendering goes
// on beside it. It returns false where another one is kept, or nothing is under way here that it could wait for.
func (f *flight) keepRendered(call *outboundCall) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rendered != nil || len(f.open) == 0 {
		return false
	}
	f.rendered = call
	f.renderedTimer = time.AfterFunc(renderedMost, func() { f.letRenderedGo(call) })
	return true
}

// letRenderedGo gives back the memory of a call that is still held.
func (f *flight) letRenderedGo(call *outboundCall) {
	f.mu.Lock()
	held := f.rendered == call
	if held {
		f.rendered = nil
		f.renderedTimer.Stop()
	}
	f.mu.Unlock()
	if held {
		call.request.Memory.Release()
		f.d.drop(f)
	}
}

// takeRendered returns the call that is held, if none of its queues is blocked.
func (f *flight) takeRendered(blocked map[queueKey]bool) []*outboundCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := f.rendered
	if call == nil || slices.ContainsFunc(call.queues, func(k queueKey) bool { return blocked[k] }) {
		return nil
	}
	f.rendered = nil
	f.renderedTimer.Stop() // which would keep the call in memory for longer than it takes
	return []*outboundCall{call}
}

// room is how many more calls of a lane may go: of an organization most at once, or what it chose for the lane.
func (f *flight) room(lane quota.LaneKey, most, ofLane int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.roomLocked(lane, most, ofLane)
}

// roomLocked is room, for whoever has mu.
func (f *flight) roomLocked(lane quota.LaneKey, most, ofLane int) int {
	free := most - f.orgs[lane.Org]
	for k, n := range f.others {
		if k.Org == lane.Org {
			free -= n
		}
	}
	if ofLane > 0 {
		free = min(free, ofLane-f.lanes[lane]-f.others[lane])
	}
	return min(free, answeredMost*most-len(f.open))
}

// free is how many places are left of most, whoever has the others.
func (f *flight) free(most int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.orgs {
		most -= n
	}
	return most
}

// underWay is how many calls of a lane are under way: written down, and not answered as far as is known here.
func (f *flight) underWay(lane quota.LaneKey) int {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lanes[lane] + f.others[lane]
}

// besides notes which calls other processes may have under way.
func (f *flight) besides(calls []db.CallsOfOthersRow, most int) {
	others := map[quota.LaneKey]int{}
	for _, c := range calls {
		others[quota.LaneKey{Org: c.OrgID, Lane: c.Lane}] = int(c.Calls)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.others, f.most = others, most
}

// want says whether a pass waits for a settlement.
func (f *flight) want(wanted bool) {
	f.mu.Lock()
	hurry := wanted && !f.wanted
	f.wanted = wanted
	f.mu.Unlock()
	if hurry {
		f.d.answered.Hurry()
	}
}

// settlements is how many there were.
func (f *flight) settlements() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settled
}

// place counts calls as under way before their claim is committed, under the budget's lock: whoever has that next sees
// them. start sends them, or giveBack takes them back.
func (f *flight) place(calls []*outboundCall) {
	if f == nil {
		return
	}
	f.d.flights.sending.Add(len(calls))
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, call := range calls {
		f.lanes[call.laneKey()]++
		f.orgs[call.orgID]++
		f.open[call.id] = struct{}{}
	}
}

// giveBack takes back the places of calls that are not sent.
func (f *flight) giveBack(calls []*outboundCall) {
	if f == nil || len(calls) == 0 {
		return
	}
	f.mu.Lock()
	for _, call := range calls {
		f.answeredLocked(call)
		delete(f.open, call.id)
	}
	f.mu.Unlock()
	f.d.flights.sending.Add(-len(calls))
}

// answeredLocked takes a call off those that are not answered; the caller has mu.
func (f *flight) answeredLocked(call *outboundCall) {
	f.lanes[call.laneKey()]--
	if f.orgs[call.orgID]--; f.orgs[call.orgID] == 0 {
		delete(f.orgs, call.orgID)
	}
}

// start sends claimed calls, and marks batches as running that are not over soon.
func (f *flight) start(got *reserved) {
	calls := f.leaveUnsent(got.calls)
	if len(calls) < len(got.calls) {
		f.giveBack(slices.DeleteFunc(slices.Clone(got.calls), func(p *outboundCall) bool { return p.lost == nil }))
	}
	for _, call := range calls {
		go f.send(call)
	}
	f.mark(got)
}

// mark marks the batches as running, after a while, whose calls are not settled by then.
func (f *flight) mark(got *reserved) {
	if len(got.unmarked) == 0 {
		return
	}
	calls, at := map[uuid.UUID]uuid.UUID{}, got.now
	for _, call := range got.calls {
		for _, k := range call.queues {
			if slices.Contains(got.unmarked, k.batch) {
				calls[k.batch] = call.id
			}
		}
	}
	time.AfterFunc(markAfter, func() {
		f.mu.Lock()
		maps.DeleteFunc(calls, func(_, call uuid.UUID) bool { _, open := f.open[call]; return !open })
		f.mu.Unlock()
		if len(calls) == 0 || f.d.process.Err() != nil {
			return
		}
		if err := f.d.Runs.MarkRunning(f.d.process, slices.Collect(maps.Keys(calls)), at); err != nil {
			f.d.opts.Log.Warn("mark batches as running", "batches", len(calls), "error", err) // their settlement does
		}
	})
}

// send makes one round trip. It is the only place from which records leave.
func (f *flight) send(call *outboundCall) {
	answer := f.roundTrip(call)
	f.mu.Lock()
	f.answeredLocked(call)
	f.answered = append(f.answered, finished{call, answer})
	begin := !f.working
	f.working = true
	f.mu.Unlock()
	notify(f.changed)
	if begin {
		f.settleAnswered()
		return
	}
	notify(f.more)
	if call.awaited() {
		f.d.answered.Hurry() // what is settled before it
	}
}

// roundTrip sends a call. Of one whose sending panicked nobody knows whether it arrived.
func (f *flight) roundTrip(call *outboundCall) (answer provider.Answer) {
	began := time.Now()
	var err error
	defer func() {
		if err != nil {
			f.d.opts.Log.Error("send a call", "domain", f.key.domain, "bucket", f.key.bucket, "call", call.id, "error",
				err)
			answer = provider.Answer{Sent: provider.Maybe, Err: errPanicked, StartedAt: began, FinishedAt: time.Now()}
		}
	}()
	defer fault.Recovered(&err)
	ctx, end := f.d.traceCall(f.d.process, call)
	answer = f.d.Sender.Send(ctx, call.request)
	end(&answer)
	return answer
}

// settleGroup settles answered calls in one transaction.
func (f *flight) settleGroup(group []finished, waited, wake bool) (err error) {
	defer fault.Recovered(&err)
	began := time.Now()
	err = f.d.settle(f.d.process, f.key, group, waited, wake)
	f.d.traceStage(f.d.process, "settle", callsOf(group), began, err)
	return err
}

func notify(changed chan struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// settleAnswered settles calls, many in one transaction where they come in fast, until there are none.
func (f *flight) settleAnswered() {
	for group, waited, wake := f.gather(); len(group) > 0; group, waited, wake = f.gather() {
		if err := f.settleGroup(group, waited, wake); err != nil {
			level := slog.LevelError
			if f.d.process.Err() != nil {
				level = slog.LevelInfo // we stop: reconciliation finds out about them
			}
			f.d.opts.Log.Log(f.d.process, level, "settle calls", "domain", f.key.domain, "bucket", f.key.bucket,
				"calls", len(group), "error", err)
		}
		f.mu.Lock()
		for i := range group {
			delete(f.open, group[i].call.id)
			group[i].call.request.Memory.Release()
		}
		f.settled++
		missed := !wake && f.waits && f.passes == 0 // the last pass left while the settlement was under way
		f.mu.Unlock()
		notify(f.changed)
		if missed {
			f.wake(f.d.process)
		}
		f.d.flights.sending.Add(-len(group))
	}
	f.d.drop(f)
}

// gather takes answered calls, after a little time for others that come together. waited tells that something waits for
// their settlement, wake that nobody but that can say that there is room.
func (f *flight) gather() (group []finished, waited, wake bool) {
	over := time.After(settleWait)
	for {
		f.mu.Lock()
		if n := len(f.answered); n == 0 || n >= settleMax || n == len(f.open) {
			break
		}
		f.mu.Unlock()
		select {
		case <-f.more:
			continue
		case <-over:
			f.mu.Lock()
		}
		break
	}
	defer f.mu.Unlock()
	n := min(len(f.answered), settleMax)
	group, f.answered = f.answered[:n:n], f.answered[n:]
	if n == 0 {
		f.answered, f.working = nil, false
	}
	return group, f.waits || f.wanted, f.waits && f.passes == 0
}

// opened writes down the reference of a job before it is committed: without it nobody could ask what became of it. A
// call that was taken over meanwhile is not committed.
func (d *Dispatcher) opened(ctx context.Context, p *outboundCall, reference string) error {
	n, err := d.q.CallOpened(ctx, d.Pool, db.CallOpenedParams{ID: p.id, Reference: reference})
	if err != nil {
		return fmt.Errorf("write down the reference of call %s: %w", p.id, err)
	}
	if n == 0 {
		return errTakenOver
	}
	return nil
}

var (
	errTakenOver = errors.New("somebody else has taken over the call")
	errPanicked  = errors.New("the request broke while it was sent")
)

package dispatch

import (
	"context"
	"time"

	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

const (
	// settleAtOnce is how many transactions settle plain calls at once, another one beside one that takes longer than
	// settleSlow.
	settleAtOnce = 4
	settleSlow   = 10 * time.Millisecond
	// settleWithin is how long plain calls wait for others whose settlement nobody waits for: one of ten costs little
	// more than one of one.
	settleWithin = 30 * time.Millisecond
)

// answered are calls of one budget whose outcomes are known, and may be settled with those of others.
type answered struct {
	key      budgetKey
	outcomes []outcome
	// wake makes the budget due, where no pass sees the outcomes.
	wake bool
	done chan error
}

// settlePlain settles calls that succeeded. Where no budget is spent, and so none need be locked, those of many budgets
// share a transaction: an organization that calls now and then costs little more than one that calls all the time.
func (d *Dispatcher) settlePlain(ctx context.Context, a answered, waited bool) error {
	if len(a.outcomes) == 0 {
		return nil
	}
	if a.outcomes[0].call.meter == nil {
		plain, err := newSettlement(d, a.key, nil).addWritten(ctx, a.outcomes)
		if err == nil && plain && !a.named() {
			a.done = make(chan error, 1)
			d.answered.AddWithin(&a, len(a.outcomes), a.mayWait(waited))
			if err := <-a.done; err == nil {
				return nil
			}
		}
	}
	return d.keepTrying(ctx, func() error { return d.applyAll(ctx, a.key, a.outcomes, a.wake) })
}

// mayWait is how long the settlement may wait for others; waited tells that a pass waits for it.
func (a *answered) mayWait(waited bool) time.Duration {
	for i := range a.outcomes {
		waited = waited || a.outcomes[i].call.awaited()
	}
	if waited {
		return 0
	}
	return settleWithin
}

// awaited reports whether something goes on once the call is settled: its batch has a next step, its record a next
// element, or somebody who started the batch waits for its end. Or nobody could find out what became of the call if
// this process were killed before: that is written down at once.
func (p *outboundCall) awaited() bool {
	if p.serviceCall {
		return true
	}
	steps := p.r.batch.Plan.Steps
	return p.r.step != &steps[len(steps)-1] || p.r.task.ForEach != nil || p.r.batch.Chained() ||
		Uncertain(stateIntent, p.outcomeCheck(), false) != stateSettled
}

// named reports whether an answer has a name, which must be told apart from those of other calls of its budget.
func (a *answered) named() bool {
	for i := range a.outcomes {
		if a.outcomes[i].reading.Reference != "" {
			return true
		}
	}
	return false
}

func (d *Dispatcher) newAnswered() *pg.Groups[*answered] {
	serve := func(group []*answered) {
		err := d.applyTogether(d.process, group)
		for _, a := range group {
			a.done <- err // each is settled alone then
		}
	}
	return &pg.Groups[*answered]{Most: settleMax, AtOnce: settleAtOnce, Slow: settleSlow, Serve: serve}
}

// applyTogether records outcomes about calls of several budgets, all or none: also none where one of their batches is
// locked for long, so that nobody waits for another's.
func (d *Dispatcher) applyTogether(ctx context.Context, group []*answered) (err error) {
	defer fault.Recovered(&err)
	s := newSettlement(d, budgetKey{}, nil)
	if s.now, err = d.clock(ctx, d.Pool); err != nil {
		return err
	}
	for _, a := range group {
		if _, err := s.addWritten(ctx, a.outcomes); err != nil {
			return err
		}
		if a.wake {
			s.wakes = append(s.wakes, a.key)
		}
		s.decide(a.outcomes)
	}
	return pg.InTxShared(ctx, d.Pool, s.write)
}

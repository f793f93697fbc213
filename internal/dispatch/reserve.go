package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// reserved is what came of an attempt to claim calls.
type reserved struct {
	// calls are written down and must be sent, each before its deadline.
	calls []*outboundCall
	// delay is when to try again where the budget, a backoff or the spacing is in the way; zero otherwise.
	delay quota.Delay

	// escalated: the budget is nearly spent, and nothing goes before the provider's counters were read.
	escalated bool
	// blocked are queues that cannot go now: an exclusive call is under way, people hold them, or their batch is over.
	blocked []queueKey
	// exclusive tells that an exclusive call is in the way of some of them.
	exclusive bool
	// maxInFlight is how many calls of a lane may be under way.
	maxInFlight int
	// full are the lanes that have as many calls under way as they may.
	full []quota.LaneKey
	// elsewhere: another budget that the calls spend too is in the way until delay is over; blocked has their queues.
	elsewhere bool
	scopesFull
	// decided tells that records were settled without a call.
	decided bool
	// now is the database's time, taken under the budget's lock.
	now time.Time
	// unmarked are the batches that are not marked as running for the claim.
	unmarked []uuid.UUID
}

// reserve writes calls down as intents, as many as budget, holds and exclusiveness allow: transaction 1. fresh tells
// that the provider's counters were read for it.
func (d *Dispatcher) reserve(ctx context.Context, k budgetKey, calls []*outboundCall, f *flight,
	fresh bool) (got reserved, err error) {
	defer fault.Recovered(&err)
	var c claim
	if err := d.makeBudgets(ctx, k.domain, calls[0].r.task.Action); err != nil {
		return reserved{}, err
	}
	started := time.Now() // before the transaction: the deadline by this clock comes before the one in the database
	placed := false
	err = d.aligned(ctx, k, func() error {
		return pg.InTxGenericPlan(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
			c = claim{d: d, tx: tx, key: k, flight: f, fresh: fresh}
			if err := c.run(ctx, calls); err != nil {
				return err
			}
			f.place(c.calls)
			placed = true
			return nil
		})
	})
	if err != nil && pg.CommitUnknown(err) && len(c.calls) > 0 {
		// Even when the lease is gone: what is written down and was not sent must be known for that.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackFor)
		err = d.readBack(ctx, k, c.calls[0].id, err)
		cancel()
	}
	if err != nil && placed {
		f.giveBack(c.calls)
	}
	if errors.Is(err, errPaused) {
		return reserved{blocked: c.blocked}, nil
	}
	if errors.Is(err, run.ErrMoved) || errors.Is(err, errBudgetMoved) || pg.IsUnique(err, "call_exclusive") {
		return reserved{decided: true}, nil // choose again
	}
	if err != nil {
		return reserved{}, err
	}
	d.claimed(ctx, k, c.calls, started)
	return c.reserved, nil
}

// claimed has calls that were claimed since started go out in their time.
func (d *Dispatcher) claimed(ctx context.Context, k budgetKey, calls []*outboundCall, started time.Time) {
	for _, p := range calls {
		p.sendWithin(started)
		if !p.serviceCall {
			p.request.FreshUntil = started.Add(freshFor)
			p.request.Confirm = func(ctx context.Context) (time.Time, error) { return d.confirm(ctx, k, p) }
			p.request.Opened = func(ctx context.Context, reference string) error { return d.opened(ctx, p, reference) }
		}
		p.late = !time.Now().Before(p.request.SendBefore)
	}
	d.traceStage(ctx, "claim", calls, started, nil)
}

// sendWithin bounds the round trip by what the call may take.
func (p *outboundCall) sendWithin(started time.Time) {
	p.request.SendBefore = started.Add(p.timeout)
	p.request.AnswerBefore = p.request.SendBefore
}

// reserveFresh claims calls, of a budget that is nearly spent after a look at the provider's counters. f are the calls
// that are under way.
func (d *Dispatcher) reserveFresh(ctx context.Context, k budgetKey, calls []*outboundCall,
	f *flight) (reserved, error) {
	got, err := d.reserve(ctx, k, calls, f, false)
	if err != nil || !got.escalated || got.decided {
		return got, err
	}
	d.refreshCounters(ctx, k.domain)
	return d.reserve(ctx, k, calls, f, true)
}

// readBack finds out whether a claim was committed whose commit got no answer. The budget's lock waits for a commit
// that is still under way.
func (d *Dispatcher) readBack(ctx context.Context, k budgetKey, id uuid.UUID, cause error) error {
	is := false
	err := d.keepTrying(ctx, func() error {
		return pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
			_, _, _, err := d.lockBudget(ctx, tx, k)
			if err == nil {
				is, err = d.q.CallIs(ctx, tx, db.CallIsParams{ID: id, Owner: d.opts.Owner})
			}
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("%w; reading it back failed too: %w", cause, err)
	}
	if !is {
		return cause
	}
	return nil
}

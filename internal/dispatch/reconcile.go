package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/due"
	"flowlane/internal/moment"
	"flowlane/internal/platform/provider"
)

const (
	// checksAtOnce bounds the calls of one budget that are looked into at the same time, those of one organization to
	// half of it.
	checksAtOnce = 32
	// checkTurn is how long a round that has its place begins new checks before other budgets have their turn.
	checkTurn = 30 * time.Second
	// checkPoll is how often a round that waits for answers looks for calls that became due meanwhile, and for lost
	// ones.
	checkPoll = 2 * time.Second
	// lookupSlack is how much earlier than our claim a provider may say that it received a call, beyond its clock skew.
	lookupSlack = 5 * time.Second
	// checkFor is how long a call is looked into whose action does not say how long its provider remembers, or has left
	// the catalog.
	checkFor = 24 * time.Hour
)

// Reconcile is the handler of due rows of kind DueReconcile: it finds out what became of calls whose sender is silent,
// whose answer was unclear, or whose result comes later. It goes on while holds stop claims. Where answers take their
// time it leaves its place, so that however many budgets wait for theirs, others find theirs out. The kind must be
// registered as one that looks again (due.Rechecks): a claim writes no row then where one is due early enough.
func (d *Dispatcher) Reconcile(ctx context.Context, lease *due.Lease) (time.Time, error) {
	k, err := budgetOfLease(lease)
	if err != nil {
		return time.Time{}, err
	}
	r := round{d: d, key: k, lease: lease, began: time.Now(), ended: make(chan checked, checksAtOnce),
		skip: []uuid.UUID{}, orgs: []uuid.UUID{}}
	r.findLost(ctx)
	r.checkDue(ctx)
	if err := errors.Join(r.lostErr, r.failed); err != nil {
		return time.Time{}, err
	}
	_, err = lease.EndUnless(ctx, r.next)
	return time.Time{}, err //nolint:wrapcheck // says everything
}

// next is when to look again, once nobody can write calls down unseen any more: of those that were not there when lost
// ones were looked for, when they can first be lost.
func (r *round) next(ctx context.Context, tx pgx.Tx) (more bool, next time.Time, err error) {
	check, err := r.d.q.CallsNextCheck(ctx, tx, db.CallsNextCheckParams{Domain: r.key.domain, Bucket: r.key.bucket})
	if err != nil {
		return false, next, fmt.Errorf("read when to look into calls: %w", err)
	}
	calls, err := r.d.q.CallsUnderWay(ctx, tx, db.CallsUnderWayParams{Domain: r.key.domain, Bucket: r.key.bucket})
	if err != nil {
		return false, next, fmt.Errorf("read calls under way: %w", err)
	}
	next = moment.Soonest(r.lostAt, check)
	for _, c := range calls {
		if !r.seen[c.ID] {
			next = moment.Soonest(next, c.SendBefore.Add(r.d.opts.ReconcileMargin))
		}
	}
	return false, next, nil
}

// round is one run of Reconcile. A call that fails must not hold up the others.
type round struct {
	d      *Dispatcher
	key    budgetKey
	lease  *due.Lease
	began  time.Time
	failed error
	// lostAt is when, by the database's clock, the next call will be lost, zero for never; lostErr is why that is not
	// known.
	lostAt  time.Time
	lostErr error
	// seen are the calls under way that lostAt speaks of.
	seen map[uuid.UUID]bool
	// orgs has the organization of each check under way; ended has those that are over.
	orgs  []uuid.UUID
	ended chan checked
	// skip are the calls of checks under way, and those that could not even be dated anew.
	skip []uuid.UUID
}

// checked is a call that was looked into.
type checked struct {
	call, org uuid.UUID
	err       error
}

// findLost takes over calls whose sender is gone.
func (r *round) findLost(ctx context.Context) {
	r.lostAt, r.seen, r.lostErr = r.d.markLost(ctx, r.key)
}

// checkDue looks into the calls of a budget that are due, several at a time. Whatever comes of a check dates it anew,
// so that calls about which nobody can be asked keep no place from others.
func (r *round) checkDue(ctx context.Context) {
	poll := time.NewTicker(checkPoll)
	defer poll.Stop()
	for {
		r.begin(ctx)
		if len(r.orgs) == 0 {
			return
		}
		answered := r.lease.Waiting()
		select {
		case c := <-r.ended:
			i := slices.Index(r.orgs, c.org)
			r.orgs = slices.Delete(r.orgs, i, i+1)
			if c.err == nil {
				r.skip = slices.DeleteFunc(r.skip, func(id uuid.UUID) bool { return id == c.call })
			} else {
				r.failed = errors.Join(r.failed, fmt.Errorf("call %s: %w", c.call, c.err))
			}
		case <-poll.C:
			if ctx.Err() == nil {
				r.findLost(ctx)
			}
		}
		answered()
	}
}

// begin begins as many checks as there is room for. One that has left its place takes that of nobody, and goes on.
func (r *round) begin(ctx context.Context) {
	places := checksAtOnce - len(r.orgs)
	over := ctx.Err() != nil || time.Since(r.began) > checkTurn && !r.lease.Left()
	if places <= 0 || over || retriable(r.failed) {
		return
	}
	rows, err := r.d.q.CallsToCheck(ctx, r.d.Pool, db.CallsToCheckParams{Domain: r.key.domain, Bucket: r.key.bucket,
		MaxCalls: int32(places), Skip: r.skip, UnderWay: r.orgs}) //nolint:gosec // few
	if err != nil {
		r.failed = errors.Join(r.failed, fmt.Errorf("read calls to look into: %w", err))
	}
	for i := range rows {
		call := &rows[i].FlowCall
		if !r.roomFor(call.OrgID) {
			continue
		}
		r.orgs, r.skip = append(r.orgs, call.OrgID), append(r.skip, call.ID)
		go func() { r.ended <- checked{call.ID, call.OrgID, r.d.checkOrPostpone(ctx, r.key, call)} }()
	}
}

// roomFor reports whether one more call of an organization may be looked into: it takes half of what others leave, so
// that lookups that hang keep nobody's from being asked.
func (r *round) roomFor(org uuid.UUID) bool {
	own := 0
	for _, o := range r.orgs {
		if o == org {
			own++
		}
	}
	return own < (checksAtOnce-len(r.orgs)+own+1)/2
}

// checkOrPostpone looks into one call. One that cannot be looked into, whatever the reason, is tried again later, and
// given up in the end like any other; an error means that even this could not be written down.
func (d *Dispatcher) checkOrPostpone(ctx context.Context, k budgetKey, call *db.FlowCall) error {
	known := d.knownSince(call.ClaimedAt)
	now, ages, err := d.Clock.Ages(ctx, known)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	l := lookup{d: d, key: k, row: call, now: now, known: known, age: ages[0],
		nextAt: now.Add(LookupPause(int(call.Checks)))}
	cat, err := d.Catalog.Of(ctx, call.OrgID, call.ActionID)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	l.action, _ = cat.Action(call.ActionID)
	if call.State == stateAwaiting {
		l.nextAt = now.Add(min(d.pollEvery(call.ActionID), time.Minute))
	}
	err = l.check(ctx)
	if err == nil || mayPass(ctx, err) {
		return err
	}
	d.opts.Log.Warn("a call cannot be looked into; trying again", "call", call.ID, "domain", k.domain, "bucket",
		k.bucket, "error", err)
	l.failed("the service could not ask", 0)
	return l.postpone(ctx)
}

// markLost takes over calls whose sender can no longer be sending: what became of them is unknown. That is so when all
// of the time that a call may take, and the margin, have really passed, whatever the database's clock says. next is
// when that is so of another one, zero for never, and seen are all that are under way.
func (d *Dispatcher) markLost(ctx context.Context, k budgetKey) (next time.Time, seen map[uuid.UUID]bool,
	failed error) {
	calls, err := d.q.CallsUnderWay(ctx, d.Pool, db.CallsUnderWayParams{Domain: k.domain, Bucket: k.bucket})
	if err != nil || len(calls) == 0 {
		return next, nil, err
	}
	known, seen := make([]time.Time, len(calls)), make(map[uuid.UUID]bool, len(calls))
	for i := range calls {
		known[i], seen[calls[i].ID] = d.knownSince(calls[i].ClaimedAt), true
	}
	now, ages, err := d.Clock.Ages(ctx, known...)
	if err != nil {
		return next, nil, err
	}
	var lost []outcome
	for i, call := range calls {
		left := max(call.SendBefore.Sub(known[i]), 0) + d.opts.ReconcileMargin - ages[i]
		if left > 0 {
			next = moment.Soonest(next, now.Add(left))
			continue
		}
		reading := provider.Reading{Kind: provider.Unknown, Reason: provider.ReasonSenderLost}
		lost = append(lost, outcome{id: call.ID, reading: reading})
	}
	for outcomes := range slices.Chunk(lost, settleMax) {
		failed = errors.Join(failed, d.applyAll(ctx, k, outcomes, true))
	}
	if len(lost) > 0 {
		d.opts.Log.Info("calls without a known outcome", "domain", k.domain, "bucket", k.bucket, "calls", len(lost))
	}
	return next, seen, failed
}

// ClockStepped has every call looked into anew of which something was to be found out at a time: that time is not known
// any more.
func (d *Dispatcher) ClockStepped(ctx context.Context) error {
	if err := d.q.CallsCheckNow(ctx, d.Pool); err != nil {
		return fmt.Errorf("look into calls after a step of the clock: %w", err)
	}
	return nil
}

package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// unread tells that the provider's counters must be read before what is left near exhaustion goes.
func (c *claim) unread() bool {
	refreshed, _ := c.d.refreshed.Load(c.key.domain)
	readAt, _ := refreshed.(time.Time)
	return c.meter.askEvery > 0 && !c.fresh && !quota.ReadingHolds(readAt, c.now)
}

// claim is transaction 1 under way.
type claim struct {
	d   *Dispatcher
	tx  pgx.Tx
	key budgetKey
	// flight are the calls that are under way.
	flight *flight
	// fresh: the provider's counters were read for this claim.
	fresh bool
	reserved
	budget db.FlowBudget
	// others are further budgets that the calls spend; meter has all.
	others []db.FlowBudget
	meter  *meter
	lanes  []db.BudgetLanesRow

	// spans are the windows that calls are debited in.
	spans []quota.Window
	// paused are the queues that people have paused.
	paused []db.PausesCoverRow
	change *run.Change
}

// run locks late: whatever does not depend on a batch is done before its lock, which settlements of the batch wait for.
func (c *claim) run(ctx context.Context, calls []*outboundCall) (err error) {
	if err := c.lock(ctx, calls); err != nil {
		return err
	}
	if calls, err = c.admit(ctx, calls); err != nil || len(calls) == 0 {
		return err
	}
	if calls[0].serviceCall {
		return c.takeServiceCall(ctx, calls)
	}
	l, err := c.intend(ctx, calls)
	if err != nil {
		return err
	}
	if c.change, err = c.d.Runs.BeginLocked(ctx, c.tx, l); err != nil {
		return err
	}
	if err := c.checkPauses(calls); err != nil {
		return err
	}
	return c.take(ctx, calls)
}

// admit drops calls that must not go now, under the budget's lock.
func (c *claim) admit(ctx context.Context, calls []*outboundCall) (_ []*outboundCall, err error) {
	if err := c.repeat(calls); err != nil {
		return nil, err
	}
	if calls, err = c.free(ctx, calls); err != nil || len(calls) == 0 {
		return nil, err
	}
	if calls, err = c.spread(ctx, calls); err != nil || len(calls) == 0 {
		return nil, err
	}
	return c.afford(ctx, calls)
}

// lock locks the budget and reads what claims of these calls depend on.
func (c *claim) lock(ctx context.Context, calls []*outboundCall) error {
	in := db.BudgetLanesParams{Domain: c.key.domain, Bucket: c.key.bucket, Also: []string{}}
	if buckets := calls[0].r.task.Action.Buckets; len(buckets) > 1 { // all of a claim spend the same ones
		in.Also = buckets[1:]
	}
	for i, p := range calls {
		if i == 0 || p.laneKey() != calls[i-1].laneKey() {
			in.OrgIds, in.Lanes = append(in.OrgIds, p.orgID), append(in.Lanes, string(p.lane))
		}
	}
	err := pg.QueryBatch(ctx, c.tx, c.locks(ctx, &in)...)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	c.maxInFlight = int(c.budget.MaxInFlight)
	c.meter, err = c.d.meter(ctx, c.tx, &c.budget, c.others...)
	return err
}

// locks are the questions that lock the budget and read the lanes.
func (c *claim) locks(ctx context.Context, in *db.BudgetLanesParams) []pg.Query {
	return []pg.Query{func(tx pg.DB) (err error) {
		c.budget, c.others, c.now, err = c.d.lockBudget(ctx, tx, c.key, in.Also...)
		return err
	}, func(tx pg.DB) (err error) {
		if c.lanes, err = c.d.q.BudgetLanes(ctx, tx, *in); err != nil {
			return fmt.Errorf("read the lanes of %s: %w", c.key, err)
		}
		return nil
	}}
}

// makeBudgets makes sure that the budgets are there that calls of an action spend: the catalog may name more than it
// did when they were queued, and a call that carries no record has no queue.
func (d *Dispatcher) makeBudgets(ctx context.Context, domain string, action *catalog.Action) error {
	for _, bucket := range action.Buckets {
		k := budgetKey{domain, bucket}
		if _, made := d.made.Load(k); made {
			continue
		}
		row, err := d.q.DomainGet(ctx, d.Pool, domain)
		if err != nil && !pg.IsNoRows(err) {
			return fmt.Errorf("read domain %s: %w", domain, err)
		}
		svc, _ := d.Catalog.Service(action.ServiceID)
		if err := d.ensureBudget(ctx, d.Pool, cmp.Or(row.TimeZone, "UTC"), svc, k); err != nil {
			return err
		}
		d.made.Store(k, true)
	}
	return nil
}

// free drops calls that must not go now: exclusive calls are under way, or there is no place in flight.
func (c *claim) free(ctx context.Context, calls []*outboundCall) (out []*outboundCall, err error) {
	var keys []string
	for _, p := range calls {
		if p.exclusive != "" && !p.empty() {
			keys = append(keys, p.exclusive)
		}
	}
	busy := map[string]bool{}
	if len(keys) > 0 {
		rows, err := c.d.q.CallsExclusive(ctx, c.tx, db.CallsExclusiveParams{Domain: c.key.domain, Keys: keys})
		if err != nil {
			return nil, fmt.Errorf("read exclusive calls: %w", err)
		}
		for _, k := range rows {
			busy[k] = true
		}
	}
	together, err := c.together(ctx)
	if err != nil {
		return nil, err
	}
	room := map[quota.LaneKey]int{}
	for i := range c.lanes {
		l := &c.lanes[i]
		most := c.budget.MaxInFlight
		if l.MaxCalls > 0 {
			most = min(most, l.MaxCalls)
		}
		lane := quota.LaneKey{Org: l.OrgID, Lane: l.Lane}
		room[lane] = int(most) - c.flight.underWay(lane)
	}
	waits := map[queueKey]bool{}
	for _, p := range calls {
		lane := p.laneKey()
		full := room[lane] <= 0 || together <= 0
		switch {
		case slices.ContainsFunc(p.queues, func(k queueKey) bool { return waits[k] }):
			continue // pieces follow each other: what comes in a queue after the first that must wait, waits too
		case p.empty():
		case full || busy[p.exclusive]:
			for _, k := range p.queues {
				waits[k] = true
			}
			if !full {
				c.blocked, c.exclusive = append(c.blocked, p.queues...), true
			} else if !slices.Contains(c.full, lane) {
				c.full = append(c.full, lane)
			}
			continue
		default:
			room[lane]--
			together--
			busy[p.exclusive] = p.exclusive != ""
		}
		out = append(out, p)
	}
	return out, nil
}

// together is how many calls more may be under way of all lanes, organizations and processes, where the catalog limits
// them. A call is under way from when it is written down until it is settled, or taken for lost; one that begins a job,
// until the result of that is known.
func (c *claim) together(ctx context.Context) (int, error) {
	left := math.MaxInt
	if c.meter == nil {
		return left, nil
	}
	for _, m := range c.meter.all() {
		if m.rates.MaxInFlight == 0 {
			continue
		}
		places, err := c.placesOf(ctx, m, "")
		if err != nil {
			return 0, err
		}
		left = min(left, places)
	}
	return left, nil
}

// placesOf is how many calls more of a bucket may be under way, or of one of its budgets where it has several.
func (c *claim) placesOf(ctx context.Context, m *meter, scope string) (int, error) {
	n, err := c.d.q.CallsTogether(ctx, c.tx, db.CallsTogetherParams{Domain: m.key.domain,
		Lines: m.svc.Lines(m.key.bucket),
		Jobs:  m.rates.HeldUntil == catalog.HeldUntilResult, Spends: append([]string{}, m.rates.MemberActionIDs...),
		Scope: scope})
	if err != nil {
		return 0, fmt.Errorf("count the calls under way of %s: %w", m.key, err)
	}
	return m.rates.MaxInFlight - int(n), nil
}

// afford keeps as many calls as the budget allows, and says when there will be more.
func (c *claim) afford(ctx context.Context, calls []*outboundCall) (_ []*outboundCall, err error) {
	until := c.lanes[0].BackoffUntil
	if until.IsZero() { // else others in its line may go once that is over, whatever keeps these
		until = c.lanes[0].AlsoUntil
	}
	wanted, longest := 0, time.Duration(0)
	for _, p := range calls {
		if !p.unsent() {
			wanted++
			longest = max(longest, p.timeout)
		}
	}
	grant := quota.Grant{Calls: wanted}
	switch {
	case wanted == 0:
	case !until.IsZero():
		grant.Calls, grant.Delay = 0, quota.Delay{Until: until, Reason: quota.ReasonBackoff}
		c.elsewhere = c.lanes[0].BackoffUntil.IsZero()
	case c.meter != nil:
		if grant, err = c.grant(ctx, calls, wanted, longest); err != nil {
			return nil, err
		}
	}
	c.delay = grant.Delay
	for i, p := range calls {
		if p.unsent() {
			continue
		}
		if grant.Calls == 0 {
			for _, left := range calls[i:] {
				if c.elsewhere {
					c.blocked = append(c.blocked, left.queues...)
				}
			}
			return calls[:i], nil
		}
		grant.Calls--
	}
	return calls, nil
}

// grant asks what the spacing and the windows of the budget allow; longest is how long a call may take.
func (c *claim) grant(ctx context.Context, calls []*outboundCall, wanted int,
	longest time.Duration) (quota.Grant, error) {
	spans, err := c.meter.spans(ctx, c.tx, c.now, c.now.Add(longest))
	if err != nil {
		return quota.Grant{}, err
	}
	c.meter.price(spans, calls)
	grant, escalated := c.allow(spans, wanted, c.meter.all()...)
	if len(c.meter.also) > 0 && !grant.Delay.IsZero() {
		own := slices.DeleteFunc(slices.Clone(spans), func(s quota.Window) bool { return s.Bucket != "" })
		first, _ := c.allow(own, wanted, c.meter)
		if c.elsewhere = grant.Calls < first.Calls; !c.elsewhere && !first.Delay.IsZero() {
			grant.Delay = first.Delay
		}
	}
	c.escalated = escalated
	c.spans = spans
	return grant, nil
}

// allow says how many of the wanted calls budgets allow together that have these spans.
func (c *claim) allow(spans []quota.Window, wanted int, budgets ...*meter) (grant quota.Grant, escalated bool) {
	var next time.Time
	var spacing time.Duration
	for _, m := range budgets {
		next, spacing = moment.Later(next, m.next), max(spacing, m.spacing)
	}
	grant = quota.Space(c.now, next, spacing, wanted)
	within, escalated := quota.Afford(c.now, spans, grant.Calls, c.unread())
	if within.Calls < grant.Calls {
		grant = within
	}
	return grant, escalated
}

// intend enters the gate of pauses, inserts the intents, and charges their lanes; then it locks the batches, and reads
// the holds over them and what of them is queued.
func (c *claim) intend(ctx context.Context, calls []*outboundCall) (*run.BatchLock, error) {
	pipeline := pg.NewPipeline(c.tx)
	var orgs, ids []uuid.UUID
	var pieces []run.ClaimedRange
	for _, p := range calls {
		ids, pieces = append(ids, p.batches()...), append(pieces, p.pieces...)
		if !slices.Contains(orgs, p.orgID) {
			orgs = append(orgs, p.orgID)
		}
		if !p.empty() {
			c.calls = append(c.calls, p)
		}
	}
	if err := c.d.q.PauseGateShare(ctx, pipeline, orgs); err != nil {
		return nil, fmt.Errorf("enter the gate of pauses: %w", err)
	}
	if len(c.calls) > 0 {
		if err := c.writeDown(ctx, pipeline, c.calls); err != nil {
			return nil, err
		}
		if err := c.count(ctx, pipeline, c.calls); err != nil {
			return nil, err
		}
		if err := c.charge(ctx, pipeline, c.calls); err != nil {
			return nil, err
		}
	}
	l := c.d.Runs.BatchLock(ids, pieces)
	asks := append(l.Queries(ctx), func(tx pg.DB) (err error) {
		c.paused, err = c.d.q.PausesCover(ctx, tx, db.PausesCoverParams{BatchIds: ids, Domain: c.key.domain,
			Bucket: c.key.bucket})
		return err
	})
	if err := pipeline.Send(ctx, c.tx, asks...); err != nil {
		return nil, fmt.Errorf("write down calls: %w", err)
	}
	return l, nil
}

// take takes the pieces off their queues, settles what was decided without a call, and debits the calls: late, because
// settlements wait for the ledger.
func (c *claim) take(ctx context.Context, calls []*outboundCall) error {
	var pieces []run.ClaimedRange
	var decided []run.Result
	var last time.Time
	for _, p := range calls {
		pieces = append(pieces, p.pieces...)
		decided = append(decided, p.decided...)
	}
	for _, p := range c.calls {
		last = moment.Later(last, p.written.SendBefore)
	}
	if err := c.change.Claim(ctx, pieces); err != nil {
		return err
	}
	if err := c.change.Settle(ctx, decided); err != nil {
		return err
	}
	if len(c.calls) > 0 {
		c.change.Wake(DueReconcile, c.key.String(), last.Add(c.d.opts.ReconcileMargin))
		if c.meter != nil && c.meter.askEvery > 0 && c.d.planned.due(c.key.domain, c.meter.young, time.Now()) {
			c.change.Wake(DueCounters, c.key.domain, c.now.Add(c.meter.young))
		}
	}
	c.decided = len(decided) > 0
	if err := c.debit(ctx); err != nil {
		return err
	}
	err := c.change.Apply(ctx)
	c.unmarked = c.change.Unmarked()
	return err
}

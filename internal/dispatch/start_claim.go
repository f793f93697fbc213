package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
	"flowlane/internal/platform/credential"
	"flowlane/internal/run"
)

const (
	// budgetsClaimed bounds the budgets whose locks one start holds, batchesClaimed the batches that one has claimed.
	// More of them are a burst: passes claim them many at a time, while the next ones start.
	budgetsClaimed, batchesClaimed = 4, 8
	// passesFor is how long starts leave a budget to passes after one that wanted to claim calls of it has failed,
	// pausedFor how long they leave an organization's calls to them after it met a pause: who shares a start with it
	// must start once more.
	passesFor = time.Second
	pausedFor = 10 * time.Second
)

var (
	errUnconfirmed = errors.New("the commit of a start got no answer")
	errPausedSince = errors.New("a pause covers the calls of a start since it began")
)

// startClaim claims calls of a budget in the transaction that starts their batches, where nothing else is ready in it,
// so that nobody is passed by. One commit then lies between what starts a batch and its call, nothing is written to a
// queue only to be taken off it at once, and no pass has to look for it.
type startClaim struct {
	claim

	start   *run.StartClaim
	batches []run.StartedCall
	// besides are the calls that other processes may have under way; ready tells that something else may go.
	besides []db.CallsOfOthersRow
	ready   bool
	// rendered are the calls that may be claimed.
	rendered []*outboundCall
	// began is before the budget was locked.
	began time.Time
}

// ClaimStarted claims calls of batches that start, as far as all that they need is in this process's memory. The rest
// is left to passes.
func (d *Dispatcher) ClaimStarted(ctx context.Context, tx pgx.Tx, start *run.StartClaim) error {
	if len(start.Batches) > batchesClaimed {
		return nil
	}
	claims := d.startClaims(tx, start)
	if len(claims) == 0 || len(claims) > budgetsClaimed || !d.endsWith(ctx, claims) {
		return nil
	}
	defer func() {
		for _, c := range claims {
			letGo(c.rendered, c.calls...)
		}
	}()
	for _, c := range claims {
		c.renderStarted(ctx)
	}
	var asks []pg.Query
	began := time.Now()
	for _, c := range claims {
		c.began = began
		asks = append(asks, c.asks(ctx)...)
	}
	if err := pg.QueryBatch(ctx, tx, asks...); err != nil {
		return fmt.Errorf("lock the budgets of a start: %w", err)
	}
	var usage db.UsageCountParams // of all in one statement, which locks its rows in order
	for _, c := range claims {
		if err := c.run(ctx, &usage); err != nil {
			return fmt.Errorf("claim calls of %s where they start: %w", c.key, err)
		}
	}
	if len(usage.Calls) == 0 {
		return nil
	}
	if err := d.q.UsageCount(ctx, start.Later(), usage); err != nil {
		return fmt.Errorf("count calls: %w", err)
	}
	return nil
}

// startClaims are the claims of a start, in the order in which budgets are locked. Where an organization has no place
// there is none: behind a receiver that hangs, each record would be rendered in vain, and once more by a pass.
func (d *Dispatcher) startClaims(tx pgx.Tx, start *run.StartClaim) (claims []*startClaim) {
	byKey := map[budgetKey]*startClaim{}
	now := time.Now()
	for _, b := range start.Batches {
		k := budgetKey{b.Route.Domain, b.Route.Bucket}
		if !d.claimable(&b) || d.flights.full(k, b.OrgID) || d.unclaimed.within(k.String(), passesFor, now) ||
			d.pausedOrgs.within(b.OrgID.String(), pausedFor, now) {
			continue
		}
		c := byKey[k]
		if c == nil {
			c = &startClaim{claim: claim{d: d, tx: tx, key: k}, start: start}
			byKey[k], claims = c, append(claims, c)
		}
		c.batches = append(c.batches, b)
	}
	slices.SortFunc(claims, func(a, b *startClaim) int {
		return cmp.Or(cmp.Compare(a.key.domain, b.key.domain), cmp.Compare(a.key.bucket, b.key.bucket))
	})
	return claims
}

// claimable reports whether the call of a batch takes its record as it is, spends no budget, and needs nothing that is
// not at hand.
func (d *Dispatcher) claimable(b *run.StartedCall) bool {
	task := b.Task
	if task.Gone != "" || task.ForEach != nil || task.Action.Bulk || len(task.Action.Buckets) > 0 ||
		len(run.ResultsUsed(task)) > 0 {
		return false
	}
	if !task.CredentialID.Valid {
		return true
	}
	held := d.Credentials.Held(b.OrgID, task.CredentialID.UUID)
	return held != nil && held.Status == credential.Active
}

// asks lock the budget, and find out whether anything is ready in it.
func (c *startClaim) asks(ctx context.Context) []pg.Query {
	in := db.BudgetLanesParams{Domain: c.key.domain, Bucket: c.key.bucket, Also: []string{}}
	in.OrgIds, in.Lanes = c.ofLanes()
	return append(c.locks(ctx, &in), func(tx pg.DB) (err error) {
		c.besides, err = c.d.q.CallsOfOthers(ctx, tx, db.CallsOfOthersParams{Domain: c.key.domain, Bucket: c.key.bucket,
			Owner: c.d.opts.Owner})
		return err
	}, func(tx pg.DB) (err error) {
		c.ready, err = c.d.q.BudgetReady(ctx, tx, db.BudgetReadyParams{Domain: c.key.domain, Bucket: c.key.bucket})
		return err
	})
}

// ofLanes are the lanes of the batches, with their organizations.
func (c *startClaim) ofLanes() (orgs []uuid.UUID, lanes []string) {
	for _, b := range c.batches {
		n := len(orgs)
		if n == 0 || orgs[n-1] != b.OrgID || lanes[n-1] != string(b.Route.Lane) {
			orgs, lanes = append(orgs, b.OrgID), append(lanes, string(b.Route.Lane))
		}
	}
	return orgs, lanes
}

// run claims what it can, and leaves it to be written with the batches.
func (c *startClaim) run(ctx context.Context, usage *db.UsageCountParams) error {
	c.maxInFlight = int(c.budget.MaxInFlight)
	c.flight.besides(c.besides, c.maxInFlight)
	if meter, err := c.d.windows(&c.budget); err != nil || meter != nil || c.ready {
		return nil //nolint:nilerr // a pass finds out what is wrong with the budget
	}
	calls := c.fitting()
	if len(calls) == 0 {
		return nil
	}
	calls, err := c.admit(ctx, calls)
	if err != nil || len(calls) == 0 {
		return err
	}
	if err := c.write(ctx, calls, usage); err != nil {
		return err
	}
	c.calls = calls
	c.flight.place(calls)
	return nil
}

// renderStarted renders the calls, before any budget is locked. It waits for no memory: who has it may need a budget.
func (c *startClaim) renderStarted(ctx context.Context) {
	var picks []*picked
	for i := range c.batches {
		b := &c.batches[i]
		q := &picked{calls: 1, queueRow: &queueRow{BatchID: b.ID, StepNo: b.StepNo, TaskNo: b.TaskNo, OrgID: b.OrgID,
			Lane: b.Route.Lane, ReadyRecords: 1, PartID: 1}} // the part is not there yet, and nothing asks for it
		var err error
		if q.r, err = c.d.rendererOf(b.Batch, q.queueRow); err != nil {
			continue // a pass finds out why
		}
		if id := b.Task.CredentialID; id.Valid {
			if q.r.cred = c.d.Credentials.Held(b.OrgID, id.UUID); q.r.cred == nil {
				continue // it was dropped meanwhile
			}
		}
		picks = append(picks, q)
	}
	if err := c.d.renderSmall(ctx, picks, map[queueKey]bool{}, 0); err != nil {
		return
	}
	for _, q := range picks {
		c.rendered = append(c.rendered, q.rendered...)
	}
}

// fitting are the calls for which their organizations have places; what needs no call is for a pass to settle.
func (c *startClaim) fitting() (calls []*outboundCall) {
	orgs := map[uuid.UUID]int{}
	for _, p := range c.rendered {
		if p.empty() || orgs[p.orgID] >= c.flight.room(p.laneKey(), c.maxInFlight, 0) {
			continue
		}
		orgs[p.orgID]++
		calls = append(calls, p)
	}
	return calls
}

// write leaves calls with the start, behind the gate of pauses: a pause that is opened later waits for the end of the
// transaction, one that was opened before is seen.
func (c *startClaim) write(ctx context.Context, calls []*outboundCall, usage *db.UsageCountParams) error {
	orgs, lanes := c.ofLanes()
	later := c.start.Later()
	if err := c.d.q.PauseGateShare(ctx, later, orgs); err != nil {
		return fmt.Errorf("enter the gate of pauses: %w", err)
	}
	c.start.Check(func(tx pg.DB) error {
		paused, err := c.d.q.LanesPaused(ctx, tx, db.LanesPausedParams{OrgIds: orgs, Lanes: lanes,
			Domain: c.key.domain})
		if err == nil && paused {
			for _, org := range orgs {
				c.d.pausedOrgs.due(org.String(), pausedFor, time.Now())
			}
			err = errPausedSince
		}
		return err
	})
	if err := c.writeDown(ctx, later, calls); err != nil {
		return err
	}
	if err := c.charge(ctx, later, calls); err != nil {
		return err
	}
	if err := c.usage(ctx, usage, calls); err != nil {
		return err
	}
	last := time.Time{}
	for _, p := range calls {
		batch := p.onlyBatch()
		c.start.Claim(batch, p.id)
		c.unmarked = append(c.unmarked, batch)
		last = moment.Later(last, p.written.SendBefore)
	}
	c.start.Wake(DueReconcile, c.key.String(), last.Add(c.d.opts.ReconcileMargin))
	return nil
}

// endsWith has the calls of claims sent, or let go, when the transaction ends. It returns false where nothing may be
// claimed in it.
func (d *Dispatcher) endsWith(ctx context.Context, claims []*startClaim) bool {
	d.flights.mu.Lock()
	claiming := d.flights.claiming
	if claiming {
		d.flights.sending.Add(1)
		for _, c := range claims {
			c.flight = d.flights.get(d, c.key)
			c.flight.mu.Lock()
			c.flight.starts++
			c.flight.mu.Unlock()
		}
	}
	d.flights.mu.Unlock()
	if !claiming {
		return false
	}
	begun := false // the commit
	pg.AfterCommit(ctx, func() { begun = true })
	end := func(committed bool) {
		for _, c := range claims {
			c.end(committed, begun)
		}
		d.flights.sending.Done()
	}
	if pg.AtEnd(ctx, end) {
		return true
	}
	end(true) // there is nothing to send
	return false
}

// end sends the calls of a transaction that is committed. begun: it may be, also where that is not known.
func (c *startClaim) end(committed, begun bool) {
	switch {
	case committed:
		c.send()
	case !begun || len(c.calls) == 0:
		c.d.unclaimed.due(c.key.String(), passesFor, time.Now())
		c.drop()
	default:
		c.d.flights.sending.Add(1)
		go c.readBack()
	}
}

// send sends what was claimed.
func (c *startClaim) send() {
	if len(c.calls) > 0 {
		c.d.claimed(c.d.process, c.key, c.calls, c.began)
		c.flight.start(&c.reserved)
	}
	c.leave()
}

// readBack finds out whether a claim was committed whose commit got no answer.
func (c *startClaim) readBack() {
	defer c.d.flights.sending.Done()
	ctx, cancel := context.WithTimeout(c.d.process, readBackFor)
	defer cancel()
	if err := c.d.readBack(ctx, c.key, c.calls[0].id, errUnconfirmed); err != nil {
		c.d.opts.Log.Warn("calls that were claimed with their start are not sent", "budget", c.key, "error", err)
		c.drop()
		return
	}
	c.send()
}

// drop lets go of what is not sent.
func (c *startClaim) drop() {
	letGo(c.calls)
	c.flight.giveBack(c.calls)
	c.leave()
}

// leave lets go of the flight.
func (c *startClaim) leave() {
	c.flight.mu.Lock()
	c.flight.starts--
	c.flight.mu.Unlock()
	c.d.drop(c.flight)
}

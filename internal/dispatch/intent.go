package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/quota"
)

// writeDown inserts the intents of calls.
func (c *claim) writeDown(ctx context.Context, conn db.DBTX, calls []*outboundCall) error {
	in := db.CallInsertParams{Domain: c.key.domain, Bucket: c.key.bucket, Owner: c.d.opts.Owner,
		CountsIn: quota.CountsOf(c.spans).Encode()}
	for _, p := range calls {
		counts, own := in.CountsIn, ""
		if len(p.scoped) > 0 {
			counts = quota.CountsOf(slices.Concat(c.spans, p.scoped)).Encode()
			own = string(counts)
		}
		claimedAt, sendBefore := c.now, c.now.Add(p.timeout)
		if p.lost != nil { // then it was, and spent what is no longer known
			claimedAt, sendBefore, counts, own = p.lost.Since, p.lost.Until, noCounts, string(noCounts)
		}
		in.Counts = append(in.Counts, own)
		in.Ids, in.OrgIds, in.BatchIds = append(in.Ids, p.id), append(in.OrgIds, p.orgID),
			append(in.BatchIds, p.onlyBatch())
		in.Lanes, in.ActionIds = append(in.Lanes, string(p.lane)), append(in.ActionIds, p.r.task.Action.ID)
		in.CredentialIds = append(in.CredentialIds, p.r.task.CredentialID.UUID)
		in.Attempts, in.Records = append(in.Attempts, max(p.attempt, 1)), append(in.Records, int32(p.records))
		var ask lookupFacts
		if call := p.r.task.Action.Call; call != nil && (call.Lookup != nil || p.keySums != nil) {
			ask = lookupFacts{p.digest, p.firstKey, p.lastKey, string(p.params)}
		}
		in.KeySums = append(in.KeySums, p.keySums)
		in.Digests, in.FirstKeys = append(in.Digests, ask.digest), append(in.FirstKeys, ask.firstKey)
		in.LastKeys, in.Params = append(in.LastKeys, ask.lastKey), append(in.Params, ask.params)
		in.OutcomeChecks = append(in.OutcomeChecks, p.outcomeCheck())
		in.ExclusiveKeys = append(in.ExclusiveKeys, p.exclusive)
		spent := c.marked(p).encode()
		in.Costs = append(in.Costs, string(spent))
		p.written = db.FlowCall{ID: p.id, Domain: c.key.domain, Bucket: c.key.bucket, State: stateIntent,
			ClaimedAt: claimedAt, SendBefore: sendBefore, CountsIn: counts, Costs: spent,
			CredentialID: &p.r.task.CredentialID.UUID}
		in.ClaimedAts, in.SendBefores = append(in.ClaimedAts, claimedAt), append(in.SendBefores, sendBefore)
		p.meter, p.refusals = c.meter, c.budget.Refusals
	}
	if err := c.d.q.CallInsert(ctx, conn, in); err != nil {
		return fmt.Errorf("write down calls: %w", err)
	}
	return nil
}

// onlyBatch is the batch of the records of a call that one part has; zero for several parts, or none.
func (p *outboundCall) onlyBatch() uuid.UUID {
	if len(p.pieces) != 1 {
		return uuid.Nil
	}
	return p.pieces[0].Part.BatchID
}

// noCounts is the form of no windows.
var noCounts = quota.CountsIn{}.Encode()

// lookupFacts is what a lookup needs of a call; zero for one of which nobody will ask.
type lookupFacts struct{ digest, firstKey, lastKey, params string }

// charge moves the virtual times of the lanes of calls and of their organizations on.
func (c *claim) charge(ctx context.Context, conn db.DBTX, calls []*outboundCall) error {
	var lanes []quota.LaneKey
	for _, p := range calls {
		lanes = append(lanes, p.laneKey())
	}
	shares := make([]quota.LaneShare, len(c.lanes))
	for i := range c.lanes {
		r := &c.lanes[i]
		shares[i] = quota.LaneShare{LaneKey: quota.LaneKey{Org: r.OrgID, Lane: r.Lane}, Weight: cmp.Or(int(r.Weight),
			standardWeight[r.Lane]),
			OrgTag: quota.LaneTag{Start: r.OrgVstart, Finish: r.OrgVtime}, Tag: quota.LaneTag{Start: r.Vstart,
				Finish: r.Vtime}}
	}
	for _, s := range quota.Charge(shares, lanes) {
		err := c.d.q.LaneCharge(ctx, conn, db.LaneChargeParams{
			Domain: c.key.domain, Bucket: c.key.bucket, OrgID: s.Org, OrgVstart: s.OrgTag.Start,
			OrgVtime: s.OrgTag.Finish,
			Lane:     s.Lane, Vstart: s.Tag.Start, Vtime: s.Tag.Finish,
		})
		if err != nil {
			return fmt.Errorf("charge lane %s: %w", s.Lane, err)
		}
	}
	return nil
}

// count adds the calls of a claim to the day's usage. It goes with the statement that writes them down, under the
// budget's lock, so that claims of one budget never wait for each other's counters, and before the batches' locks, like
// all of it. A call that carries records of several definitions counts for the first, its records for each its own.
func (c *claim) count(ctx context.Context, conn db.DBTX, calls []*outboundCall) error {
	var in db.UsageCountParams
	if err := c.usage(ctx, &in, calls); err != nil {
		return err
	}
	return fault.Wrap(c.d.q.UsageCount(ctx, conn, in), "count calls")
}

// usage adds calls to what is to be counted.
func (c *claim) usage(ctx context.Context, in *db.UsageCountParams, calls []*outboundCall) error {
	in.Day = pgtype.Date{Time: c.now.UTC(), Valid: true}
	for _, p := range calls {
		var definitions []uuid.UUID
		records := map[uuid.UUID]int64{}
		for i := range p.pieces {
			piece := &p.pieces[i]
			if piece.NoCall {
				continue
			}
			b := p.r.batch // mostly
			if b.ID != piece.Part.BatchID {
				var err error
				if b, err = c.d.Runs.Batch(ctx, c.tx, piece.Part.BatchID); err != nil {
					return err
				}
			}
			if _, known := records[b.Plan.DefinitionID]; !known {
				definitions = append(definitions, b.Plan.DefinitionID)
			}
			records[b.Plan.DefinitionID] += int64(piece.Part.Records())
		}
		if len(definitions) == 0 { // it carries no record
			definitions = []uuid.UUID{uuid.Nil}
		}
		for i, definition := range definitions {
			in.OrgIds, in.DefinitionIds = append(in.OrgIds, p.orgID), append(in.DefinitionIds, definition)
			in.CredentialIds, in.ActionIds = append(in.CredentialIds, p.r.task.CredentialID.UUID),
				append(in.ActionIds, p.r.task.Action.ID)
			in.Calls, in.Records = append(in.Calls, int64(max(1-i, 0))), append(in.Records, records[definition])
		}
	}
	return nil
}

// outcomeCheck is how the outcome of the call is found out, or that its author chose to send again.
func (p *outboundCall) outcomeCheck() string {
	if p.r.task.AtLeastOnce && (p.check == catalog.CheckLookup || p.check == catalog.CheckNone) {
		return checkAuthor
	}
	return string(p.check)
}

// The states of a call.
const (
	stateIntent     = "intent"
	stateUnknown    = "unknown"
	stateAwaiting   = "awaiting"
	stateSettled    = "settled"
	stateRefused    = "refused"
	stateUnresolved = "unresolved"
)

// checkAuthor stands for an outcome check where the flow's author chose to send again.
const checkAuthor = "at_least_once"

// debit spends the calls.
func (c *claim) debit(ctx context.Context) error {
	if c.meter == nil || !slices.ContainsFunc(c.calls, func(p *outboundCall) bool { return !p.unsent() }) {
		return nil
	}
	for _, m := range c.meter.all() {
		if m.spacing == 0 {
			continue
		}
		next := c.now.Add(m.spacing)
		if err := c.d.q.BudgetSpace(ctx, c.tx, db.BudgetSpaceParams{Domain: m.key.domain, Bucket: m.key.bucket,
			NextCallAt: &next}); err != nil {
			return fmt.Errorf("space the calls of %s: %w", m.key, err)
		}
	}
	if err := c.debitScopes(ctx); err != nil {
		return err
	}
	return c.meter.debit(ctx, c.tx, c.spans, func(bucket string) quota.Tally {
		spent := quota.Tally{}
		for _, p := range c.calls {
			if p.unsent() {
				continue
			}
			spent[p.r.task.CredentialID.UUID] += p.costs.of(bucket)
		}
		return spent
	})
}

package dispatch

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"flowlane/gen/db"
	"flowlane/internal/catalog"
	"flowlane/internal/quota"
)

// writeDown inserts the intents of calls, and counts them.
func (c *claim) writeDown(ctx context.Context, conn db.DBTX, calls []*outboundCall) error {
	in := db.CallInsertParams{Domain: c.key.domain, Bucket: c.key.bucket, Owner: c.d.opts.Owner, ClaimedAt: c.now, CountsIn: quota.CountsOf(c.spans).Encode()}
	for _, p := range calls {
		in.Ids = append(in.Ids, p.id)
		in.OrgIds = append(in.OrgIds, p.orgID)
		in.Lanes = append(in.Lanes, string(p.lane))
		in.ActionIds = append(in.ActionIds, p.r.task.Action.ID)
		in.CredentialIds = append(in.CredentialIds, p.r.task.CredentialID.UUID)
		in.Attempts = append(in.Attempts, max(p.attempt, 1))
		in.Records = append(in.Records, int32(p.records))
		in.Digests = append(in.Digests, p.digest)
		in.FirstKeys = append(in.FirstKeys, p.firstKey)
		in.LastKeys = append(in.LastKeys, p.lastKey)
		in.Params = append(in.Params, string(p.params))
		in.OutcomeChecks = append(in.OutcomeChecks, p.outcomeCheck())
		in.ExclusiveKeys = append(in.ExclusiveKeys, p.exclusive)
		p.written = db.FlowCall{ID: p.id, State: stateIntent, ClaimedAt: c.now, SendBefore: c.now.Add(p.timeout), CountsIn: in.CountsIn,
			CredentialID: &p.r.task.CredentialID.UUID}
		in.SendBefores = append(in.SendBefores, p.written.SendBefore)
		p.meter, p.refusals = c.meter, c.budget.Refusals
	}
	if err := c.d.q.CallInsert(ctx, conn, in); err != nil {
		return fmt.Errorf("write down calls: %w", err)
	}
	return c.count(ctx, conn, calls)
}

// charge moves the virtual times of the lanes of calls and of their organizations on.
func (c *claim) charge(ctx context.Context, conn db.DBTX, calls []*outboundCall) error {
	var lanes []quota.LaneKey
	for _, p := range calls {
		lanes = append(lanes, p.laneKey())
	}
	shares := make([]quota.LaneShare, len(c.lanes))
	for i := range c.lanes {
		r := &c.lanes[i]
		shares[i] = quota.LaneShare{LaneKey: quota.LaneKey{Org: r.OrgID, Lane: r.Lane}, Weight: cmp.Or(int(r.Weight), standardWeight[r.Lane]),
			OrgTag: quota.LaneTag{Start: r.OrgVstart, Finish: r.OrgVtime}, Tag: quota.LaneTag{Start: r.Vstart, Finish: r.Vtime}}
	}
	for _, s := range quota.Charge(shares, lanes) {
		err := c.d.q.LaneCharge(ctx, conn, db.LaneChargeParams{
			Domain: c.key.domain, Bucket: c.key.bucket, OrgID: s.Org, OrgVstart: s.OrgTag.Start, OrgVtime: s.OrgTag.Finish,
			Lane: s.Lane, Vstart: s.Tag.Start, Vtime: s.Tag.Finish,
		})
		if err != nil {
			return fmt.Errorf("charge lane %s: %w", s.Lane, err)
		}
	}
	return nil
}

// usageKey is what calls and records are counted by; zeros stand for no definition and no credential.
type usageKey struct {
	orgID, definitionID, credentialID uuid.UUID
	actionID                          string
}

type usageSum struct{ calls, records int64 }

// count adds the calls of a claim to the day's usage. It goes with the statement that writes them down, under the budget's
// lock, so that claims of one budget never wait for each other's counters, and before the batches' locks, like all of it. A
// call that carries records of several definitions counts for the first, its records for each its own.
func (c *claim) count(ctx context.Context, conn db.DBTX, calls []*outboundCall) error {
	sums := map[usageKey]usageSum{}
	for _, p := range calls {
		k, one := usageKey{p.orgID, uuid.Nil, p.r.task.CredentialID.UUID, p.r.task.Action.ID}, int64(1)
		for i := range p.pieces {
			piece := &p.pieces[i]
			if piece.Decided {
				continue
			}
			b, err := c.d.Runs.Batch(ctx, c.tx, piece.Part.BatchID)
			if err != nil {
				return err
			}
			k.definitionID = b.Plan.DefinitionID
			sums[k] = usageSum{sums[k].calls + one, sums[k].records + int64(piece.Part.Records())}
			one = 0
		}
		if one > 0 { // it carries no record
			sums[k] = usageSum{sums[k].calls + one, sums[k].records}
		}
	}
	in := db.UsageCountParams{Day: pgtype.Date{Time: c.now.UTC(), Valid: true}}
	for k, sum := range sums {
		in.OrgIds, in.DefinitionIds = append(in.OrgIds, k.orgID), append(in.DefinitionIds, k.definitionID)
		in.CredentialIds, in.ActionIds = append(in.CredentialIds, k.credentialID), append(in.ActionIds, k.actionID)
		in.Calls, in.Records = append(in.Calls, sum.calls), append(in.Records, sum.records)
	}
	if err := c.d.q.UsageCount(ctx, conn, in); err != nil {
		return fmt.Errorf("count calls: %w", err)
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

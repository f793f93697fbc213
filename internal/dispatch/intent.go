package dispatch

import (
	"flowlane/gen/db"
	"flowlane/internal/catalog"
	"flowlane/internal/quota"
)

// rows are the intents of calls.
func (c *claim) rows(calls []*prepared) db.CallInsertParams {
	in := db.CallInsertParams{Domain: c.key.domain, Bucket: c.key.bucket, Owner: c.owner, ClaimedAt: c.now, CountsIn: c.countsIn}
	if in.CountsIn == nil {
		in.CountsIn = quota.CountsIn{}.Encode()
	}
	for _, p := range calls {
		if p.empty() {
			continue
		}
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
		p.claimedAt, p.sendBefore, p.countsIn, p.meter, p.refusals = c.now, c.now.Add(p.timeout), in.CountsIn, c.meter, c.budget.Refusals
		in.SendBefores = append(in.SendBefores, p.sendBefore)
	}
	return in
}

// outcomeCheck is how the outcome of the call is found out, or that its author chose to send again.
func (p *prepared) outcomeCheck() string {
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

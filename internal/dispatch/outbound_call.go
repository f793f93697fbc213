package dispatch

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/cell"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
	"flowlane/internal/run"
)

// outboundCall is a call whose body is rendered and whose parts are chosen, but not yet claimed.
type outboundCall struct {
	id   uuid.UUID
	lane db.FlowLane
	// r rendered it; that of a service call has no batch but its organization.
	r        *renderer
	orgID    uuid.UUID
	params   json.RawMessage
	rows     []byte
	digest   string
	firstKey string
	lastKey  string
	// keySums are those of its rows, where its result names them by their keys.
	keySums []byte
	records int
	attempt int32
	// repeats: its idempotency key may be that of an earlier call.
	repeats bool
	// keyedSince is when the first call with that key was claimed that may have arrived; zero for none.
	keyedSince time.Time
	pieces     []run.ClaimedRange
	// decided are the records that need no call: skipped by `when`, or impossible to render.
	decided   []run.Result
	check     catalog.OutcomeCheck
	exclusive string
	// scopes are what it counts for in buckets that have a budget each for it, by bucket, and scoped the windows of
	// these.
	scopes  map[string]string
	scoped  []quota.Window
	request provider.Request
	timeout time.Duration
	// serviceCall marks a call of ours that carries no record.
	serviceCall bool
	// costs are what it may cost of its budgets.
	costs costs
	// written is what the claim wrote down, as far as a settlement asks for it.
	written db.FlowCall
	// late: the time for the call was over before its claim had ended.
	late  bool
	meter *meter
	// refusals is how often in a row its receiver had refused calls for their rate.
	refusals int32
	// queues are those that the call takes from.
	queues []queueKey
	// lost is the loss in which its records may have been sent; nil for none. With one it is claimed, and not sent.
	// forgotten: there was none, but the provider has forgotten the key with which they may have been sent.
	lost      *pg.Loss
	forgotten bool
}

// batches returns the batches that the call and its decided records belong to.
func (p *outboundCall) batches() []uuid.UUID {
	var out []uuid.UUID
	for i := range p.pieces {
		if id := p.pieces[i].Part.BatchID; !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

func (p *outboundCall) laneKey() quota.LaneKey { return quota.LaneKey{Org: p.orgID, Lane: p.lane} }

// empty reports whether there is nothing to send: every record was decided without a call.
func (p *outboundCall) empty() bool { return p.records == 0 && !p.serviceCall }

// prepare makes the request of a call whose parameters and rows are rendered.
func (p *outboundCall) prepare(idempotencyKey string) (err error) {
	action := p.r.task.Action
	if p.request, err = provider.Prepare(p.r.svc, action, p.params, p.rows, pg.Value(p.r.cred).Secret,
		idempotencyKey); err != nil {
		return err
	}
	over, err := provider.ExclusiveOver(action, p.params)
	if err != nil {
		return err
	}
	if err := p.scope(); err != nil {
		return err
	}
	p.id, p.exclusive, p.check = cell.NewID(), exclusiveKey(over), action.Outcome(p.params)
	p.request.Owner = p.orgID.String()
	p.request.Repeats = p.check == catalog.CheckKeyed && p.repeats
	return nil
}

// decide adds a part whose records need no call as a piece of its own, with what becomes of them.
func (p *outboundCall) decide(part batch.Part, output json.RawMessage, exceptions ...run.Exception) {
	p.pieces = append(p.pieces, run.ClaimedRange{Part: part, NoCall: true})
	part.ID = 0 // the piece leaves the queue with its part; there is no row of its own to settle
	p.decided = append(p.decided, run.Result{Part: part, From: batch.Queued, Output: output, Exceptions: exceptions})
}

// refuse has every record of a call fail that cannot be made: it goes without one.
func (p *outboundCall) refuse(reason *batch.JobError) {
	pieces := p.pieces
	p.pieces, p.records = nil, 0
	for i := range pieces {
		if pieces[i].NoCall {
			p.pieces = append(p.pieces, pieces[i])
			continue
		}
		part := pieces[i].Part
		p.decide(part, nil, allOf(&part, run.Exception{Kind: batch.EntryFailed, Error: reason})...)
	}
}

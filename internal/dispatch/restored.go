package dispatch

import (
	"slices"
	"time"

	"flowlane/internal/batch"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/run"
)

// A restore forgets what was committed in the lost time, and so which calls were sent. What waits in a batch that was
// there before its end may have been sent, unless it waited for a time behind it. Where to send it again does no harm,
// it is sent. Else it is claimed like any other, but in place of being sent it is settled at once as a call that was
// sent in the lost time, and whose sender is gone: who is asked, and what people decide, is the same. A record that
// such a call, or one after the restore, is known not to have done waits from a time behind the lost one, and goes like
// any other.
//
// What an event or a flow starts after the restore, in a chain that began before, may have been started before, as
// another batch: neither its keys nor what it sent need be the same.

// mayHaveGone is the loss in which a record may have been sent; nil for none.
func (r *renderer) mayHaveGone(p *batch.Part, offset int32, rec *run.Records) *pg.Loss {
	if !r.lost.MayHaveGone(p.ReadyAt) || rec.SpansLoss(offset) {
		return nil
	}
	return r.lost
}

// takes reports whether the call may have a record that may have been sent, or not, like those that it has.
func (c *bulk) takes(lost *pg.Loss) bool {
	if c.records > 0 && ((c.lost == nil) != (lost == nil) || lost != nil && *c.lost != *lost) {
		c.full = true
		return false
	}
	c.lost = lost
	return true
}

// unsent reports whether nothing is to be sent.
func (p *outboundCall) unsent() bool { return p.empty() || p.lost != nil }

// repeat has calls sent again that may have been sent, where that does no harm. Those whose provider would take them
// for new, because it has forgotten their key, are left to people. It fails where there was a restore since they were
// rendered.
func (c *claim) repeat(calls []*outboundCall) error {
	for _, p := range calls {
		if p.serviceCall {
			continue
		}
		if p.r.lastLoss != c.d.Losses.Last() {
			return run.ErrMoved
		}
		if p.keyForgotten(p.keyedSince, c.now) {
			p.forgotten, p.lost = true, &pg.Loss{Since: p.keyedSince, Until: c.now}
			continue
		}
		if p.lost == nil {
			continue
		}
		if p.r.anew && p.check != catalog.CheckSafe {
			p.check = catalog.CheckNone
		}
		if p.harmless(c.now) {
			p.request.Repeats, p.lost = p.check == catalog.CheckKeyed, nil
		}
	}
	return nil
}

// harmless reports whether a call may be sent again that was sent in the lost time.
func (p *outboundCall) harmless(now time.Time) bool {
	if Uncertain(stateIntent, p.outcomeCheck(), false) != stateSettled {
		return false
	}
	return !p.keyForgotten(p.lost.Since, now)
}

// keyForgotten reports whether its provider has forgotten its key where a call went out with that at a time; zero for
// none.
func (p *outboundCall) keyForgotten(since, now time.Time) bool {
	return p.check == catalog.CheckKeyed &&
		keyForgotten(p.r.task.Action.Call.Idempotency.LifeSeconds, since, now)
}

// keyForgotten reports whether a provider that knows keys for so long, 0 for ever, has forgotten by now the key of a
// call that went out at a time; zero for none.
func keyForgotten(lifeSeconds int, since, now time.Time) bool {
	return lifeSeconds > 0 && !since.IsZero() && now.Sub(since) > time.Duration(lifeSeconds)*time.Second
}

// leaveUnsent settles those of claimed calls that may have been sent before, and returns the others. What cannot be
// settled now is taken for lost like any call of a process that is gone.
func (f *flight) leaveUnsent(claimed []*outboundCall) []*outboundCall {
	if !slices.ContainsFunc(claimed, func(p *outboundCall) bool { return p.lost != nil }) {
		return claimed
	}
	var calls []*outboundCall
	var lost []outcome
	for _, call := range claimed {
		if call.lost == nil {
			calls = append(calls, call)
			continue
		}
		call.request.Memory.Release()
		reason := provider.ReasonForgotten
		if call.forgotten {
			reason = provider.ReasonKeyForgotten
		}
		lost = append(lost, outcome{id: call.id, reading: provider.Reading{Kind: provider.Unknown, Reason: reason}})
	}
	if err := f.d.applyAll(f.d.process, f.key, lost, true); err != nil {
		f.d.opts.Log.Warn("settle calls that may have been sent before a restore", "domain", f.key.domain, "bucket",
			f.key.bucket, "error", err)
	}
	return calls
}

// knownSince is since when all is known of a call that was claimed at a time: since then, or since the restore that may
// have forgotten something of it.
func (d *Dispatcher) knownSince(claimed time.Time) time.Time {
	if loss := d.Losses.Last(); loss.MayHaveGone(claimed) {
		return loss.Until
	}
	return claimed
}

// secondHand reports whether an outcome of a call was found out, and not seen by its sender, after a restore that may
// have forgotten what came of the call and what was sent on that.
func (s *settlement) secondHand(call *openCall, v *outcome) bool {
	return v.call == nil && s.d.Losses.Last().MayHaveGone(call.ClaimedAt)
}

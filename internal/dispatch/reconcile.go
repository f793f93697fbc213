package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/catalog"
	"flowlane/internal/due"
	"flowlane/internal/provider"
)

const (
	// checksAtOnce bounds the calls that one round of reconciliation looks at.
	checksAtOnce = 32
	// lookupSlack is how much earlier than our claim a provider may say that it received a call, beyond its clock skew.
	lookupSlack = 5 * time.Second
	// goneFor is how long a call whose action has left the catalog waits for it to come back.
	goneFor = 24 * time.Hour
)

// Reconcile is the handler of due rows of kind DueReconcile: it finds out what became of calls whose sender is silent,
// whose answer was unclear, or whose result comes later. It goes on while holds stop claims.
func (d *Dispatcher) Reconcile(ctx context.Context, lease *due.Lease) (next time.Time, err error) {
	domain, bucket, ok := strings.Cut(lease.Key, "\n")
	if !ok {
		return time.Time{}, fmt.Errorf("reconcile: %q names no budget", lease.Key)
	}
	k := budgetKey{domain, bucket}
	// A call that fails must not hold up the others.
	failed := d.doubtOverdue(ctx, k)
	calls, err := d.q.CallsToCheck(ctx, d.Pool, db.CallsToCheckParams{Domain: domain, Bucket: bucket, MaxCalls: checksAtOnce})
	if err != nil {
		return time.Time{}, fmt.Errorf("read calls to look into: %w", err)
	}
	for i := range calls {
		if err := d.check(ctx, k, &calls[i]); err != nil {
			failed = errors.Join(failed, fmt.Errorf("call %s: %w", calls[i].ID, err))
			if isTransient(err) || ctx.Err() != nil {
				break
			}
		}
	}
	if failed != nil {
		return time.Time{}, failed
	}
	at, err := d.q.CallsNextCheck(ctx, d.Pool, db.CallsNextCheckParams{Domain: domain, Bucket: bucket, MarginSeconds: d.opts.Margin.Seconds()})
	return at, err
}

// doubtOverdue takes over calls whose sender can no longer be sending: what became of them is unknown.
func (d *Dispatcher) doubtOverdue(ctx context.Context, k budgetKey) error {
	for {
		ids, err := d.q.CallsOverdue(ctx, d.Pool, db.CallsOverdueParams{Domain: k.domain, Bucket: k.bucket, MarginSeconds: d.opts.Margin.Seconds(), MaxCalls: settleMax})
		if err != nil {
			return fmt.Errorf("read overdue calls: %w", err)
		}
		if len(ids) == 0 {
			return nil
		}
		verdicts := make([]verdict, len(ids))
		for i, id := range ids {
			verdicts[i] = verdict{id: id, reading: provider.Reading{Kind: provider.Unknown, Reason: provider.ReasonNoAnswer}}
		}
		if err := d.applyAll(ctx, k, verdicts, true); err != nil {
			return err
		}
		d.opts.Log.Info("calls without a known outcome", "domain", k.domain, "bucket", k.bucket, "calls", len(ids))
	}
}

// check asks the provider about one call, and settles it where the answer is clear.
func (d *Dispatcher) check(ctx context.Context, k budgetKey, call *db.FlowCall) error {
	action, ok := d.Catalog.Action(call.ActionID)
	q := question{d: d, key: k, call: call, action: action}
	if err := q.open(ctx); err != nil {
		return err
	}
	if !ok || action.Call == nil {
		if q.now.Sub(call.ClaimedAt) > goneFor {
			return d.giveUp(ctx, k, call, "action_gone")
		}
		return d.q.CallPostpone(ctx, d.Pool, db.CallPostponeParams{ID: call.ID, NextCheckAt: &q.nextAt})
	}
	if q.pastHorizon() {
		return d.giveUp(ctx, k, call, "past_horizon")
	}
	var v *verdict
	var err error
	if call.State == stateAwaiting {
		v, err = q.result(ctx, deref(call.Reference))
	} else {
		v, err = q.lookup(ctx)
	}
	if err != nil {
		return err
	}
	if v == nil {
		return d.q.CallPostpone(ctx, d.Pool, db.CallPostponeParams{ID: call.ID, NextCheckAt: &q.nextAt})
	}
	v.id = call.ID
	return d.apply(ctx, k, []verdict{*v}, true)
}

// giveUp leaves a call to a person.
func (d *Dispatcher) giveUp(ctx context.Context, k budgetKey, call *db.FlowCall, reason string) error {
	d.opts.Log.Error("the outcome of a call cannot be found out", "call", call.ID, "domain", k.domain, "bucket", k.bucket, "reason", reason)
	return d.apply(ctx, k, []verdict{{id: call.ID, unresolved: true, reading: provider.Reading{Kind: provider.Unknown, Reason: reason}}}, true)
}

// question is one attempt to find out about a call.
type question struct {
	d      *Dispatcher
	key    budgetKey
	call   *db.FlowCall
	action *catalog.Action
	now    time.Time
	// nextAt is when to ask again where there is no verdict yet.
	nextAt time.Time
}

func (q *question) open(ctx context.Context) (err error) {
	if q.now, err = q.d.q.Clock(ctx, q.d.Pool); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	pause := Patience(int(q.call.Checks))
	if q.call.State == stateAwaiting && q.action != nil && q.action.Call != nil && q.action.Call.Result != nil {
		pause = time.Duration(max(q.action.Call.Result.EverySeconds, 1)) * time.Second
	}
	q.nextAt = q.now.Add(min(pause, time.Minute))
	return nil
}

// pastHorizon reports whether the provider has forgotten the call by now, however often it is asked.
func (q *question) pastHorizon() bool {
	l := q.action.Call.Lookup
	return l != nil && l.HorizonSeconds > 0 && q.now.Sub(q.call.ClaimedAt) > time.Duration(l.HorizonSeconds)*time.Second
}

// lookup asks whether the call arrived. No verdict: nobody can say yet.
func (q *question) lookup(ctx context.Context) (*verdict, error) {
	l := q.action.Call.Lookup
	if l == nil {
		return &verdict{unresolved: true, reading: provider.Reading{Kind: provider.Unknown, Reason: "no_lookup"}}, nil
	}
	skew := q.skew()
	since := q.call.ClaimedAt.Add(-skew - lookupSlack)
	params, err := provider.LookupParams(q.action, json.RawMessage(q.call.Params), since)
	if err != nil {
		return nil, fmt.Errorf("parameters of the lookup: %w", err)
	}
	asked := q.now
	body, ok, err := q.ask(ctx, l.Action, params)
	if err != nil || !ok {
		return nil, err
	}
	matches, err := provider.MatchLookup(q.action, body, provider.Fingerprint{Digest: q.call.Digest, Count: int(q.call.Records),
		FirstKey: deref(q.call.FirstKey), LastKey: deref(q.call.LastKey), Since: since})
	if err != nil {
		return nil, nil //nolint:nilerr // an unreadable answer says nothing: ask again
	}
	refs, err := q.unclaimed(ctx, matches)
	if err != nil {
		return nil, err
	}
	final := q.call.SendBefore.Add(q.d.opts.Margin + skew + time.Duration(l.SettlesWithinSeconds)*time.Second)
	switch Found(len(refs), asked, final) {
	case FoundIt:
		return q.result(ctx, refs[0])
	case FoundMany:
		return &verdict{unresolved: true, reading: provider.Reading{Kind: provider.Unknown, Reason: "ambiguous"}}, nil
	case FoundAbsent:
		return &verdict{reading: provider.Reading{Kind: provider.NotArrived}}, nil
	}
	if final.Before(q.nextAt) || q.call.Checks > 3 {
		q.nextAt = final.Add(100 * time.Millisecond)
	}
	return nil, nil
}

func (q *question) skew() time.Duration {
	if p, ok := q.d.Catalog.Platform(q.action.PlatformID); ok && p.Account != nil {
		return time.Duration(p.Account.ClockSkewSeconds) * time.Second
	}
	return 0
}

// unclaimed returns the references of matches that settle no other call.
func (q *question) unclaimed(ctx context.Context, matches []provider.LookupMatch) ([]string, error) {
	var refs []string
	for _, m := range matches {
		refs = append(refs, m.Reference)
	}
	if len(refs) == 0 {
		return nil, nil
	}
	taken, err := q.d.q.CallReferences(ctx, q.d.Pool, db.CallReferencesParams{Domain: q.key.domain, Bucket: q.key.bucket, Refs: refs, Ids: []uuid.UUID{q.call.ID}})
	if err != nil {
		return nil, fmt.Errorf("read references: %w", err)
	}
	used := map[string]bool{}
	for _, r := range taken {
		used[r] = true
	}
	var out []string
	for _, r := range refs {
		if !used[r] {
			out = append(out, r)
		}
	}
	return out, nil
}

// result asks for the row results of a call that the provider knows by reference. No verdict: it is not ready.
func (q *question) result(ctx context.Context, reference string) (*verdict, error) {
	spec := q.action.Call.Result
	if spec == nil {
		return &verdict{reading: provider.Reading{Kind: provider.Success, Reference: reference}}, nil
	}
	params, err := provider.ResultParams(q.action, reference)
	if err != nil {
		return nil, fmt.Errorf("parameters of the question for a result: %w", err)
	}
	body, ok, err := q.ask(ctx, spec.Action, params)
	if err != nil || !ok {
		return nil, err
	}
	pending, reading := provider.ReadResult(q.action, body, int(q.call.Records))
	if pending || reading.Kind == provider.Unknown {
		return nil, nil
	}
	reading.Reference = reference
	return &verdict{reading: reading, startedAt: q.call.ClaimedAt, finishedAt: q.now}, nil
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

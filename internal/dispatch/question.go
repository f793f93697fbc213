package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/catalog"
	"flowlane/internal/provider"
)

// question is one attempt to find out about a call.
type question struct {
	d      *Dispatcher
	key    budgetKey
	call   *db.FlowCall
	action *catalog.Action
	now    time.Time
	// age is how long ago the call was claimed, at least, whatever the database's clock did meanwhile.
	age time.Duration
	// nextAt is when to ask again where there is no outcome yet.
	nextAt time.Time
	// asked: the provider was asked, or nobody can ask it. Waiting for a budget is no question.
	asked bool
}

func (q *question) open(ctx context.Context) error {
	q.action, _ = q.d.Catalog.Action(q.call.ActionID)
	now, ages, err := q.d.Clock.Ages(ctx, q.call.ClaimedAt)
	if err != nil {
		return err //nolint:wrapcheck // says everything
	}
	q.now, q.age = now, ages[0]
	q.nextAt = q.now.Add(Patience(int(q.call.Checks)))
	if q.call.State == stateAwaiting && q.action != nil && q.action.Call != nil && q.action.Call.Result != nil {
		every := time.Duration(max(q.action.Call.Result.EverySeconds, 1)) * time.Second
		q.nextAt = q.now.Add(min(every, time.Minute))
	}
	return nil
}

// failed notes that the question got no answer: the next one comes after a growing pause, and no sooner than after this one.
func (q *question) failed(after time.Duration) {
	q.asked = true
	q.nextAt = maxTime(q.nextAt, q.now.Add(max(after, Patience(int(q.call.Checks)))))
}

// check asks the provider, and settles the call where the answer is clear.
func (q *question) check(ctx context.Context) (err error) {
	defer asError(&err)
	var v *outcome
	gone := q.action == nil || q.action.Call == nil
	switch {
	case q.pastHorizon():
		reason := "past_horizon"
		if gone {
			reason = "action_gone"
		}
		q.d.opts.Log.Error("the outcome of a call cannot be found out", "call", q.call.ID, "domain", q.key.domain, "bucket", q.key.bucket, "reason", reason)
		v = unresolved(reason)
	case gone: // it may come back
		q.failed(0)
	case q.call.State == stateAwaiting:
		v, err = q.result(ctx, deref(q.call.Reference))
	default:
		v, err = q.lookup(ctx)
	}
	if err != nil {
		return err
	}
	if v == nil {
		return q.postpone(ctx)
	}
	v.id = q.call.ID
	return q.d.apply(ctx, q.key, []outcome{*v}, true)
}

// postpone dates the next question.
func (q *question) postpone(ctx context.Context) error {
	in := db.CallPostponeParams{ID: q.call.ID, NextCheckAt: &q.nextAt}
	if q.asked {
		in.Checks = 1
	}
	if err := q.d.q.CallPostpone(ctx, q.d.Pool, in); err != nil {
		return fmt.Errorf("date the next question: %w", err)
	}
	return nil
}

// pastHorizon reports whether the provider has forgotten the call by now, however often it is asked, or nobody knows for how long
// it remembers and it was asked for long enough.
func (q *question) pastHorizon() bool {
	horizon := checkFor
	if q.action != nil && q.action.Call != nil && q.action.Call.Lookup != nil {
		horizon = time.Duration(q.action.Call.Lookup.HorizonSeconds) * time.Second
	}
	return max(q.age, q.now.Sub(q.call.ClaimedAt)) > horizon
}

// lookup asks whether the call arrived. No outcome: nobody can say yet.
func (q *question) lookup(ctx context.Context) (*outcome, error) {
	l := q.action.Call.Lookup
	if l == nil {
		return unresolved("no_lookup"), nil
	}
	skew := q.skew()
	_, _, shift := q.d.Clock.Steps()
	since := q.call.ClaimedAt.Add(-skew - lookupSlack - shift)
	asked := q.call.ClaimedAt.Add(q.age)
	matches, whole, err := q.matches(ctx, since)
	if errors.Is(err, provider.ErrUnreadable) { // it says nothing: ask again
		q.failed(0)
		return nil, nil
	}
	if err != nil || matches == nil {
		return nil, err
	}
	refs, err := q.unclaimed(ctx, matches)
	if err != nil {
		return nil, err
	}
	final := q.call.SendBefore.Add(q.d.opts.Margin + skew + time.Duration(l.SettlesWithinSeconds)*time.Second)
	switch found := Found(len(refs), asked, final); {
	case found == FoundMany:
		return unresolved("ambiguous"), nil
	case found != FoundNothing && !whole: // what was not read can hold it, or another that looks like it
		return unresolved("too_many_pages"), nil
	case found == FoundIt:
		return q.result(ctx, refs[0])
	case found == FoundAbsent:
		return &outcome{reading: provider.Reading{Kind: provider.NotArrived}}, nil
	}
	if settled := q.now.Add(final.Sub(asked)); settled.Before(q.nextAt) || q.call.Checks > 3 {
		q.nextAt = settled.Add(100 * time.Millisecond)
	}
	return nil, nil
}

// unresolved leaves a call to a person.
func unresolved(reason string) *outcome {
	return &outcome{unresolved: true, reading: provider.Reading{Kind: provider.Unknown, Reason: reason}}
}

// matches asks for everything that the provider received since a time, page by page, and returns what may be the call; nil where
// there was no answer to one of the pages. whole tells that the last page was read.
func (q *question) matches(ctx context.Context, since time.Time) (out []provider.LookupMatch, whole bool, err error) {
	l, most := q.action.Call.Lookup, 1
	if l.Page != nil {
		most = l.Page.MaxPages
	}
	want := provider.Fingerprint{Digest: q.call.Digest, Count: int(q.call.Records), FirstKey: deref(q.call.FirstKey), LastKey: deref(q.call.LastKey), Since: since}
	out = []provider.LookupMatch{}
	var page provider.NextPage
	for range most {
		params, err := provider.LookupParams(q.action, json.RawMessage(q.call.Params), since, page.Cursor)
		if err != nil {
			return nil, false, fmt.Errorf("parameters of the lookup: %w", err)
		}
		ans, err := q.ask(ctx, l.Action, params, page.Link)
		if err != nil || ans == nil {
			return nil, false, err
		}
		found, err := provider.MatchLookup(q.action, ans.Body, want)
		if err != nil {
			return nil, false, fmt.Errorf("read the answer to the lookup: %w", err)
		}
		out = append(out, found...)
		if page, err = provider.LookupNext(q.action, ans); err != nil {
			return nil, false, fmt.Errorf("read where the answer goes on: %w", err)
		}
		if page.Last() {
			return out, true, nil
		}
	}
	return out, false, nil
}

func (q *question) skew() time.Duration {
	if p, ok := q.d.Catalog.Platform(q.action.PlatformID); ok && p.Account != nil {
		return time.Duration(p.Account.ClockSkewSeconds) * time.Second
	}
	return 0
}

// unclaimed returns the references of matches that settle no other call.
func (q *question) unclaimed(ctx context.Context, matches []provider.LookupMatch) (out []string, err error) {
	var refs []string
	for _, m := range matches {
		refs = append(refs, m.Reference)
	}
	used, err := q.d.taken(ctx, q.d.Pool, q.key, refs, q.call.ID)
	if err != nil {
		return nil, err
	}
	for _, r := range refs {
		if !used[r] { // pages may overlap
			used[r] = true
			out = append(out, r)
		}
	}
	return out, nil
}

// result asks for the row results of a call that the provider knows by reference. No outcome: it is not ready.
func (q *question) result(ctx context.Context, reference string) (*outcome, error) {
	spec := q.action.Call.Result
	if spec == nil {
		return &outcome{reading: provider.Reading{Kind: provider.Success, Reference: reference}}, nil
	}
	params, err := provider.ResultParams(q.action, reference)
	if err != nil {
		return nil, fmt.Errorf("parameters of the question for a result: %w", err)
	}
	ans, err := q.ask(ctx, spec.Action, params, "")
	if err != nil || ans == nil {
		return nil, err
	}
	pending, reading := provider.ReadResult(q.action, ans.Body, int(q.call.Records))
	if pending || reading.Kind == provider.Unknown {
		return nil, nil
	}
	reading.Reference = reference
	return &outcome{reading: reading, startedAt: q.call.ClaimedAt, finishedAt: q.now}, nil
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Doubt is what follows where nobody knows whether a call arrived.
type Doubt int

// What follows.
const (
	// DoubtStays: nothing new; it is looked into already, or left to a person.
	DoubtStays Doubt = iota
	// DoubtRepeat: to send it again does no harm, or its author takes that upon himself.
	DoubtRepeat
	// DoubtAsk: the provider can be asked.
	DoubtAsk
	// DoubtAbandon: only a person can find out.
	DoubtAbandon
)

// Doubtful decides by the outcome check of a call in this state; unresolved tells that asking has led nowhere.
func Doubtful(state, outcomeCheck string, unresolved bool) Doubt {
	if state == stateUnresolved {
		return DoubtStays
	}
	switch check := catalog.OutcomeCheck(outcomeCheck); {
	case check == catalog.CheckSafe, check == catalog.CheckKeyed, check == checkAuthor:
		return DoubtRepeat
	case check != catalog.CheckLookup, unresolved:
		return DoubtAbandon
	case state == stateIntent:
		return DoubtAsk
	}
	return DoubtStays
}

// Finding is what a lookup of a call says.
type Finding int

// The findings.
const (
	// FoundNothing yet: ask again.
	FoundNothing Finding = iota
	// FoundIt: one match, which settles no other call.
	FoundIt
	// FoundMany: nobody can tell which match is the call.
	FoundMany
	// FoundAbsent: it did not arrive, and cannot any more.
	FoundAbsent
)

// Found reads a lookup that was asked at a time and brought so many matches; settled is when the provider has decided about
// whatever can have arrived.
func Found(matches int, asked, settled time.Time) Finding {
	switch {
	case matches == 1:
		return FoundIt
	case matches > 1:
		return FoundMany
	case asked.After(settled):
		return FoundAbsent
	}
	return FoundNothing
}

// Patience is the pause to the next question about a call that was asked about so often: 1 s, 2 s, 4 s, at most a minute.
func Patience(checks int) time.Duration { return min(time.Second<<min(checks, 6), time.Minute) }

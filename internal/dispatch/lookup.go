package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/fault"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
)

// lookup is one attempt to find out about a call.
type lookup struct {
	d      *Dispatcher
	key    budgetKey
	row    *db.FlowCall
	action *catalog.Action
	now    time.Time
	// known is since when all is known of the call: since it was claimed, or since a later restore. age is how long ago
	// that was, at least, whatever the database's clock did meanwhile.
	known time.Time
	age   time.Duration
	// nextAt is when to ask again where there is no outcome yet.
	nextAt time.Time
	// checks is 1 where the provider was asked, or nobody can ask it. Waiting for a budget is no question.
	checks int32
	// asked is what came of the question where that told nothing, in words.
	asked string
}

// failed notes that the question got no answer, and why: the next one comes after a growing pause, and no sooner than
// after this one.
func (l *lookup) failed(why string, after time.Duration) {
	l.checks, l.asked = 1, why
	l.nextAt = moment.Later(l.nextAt, l.now.Add(max(after, LookupPause(int(l.row.Checks)))))
}

// check asks the provider, and settles the call where the answer is clear.
func (l *lookup) check(ctx context.Context) (err error) {
	defer fault.Recovered(&err)
	var v *outcome
	gone := l.action == nil || l.action.Call == nil
	switch {
	case l.pastHorizon():
		reason := "past_horizon"
		if gone {
			reason = "action_gone"
		}
		l.d.opts.Log.Error("the outcome of a call cannot be found out", "call", l.row.ID, "domain", l.key.domain,
			"bucket", l.key.bucket, "reason", reason)
		v = unresolved(reason)
		v.asked = whyUnresolved[reason]
		if last := pg.Value(l.row.Asked); last != "" {
			v.asked += batch.LastQuestion + last
		}
	case gone: // it may come back
		l.failed("the catalog has the action no more", 0)
	case l.row.State == stateAwaiting:
		v, err = l.result(ctx, &provider.LookupMatch{Reference: pg.Value(l.row.Reference)})
	default:
		v, err = l.find(ctx)
	}
	if err != nil {
		return err
	}
	if v == nil {
		return l.postpone(ctx)
	}
	v.id = l.row.ID
	if err = l.d.apply(ctx, l.key, []outcome{*v}, true); errors.Is(err, errFoundTaken) {
		return l.postpone(ctx)
	}
	return err
}

// postpone dates the next question.
func (l *lookup) postpone(ctx context.Context) error {
	err := l.d.q.CallPostpone(ctx, l.d.Pool, db.CallPostponeParams{ID: l.row.ID, NextCheckAt: &l.nextAt,
		Checks: l.checks, Asked: l.asked})
	if err != nil {
		return fmt.Errorf("date the next question: %w", err)
	}
	return nil
}

// pastHorizon reports whether the provider has forgotten the call by now, however often it is asked, or nobody knows
// for how long it remembers and it was asked for long enough.
func (l *lookup) pastHorizon() bool {
	horizon := checkFor
	if l.action != nil && l.action.Call != nil && l.action.Call.Lookup != nil {
		horizon = time.Duration(l.action.Call.Lookup.HorizonSeconds) * time.Second
	}
	return max(l.age, l.now.Sub(l.row.ClaimedAt)) > horizon
}

// find asks whether the call arrived. No outcome: nobody can say yet.
func (l *lookup) find(ctx context.Context) (*outcome, error) {
	spec := l.action.Call.Lookup
	if l.action.Call.Job != nil {
		return l.committed(ctx)
	}
	if spec == nil {
		return unresolved("no_lookup"), nil
	}
	skew := l.skew()
	_, _, shift := l.d.Clock.Steps()
	since := l.row.ClaimedAt.Add(-skew - lookupSlack - shift)
	asked := l.known.Add(l.age)
	fields, err := provider.LookupFields(l.action, json.RawMessage(l.row.Params))
	if err != nil || len(spec.Match) > 0 && len(fields) == 0 {
		return unresolved("nothing_to_match"), nil //nolint:nilerr // no lookup will find it
	}
	found, whole, err := l.matches(ctx, since, fields)
	if errors.Is(err, provider.ErrUnreadable) { // it says nothing: ask again
		l.failed(unreadable, 0)
		return nil, nil
	}
	if err != nil || found == nil {
		return nil, err
	}
	final := moment.Later(l.row.SendBefore, l.known).Add(l.d.opts.ReconcileMargin + skew +
		time.Duration(spec.SettlesWithinSeconds)*time.Second)
	switch proves := Found(len(found), asked, final); {
	case proves == provider.Unknown:
		return unresolved("ambiguous"), nil
	case proves != provider.Pending && !whole: // what was not read can hold it, or another that looks like it
		return unresolved("too_many_pages"), nil
	case proves == provider.Success:
		if other, err := l.mayBeAnothers(ctx); other || err != nil {
			return nil, err
		}
		v, err := l.result(ctx, &found[0])
		if v != nil {
			v.found = found[0].Reference
		}
		return v, err
	case proves == provider.NotArrived && l.action.Bulk && l.forgotten():
		return unresolved("other_company"), nil
	case proves == provider.NotArrived:
		return &outcome{reading: provider.Reading{Kind: proves}}, nil
	}
	if settled := l.now.Add(final.Sub(asked)); settled.Before(l.nextAt) || l.row.Checks > 3 {
		l.nextAt = settled.Add(100 * time.Millisecond)
	}
	return nil, nil
}

// mayBeAnothers reports whether what was found may come from a call that was sent the same: one that is under way, or
// one before this whose outcome nobody knows either, which is told first.
func (l *lookup) mayBeAnothers(ctx context.Context) (bool, error) {
	same, err := l.d.q.CallSame(ctx, l.d.Pool, db.CallSameParams{Domain: l.key.domain, Bucket: l.key.bucket,
		ID: l.row.ID, ActionID: l.row.ActionID, Digest: l.row.Digest, Params: l.row.Params})
	if err != nil {
		return false, fmt.Errorf("read calls that were sent the same: %w", err)
	}
	return same, nil
}

// forgotten reports whether a restore may have lost what became of the call, and what was sent on that.
func (l *lookup) forgotten() bool { return !l.known.Equal(l.row.ClaimedAt) }

// committed asks a job whether its commit arrived. One whose reference was not written down was not committed, and
// cannot be any more.
func (l *lookup) committed(ctx context.Context) (*outcome, error) {
	absent := &outcome{reading: provider.Reading{Kind: provider.NotArrived, Spent: true}}
	if l.row.Reference == nil && !l.forgotten() {
		return absent, nil
	}
	if l.row.Reference == nil {
		return unresolved("job_forgotten"), nil
	}
	asked := l.known.Add(l.age)
	v, err := l.result(ctx, &provider.LookupMatch{Reference: *l.row.Reference})
	if v == nil || v.reading.Kind != provider.NotArrived {
		return v, err
	}
	settles := time.Duration(l.action.Call.Job.SettlesWithinSeconds) * time.Second
	final := moment.Later(l.row.SendBefore, l.known).Add(l.d.opts.ReconcileMargin + l.skew() + settles)
	switch over := asked.After(final); {
	case over && l.forgotten():
		return unresolved("job_forgotten"), nil
	case over:
		return absent, nil
	}
	if settled := l.now.Add(final.Sub(asked)); settled.Before(l.nextAt) || l.row.Checks > 3 {
		l.nextAt = settled.Add(100 * time.Millisecond)
	}
	return nil, nil
}

// skew is how far the provider's clock may be off.
func (l *lookup) skew() time.Duration {
	if p, ok := l.d.Catalog.Platform(l.action.PlatformID); ok && p.Account != nil {
		return time.Duration(p.Account.ClockSkewSeconds) * time.Second
	}
	return 0
}

// unresolved leaves a call to a person.
func unresolved(reason string) *outcome {
	return &outcome{unresolved: true, asked: whyUnresolved[reason], reading: provider.Reading{Kind: provider.Unknown,
		Reason: reason}}
}

// matches asks for everything that the provider received since a time, page by page, and returns what may be the call,
// and settles no other; nil where there was no answer to one of the pages. whole tells that the last page was read.
func (l *lookup) matches(ctx context.Context, since time.Time,
	fields []provider.FieldValue) (out []provider.LookupMatch, whole bool, err error) {
	spec, most := l.action.Call.Lookup, 1
	if spec.Page != nil {
		most = spec.Page.MaxPages
	}
	want := provider.Fingerprint{Digest: l.row.Digest, Count: int(l.row.Records), FirstKey: pg.Value(l.row.FirstKey),
		LastKey: pg.Value(l.row.LastKey), Fields: fields, Since: since}
	out = []provider.LookupMatch{}
	var page provider.NextPage
	for pages := 0; pages < most && !whole; pages++ {
		params, err := provider.LookupParams(l.action, json.RawMessage(l.row.Params), since, page.Cursor)
		if err != nil {
			return nil, false, fmt.Errorf("parameters of the lookup: %w", err)
		}
		ans, err := l.call(ctx, spec.Action, params, page.Link)
		if err != nil || ans == nil {
			return nil, false, err
		}
		found, err := provider.MatchLookup(l.action, ans.Value(l.action), want)
		if err != nil {
			return nil, false, fmt.Errorf("read the answer to the lookup: %w", err)
		}
		out = append(out, found...)
		if page, err = provider.LookupNext(l.action, ans); err != nil {
			return nil, false, fmt.Errorf("read where the answer goes on: %w", err)
		}
		whole = page.Last()
	}
	refs := make([]string, len(out))
	for i := range out {
		refs[i] = out[i].Reference
	}
	used, err := l.d.taken(ctx, l.d.Pool, l.key, refs, l.row.ID)
	if err != nil {
		return nil, false, err
	}
	return slices.DeleteFunc(out, func(m provider.LookupMatch) bool { // pages may overlap
		was := used[m.Reference]
		used[m.Reference] = true
		return was
	}), whole, nil
}

// result asks for the row results of a call that the provider knows by reference. No outcome: it is not ready.
func (l *lookup) result(ctx context.Context, found *provider.LookupMatch) (*outcome, error) {
	spec := l.action.Call.Result
	if spec == nil {
		return &outcome{reading: provider.Reading{Kind: provider.Success, Reference: found.Reference,
			Output: found.Output}}, nil
	}
	params, err := provider.ResultParams(l.action, found.Reference)
	if err != nil {
		return nil, fmt.Errorf("parameters of the question for a result: %w", err)
	}
	ans, err := l.call(ctx, spec.Action, params, "")
	if err != nil || ans == nil {
		return nil, err
	}
	if provider.JobUncommitted(l.action, ans) {
		if l.row.State == stateAwaiting { // it was accepted
			return nil, nil
		}
		return &outcome{reading: provider.Reading{Kind: provider.NotArrived}}, nil
	}
	keyed := provider.KeyedBy(l.action, json.RawMessage(l.row.Params), l.row.KeySums)
	pending, reading := provider.ReadResult(l.action, ans, int(l.row.Records), keyed)
	if pending || reading.Kind == provider.Unknown {
		return nil, nil
	}
	if spec.RowsFrom != nil && reading.Kind == provider.Success {
		switch rows, whole, err := l.rows(ctx, found.Reference, ans, keyed); {
		case err != nil || rows == nil:
			return nil, err
		case !whole: // a record that was rejected may be on a page that was not read
			return unresolved("too_many_pages"), nil
		default:
			reading.Rows = rows
		}
	}
	reading.Reference = found.Reference
	return &outcome{reading: reading, startedAt: l.row.ClaimedAt, finishedAt: l.now}, nil
}

// rows asks for the rows of a result that is there, answer by answer; nil where one of them cannot be had or read.
// whole tells that the last page was read.
func (l *lookup) rows(ctx context.Context, reference string, result *provider.Answer, keyed provider.Keyed,
) (rows []provider.RowOutcome, whole bool, err error) {
	from := l.action.Call.Result.RowsFrom
	switch has, ok := provider.HasRows(l.action, result); {
	case !ok:
		l.failed(unreadable, 0)
		return nil, false, nil
	case !has:
		return []provider.RowOutcome{}, true, nil
	}
	each := from.Each
	if len(each) == 0 {
		each = []string{""}
	}
	read := provider.NewRowPages(l.action, int(l.row.Records), keyed)
	for _, one := range each {
		var had bool
		if had, whole, err = l.pages(ctx, read, reference, result, one); err != nil || !had {
			return nil, false, err
		}
	}
	rows, readable := read.Rows()
	if !readable && whole {
		l.failed(unreadable, 0)
		return nil, false, nil
	}
	return append([]provider.RowOutcome{}, rows...), whole, nil
}

// pages reads one answer with rows, page by page; had is false where one of them cannot be had or read.
func (l *lookup) pages(ctx context.Context, read *provider.RowPages, reference string, result *provider.Answer,
	each string,
) (had, whole bool, err error) {
	from, most := l.action.Call.Result.RowsFrom, 1
	if from.Page != nil {
		most = from.Page.MaxPages
	}
	var page provider.NextPage
	for pages := 0; pages < most && !whole; pages++ {
		params, err := provider.ResultRowsParams(l.action, reference, result, each, page.Cursor)
		if err != nil {
			return false, false, fmt.Errorf("parameters of the question for rows: %w", err)
		}
		ans, err := l.call(ctx, from.Action, params, page.Link)
		if err != nil || ans == nil {
			return false, false, err
		}
		// it says nothing: ask again
		if page, err = provider.Next(l.action, from.Page, ans); err != nil || !read.Add(ans.Value(l.action)) {
			l.failed(unreadable, 0)
			return false, false, nil //nolint:nilerr // as above
		}
		whole = page.Last()
	}
	return true, whole, nil
}

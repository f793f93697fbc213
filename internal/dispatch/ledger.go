package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/catalog"
	"flowlane/internal/pg"
	"flowlane/internal/provider"
	"flowlane/internal/quota"
)

// errBudgetMoved means that a debit met a fuller window than was read: choose again.
var errBudgetMoved = errors.New("the budget has moved on")

// meter is the budget of one operation type of one account, as the ledger and the catalog describe it.
type meter struct {
	key  budgetKey
	loc  *time.Location
	caps map[int]int
	// skew is how far the provider's clock may be from ours.
	skew time.Duration
	// spacing is the least time between two calls, 0 for none, and next when it allows one.
	spacing time.Duration
	next    time.Time
	svc     *catalog.Service
	// also are the budgets that calls spend beside this one, as what their windows are called in those of a call: nothing for the budget
	// of its queue.
	also []*meter
	as   string
	// askEvery is how often the provider's own counters are read while calls go out; 0 where it has none. A reading may
	// miss calls that are younger than young.
	askEvery, young time.Duration
}

// Caps returns the effective caps of a bucket in calls, by window length: the provider's own limits where they were read,
// else the catalog's, after the lowest margin of the organizations that use the account.
func Caps(ctx context.Context, conn db.DBTX, tenancyID string, bucket string, b *catalog.RateBucket) (map[int]int, error) {
	caps, _, err := capsAndZone(ctx, conn, tenancyID, bucket, b)
	return caps, err
}

// capsAndZone is Caps, and the time zone of the account.
func capsAndZone(ctx context.Context, conn db.DBTX, tenancyID, bucket string, b *catalog.RateBucket) (caps map[int]int, zone string, err error) {
	caps = map[int]int{}
	for seconds, n := range b.Windows {
		caps[seconds] = n
	}
	r, err := db.New().DomainCaps(ctx, conn, db.DomainCapsParams{TenancyID: tenancyID, Bucket: bucket})
	if err != nil {
		return nil, "", fmt.Errorf("read limits of %s: %w", tenancyID, err)
	}
	for i, seconds := range r.Windows {
		caps[int(seconds)] = int(r.Caps[i])
	}
	for seconds, n := range caps {
		caps[seconds] = quota.AfterMargin(n, int(r.Margin))
	}
	return caps, r.TimeZone, nil
}

// meter returns the meter of a budget with its caps, and of others that calls spend beside it; nil where it is not metered. It fails
// with errZone where a budget must be aligned first.
func (d *Dispatcher) meter(ctx context.Context, conn db.DBTX, b *db.FlowBudget, also ...db.FlowBudget) (*meter, error) {
	m, err := d.windows(b)
	if m == nil || err != nil {
		return nil, err
	}
	svc, _ := d.Catalog.Service(b.ServiceID)
	var zone string
	m.caps, zone, err = capsAndZone(ctx, conn, b.Domain, b.Bucket, svc.RateBuckets[b.Bucket])
	if err == nil && zone != "" && zone != b.TimeZone {
		return nil, fmt.Errorf("%w: %s", errZone, m.key)
	}
	for i := range also {
		other, err := d.meter(ctx, conn, &also[i])
		if err != nil {
			return nil, err
		}
		other.as = other.key.bucket
		m.also = append(m.also, other)
	}
	return m, err
}

// windows returns the meter of a budget without its caps, which is enough to tell windows; nil where it is not metered.
func (d *Dispatcher) windows(b *db.FlowBudget) (*meter, error) {
	if !b.Metered {
		return nil, nil
	}
	svc, ok := d.Catalog.Service(b.ServiceID)
	if !ok || svc.RateBuckets[b.Bucket] == nil {
		return nil, fmt.Errorf("the catalog has no bucket %s of service %s any more", b.Bucket, b.ServiceID)
	}
	platform, _ := d.Catalog.Platform(svc.PlatformID)
	loc, err := time.LoadLocation(b.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("time zone of %s: %w", b.Domain, err)
	}
	rates := svc.RateBuckets[b.Bucket]
	m := &meter{key: budgetKey{b.Domain, b.Bucket}, loc: loc, svc: svc, spacing: time.Duration(rates.MinSpacingMS) * time.Millisecond,
		next: deref(b.NextCallAt)}
	if platform.Account != nil {
		m.skew = time.Duration(platform.Account.ClockSkewSeconds) * time.Second
		if platform.Account.Counters != nil {
			m.askEvery = time.Duration(max(platform.Account.Counters.EverySeconds, 1)) * time.Second
			m.young = Mature(platform.Account)
		}
	}
	return m, nil
}

// Mature is how old a call must be that the provider's counters hold for certain.
func Mature(a *catalog.Account) time.Duration {
	return time.Duration(a.Counters.LagSeconds+a.ClockSkewSeconds+1) * time.Second
}

// counts reports whether the provider counts refused calls in these windows of a call.
func (m *meter) counts(w quota.WindowKind) bool {
	b := m.svc.RateBuckets[cmp.Or(w.Bucket, m.key.bucket)]
	return b != nil && b.CountsRefused
}

// all are the budgets that a call spends, in the order in which their ledgers are locked.
func (m *meter) all() []*meter {
	out := append([]*meter{m}, m.also...)
	slices.SortFunc(out, func(a, b *meter) int { return strings.Compare(a.key.bucket, b.key.bucket) })
	return out
}

// lockBudget locks a budget, and others of its account, until tx ends, and returns the time at which all were had.
func (d *Dispatcher) lockBudget(ctx context.Context, tx pg.DB, k budgetKey, also ...string) (b db.FlowBudget, others []db.FlowBudget, now time.Time, err error) {
	rows, err := d.q.BudgetLock(ctx, tx, db.BudgetLockParams{Domain: k.domain, Buckets: append([]string{k.bucket}, also...)})
	if err == nil && len(rows) != 1+len(also) {
		err = pgx.ErrNoRows
	}
	if err != nil {
		return b, nil, now, fmt.Errorf("lock budget %s: %w", k, err)
	}
	for i := range rows {
		r := &rows[i]
		row := db.FlowBudget{Domain: r.Domain, Bucket: r.Bucket, ServiceID: r.ServiceID, Metered: r.Metered, TimeZone: r.TimeZone,
			MaxInFlight: r.MaxInFlight, NextCallAt: r.NextCallAt, Refusals: r.Refusals, RefusedAt: r.RefusedAt}
		if now = r.Now; r.Bucket == k.bucket {
			b = row
		} else {
			others = append(others, row)
		}
	}
	return b, others, now, nil
}

// lockMeter makes sure that a metered budget is there, and locks it until tx ends.
func (d *Dispatcher) lockMeter(ctx context.Context, tx pgx.Tx, zone string, svc *catalog.Service, k budgetKey) (m *meter, now time.Time, err error) {
	if err := d.ensureBudget(ctx, tx, zone, svc, k); err != nil {
		return nil, now, err
	}
	budget, _, now, err := d.lockBudget(ctx, tx, k)
	if err != nil {
		return nil, now, err
	}
	m, err = d.meter(ctx, tx, &budget)
	return m, now, err
}

// spans returns every window in which a call may count that arrives between from and to, with its spend, in all of its budgets.
func (m *meter) spans(ctx context.Context, conn db.DBTX, from, to time.Time) (out []quota.Window, err error) {
	for _, b := range m.all() {
		spans, err := b.ownSpans(ctx, conn, from, to)
		if err != nil {
			return nil, err
		}
		out = append(out, spans...)
	}
	return out, nil
}

func (m *meter) ownSpans(ctx context.Context, conn db.DBTX, from, to time.Time) ([]quota.Window, error) {
	out := quota.Windows(m.caps, from, to, m.skew, m.loc)
	rows, err := db.New().LedgerRead(ctx, conn, db.LedgerReadParams{Domain: m.key.domain, Bucket: m.key.bucket, Since: from.Add(-m.skew)})
	if err != nil {
		return nil, fmt.Errorf("read the ledger of %s: %w", m.key, err)
	}
	for i := range out {
		s := &out[i]
		s.Bucket = m.as
		for _, r := range rows {
			if int(r.WindowSeconds) == s.Seconds && r.StartsAt.Equal(s.Start) {
				s.Own, s.Foreign, s.Unsure = int(r.Own), int(r.ForeignSpend), int(r.Unsure)
			}
		}
	}
	return out, nil
}

// debit spends calls in every span, or fails with errBudgetMoved and leaves it to the caller to roll back.
func (m *meter) debit(ctx context.Context, tx pgx.Tx, spans []quota.Window, calls quota.Tally) error {
	for _, b := range m.all() {
		own := slices.DeleteFunc(slices.Clone(spans), func(s quota.Window) bool { return s.Bucket != b.as })
		if err := b.debitOwn(ctx, tx, own, calls); err != nil {
			return err
		}
	}
	return nil
}

func (m *meter) debitOwn(ctx context.Context, tx pgx.Tx, spans []quota.Window, calls quota.Tally) error {
	p := db.LedgerDebitParams{Domain: m.key.domain, Bucket: m.key.bucket, ByCredential: calls.Encode(1)}
	n := calls.Sum()
	for i := range spans {
		s := &spans[i]
		p.Seconds = append(p.Seconds, int32(s.Seconds))
		p.Starts = append(p.Starts, s.Start)
		p.Ends = append(p.Ends, s.End)
		p.Calls = append(p.Calls, int32(n))
		p.Caps = append(p.Caps, int32(s.Cap))
	}
	rows, err := db.New().LedgerDebit(ctx, tx, p)
	if err != nil {
		return fmt.Errorf("debit %s: %w", m.key, err)
	}
	if int(rows) != len(spans) {
		return fmt.Errorf("%w: %s", errBudgetMoved, m.key)
	}
	return nil
}

// releases collects what settled calls give back.
type releases struct {
	key budgetKey
	// calls are by bucket and window.
	calls map[string]map[[2]int64]quota.Tally
}

func (r *releases) add(c quota.CountsIn, credentialID uuid.UUID) {
	for w, starts := range c {
		bucket := cmp.Or(w.Bucket, r.key.bucket)
		if r.calls[bucket] == nil {
			r.calls[bucket] = map[[2]int64]quota.Tally{}
		}
		for _, start := range starts {
			k := [2]int64{int64(w.Seconds), start}
			if r.calls[bucket][k] == nil {
				r.calls[bucket][k] = quota.Tally{}
			}
			r.calls[bucket][k][credentialID]++
		}
	}
}

func (r *releases) write(ctx context.Context, tx pgx.Tx) error {
	for _, bucket := range slices.Sorted(maps.Keys(r.calls)) {
		p := db.LedgerReleaseParams{Domain: r.key.domain, Bucket: bucket}
		calls := r.calls[bucket]
		for _, k := range slices.SortedFunc(maps.Keys(calls), func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) }) {
			p.Seconds = append(p.Seconds, int32(k[0]))
			p.Starts = append(p.Starts, time.Unix(k[1], 0))
			p.Calls = append(p.Calls, int32(calls[k].Sum()))
			p.Less = append(p.Less, string(calls[k].Encode(-1)))
		}
		if err := db.New().LedgerRelease(ctx, tx, p); err != nil {
			return fmt.Errorf("release %s of %s: %w", bucket, r.key.domain, err)
		}
	}
	return nil
}

// Counts reports whether the provider may have counted a call of which it said this. What it took counts, even where its work failed
// later. What it refused counts where it counts refusals, and so does what a lookup does not find (no reason): it may have been
// refused. What never came to it does not count.
func Counts(r *provider.Reading, refusals bool) bool {
	switch r.Kind {
	case provider.NotArrived:
		return refusals && r.Reason == ""
	case provider.RetryLater:
		return refusals
	case provider.Refused:
		return r.Reason == provider.ReasonImportFailed || refusals && r.Reason == provider.ReasonRefused
	}
	return true
}

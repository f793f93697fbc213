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
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
)

// errBudgetMoved means that a debit met a fuller window than was read: choose again.
var errBudgetMoved = errors.New("the budget has moved on")

// meter is the budget of one operation type of one account, as the ledger and the catalog describe it.
type meter struct {
	key  budgetKey
	loc  *time.Location
	caps quota.Caps
	// skew is how far the provider's clock may be from ours.
	skew time.Duration
	// spacing is the least time between two calls, 0 for none, and next when it allows one.
	spacing time.Duration
	next    time.Time
	svc     *catalog.Service
	// rates are those of the catalog, or where it is owned, of the credential's owner.
	rates *catalog.RateBucket
	owned bool
	// also are the budgets that calls spend beside this one, as what their windows are called in those of a call:
	// nothing for the budget of its queue.
	also []*meter
	// scoped are those of them that have a budget each for a credential, or for what the parameters of a call name.
	scoped []*meter
	as     string
	// askEvery is how often the provider's own counters are read while calls go out; 0 where it has none. A reading may
	// miss calls that are younger than young.
	askEvery, young time.Duration
}

// Caps returns the effective caps of a bucket in calls, by window length, and the time zone of the account: the
// provider's own limits where they were read, else the catalog's, after the lowest margin of the organizations that use
// the account.
func Caps(ctx context.Context, conn db.DBTX, tenancyID, bucket string,
	b *catalog.RateBucket) (out quota.Caps, zone string, err error) {
	caps := maps.Collect(maps.All(b.Windows))
	for _, w := range b.Further {
		caps[w.Seconds] = w.Calls
	}
	r, err := db.New().DomainCaps(ctx, conn, db.DomainCapsParams{TenancyID: tenancyID, Bucket: bucket})
	if err != nil {
		return out, "", fmt.Errorf("read limits of %s: %w", tenancyID, err)
	}
	for i, seconds := range r.Windows {
		caps[int(seconds)] = int(r.Caps[i])
	}
	out = quota.Caps{Aligned: map[int]int{}, Rolling: map[int]int{}}
	for seconds, n := range caps {
		kind := out.Aligned
		if b.Rolls(seconds) {
			kind = out.Rolling
		}
		kind[seconds] = quota.AfterMargin(n, int(r.Margin))
	}
	return out, r.TimeZone, nil
}

// meter returns the meter of a budget with its caps, and of others that calls spend beside it; nil where it is not
// metered. It fails with errZone where a budget must be aligned first.
func (d *Dispatcher) meter(ctx context.Context, conn db.DBTX, b *db.FlowBudget, also ...db.FlowBudget) (*meter, error) {
	m, err := d.windows(b)
	if m == nil || err != nil {
		return nil, err
	}
	var zone string
	m.caps, zone, err = Caps(ctx, conn, b.Domain, b.Bucket, m.rates)
	if err == nil && zone != "" && zone != b.TimeZone {
		return nil, fmt.Errorf("%w: %s", errZone, m.key)
	}
	for i := range also {
		other, err := d.meter(ctx, conn, &also[i])
		if err != nil {
			return nil, err
		}
		other.as = other.key.bucket
		if other.rates.Per != "" {
			m.scoped = append(m.scoped, other)
			continue
		}
		m.also = append(m.also, other)
	}
	return m, err
}

// limited returns the meter of a budget that no provider meters and whose owner has set limits; nil where nobody has.
func (d *Dispatcher) limited(b *db.FlowBudget) (*meter, error) {
	limits, err := catalog.ParseLimits(b.Limits)
	if limits == nil || err != nil {
		return nil, err //nolint:wrapcheck // says everything
	}
	svc := &catalog.Service{ID: b.ServiceID}
	return &meter{key: budgetKey{b.Domain, b.Bucket}, loc: time.UTC, svc: svc, rates: limits.Bucket(""), owned: true},
		nil
}

// windows returns the meter of a budget without its caps, which is enough to tell windows; nil where it is not metered.
func (d *Dispatcher) windows(b *db.FlowBudget) (*meter, error) {
	if !b.Metered {
		return d.limited(b)
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
	m := &meter{key: budgetKey{b.Domain, b.Bucket}, loc: loc, svc: svc, rates: rates,
		spacing: time.Duration(rates.MinSpacingMS) * time.Millisecond,
		next:    pg.Value(b.NextCallAt)}
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
	b := m.svc.RateBuckets[BucketOf(cmp.Or(w.Bucket, m.key.bucket))]
	return b != nil && b.CountsRefused
}

// all are the budgets that a call spends, in the order in which their ledgers are locked.
func (m *meter) all() []*meter {
	out := append([]*meter{m}, m.also...)
	slices.SortFunc(out, func(a, b *meter) int { return strings.Compare(a.key.bucket, b.key.bucket) })
	return out
}

// lockBudget locks a budget, and others of its account, until tx ends, and returns the time at which all were had.
func (d *Dispatcher) lockBudget(ctx context.Context, tx pg.DB, k budgetKey,
	also ...string) (b db.FlowBudget, others []db.FlowBudget, now time.Time, err error) {
	rows, err := d.q.BudgetLock(ctx, tx, db.BudgetLockParams{Domain: k.domain, Buckets: append([]string{k.bucket},
		also...)})
	if err == nil && len(rows) != 1+len(also) {
		err = pgx.ErrNoRows
	}
	if err != nil {
		return b, nil, now, fmt.Errorf("lock budget %s: %w", k, err)
	}
	for i := range rows {
		r := &rows[i]
		row := db.FlowBudget{Domain: r.Domain, Bucket: r.Bucket, ServiceID: r.ServiceID, Metered: r.Metered,
			TimeZone:    r.TimeZone,
			MaxInFlight: r.MaxInFlight, Limits: r.Limits, NextCallAt: r.NextCallAt, Refusals: r.Refusals,
			RefusedAt: r.RefusedAt}
		if now = r.Now; r.Bucket == k.bucket {
			b = row
		} else {
			others = append(others, row)
		}
	}
	return b, others, now, nil
}

// lockMeter makes sure that a metered budget is there, and locks it until tx ends.
func (d *Dispatcher) lockMeter(ctx context.Context, tx pgx.Tx, zone string, svc *catalog.Service,
	k budgetKey) (m *meter, now time.Time, err error) {
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

// spans returns every window in which a call may count that arrives between from and to, with its spend, in all of its
// budgets.
func (m *meter) spans(ctx context.Context, conn db.DBTX, from, to time.Time) (out []quota.Window, err error) {
	for _, b := range m.all() {
		rows, err := db.New().LedgerRead(ctx, conn, db.LedgerReadParams{Domain: b.key.domain, Bucket: b.key.bucket,
			Since: from.Add(-b.skew)})
		if err != nil {
			return nil, fmt.Errorf("read the ledger of %s: %w", b.key, err)
		}
		for _, s := range quota.Windows(b.caps.Aligned, from, to, b.skew, b.loc) {
			s.Bucket = b.as
			if r := ledgerRow(rows, s.Seconds, s.Start); r != nil {
				s.Own, s.Foreign, s.Unsure = int(r.Own), int(r.ForeignSpend), int(r.Unsure)
			}
			out = append(out, s)
		}
		rolling, err := b.rolling(ctx, conn, from, to)
		if err != nil {
			return nil, err
		}
		out = append(out, rolling...)
	}
	return out, nil
}

// ledgerRow is the row of a window; nil where nothing is known of it.
func ledgerRow(rows []db.FlowLedger, seconds int, start time.Time) *db.FlowLedger {
	for i := range rows {
		if int(rows[i].WindowSeconds) == seconds && rows[i].StartsAt.Equal(start) {
			return &rows[i]
		}
	}
	return nil
}

// debit spends calls in every span, or fails with errBudgetMoved and leaves it to the caller to roll back.
func (m *meter) debit(ctx context.Context, tx pgx.Tx, spans []quota.Window,
	spent func(bucket string) quota.Tally) error {
	for _, b := range m.all() {
		calls := spent(b.key.bucket)
		if err := b.debitRolling(ctx, tx, spans, calls.Sum()); err != nil {
			return err
		}
		own := slices.DeleteFunc(slices.Clone(spans), func(s quota.Window) bool { return s.Rolls || s.Bucket != b.as })
		if len(own) == 0 {
			continue
		}
		p := db.LedgerDebitParams{Domain: b.key.domain, Bucket: b.key.bucket, ByCredential: calls.Encode(1),
			Calls: int32(calls.Sum())}
		p.Seconds, p.Caps, p.Starts, p.Ends = columns(own)
		rows, err := db.New().LedgerDebit(ctx, tx, p)
		if err != nil {
			return fmt.Errorf("debit %s: %w", b.key, err)
		}
		if int(rows) != len(own) {
			return fmt.Errorf("%w: %s", errBudgetMoved, b.key)
		}
	}
	return nil
}

// columns are windows as columns of a query.
func columns(spans []quota.Window) (seconds, caps []int32, starts, ends []time.Time) {
	for i := range spans {
		s := &spans[i]
		seconds, caps = append(seconds, int32(s.Seconds)), append(caps, int32(s.Cap))
		starts, ends = append(starts, s.Start), append(ends, s.End)
	}
	return seconds, caps, starts, ends
}

// releases collects what settled calls give back.
type releases struct {
	key budgetKey
	// calls are by bucket and window.
	calls map[string]map[[2]int64]quota.Tally
	// rolled are by bucket what cells of rolling windows have less, or more.
	rolled map[string]map[rolledCell]int
}

// add gives back what a call cost in windows; a negative cost is spent beside.
func (r *releases) add(c quota.CountsIn, credentialID uuid.UUID, cost func(bucket string) int) {
	for w, starts := range c {
		bucket := cmp.Or(w.Bucket, r.key.bucket)
		n := cost(bucket)
		if n == 0 {
			continue
		}
		if w.Rolls {
			r.roll(bucket, w.Seconds, starts, -n)
			continue
		}
		if r.calls[bucket] == nil {
			r.calls[bucket] = map[[2]int64]quota.Tally{}
		}
		for _, start := range starts {
			k := [2]int64{int64(w.Seconds), start}
			if r.calls[bucket][k] == nil {
				r.calls[bucket][k] = quota.Tally{}
			}
			r.calls[bucket][k][credentialID] += n
		}
	}
}

// buckets are those in which there is room now that there was not.
func (r *releases) buckets() (out []string) {
	out = slices.Collect(maps.Keys(r.calls))
	for bucket, cells := range r.rolled {
		less := 0
		for _, n := range cells { // what moves to another cell makes no room
			less += n
		}
		if _, listed := r.calls[bucket]; less < 0 && !listed {
			out = append(out, bucket)
		}
	}
	slices.Sort(out)
	return out
}

func (r *releases) write(ctx context.Context, tx pgx.Tx) error {
	for _, bucket := range slices.Sorted(maps.Keys(r.calls)) {
		p := db.LedgerReleaseParams{Domain: r.key.domain, Bucket: bucket}
		calls := r.calls[bucket]
		for _, k := range slices.SortedFunc(maps.Keys(calls), func(a, b [2]int64) int {
			return slices.Compare(a[:],
				b[:])
		}) {
			p.Seconds, p.Starts = append(p.Seconds, int32(k[0])), append(p.Starts, time.Unix(k[1], 0))
			p.Calls, p.Less = append(p.Calls, int32(calls[k].Sum())), append(p.Less, string(calls[k].Encode(-1)))
		}
		if err := db.New().LedgerRelease(ctx, tx, p); err != nil {
			return fmt.Errorf("release %s of %s: %w", bucket, r.key.domain, err)
		}
	}
	return r.writeRolled(ctx, tx)
}

// Counts reports whether the provider may have counted a call of which it said this. What it took counts, even where
// its work failed later. What it refused counts where it counts refusals, and so does what a lookup does not find (no
// reason): it may have been refused. What never came to it does not count.
func Counts(r *provider.Reading, refusals bool) bool {
	if r.Spent {
		return true
	}
	switch r.Kind {
	case provider.NotArrived:
		return refusals && (r.Reason == "" || r.Reason == provider.ReasonBusy)
	case provider.RetryLater:
		return refusals
	case provider.Refused:
		return r.Reason == provider.ReasonImportFailed || refusals && r.Reason == provider.ReasonRefused
	}
	return true
}

// errZone means that the windows of a budget are not yet aligned to the time zone of its account.
var errZone = errors.New("the account has another time zone")

// lookBack is how far back calls may lie that count in a window which is not over.
const lookBack = quota.LongestWindow + 2*time.Hour

// aligned does something under the lock of a budget, again where the budget had to be aligned first.
func (d *Dispatcher) aligned(ctx context.Context, k budgetKey, do func() error) error {
	err := do()
	if !errors.Is(err, errZone) {
		return err
	}
	if err := d.alignAll(ctx, k.domain); err != nil {
		return err
	}
	return do()
}

// alignAll aligns the budgets of an account that has told its time zone later than they were made.
func (d *Dispatcher) alignAll(ctx context.Context, domain string) error {
	buckets, err := d.q.BudgetsUnaligned(ctx, d.Pool, domain)
	if err != nil {
		return fmt.Errorf("read the budgets of %s: %w", domain, err)
	}
	for _, bucket := range buckets {
		if err := d.align(ctx, budgetKey{domain, bucket}); err != nil {
			return err
		}
	}
	return nil
}

// align has a budget go by the time zone of its account. Its windows that are not over are made anew, with every call
// that may count in them: none that was sent before can be sent again for it.
func (d *Dispatcher) align(ctx context.Context, k budgetKey) error {
	return pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
		budget, _, now, err := d.lockBudget(ctx, tx, k)
		if err != nil {
			return err
		}
		domain, err := d.q.DomainGet(ctx, tx, k.domain)
		if err != nil {
			return fmt.Errorf("read domain %s: %w", k.domain, err)
		}
		if domain.TimeZone == budget.TimeZone {
			return nil
		}
		budget.TimeZone = domain.TimeZone
		if err := d.q.BudgetZone(ctx, tx, db.BudgetZoneParams{Domain: k.domain, Bucket: k.bucket,
			TimeZone: budget.TimeZone}); err != nil {
			return fmt.Errorf("set the time zone of %s: %w", k, err)
		}
		m, err := d.meter(ctx, tx, &budget)
		if m == nil || err != nil {
			return err
		}
		d.opts.Log.Info("align a budget to the time zone of its account", "domain", k.domain, "bucket", k.bucket,
			"time_zone", budget.TimeZone)
		if err := m.alignCalls(ctx, tx, now); err != nil {
			return err
		}
		return m.alignLedger(ctx, tx, now)
	})
}

// alignCalls writes the windows anew of calls that may give some back, or that a reading may miss.
func (m *meter) alignCalls(ctx context.Context, tx pgx.Tx, now time.Time) error {
	calls, err := db.New().CallsUnaligned(ctx, tx, db.CallsUnalignedParams{Domain: m.key.domain,
		Lines: m.svc.Lines(m.key.bucket),
		Since: now.Add(-m.young - time.Hour), Oldest: now.Add(-lookBack)})
	if err != nil {
		return fmt.Errorf("read the calls of %s: %w", m.key, err)
	}
	var p db.CallsAlignParams
	for _, c := range calls {
		in, err := quota.DecodeCounts(c.CountsIn)
		if err != nil {
			return err
		}
		as, had := "", len(in)
		if c.Bucket != m.key.bucket {
			as = m.key.bucket
		}
		maps.DeleteFunc(in, func(w quota.WindowKind, _ []int64) bool { return w.Bucket == as && !w.Rolls })
		if len(in) == had {
			continue // it does not count here
		}
		for w, starts := range quota.CountsOf(quota.Windows(m.caps.Aligned, c.ClaimedAt, c.Until, m.skew, m.loc)) {
			in[quota.WindowKind{Seconds: w.Seconds, Bucket: as}] = starts
		}
		p.Ids, p.CountsIn = append(p.Ids, c.ID), append(p.CountsIn, string(in.Encode()))
	}
	if err := db.New().CallsAlign(ctx, tx, p); err != nil {
		return fmt.Errorf("align the calls of %s: %w", m.key, err)
	}
	return nil
}

// alignLedger makes the windows that are not over.
func (m *meter) alignLedger(ctx context.Context, tx pgx.Tx, now time.Time) error {
	q := db.New()
	calls, err := q.CallsCounted(ctx, tx, db.CallsCountedParams{Domain: m.key.domain, Bucket: m.key.bucket,
		Lines: m.svc.Lines(m.key.bucket), Since: now.Add(-lookBack)})
	if err != nil {
		return fmt.Errorf("read the calls of %s: %w", m.key, err)
	}
	rows, err := q.LedgerRead(ctx, tx, db.LedgerReadParams{Domain: m.key.domain, Bucket: m.key.bucket,
		Since: now.Add(-lookBack)})
	if err != nil {
		return fmt.Errorf("read the ledger of %s: %w", m.key, err)
	}
	var spent []quota.Spending
	for _, c := range calls {
		spent = append(spent, quota.Spending{Arrival: quota.Arrival{From: c.ClaimedAt, To: c.Until},
			CredentialID: c.CredentialID, Calls: int(c.Calls)})
	}
	var others []quota.Window
	for _, r := range rows {
		others = append(others, quota.Window{Seconds: int(r.WindowSeconds), Start: r.StartsAt, End: r.EndsAt,
			Foreign: int(r.ForeignSpend)})
	}
	p := db.LedgerAlignParams{Domain: m.key.domain, Bucket: m.key.bucket}
	for _, w := range quota.Align(m.caps.Aligned, spent, others, now, m.skew, m.loc) {
		p.Seconds, p.Starts = append(p.Seconds, int32(w.Seconds)), append(p.Starts, w.Start)
		p.Ends, p.Own = append(p.Ends, w.End), append(p.Own, int32(w.Own))
		p.ForeignSpend, p.Caps = append(p.ForeignSpend, int32(w.Foreign)), append(p.Caps, int32(w.Cap))
		p.ByCredential = append(p.ByCredential, string(w.By.Encode(1)))
	}
	if err := q.LedgerAlign(ctx, tx, p); err != nil {
		return fmt.Errorf("align %s: %w", m.key, err)
	}
	return nil
}

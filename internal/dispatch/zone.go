package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/pg"
	"flowlane/internal/quota"
)

// errZone means that the windows of a budget are not yet aligned to the time zone of its account.
var errZone = errors.New("the account has another time zone")

// zoneReach is how far back calls may lie that count in a window which is not over.
const zoneReach = quota.LongestWindow + 2*time.Hour

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

// align has a budget go by the time zone of its account. Its windows that are not over are made anew, with every call that may count
// in them: none that was sent before can be sent again for it.
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
		if err := d.q.BudgetZone(ctx, tx, db.BudgetZoneParams{Domain: k.domain, Bucket: k.bucket, TimeZone: budget.TimeZone}); err != nil {
			return fmt.Errorf("set the time zone of %s: %w", k, err)
		}
		m, err := d.meter(ctx, tx, &budget)
		if m == nil || err != nil {
			return err
		}
		d.opts.Log.Info("align a budget to the time zone of its account", "domain", k.domain, "bucket", k.bucket, "time_zone", budget.TimeZone)
		if err := m.alignCalls(ctx, tx, now); err != nil {
			return err
		}
		return m.alignLedger(ctx, tx, now)
	})
}

// alignCalls writes the windows anew of calls that may give some back, or that a reading may miss.
func (m *meter) alignCalls(ctx context.Context, tx pgx.Tx, now time.Time) error {
	calls, err := db.New().CallsUnaligned(ctx, tx, db.CallsUnalignedParams{Domain: m.key.domain, Lines: m.svc.Lines(m.key.bucket),
		Since: now.Add(-m.young - time.Hour), Oldest: now.Add(-zoneReach)})
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
		maps.DeleteFunc(in, func(w quota.WindowKind, _ []int64) bool { return w.Bucket == as })
		if len(in) == had {
			continue // it does not count here
		}
		for w, starts := range quota.CountsOf(quota.Windows(m.caps, c.ClaimedAt, c.Until, m.skew, m.loc)) {
			in[quota.WindowKind{Seconds: w.Seconds, Bucket: as}] = starts
		}
		p.Ids = append(p.Ids, c.ID)
		p.CountsIn = append(p.CountsIn, string(in.Encode()))
	}
	if err := db.New().CallsAlign(ctx, tx, p); err != nil {
		return fmt.Errorf("align the calls of %s: %w", m.key, err)
	}
	return nil
}

// alignLedger makes the windows that are not over.
func (m *meter) alignLedger(ctx context.Context, tx pgx.Tx, now time.Time) error {
	q := db.New()
	calls, err := q.CallsCounted(ctx, tx, db.CallsCountedParams{Domain: m.key.domain, Bucket: m.key.bucket, Lines: m.svc.Lines(m.key.bucket), Since: now.Add(-zoneReach)})
	if err != nil {
		return fmt.Errorf("read the calls of %s: %w", m.key, err)
	}
	rows, err := q.LedgerRead(ctx, tx, db.LedgerReadParams{Domain: m.key.domain, Bucket: m.key.bucket, Since: now.Add(-zoneReach)})
	if err != nil {
		return fmt.Errorf("read the ledger of %s: %w", m.key, err)
	}
	var spent []quota.Spending
	for _, c := range calls {
		spent = append(spent, quota.Spending{Arrival: quota.Arrival{From: c.ClaimedAt, To: c.Until}, CredentialID: c.CredentialID, Calls: int(c.Calls)})
	}
	var others []quota.Window
	for _, r := range rows {
		others = append(others, quota.Window{Seconds: int(r.WindowSeconds), Start: r.StartsAt, End: r.EndsAt, Foreign: int(r.ForeignSpend)})
	}
	p := db.LedgerAlignParams{Domain: m.key.domain, Bucket: m.key.bucket}
	for _, w := range quota.Align(m.caps, spent, others, now, m.skew, m.loc) {
		p.Seconds = append(p.Seconds, int32(w.Seconds))
		p.Starts = append(p.Starts, w.Start)
		p.Ends = append(p.Ends, w.End)
		p.Own = append(p.Own, int32(w.Own))
		p.ForeignSpend = append(p.ForeignSpend, int32(w.Foreign))
		p.Caps = append(p.Caps, int32(w.Cap))
		p.ByCredential = append(p.ByCredential, string(w.By.Encode(1)))
	}
	if err := q.LedgerAlign(ctx, tx, p); err != nil {
		return fmt.Errorf("align %s: %w", m.key, err)
	}
	return nil
}

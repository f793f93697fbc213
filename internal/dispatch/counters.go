package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/catalog"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/provider"
)

// Refresh reads the limits and counters of an account from its provider and takes them over: limits replace the catalog's
// caps, counters clamp the ledger up. It answers how many counters were read. Faults: 404 for an account without a usable
// credential of the organization; 503 where the provider does not answer.
func (d *Dispatcher) Refresh(ctx context.Context, orgID uuid.UUID, tenancyID string) (int, error) {
	domain, err := d.q.DomainGet(ctx, d.Pool, tenancyID)
	if pg.IsNoRows(err) {
		return 0, fault.Missing("Domain")
	}
	if err != nil {
		return 0, fmt.Errorf("read domain %s: %w", tenancyID, err)
	}
	platform, ok := d.Catalog.Platform(domain.PlatformID)
	if !ok || platform.Account == nil || platform.Account.Counters == nil {
		return 0, nil // a platform that does not tell: the catalog's caps stand
	}
	id, err := d.q.DomainCredential(ctx, d.Pool, db.DomainCredentialParams{TenancyID: &tenancyID, OrgID: orgID})
	if pg.IsNoRows(err) {
		return 0, fault.Missing("Domain")
	}
	if err != nil {
		return 0, fmt.Errorf("find a credential of %s: %w", tenancyID, err)
	}
	cred, err := d.Credentials.Resolve(ctx, orgID, id)
	if err != nil {
		return 0, err
	}
	svc := platform.Services[0]
	counters, asOf, err := d.Sender.Counters(ctx, platform, svc, cred.Secret)
	if err != nil {
		return 0, fault.New(fault.Unavailable, "The provider did not tell its limits: %v", err).Because(err)
	}
	if err := d.takeOver(ctx, &domain, platform, counters, asOf); err != nil {
		return 0, err
	}
	return len(counters), nil
}

// takeOver writes what the provider counted.
func (d *Dispatcher) takeOver(ctx context.Context, domain *db.FlowDomain, p *catalog.Platform, counters []provider.Counter, asOf time.Time) error {
	byBucket := map[string][]provider.Counter{}
	for _, c := range counters {
		byBucket[c.Bucket] = append(byBucket[c.Bucket], c)
	}
	for _, svc := range p.Services {
		for _, name := range slices.Sorted(maps.Keys(svc.RateBuckets)) {
			if len(byBucket[name]) == 0 {
				continue
			}
			err := pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
				return d.takeOverBucket(ctx, tx, domain, p, svc, name, byBucket[name], asOf)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Dispatcher) takeOverBucket(ctx context.Context, tx pgx.Tx, domain *db.FlowDomain, p *catalog.Platform, svc *catalog.Service, bucket string,
	counters []provider.Counter, asOf time.Time,
) error {
	k := budgetKey{domain.TenancyID, bucket}
	ensure := db.BudgetEnsureParams{Domain: k.domain, Bucket: bucket, ServiceID: svc.ID, Metered: true, TimeZone: domain.TimeZone, MaxInFlight: int32(d.opts.SmallInFlight)}
	if svc.RateBuckets[bucket].MaxRecordsPerRequest > 1 {
		ensure.MaxInFlight = int32(d.opts.BulkInFlight)
	}
	if err := d.q.BudgetEnsure(ctx, tx, ensure); err != nil {
		return fmt.Errorf("make budget %s: %w", k, err)
	}
	if err := d.q.BudgetLanesEnsure(ctx, tx, db.BudgetLanesEnsureParams{Domain: k.domain, Bucket: bucket}); err != nil {
		return fmt.Errorf("make the lanes of %s: %w", k, err)
	}
	budget, err := d.q.BudgetLock(ctx, tx, db.BudgetLockParams{Domain: k.domain, Bucket: bucket})
	if err != nil {
		return fmt.Errorf("lock budget %s: %w", k, err)
	}
	m, err := d.meter(ctx, tx, &budget)
	if err != nil {
		return err
	}
	recent, err := d.recent(ctx, tx, k, asOf.Add(-time.Duration(p.Account.Counters.LagSeconds)*time.Second-m.skew))
	if err != nil {
		return err
	}
	for _, c := range counters {
		if err := d.observeWindow(ctx, tx, m, c, asOf, recent); err != nil {
			return err
		}
	}
	return nil
}

// recent counts, by window, our calls that a reading up to since may not hold yet: young ones, and those still under way.
func (d *Dispatcher) recent(ctx context.Context, tx pgx.Tx, k budgetKey, since time.Time) (map[[2]int64]int, error) {
	rows, err := d.q.CallsSince(ctx, tx, db.CallsSinceParams{Domain: k.domain, Bucket: k.bucket, Since: since})
	if err != nil {
		return nil, fmt.Errorf("read recent calls of %s: %w", k, err)
	}
	out := map[[2]int64]int{}
	for _, raw := range rows {
		in, err := decodeCounts(raw)
		if err != nil {
			return nil, err
		}
		for seconds, starts := range in {
			for _, start := range starts {
				out[[2]int64{int64(seconds), start}]++
			}
		}
	}
	return out, nil
}

func (d *Dispatcher) observeWindow(ctx context.Context, tx pgx.Tx, m *meter, c provider.Counter, asOf time.Time, recent map[[2]int64]int) error {
	if c.Limit > 0 {
		err := d.q.DomainLimitPut(ctx, tx, db.DomainLimitPutParams{TenancyID: m.key.domain, Bucket: m.key.bucket, WindowSeconds: int32(c.WindowSeconds), Cap: int32(c.Limit)})
		if err != nil {
			return fmt.Errorf("write a limit of %s: %w", m.key, err)
		}
	}
	start, end := WindowAt(asOf, c.WindowSeconds, m.loc)
	rows, err := d.q.LedgerRead(ctx, tx, db.LedgerReadParams{Domain: m.key.domain, Bucket: m.key.bucket, Since: start})
	if err != nil {
		return fmt.Errorf("read the ledger of %s: %w", m.key, err)
	}
	own := 0
	for _, r := range rows {
		if int(r.WindowSeconds) == c.WindowSeconds && r.StartsAt.Equal(start) {
			own = int(r.Own)
		}
	}
	observed, at := int32(c.Value), asOf
	err = d.q.LedgerObserve(ctx, tx, db.LedgerObserveParams{Domain: m.key.domain, Bucket: m.key.bucket, WindowSeconds: int32(c.WindowSeconds), StartsAt: start, EndsAt: end,
		ForeignSpend: int32(Foreign(c.Value, own, recent[[2]int64{int64(c.WindowSeconds), start.Unix()}])), Observed: &observed, ObservedAt: &at})
	if err != nil {
		return fmt.Errorf("observe %s: %w", m.key, err)
	}
	return nil
}

// Foreign is what others spent in a window: what the provider counted beyond our own debits that its reading can hold.
// recent are own debits that are too young for it.
func Foreign(observed, own, recent int) int { return max(0, observed-max(0, own-recent)) }

// stale remembers when the counters of an account were last asked for, so that one pass at a time does.
type stale struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (s *stale) due(domain string, every time.Duration, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.last[domain]) < every {
		return false
	}
	if s.last == nil || len(s.last) > 10_000 {
		s.last = map[string]time.Time{}
	}
	s.last[domain] = now
	return true
}

// refreshStale asks for the counters of an account, beside the sending, where the last reading is old.
func (d *Dispatcher) refreshStale(ctx context.Context, k budgetKey) {
	d.asking.mu.Lock()
	every, known := d.asking.every[k.domain]
	d.asking.mu.Unlock()
	if !known {
		every = d.askEvery(ctx, k.domain)
		d.asking.mu.Lock()
		if d.asking.every == nil || len(d.asking.every) > 10_000 {
			d.asking.every = map[string]time.Duration{}
		}
		d.asking.every[k.domain] = every
		d.asking.mu.Unlock()
	}
	if every <= 0 || !d.asking.stale.due(k.domain, every, time.Now()) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		org, err := d.q.DomainAnyOrg(ctx, d.Pool, &k.domain)
		if err == nil {
			_, err = d.Refresh(ctx, org, k.domain)
		}
		if err != nil {
			d.opts.Log.Warn("read the provider's counters", "domain", k.domain, "error", err)
		}
	}()
}

// asking holds how often the counters of an account are asked for, and when they last were.
type asking struct {
	mu    sync.Mutex
	every map[string]time.Duration
	stale stale
}

func (d *Dispatcher) askEvery(ctx context.Context, domain string) time.Duration {
	row, err := d.q.DomainGet(ctx, d.Pool, domain)
	if err != nil {
		return 0
	}
	p, ok := d.Catalog.Platform(row.PlatformID)
	if !ok || p.Account == nil || p.Account.Counters == nil {
		return 0
	}
	return time.Duration(max(p.Account.Counters.EverySeconds, 1)) * time.Second
}

package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/due"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
	"flowlane/internal/quota"
)

// Refresh reads the limits and counters of an account from its provider and takes them over: limits replace the
// catalog's caps, counters clamp the ledger up. It answers how many counters were read. Faults: 404 for an account that
// the organization does not know, 409 where it has no usable credential of it; 503 where the provider does not answer.
func (d *Dispatcher) Refresh(ctx context.Context, orgID uuid.UUID, tenancyID string) (int, error) {
	ctx = pg.AsWorker(ctx) // what an account spends is everybody's who uses it
	r, err := d.read(ctx, orgID, tenancyID)
	if err != nil {
		return 0, err
	}
	// Each bucket was taken over in a transaction of its own, so this row has one too.
	return r.counters, account.Audit(ctx, d.Pool, "domain", tenancyID)
}

// reading is what came of one look at the provider's counters.
type reading struct {
	counters int
	// asOf is the time up to which the counters count at least, until that up to which at most; from and to are between
	// which times by the provider's clock it read them.
	asOf, until, from, to time.Time
	// young: calls of ours may be missing in it; scarce: a bucket is nearly spent.
	young, scarce bool
	// partial: it counts a part of what the account spent.
	partial bool
	// every is how often to look while calls go out, mature how old a call must be that a reading holds for certain.
	every, mature time.Duration
}

// asker is a credential of an organization by which the provider of an account can be asked.
func (d *Dispatcher) asker(ctx context.Context, orgID uuid.UUID, tenancyID string) (*credential.Resolved, error) {
	id, err := d.q.DomainCredential(ctx, d.Pool, db.DomainCredentialParams{TenancyID: &tenancyID, OrgID: orgID})
	if pg.IsNoRows(err) {
		if _, err := d.account(ctx, d.Pool, orgID, tenancyID); err != nil {
			return nil, err
		}
		return nil, fault.New(fault.Conflict,
			"Domain has no active credential to ask the provider with: create one, or set the status of one to active")
	}
	if err != nil {
		return nil, fmt.Errorf("find a credential of %s: %w", tenancyID, err)
	}
	return d.Credentials.Resolve(ctx, orgID, id) //nolint:wrapcheck // says everything
}

func (d *Dispatcher) read(ctx context.Context, orgID uuid.UUID, tenancyID string) (r reading, err error) {
	domain, err := d.q.DomainGet(ctx, d.Pool, tenancyID)
	if pg.IsNoRows(err) {
		return r, fault.Missing("Domain")
	}
	if err != nil {
		return r, fmt.Errorf("read domain %s: %w", tenancyID, err)
	}
	platform, ok := d.Catalog.Platform(domain.PlatformID)
	if !ok || platform.Account == nil || platform.Account.Counters == nil {
		return r, nil // a platform that does not tell: the catalog's caps stand
	}
	r.every, r.mature = time.Duration(max(platform.Account.Counters.EverySeconds, 1))*time.Second,
		Mature(platform.Account)
	cred, err := d.asker(ctx, orgID, tenancyID)
	if err != nil {
		return r, err
	}
	svc := platform.Services[0]
	asked, err := d.clock(ctx, d.Pool)
	if err != nil {
		return r, err
	}
	r.partial = platform.Account.Counters.Partial
	began := time.Now()
	counters, asOf, err := d.askCounters(ctx, &domain, platform, cred)
	took := time.Since(began)
	if errors.Is(err, errBusy) {
		return r, fault.New(fault.Unavailable,
			"The account takes no further call now, so its limits were not read; try again in some seconds").Because(
			err)
	}
	if spends := platform.Account.Counters.Spends; spends != "" {
		q := credential.Question{OrgID: orgID, TenancyID: tenancyID, TimeZone: domain.TimeZone,
			Service: platform.ServiceOf(spends), Bucket: spends}
		if err := d.note(ctx, q, took, err); err != nil {
			return r, err
		}
	}
	class, details := provider.Explain(err)
	d.used(ctx, credential.Use{OrgID: orgID, CredentialID: cred.ID, ServiceID: svc.ID, At: time.Now(), Failure: class})
	if err != nil {
		return r, fault.New(fault.Unavailable, "The provider did not tell its limits (%s): %s", class,
			details).Because(err)
	}
	if err := d.q.DomainAnswered(ctx, d.Pool, db.DomainAnsweredParams{AnsweredIn: took.Seconds(),
		TenancyID: tenancyID}); err != nil {
		return r, fmt.Errorf("note how long the provider of %s took: %w", tenancyID, err)
	}
	r.counters, r.asOf, r.until, r.from, r.to = len(counters), asOf, asOf, asOf, asOf
	// the provider does not say; its reading is no older than the question, and no younger than the answer
	if asOf.IsZero() {
		answered, err := d.clock(ctx, d.Pool)
		if err != nil {
			return r, err
		}
		skew := time.Duration(platform.Account.ClockSkewSeconds) * time.Second
		r.asOf, r.until, r.from, r.to = asked, answered, asked.Add(-skew), answered.Add(skew)
	}
	return r, d.takeOver(ctx, &domain, platform, counters, &r)
}

// takeOver writes what the provider counted, and notes in r what calls of ours may be missing in that, and what is
// nearly spent.
func (d *Dispatcher) takeOver(ctx context.Context, domain *db.FlowDomain, p *catalog.Platform,
	counters []provider.Counter, r *reading) error {
	if err := d.alignAll(ctx, domain.TenancyID); err != nil {
		return err
	}
	byBucket := map[string][]provider.Counter{}
	for _, c := range counters {
		byBucket[c.Bucket] = append(byBucket[c.Bucket], c)
	}
	for _, bucket := range slices.Sorted(maps.Keys(byBucket)) {
		svc := p.ServiceOf(bucket)
		if svc == nil {
			continue
		}
		err := pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
			return d.takeOverBucket(ctx, tx, domain, p, svc, byBucket[bucket], r)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Dispatcher) takeOverBucket(ctx context.Context, tx pgx.Tx, domain *db.FlowDomain, p *catalog.Platform,
	svc *catalog.Service,
	counters []provider.Counter, r *reading,
) error {
	k := budgetKey{domain.TenancyID, counters[0].Bucket}
	m, _, err := d.lockMeter(ctx, tx, domain.TimeZone, svc, k)
	if err != nil {
		return err
	}
	recent, young, err := m.recent(ctx, tx, r.asOf.Add(-Mature(p.Account)))
	if err != nil {
		return err
	}
	freed, scarce := false, false
	for _, c := range counters {
		if svc.RateBuckets[k.bucket].Rolls(c.WindowSeconds) {
			if err := d.observeRolling(ctx, tx, m, c, recent); err != nil {
				return err
			}
			continue
		}
		if _, _, ok := quota.Counted(r.from, r.to, c.WindowSeconds, m.loc); !ok {
			young = true // the next one can tell
			continue
		}
		less, near, err := d.observeWindow(ctx, tx, m, c, r, recent)
		if err != nil {
			return err
		}
		freed, scarce = freed || less, scarce || near
	}
	r.young, r.scarce = r.young || young, r.scarce || young && scarce
	if !freed {
		return nil
	}
	return d.wakeWaiting(ctx, tx, k.domain, svc.Lines(k.bucket)) // work may wait for a window to end that has room now
}

// recent counts, by window, our calls that a reading up to since may not hold: those that went or were answered since,
// and those of which nobody knows whether they arrived. young tells that a later reading will hold some of them.
func (m *meter) recent(ctx context.Context, tx pgx.Tx, since time.Time) (out map[[2]int64]int, young bool, err error) {
	rows, err := db.New().CallsSince(ctx, tx, db.CallsSinceParams{Domain: m.key.domain,
		Lines: m.svc.Lines(m.key.bucket), Since: since, OfBucket: m.key.bucket,
		Oldest: since.Add(-quota.LongestWindow)})
	if err != nil {
		return nil, false, fmt.Errorf("read recent calls of %s: %w", m.key, err)
	}
	out = map[[2]int64]int{}
	for _, r := range rows {
		in, err := quota.DecodeCounts(r.CountsIn)
		if err != nil {
			return nil, false, err
		}
		for w, starts := range in {
			if cmp.Or(w.Bucket, r.Bucket) != m.key.bucket {
				continue
			}
			young = young || r.Young
			if w.Rolls { // whatever their cells are
				out[[2]int64{int64(w.Seconds), rollingRecent}] += int(r.Calls)
				continue
			}
			for _, start := range starts {
				out[[2]int64{int64(w.Seconds), start}] += int(r.Calls)
			}
		}
	}
	return out, young, nil
}

// rollingRecent stands for the start of a rolling window in what recent returns.
const rollingRecent = -1

// putLimit keeps a limit that the provider told.
func (d *Dispatcher) putLimit(ctx context.Context, conn db.DBTX, m *meter, c provider.Counter) error {
	if c.Limit <= 0 {
		return nil
	}
	err := d.q.DomainLimitPut(ctx, conn, db.DomainLimitPutParams{TenancyID: m.key.domain, Bucket: m.key.bucket,
		WindowSeconds: int32(c.WindowSeconds), Cap: int32(c.Limit)})
	if err != nil {
		return fmt.Errorf("write a limit of %s: %w", m.key, err)
	}
	return nil
}

// observeRolling takes over one counter of a rolling window: what it holds beyond our own calls that it surely has was
// spent by others, who knows when; it counts for the whole length from now on.
func (d *Dispatcher) observeRolling(ctx context.Context, tx pgx.Tx, m *meter, c provider.Counter,
	recent map[[2]int64]int) error {
	if err := d.putLimit(ctx, tx, m, c); err != nil {
		return err
	}
	now, err := d.clock(ctx, tx)
	if err != nil {
		return err
	}
	rolling, err := m.rolling(ctx, tx, now, now)
	if err != nil {
		return err
	}
	for i := range rolling {
		w := &rolling[i]
		if w.Seconds != c.WindowSeconds {
			continue
		}
		foreign := quota.Foreign(c.Value, w.Own, recent[[2]int64{int64(w.Seconds), rollingRecent}])
		if foreign > w.Foreign {
			return m.addRolling(ctx, tx, rolling[i:i+1], 0, foreign-w.Foreign)
		}
	}
	return nil
}

// observeWindow takes over one counter; freed tells that others spent less than was thought, scarce that the window is
// nearly spent.
func (d *Dispatcher) observeWindow(ctx context.Context, tx pgx.Tx, m *meter, c provider.Counter, read *reading,
	recent map[[2]int64]int) (freed, scarce bool, err error) {
	if err := d.putLimit(ctx, tx, m, c); err != nil {
		return false, false, err
	}
	start, end, _ := quota.Counted(read.from, read.to, c.WindowSeconds, m.loc)
	rows, err := d.q.LedgerRead(ctx, tx, db.LedgerReadParams{Domain: m.key.domain, Bucket: m.key.bucket, Since: start})
	if err != nil {
		return false, false, fmt.Errorf("read the ledger of %s: %w", m.key, err)
	}
	row := cmp.Or(ledgerRow(rows, c.WindowSeconds, start), &db.FlowLedger{})
	if quota.Outdated(pg.Value(row.ObservedAt), read.asOf) {
		return false, false, nil
	}
	young := recent[[2]int64{int64(c.WindowSeconds), start.Unix()}]
	compare := quota.Compare
	if read.partial {
		compare = quota.ComparePart
	}
	r := compare(&quota.Window{Own: int(row.Own), Foreign: int(row.ForeignSpend), Unsure: int(row.Unsure)}, c.Value,
		young)
	observed, drift := int32(c.Value), int32(r.Drift)
	effective, limited := m.caps.Aligned[c.WindowSeconds]
	var limit *int32
	if limited {
		most := int32(effective)
		limit = &most
	}
	worst := quota.Worse(row.AlarmDrift, r.Drift, effective)
	if row.AlarmDrift == nil && worst != nil {
		d.opts.Log.Warn("the provider's counter and the ledger differ beyond the tolerance", "domain", m.key.domain,
			"bucket", m.key.bucket,
			"window", c.WindowSeconds, "starts_at", start, "observed", observed, "used", row.Own+row.ForeignSpend,
			"drift", drift, "cap", effective)
	}
	err = d.q.LedgerObserve(ctx, tx, db.LedgerObserveParams{Domain: m.key.domain, Bucket: m.key.bucket,
		WindowSeconds: int32(c.WindowSeconds), StartsAt: start, EndsAt: end,
		ForeignSpend: int32(r.Foreign), Unsure: int32(r.Unsure), Observed: &observed, ObservedAt: &read.until,
		Cap: limit, Drift: &drift, AlarmDrift: worst})
	if err != nil {
		return false, false, fmt.Errorf("observe %s: %w", m.key, err)
	}
	scarce = limited && quota.Escalated([]quota.Window{{Cap: effective, Own: int(row.Own), Foreign: r.Foreign}})
	return r.Freed, scarce, nil
}

// refreshCounters reads the counters of an account before something is sent. That it fails stops nobody: the ledger
// goes on counting our own calls, and the provider refuses what is too much.
func (d *Dispatcher) refreshCounters(ctx context.Context, domain string) {
	bounded, cancel := context.WithTimeout(ctx, d.opts.LookFor)
	defer cancel()
	// a process that stops gives the reading up
	if err := d.tryRefresh(bounded, domain); err != nil && ctx.Err() == nil {
		d.opts.Log.Warn("read the provider's counters", "domain", domain, "error", err)
	}
}

func (d *Dispatcher) tryRefresh(ctx context.Context, domain string) error {
	now, err := d.clock(ctx, d.Pool)
	if err != nil {
		return err
	}
	org, err := d.q.DomainAnyOrg(ctx, d.Pool, &domain)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it was for
	}
	r, err := d.read(ctx, org, domain)
	if err != nil {
		return err
	}
	d.refreshed.Store(domain, now)
	if !r.young {
		return nil
	}
	// Another reading can hold the calls that this one could not.
	return pg.InTx(ctx, d.Pool, func(ctx context.Context, tx pgx.Tx) error {
		return d.Due.Wake(ctx, tx, DueCounters, domain, now.Add(quota.NextReading(true, r.scarce, true, r.every,
			r.mature)))
	})
}

// LookFor bounds how long a pass waits for the provider's counters.
const LookFor = 3 * time.Second

// throttle remembers when something was last done for an account in this process.
type throttle struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// throttleMax bounds the accounts that are remembered.
const throttleMax = 10_000

func (t *throttle) due(domain string, every time.Duration, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.last[domain]) < every {
		return false
	}
	if t.last == nil || len(t.last) > throttleMax {
		t.last = map[string]time.Time{}
	}
	t.last[domain] = now
	return true
}

// within reports whether due came true of a name less than a time ago.
func (t *throttle) within(name string, d time.Duration, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Sub(t.last[name]) < d
}

// Counters is the handler of due rows of kind DueCounters. It comes back while calls go out, and while a window is open
// in which we spent. Until a reading can hold all of our calls, the account's use is put too high rather than too low.
// Before all it has budgets follow a time zone that the account told later.
func (d *Dispatcher) Counters(ctx context.Context, lease *due.Lease) (next time.Time, err error) {
	if err := d.alignAll(ctx, lease.Key); err != nil {
		return time.Time{}, err
	}
	org, err := d.q.DomainAnyOrg(ctx, d.Pool, &lease.Key)
	if pg.IsNoRows(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("find a credential of %s: %w", lease.Key, err)
	}
	answered := lease.Waiting() // however many providers do not answer, others are asked
	r, err := d.read(ctx, org, lease.Key)
	answered()
	if err != nil && (ctx.Err() != nil || r.every == 0) {
		return time.Time{}, err
	}
	if err != nil { // the next one comes in time, as long as it matters
		d.opts.Log.Warn("read the provider's counters", "domain", lease.Key, "error", err)
		r.young = true
	}
	now, err := d.clock(ctx, d.Pool)
	if err != nil {
		return time.Time{}, err
	}
	open, err := d.q.LedgerIsOpen(ctx, d.Pool, lease.Key)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the ledger of %s: %w", lease.Key, err)
	}
	pause := quota.NextReading(r.young, r.scarce, open, r.every, r.mature)
	if pause == 0 || !open {
		return time.Time{}, nil
	}
	return now.Add(pause), nil
}

// Package forecast answers what rate budgets have left and what work would cost. It only reads, at the moment of the
// question, and reserves nothing. Its rules about windows and caps are the dispatcher's own functions, so that both say
// the same. It knows no HTTP, and of providers only what the catalog says.
package forecast

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"flowlane/gen/db"
	"flowlane/internal/definition"
	"flowlane/internal/dispatch"
	"flowlane/internal/fault"
	"flowlane/internal/moment"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/tenant"
	"flowlane/internal/quota"
)

// Planner returns the compiled plan of a definition's version.
type Planner interface {
	Plan(ctx context.Context, db db.DBTX, orgID, definitionID uuid.UUID, version int32) (*definition.Plan, error)
}

// Service answers the questions.
type Service struct {
	pool    *pgxpool.Pool
	catalog *catalog.Catalog
	plans   Planner
	q       *db.Queries
}

// New returns a Service.
func New(pool *pgxpool.Pool, cat *catalog.Catalog, plans Planner) *Service {
	return &Service{pool: pool, catalog: cat, plans: plans, q: db.New()}
}

// of returns the service as it answers an organization: with the platforms that it imported. Who needs only what ids
// name says so.
func (s *Service) of(ctx context.Context, orgID uuid.UUID, ids ...string) (*Service, error) {
	own := *s
	var err error
	if own.catalog, err = s.catalog.Of(ctx, orgID, ids...); err != nil {
		return nil, fmt.Errorf("read the catalog of an organization: %w", err)
	}
	return &own, nil
}

// Domain is a provider account that an organization knows, or a credential that it limits, of a platform that tells no
// accounts.
type Domain struct {
	db.FlowDomain
	// Label is how the account is shown to people.
	Label string
	// Buckets are the names of its rate budgets.
	Buckets       []string
	CredentialIDs []uuid.UUID
	// limits are those that the organization has set; nil for none.
	limits *catalog.Limits
	// LimitsReadAt is when the provider's limits were last read; nil if never.
	LimitsReadAt *time.Time
}

// Place is where a page of Domains begins: after the one with this time and id.
type Place struct {
	CreatedAt time.Time
	ID        string
}

// metered are the platforms whose accounts have budgets.
func (s *Service) metered() []string {
	out := []string{}
	for _, p := range s.catalog.Platforms() {
		if p.Metered() {
			out = append(out, p.ID)
		}
	}
	return out
}

// Domains lists those of a platform that an organization knows in the order in which they became known, and says how
// many there are on all pages.
func (s *Service) Domains(ctx context.Context, orgID uuid.UUID, platformID string, after Place,
	skip, maxRows int32) ([]Domain, int64, error) {
	s, err := s.of(ctx, orgID)
	if err != nil {
		return nil, 0, err
	}
	metered := s.metered()
	rows, err := s.q.DomainList(ctx, s.pool, db.DomainListParams{OrgID: orgID, PlatformID: &platformID,
		Metered: metered, AfterCreatedAt: after.CreatedAt, AfterID: after.ID, SkipRows: skip, MaxRows: maxRows})
	if err != nil {
		return nil, 0, fmt.Errorf("list domains: %w", err)
	}
	total, err := s.q.DomainTotal(ctx, s.pool, db.DomainTotalParams{OrgID: orgID, PlatformID: platformID,
		Metered: metered})
	if err != nil {
		return nil, 0, fmt.Errorf("count domains: %w", err)
	}
	out := make([]Domain, len(rows))
	for i := range rows {
		if out[i], err = s.domainOf(&rows[i]); err != nil {
			return nil, 0, err
		}
	}
	return out, total, nil
}

// Domain reads one. Fault: NotFound, also where the organization does not know it.
func (s *Service) Domain(ctx context.Context, orgID uuid.UUID, tenancyID string) (Domain, error) {
	s, err := s.of(ctx, orgID)
	if err != nil {
		return Domain{}, err
	}
	return s.domain(ctx, s.pool, orgID, tenancyID)
}

func (s *Service) domain(ctx context.Context, conn db.DBTX, orgID uuid.UUID, tenancyID string) (Domain, error) {
	rows, err := s.q.DomainList(ctx, conn, db.DomainListParams{OrgID: orgID, Metered: s.metered(),
		TenancyID: &tenancyID, MaxRows: 1})
	if err != nil {
		return Domain{}, fmt.Errorf("read domain %s: %w", tenancyID, err)
	}
	if len(rows) == 0 {
		return Domain{}, fault.Missing("Domain")
	}
	return s.domainOf(&rows[0])
}

func (s *Service) domainOf(r *db.DomainListRow) (d Domain, err error) {
	d = Domain{FlowDomain: r.FlowDomain, CredentialIDs: r.CredentialIds, Buckets: []string{}}
	number := ""
	if r.FlowDomain.AccountNumber != nil {
		number = *r.FlowDomain.AccountNumber
	}
	// Of an account that others use, too, an organization sees when it came to know it, and its own name for it.
	d.CreatedAt = r.KnownAt
	if d.Label = r.Label; d.Label == "" {
		d.Label = tenant.Label(r.FlowDomain.AccountName, number)
	}
	if !r.LimitsReadAt.IsZero() {
		d.LimitsReadAt = &r.LimitsReadAt
	}
	if d.limits, err = catalog.ParseLimits(r.Limits); err != nil {
		return d, err //nolint:wrapcheck // says everything
	}
	for _, b := range s.buckets(&d) {
		d.Buckets = append(d.Buckets, b.name)
	}
	return d, nil
}

// bucket is a rate budget of a Domain.
type bucket struct {
	name string
	*catalog.RateBucket
}

func (s *Service) buckets(d *Domain) []bucket {
	var out []bucket
	if p, ok := s.catalog.Platform(d.PlatformID); ok {
		for _, b := range p.Budgets(d.limits) {
			out = append(out, bucket{b.Name, b.RateBucket})
		}
	}
	return out
}

// spends are the buckets of a Domain that the calls of a task spend.
func (d *Domain) spends(t *definition.Task) []string {
	if len(t.Action.Buckets) == 0 && d.limits != nil && t.CredentialID.Valid && slices.Contains(d.CredentialIDs,
		t.CredentialID.UUID) {
		return []string{t.Action.OwnerBudget()}
	}
	return t.Action.Buckets
}

// spend is what the ledger says of an account at one time.
type spend struct {
	now  time.Time
	loc  *time.Location
	skew time.Duration
	// young is how long a call may be missing in the provider's counters; zero where there are none.
	young time.Duration
	rows  []ledgerRow
	// rolling are the cells of rolling windows that count.
	rolling []db.RollingOpenRow
}

func (s *Service) spend(ctx context.Context, conn db.DBTX, d *Domain) (*spend, error) {
	out, err := s.moment(ctx, conn, d)
	if err != nil {
		return nil, err
	}
	return out, s.ledger(ctx, conn, d, out)
}

// moment is a spend of which the time is known, and the ledger is not read yet.
func (s *Service) moment(ctx context.Context, conn db.DBTX, d *Domain) (*spend, error) {
	out := &spend{}
	var err error
	if out.loc, err = time.LoadLocation(d.TimeZone); err != nil {
		return nil, fmt.Errorf("time zone of %s: %w", d.TenancyID, err)
	}
	if out.now, err = s.q.Clock(ctx, conn); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	if p, ok := s.catalog.Platform(d.PlatformID); ok && p.Account != nil {
		out.skew = time.Duration(p.Account.ClockSkewSeconds) * time.Second
		if p.Account.Counters != nil {
			out.young = dispatch.Mature(p.Account)
		}
	}
	return out, nil
}

func (s *Service) ledger(ctx context.Context, conn db.DBTX, d *Domain, out *spend) error {
	in := db.LedgerOpenParams{Domain: d.TenancyID, Buckets: []string{}, Now: out.now.Add(-out.skew)}
	for _, b := range s.buckets(d) {
		in.Buckets = append(in.Buckets, b.name)
	}
	rows, err := s.q.LedgerOpen(ctx, conn, in)
	if err != nil {
		return fmt.Errorf("read the ledger of %s: %w", d.TenancyID, err)
	}
	if out.rolling, err = s.q.RollingOpen(ctx, conn, db.RollingOpenParams{Domain: d.TenancyID,
		Now: out.now}); err != nil {
		return fmt.Errorf("read the rolling windows of %s: %w", d.TenancyID, err)
	}
	out.rows, err = ledgerRows(rows)
	return err
}

// current returns the windows of a bucket that are open now, those that it has caps for, in ascending length.
func (s *spend) current(bucket string, caps quota.Caps) []quota.Window {
	out := append(s.spans(bucket, caps.Aligned, s.now, s.now), s.rolls(bucket, caps)...)
	slices.SortFunc(out, func(a, b quota.Window) int { return a.Seconds - b.Seconds })
	return out
}

// rolls returns the rolling windows of a bucket as they are now.
func (s *spend) rolls(bucket string, caps quota.Caps) (out []quota.Window) {
	for _, seconds := range quota.Lengths(caps.Rolling) {
		cells := map[string][]quota.Cell{bucket: nil}
		for _, r := range s.rolling {
			if dispatch.BucketOf(r.Bucket) == bucket && int(r.WindowSeconds) == seconds {
				cells[r.Bucket] = append(cells[r.Bucket], quota.Cell{No: r.Cell, Own: int(r.Own),
					Foreign: int(r.ForeignSpend)})
			}
		}
		// Of a bucket that has a budget each for a part of the account, the fullest tells: no call finds less room.
		var fullest *quota.Window
		for _, name := range slices.Sorted(maps.Keys(cells)) {
			if w := quota.Roll(seconds, caps.Rolling[seconds], cells[name], s.now, s.now); fullest == nil ||
				w.Used() > fullest.Used() {
				fullest = &w
			}
		}
		out = append(out, *fullest)
	}
	return out
}

// rolledOff is when nothing counts any more of what counts now in a rolling window of a bucket.
func (s *spend) rolledOff(bucket string, seconds int) (at time.Time) {
	for _, r := range s.rolling {
		if dispatch.BucketOf(r.Bucket) == bucket && int(r.WindowSeconds) == seconds && r.Own+r.ForeignSpend > 0 {
			at = moment.Later(at, quota.CellOver(r.Cell, seconds))
		}
	}
	return at
}

// touched returns every window in which a call may count that is sent now.
func (s *spend) touched(bucket string, caps quota.Caps) []quota.Window {
	return append(s.spans(bucket, caps.Aligned, s.now.Add(-s.skew), s.now.Add(s.skew)), s.rolls(bucket, caps)...)
}

func (s *spend) spans(bucket string, caps map[int]int, from, to time.Time) []quota.Window {
	var out []quota.Window
	for _, seconds := range quota.Lengths(caps) {
		limit := caps[seconds]
		for _, w := range quota.WindowsTouched(from, to, seconds, s.loc) {
			w.Cap, w.Lag = limit, s.skew
			for _, r := range s.rows {
				if r.Bucket == bucket && int(r.WindowSeconds) == seconds && r.StartsAt.Equal(w.Start) {
					w.Own, w.Foreign, w.Unsure = int(r.Own), int(r.ForeignSpend), int(r.Unsure)
				}
			}
			out = append(out, w)
		}
	}
	return out
}

// used is what is spent of a window.
func (s *spend) used(bucket string, seconds int, start time.Time) int {
	for i := range s.rows {
		if r := &s.rows[i]; r.Bucket == bucket && int(r.WindowSeconds) == seconds && r.StartsAt.Equal(start) {
			return int(r.Own) + int(r.ForeignSpend)
		}
	}
	return 0
}

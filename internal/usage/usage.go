// Package usage owns the figures of an organization: what it used in a time, and how its batches fare. It promises that
// they are those of the rows, not samples, that they stay when batches are deleted, and that what they cost grows with
// the hours that are asked about and the batches of the last few: older ones are in sums by the hour (flow.rollup),
// calls in sums by the day (flow.usage), which the claim of calls keeps. It must not know HTTP, or how calls are sent.
package usage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
)

// Service reads the figures.
type Service struct {
	pool    pg.DB
	catalog *catalog.Catalog
	q       *db.Queries
}

// New returns a service on a database, which may be a replica, and a catalog.
func New(pool pg.DB, cat *catalog.Catalog) *Service {
	return &Service{pool: pool, catalog: cat, q: db.New()}
}

// What usage is grouped by.
const (
	ByDay        = "day"
	ByDefinition = "definition"
	ByCredential = "credential"
	ByAction     = "action"
)

const (
	// day is a day in UTC; leap seconds are smeared.
	day = 24 * time.Hour
	// usualDays is how many days are shown unless the caller says, maxDays the most.
	usualDays, maxDays = 30, 366
	// maxItems bounds an answer.
	maxItems = 1000
)

// Request says what usage is asked for. From and To are days (midnight UTC), both included; nil To is today, nil From
// 29 days before To.
type Request struct {
	From, To *time.Time
	GroupBy  string
}

// Figures are what was used.
type Figures struct {
	// Batches were started in the time, Jobs are their records.
	Batches, Jobs int64
	// Calls were made in the time, repeats and lookups included. Records are what they carried, each as often as it was
	// sent.
	Calls, Records int64
}

// Item is what one day, definition, credential or action used.
type Item struct {
	// Key is the day as 2006-01-02, or an id; empty for calls that belong to none.
	Key string
	// Name is that of the thing; empty for days, and where it is gone.
	Name string
	Figures
}

// Usage is what an organization used. Items are days in their order, else those with the most calls first.
type Usage struct {
	From, To time.Time
	Totals   Figures
	Items    []Item
	// Omitted is how many items there were no room for.
	Omitted int
}

// Usage sums up what was used. Fault: Unprocessable for a time that ends before it begins, or is too long.
func (s *Service) Usage(ctx context.Context, orgID uuid.UUID, r Request) (*Usage, error) {
	now, err := s.q.ClockNow(ctx, s.pool)
	if err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	from, to, err := r.days(now)
	if err != nil {
		return nil, err
	}
	items := map[string]*Item{}
	if r.GroupBy == ByDay {
		for d := from; !d.After(to); d = d.Add(day) {
			at(items, d.Format(time.DateOnly))
		}
	}
	u := &Usage{From: from, To: to}
	if err := s.calls(ctx, orgID, r.GroupBy, u, items); err != nil {
		return nil, err
	}
	if err := s.batches(ctx, orgID, r.GroupBy, u, items); err != nil {
		return nil, err
	}
	return u, s.list(ctx, orgID, r.GroupBy, u, items)
}

// days are the first and the last day.
func (r *Request) days(now time.Time) (from, to time.Time, err error) {
	to = now.UTC().Truncate(day)
	if r.To != nil {
		to = *r.To
	}
	from = to.Add(-(usualDays - 1) * day)
	if r.From != nil {
		from = *r.From
	}
	if from.After(to) {
		return from, to, fault.Value([]string{"query", "from"}, "Must not be after the last day, %s",
			to.Format(time.DateOnly))
	}
	if to.Sub(from) >= maxDays*day {
		return from, to, fault.Value([]string{"query", "from"}, "Must be at most %d days before the last day, %s",
			maxDays-1, to.Format(time.DateOnly))
	}
	return from, to, nil
}

// none is how the database writes no definition, no credential.
var none = uuid.Nil.String()

func at(items map[string]*Item, key string) *Item {
	if key == none {
		key = ""
	}
	if items[key] == nil {
		items[key] = &Item{Key: key}
	}
	return items[key]
}

func (s *Service) calls(ctx context.Context, orgID uuid.UUID, groupBy string, u *Usage, items map[string]*Item) error {
	date := func(t time.Time) pgtype.Date { return pgtype.Date{Time: t, Valid: true} }
	rows, err := s.q.UsageCalls(ctx, pg.CustomPlan{Pool: s.pool}, db.UsageCallsParams{GroupBy: groupBy, OrgID: orgID,
		FromDay: date(u.From), ToDay: date(u.To)})
	if err != nil {
		return fmt.Errorf("sum up calls: %w", err)
	}
	for _, r := range rows {
		i := at(items, r.Key)
		i.Calls, i.Records = r.Calls, r.Records
		u.Totals.Calls += r.Calls
		u.Totals.Records += r.Records
	}
	return nil
}

func (s *Service) batches(ctx context.Context, orgID uuid.UUID, groupBy string, u *Usage,
	items map[string]*Item) error {
	end := u.To.Add(day)
	by := groupBy
	if groupBy == ByCredential || groupBy == ByAction {
		by = ByDay // for the totals: a batch may use several of them
		rows, err := s.q.UsageBatchesByTask(ctx, pg.CustomPlan{Pool: s.pool}, db.UsageBatchesByTaskParams{
			GroupBy: groupBy, OrgID: orgID, FromTime: u.From, ToTime: end})
		if err != nil {
			return fmt.Errorf("sum up batches by %s: %w", groupBy, err)
		}
		for _, r := range rows {
			i := at(items, r.Key)
			i.Batches, i.Jobs = r.Batches, r.Jobs
		}
	}
	rows, err := s.q.UsageBatches(ctx, pg.CustomPlan{Pool: s.pool}, db.UsageBatchesParams{GroupBy: by, OrgID: orgID,
		FromTime: u.From, ToTime: end})
	if err != nil {
		return fmt.Errorf("sum up batches: %w", err)
	}
	for _, r := range rows {
		u.Totals.Batches += r.Batches
		u.Totals.Jobs += r.Jobs
		if by == groupBy {
			i := at(items, r.Key)
			i.Batches, i.Jobs = r.Batches, r.Jobs
		}
	}
	return nil
}

// list orders the items, keeps as many as there is room for, and names them.
func (s *Service) list(ctx context.Context, orgID uuid.UUID, groupBy string, u *Usage, items map[string]*Item) error {
	u.Items = make([]Item, 0, len(items))
	for _, i := range items {
		u.Items = append(u.Items, *i)
	}
	slices.SortFunc(u.Items, func(a, b Item) int {
		if groupBy == ByDay {
			return strings.Compare(a.Key, b.Key)
		}
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(b.Jobs, a.Jobs), strings.Compare(a.Key, b.Key))
	})
	if len(u.Items) > maxItems {
		u.Items, u.Omitted = u.Items[:maxItems], len(u.Items)-maxItems
	}
	names, err := s.names(ctx, orgID, groupBy, u.Items)
	if err != nil {
		return err
	}
	for i := range u.Items {
		u.Items[i].Name = names[u.Items[i].Key]
	}
	return nil
}

// names are those of the things that are still there, by key.
func (s *Service) names(ctx context.Context, orgID uuid.UUID, groupBy string, items []Item) (map[string]string, error) {
	names := map[string]string{}
	var ids []uuid.UUID
	for _, i := range items {
		if groupBy == ByAction {
			cat, err := s.catalog.Of(ctx, orgID, i.Key)
			if err != nil {
				return nil, err //nolint:wrapcheck // says everything
			}
			if a, ok := cat.Action(i.Key); ok {
				names[i.Key] = a.Name
			}
		}
		if id, err := uuid.Parse(i.Key); err == nil {
			ids = append(ids, id)
		}
	}
	switch groupBy {
	case ByDefinition:
		rows, err := s.q.UsageDefinitionNames(ctx, s.pool, db.UsageDefinitionNamesParams{OrgID: orgID, Ids: ids})
		if err != nil {
			return nil, fmt.Errorf("read the names of definitions: %w", err)
		}
		for _, r := range rows {
			names[r.ID.String()] = r.Name
		}
	case ByCredential:
		rows, err := s.q.UsageCredentialNames(ctx, s.pool, db.UsageCredentialNamesParams{OrgID: orgID, Ids: ids})
		if err != nil {
			return nil, fmt.Errorf("read the names of credentials: %w", err)
		}
		for _, r := range rows {
			names[r.ID.String()] = r.Name
		}
	}
	return names, nil
}

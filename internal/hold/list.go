package hold

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// Place is where a page of holds begins: behind the one with this time, of the kind that the list is sorted by, and id.
type Place struct {
	At time.Time
	ID uuid.UUID
}

// Filter says which holds a list shows, and in which order.
type Filter struct {
	// Scope, and the Domain of holds of scope domain, lane and bucket; nil for any.
	Scope     *Scope
	TenancyID *string
	// Released shows holds that are over, too.
	Released bool
	// ByEnd sorts by when they end, else by when they were opened.
	ByEnd, Descending bool
	After             *Place
	Skip, MaxRows     int32
}

// Place is where the page after a hold begins.
func (f *Filter) Place(h *Hold) Place {
	switch {
	case !f.ByEnd:
		return Place{h.CreatedAt, h.ID}
	case h.ExpiresAt == nil:
		return Place{never, h.ID}
	}
	return Place{*h.ExpiresAt, h.ID}
}

// never is when a hold ends that has no end, as flow.pause.ends_at has it.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// List returns the holds that an organization sees, its own and the automatic backoffs of the accounts that it knows,
// and how many there are on all pages.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, f Filter) ([]*Hold, int64, error) {
	now, err := s.q.Clock(ctx, s.pool)
	if err != nil {
		return nil, 0, fmt.Errorf("read the clock: %w", err)
	}
	in := db.HoldListParams{
		OrgID: orgID, Scope: (*string)(f.Scope), Domain: f.TenancyID, Released: f.Released, Now: now, ByEnd: f.ByEnd,
		Reach: f.Skip + f.MaxRows, SkipRows: f.Skip, MaxRows: f.MaxRows,
	}
	if f.After != nil {
		in.Behind, in.AfterAt, in.AfterID = true, f.After.At, f.After.ID
	}
	rows, err := s.page(ctx, in, f.Descending)
	if err != nil {
		return nil, 0, fmt.Errorf("list holds: %w", err)
	}
	total, err := s.q.HoldTotal(ctx, pg.CustomPlan{Pool: s.pool}, db.HoldTotalParams{OrgID: orgID, Scope: in.Scope,
		Domain: in.Domain, Released: in.Released, Now: now})
	if err != nil {
		return nil, 0, fmt.Errorf("count holds: %w", err)
	}
	holds, err := holdsOf(rows, now)
	return holds, total, err
}

func (s *Service) page(ctx context.Context, in db.HoldListParams, descending bool) (out []db.FlowPause, err error) {
	if descending {
		rows, err := s.q.HoldListDescending(ctx, pg.CustomPlan{Pool: s.pool}, db.HoldListDescendingParams(in))
		for i := range rows {
			out = append(out, rows[i].FlowPause)
		}
		return out, err
	}
	rows, err := s.q.HoldList(ctx, pg.CustomPlan{Pool: s.pool}, in)
	for i := range rows {
		out = append(out, rows[i].FlowPause)
	}
	return out, err
}

// OfBatch returns the newest holds that a batch has or had; none is from before it was made.
func (s *Service) OfBatch(ctx context.Context, orgID, batchID uuid.UUID, since time.Time) ([]*Hold, error) {
	now, err := s.q.Clock(ctx, s.pool)
	if err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	rows, err := s.q.HoldsOfBatch(ctx, s.pool, db.HoldsOfBatchParams{OrgID: &orgID, Since: since, BatchID: &batchID,
		Most: 100})
	if err != nil {
		return nil, fmt.Errorf("list the holds of batch %s: %w", batchID, err)
	}
	return holdsOf(rows, now)
}

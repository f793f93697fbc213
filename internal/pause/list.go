package pause

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// Place is where a page of pauses begins: behind the one with this time, of the kind that the list is sorted by, and
// id.
type Place struct {
	At time.Time
	ID uuid.UUID
}

// Filter says which pauses a list shows, and in which order.
type Filter struct {
	// Scope, and the Domain of pauses of scope domain, lane and bucket; nil for any.
	Scope     *Scope
	TenancyID *string
	// Released shows pauses that are over, too.
	Released bool
	// ByEnd sorts by when they end, else by when they were opened.
	ByEnd, Descending bool
	After             *Place
	Skip, MaxRows     int32
}

// Place is where the page after a pause begins.
func (f *Filter) Place(h *Pause) Place {
	switch {
	case !f.ByEnd:
		return Place{h.CreatedAt, h.ID}
	case h.ExpiresAt == nil:
		return Place{never, h.ID}
	}
	return Place{*h.ExpiresAt, h.ID}
}

// never is when a pause ends that has no end, as flow.pause.ends_at has it.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// List returns the pauses that an organization sees, its own and the automatic backoffs of the accounts that it knows,
// and how many there are on all pages.
func (s *Service) List(ctx context.Context, orgID uuid.UUID, f Filter) ([]*Pause, int64, error) {
	now, err := s.q.Clock(ctx, s.pool)
	if err != nil {
		return nil, 0, fmt.Errorf("read the clock: %w", err)
	}
	in := db.PauseListParams{
		OrgID: orgID, Scope: (*string)(f.Scope), Domain: f.TenancyID, Released: f.Released, Now: now, ByEnd: f.ByEnd,
		Reach: f.Skip + f.MaxRows, SkipRows: f.Skip, MaxRows: f.MaxRows,
	}
	if f.After != nil {
		in.Behind, in.AfterAt, in.AfterID = true, f.After.At, f.After.ID
	}
	rows, err := s.page(ctx, in, f.Descending)
	if err != nil {
		return nil, 0, fmt.Errorf("list pauses: %w", err)
	}
	total, err := s.q.PauseTotal(ctx, pg.CustomPlan{Pool: s.pool}, db.PauseTotalParams{OrgID: orgID, Scope: in.Scope,
		Domain: in.Domain, Released: in.Released, Now: now})
	if err != nil {
		return nil, 0, fmt.Errorf("count pauses: %w", err)
	}
	pauses, err := pausesOf(rows, now)
	return pauses, total, err
}

func (s *Service) page(ctx context.Context, in db.PauseListParams, descending bool) (out []db.FlowPause, err error) {
	if descending {
		rows, err := s.q.PauseListDescending(ctx, pg.CustomPlan{Pool: s.pool}, db.PauseListDescendingParams(in))
		for i := range rows {
			out = append(out, rows[i].FlowPause)
		}
		return out, err
	}
	rows, err := s.q.PauseList(ctx, pg.CustomPlan{Pool: s.pool}, in)
	for i := range rows {
		out = append(out, rows[i].FlowPause)
	}
	return out, err
}

// OfBatch returns the newest pauses that a batch has or had; none is from before it was made.
func (s *Service) OfBatch(ctx context.Context, orgID, batchID uuid.UUID, since time.Time) ([]*Pause, error) {
	now, err := s.q.Clock(ctx, s.pool)
	if err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	rows, err := s.q.PausesOfBatch(ctx, s.pool, db.PausesOfBatchParams{OrgID: &orgID, Since: since, BatchID: &batchID,
		Most: 100})
	if err != nil {
		return nil, fmt.Errorf("list the pauses of batch %s: %w", batchID, err)
	}
	return pausesOf(rows, now)
}

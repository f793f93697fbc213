package forecast

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/dispatch"
	"flowlane/internal/quota"
)

// historyKept is how long the windows of an account are remembered.
const historyKept = 30 * 24 * time.Hour

// Spent is one window of a budget in which something was spent, or counted by the provider.
type Spent struct {
	Bucket string
	// Seconds is the window's length.
	Seconds     int
	WindowStart time.Time
	// Used and Cap are units of the budget.
	Used, Cap int
	// Observed is what the provider counted last; nil where it was not asked.
	Observed *int
}

// Drift is how far the provider's count, where there is one, is above what is reckoned as used.
func (s *Spent) Drift() int { return *s.Observed - s.Used }

// HistoryFilter selects windows; nil takes all.
type HistoryFilter struct {
	Bucket *string
	// Window is a length in seconds.
	Window *int
}

// HistoryPlace is where a page of the history begins: after, which is before in time, this window. The zero one is the
// newest.
type HistoryPlace struct {
	WindowStart time.Time
	Bucket      string
	Seconds     int
}

// History lists the windows of an account, newest first; none for a bucket that it does not have. Fault: NotFound.
func (s *Service) History(ctx context.Context, orgID uuid.UUID, tenancyID string, f HistoryFilter, before HistoryPlace,
	maxRows int32) ([]Spent, error) {
	s, err := s.of(ctx, orgID)
	if err != nil {
		return nil, err
	}
	d, err := s.domain(ctx, s.pool, orgID, tenancyID)
	if err != nil {
		return nil, err
	}
	now, err := s.q.Clock(ctx, s.pool)
	if err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	if before.WindowStart.IsZero() {
		before = HistoryPlace{WindowStart: now.AddDate(1, 0, 0)}
	}
	p := db.LedgerHistoryParams{Domain: tenancyID, Since: now.Add(-historyKept), Bucket: f.Bucket,
		BeforeStartsAt: before.WindowStart,
		BeforeBucket:   before.Bucket, BeforeSeconds: int32(min(before.Seconds, math.MaxInt32)), MaxRows: maxRows}
	if f.Window != nil {
		seconds := int32(*f.Window) //nolint:gosec // one of three
		p.WindowSeconds = &seconds
	}
	rows, err := s.q.LedgerHistory(ctx, s.pool, p)
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", tenancyID, err)
	}
	return s.spent(ctx, &d, rows)
}

func (s *Service) spent(ctx context.Context, d *Domain, rows []db.LedgerHistoryRow) ([]Spent, error) {
	caps := map[string]quota.Caps{}
	for _, b := range s.buckets(d) {
		var err error
		if caps[b.name], _, err = dispatch.Caps(ctx, s.pool, d.TenancyID, b.name, b.RateBucket); err != nil {
			return nil, err
		}
	}
	out := make([]Spent, len(rows))
	for i, r := range rows {
		out[i] = Spent{Bucket: r.Bucket, Seconds: int(r.WindowSeconds), WindowStart: r.StartsAt, Used: int(r.Own) +
			int(r.LikelyForeign)}
		// null where the provider counts what has no cap
		if out[i].Cap = caps[r.Bucket].Aligned[int(r.WindowSeconds)]; r.Cap != nil {
			out[i].Cap = int(*r.Cap)
		}
		if r.Observed != nil {
			observed := int(*r.Observed)
			out[i].Observed = &observed
		}
	}
	return out, nil
}

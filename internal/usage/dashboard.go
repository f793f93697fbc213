package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/pg"
)

const (
	// topDefinitions is how many definitions are named as slowest, and as failing most.
	topDefinitions = 5
	// maxPauses bounds the holds that are shown.
	maxPauses = 50
)

// Period is a time up to now that a dashboard shows, in intervals of Interval.
type Period struct{ Length, Interval time.Duration }

// Periods are those that there are, by name.
var Periods = map[string]Period{
	"1h":  {time.Hour, time.Minute},
	"24h": {day, time.Hour},
	"7d":  {7 * day, 2 * time.Hour},
	"30d": {30 * day, 6 * time.Hour},
}

// BatchStatus is where a batch stands.
type BatchStatus = db.FlowBatchStatus

// Dashboard is how the batches fare that were started in a period.
type Dashboard struct {
	// From is where the first interval begins: at most one before the period. To is now.
	From, To time.Time
	Interval time.Duration
	// Batches counts them by status, Jobs their records.
	Batches map[BatchStatus]int64
	Jobs    batch.Counts
	// Points are the intervals, the last one not over yet.
	Points []Point
	// Slowest and Failing are the definitions with the longest batches on average, and with the most failed jobs.
	Slowest, Failing []Definition
	// Holds are the newest of the active holds, HoldCount is how many there are.
	Holds     []db.FlowPause
	HoldCount int64
}

// Point is what was started in one interval, and how it stands now.
type Point struct {
	StartsAt time.Time
	// Batches is how many were started, Jobs how many records they have; Succeeded and Failed are of the jobs. The rest
	// is not over, was cancelled, or was never sent.
	Batches, Jobs     int64
	Succeeded, Failed int64
}

// Definition is how the batches of one definition fared.
type Definition struct {
	ID uuid.UUID
	// Name is empty where the definition was deleted.
	Name string
	// The counts are as in a Point.
	Batches, Jobs     int64
	Succeeded, Failed int64
	// AverageTime and LongestRun are from the start of a batch to its end, of those that are over.
	AverageTime, LongestRun time.Duration
}

// SuccessRate is the share of what went well in what went well or failed, from 0 to 1; nil where there is neither. What
// was cancelled or never sent counts for neither.
func SuccessRate(succeeded, failed int64) *float64 {
	if succeeded+failed == 0 {
		return nil
	}
	rate := float64(succeeded) / float64(succeeded+failed)
	return &rate
}

// Succeeded is how many jobs went well, Failed how many failed or were rejected.
func Succeeded(c *batch.Counts) int64 { return c.Of(batch.Completed) + c.Of(batch.Accepted) }

// Failed is how many jobs failed, or were rejected by the provider.
func Failed(c *batch.Counts) int64 { return c.Of(batch.Failed) + c.Of(batch.Rejected) }

// Dashboard sums up the batches of a period. The period must be one of Periods.
func (s *Service) Dashboard(ctx context.Context, orgID uuid.UUID, p Period) (*Dashboard, error) {
	now, err := s.q.ClockNow(ctx, s.pool)
	if err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	d := &Dashboard{From: now.UTC().Add(-p.Length).Truncate(p.Interval), To: now.UTC(), Interval: p.Interval,
		Batches: map[BatchStatus]int64{}}
	if err := s.series(ctx, orgID, d); err != nil {
		return nil, err
	}
	if err := s.definitions(ctx, orgID, d); err != nil {
		return nil, err
	}
	holds, err := s.q.DashboardPauses(ctx, s.pool, db.DashboardPausesParams{OrgID: &orgID, Most: maxPauses})
	if err != nil {
		return nil, fmt.Errorf("read holds: %w", err)
	}
	for i := range holds {
		d.Holds, d.HoldCount = append(d.Holds, holds[i].FlowPause), holds[i].Total
	}
	return d, nil
}

func (s *Service) series(ctx context.Context, orgID uuid.UUID, d *Dashboard) error {
	for t := d.From; !t.After(d.To); t = t.Add(d.Interval) {
		d.Points = append(d.Points, Point{StartsAt: t})
	}
	rows, err := s.q.DashboardSeries(ctx, pg.CustomPlan{Pool: s.pool}, db.DashboardSeriesParams{
		IntervalSeconds: d.Interval.Seconds(), OrgID: orgID, FromTime: d.From, ToTime: d.To,
		Sums: d.Interval >= time.Hour,
	})
	if err != nil {
		return fmt.Errorf("sum up batches: %w", err)
	}
	for _, r := range rows {
		var jobs batch.Counts
		copy(jobs[:], r.Jobs)
		p := &d.Points[int(r.StartsAt.Sub(d.From)/d.Interval)]
		p.Batches += r.Batches
		p.Succeeded += Succeeded(&jobs)
		p.Failed += Failed(&jobs)
		d.Batches[r.Status] += r.Batches
		for i, n := range jobs {
			p.Jobs += n
			d.Jobs[i] += n
		}
	}
	return nil
}

func (s *Service) definitions(ctx context.Context, orgID uuid.UUID, d *Dashboard) error {
	rows, err := s.q.DashboardDefinitions(ctx, pg.CustomPlan{Pool: s.pool}, db.DashboardDefinitionsParams{
		OrgID: orgID, FromTime: d.From, ToTime: d.To, Sums: d.Interval >= time.Hour, Most: topDefinitions,
	})
	if err != nil {
		return fmt.Errorf("sum up definitions: %w", err)
	}
	var ids []uuid.UUID
	for _, r := range rows {
		ids = append(ids, r.DefinitionID)
	}
	named, err := s.q.UsageDefinitionNames(ctx, s.pool, db.UsageDefinitionNamesParams{OrgID: orgID, Ids: ids})
	if err != nil {
		return fmt.Errorf("read the names of definitions: %w", err)
	}
	names := map[uuid.UUID]string{}
	for _, n := range named {
		names[n.ID] = n.Name
	}
	seconds := func(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }
	for _, r := range rows {
		def := Definition{
			ID: r.DefinitionID, Name: names[r.DefinitionID], Batches: r.Batches, Jobs: r.Jobs, Succeeded: r.Succeeded,
			Failed:      r.Failed,
			AverageTime: seconds(r.AverageSeconds), LongestRun: seconds(r.MaxSeconds),
		}
		if r.Slow {
			d.Slowest = append(d.Slowest, def)
		} else {
			d.Failing = append(d.Failing, def)
		}
	}
	return nil
}

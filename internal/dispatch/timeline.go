package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
)

// Timeline is what the calls of a batch carried over time.
type Timeline struct {
	// Interval is the width of each point.
	Interval time.Duration
	// Complete is false where only the newest calls are counted.
	Complete bool
	Points   []TimelinePoint
}

// TimelinePoint is what was sent in one interval; Failed of its records were in calls that did not succeed.
type TimelinePoint struct {
	At                     time.Time
	Calls, Records, Failed int64
}

// timelineCalls bounds the calls that a timeline reads.
const timelineCalls = 20_000

// Timeline reads what the calls of a batch that are kept carried over time. It knows nothing of a batch of another
// organization.
func (d *Dispatcher) Timeline(ctx context.Context, orgID, batchID uuid.UUID) (*Timeline, error) {
	rows, err := d.q.BatchTimeline(ctx, d.Pool, db.BatchTimelineParams{OrgID: orgID, BatchID: batchID,
		Most: timelineCalls})
	if err != nil {
		return nil, fmt.Errorf("read the timeline of batch %s: %w", batchID, err)
	}
	out := &Timeline{Interval: time.Second, Complete: true, Points: make([]TimelinePoint, len(rows))}
	for i, r := range rows {
		out.Interval, out.Complete = time.Duration(r.Seconds)*time.Second, r.Counted < timelineCalls
		out.Points[i] = TimelinePoint{At: r.StartsAt, Calls: r.Calls, Records: r.Records, Failed: r.Failed}
	}
	return out, nil
}

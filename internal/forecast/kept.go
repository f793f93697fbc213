package forecast

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/pg"
)

// keptFrom is how many records a batch has at least whose estimate is kept: smaller ones are over soon, and come by the
// million.
const keptFrom = 1000

// AtStart is what the start of a batch was told that it would take.
type AtStart struct {
	AsOf              time.Time
	TenancyID, Bucket string
	Calls             int64
	// DayPercent is nil where the budget has no cap for a day.
	DayPercent *float64
	// At is nil where nobody could say, and Unknown says why.
	At      *time.Time
	Unknown Unknown
}

// Keeps reports whether what the start of a batch of so many records is told is kept.
func Keeps(records int64) bool { return records >= keptFrom }

// Keep writes down what the start of a batch is told, in the transaction that starts it, where the batch is large. Nil
// is told where it spends no budget, and nothing is written then.
func (s *Service) Keep(ctx context.Context, tx db.DBTX, orgID, batchID uuid.UUID, e *Estimate) error {
	if e == nil || !Keeps(e.RecordCount) {
		return nil
	}
	in := db.BatchEstimateKeepParams{BatchID: batchID, OrgID: orgID, MadeAt: e.AsOf, TenancyID: e.TenancyID,
		Bucket: e.Bucket, Calls: e.Calls}
	if e.Day != nil {
		in.DayPercent = &e.Day.Percent
	}
	if at := e.Completion.At; at != nil {
		// as Postgres has it, and never too early
		in.EndsAt = new(at.Add(time.Microsecond - 1).Truncate(time.Microsecond))
	} else {
		in.Unknown = new(string(e.Completion.Unknown))
	}
	if err := s.q.BatchEstimateKeep(ctx, tx, in); err != nil {
		return fmt.Errorf("keep the estimate of batch %s: %w", batchID, err)
	}
	return nil
}

// AtStart returns what the start of a batch of so many records was told; nil where that was not kept.
func (s *Service) AtStart(ctx context.Context, orgID, batchID uuid.UUID, records int64) (*AtStart, error) {
	if !Keeps(records) {
		return nil, nil
	}
	row, err := s.q.BatchEstimateRead(ctx, s.pool, db.BatchEstimateReadParams{BatchID: batchID, OrgID: orgID})
	if pg.IsNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the estimate of batch %s: %w", batchID, err)
	}
	out := &AtStart{AsOf: row.MadeAt, TenancyID: row.TenancyID, Bucket: row.Bucket, Calls: row.Calls,
		DayPercent: row.DayPercent, At: row.EndsAt}
	if row.Unknown != nil {
		out.Unknown = Unknown(*row.Unknown)
	}
	return out, nil
}

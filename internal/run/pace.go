package run

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/pacing"
)

// A paced batch has an allowance in each of its queues: how many records calls may still claim, and until when. A tick sets
// it anew, a claim uses it up, both under the batch's lock. A record counts each time that a call claims it.

// firstTick returns the first tick of a policy that a batch gets now. last is its last tick before, whatever policy it was
// of; a batch that waits for its scheduled time needs none before.
func firstTick(p *pacing.Policy, last *time.Time, now time.Time, scheduled *time.Time) time.Time {
	if scheduled != nil && scheduled.After(now) {
		now = *scheduled
	}
	if last == nil {
		return p.First(time.Time{}, now)
	}
	return p.First(*last, now)
}

// Tick releases what the policy of a batch allows from now on, where a tick is due, and returns the next one; zero where there
// is none.
func (s *Service) Tick(ctx context.Context, tx pgx.Tx, batchID uuid.UUID) (next time.Time, err error) {
	c, err := s.Begin(ctx, tx, batchID)
	if err != nil {
		return next, err
	}
	if h := c.heads[batchID]; h == nil || h.stopped() || !h.Paced {
		return next, nil
	}
	row, err := s.q.BatchPacing(ctx, tx, batchID)
	if err != nil {
		return next, fmt.Errorf("read the pacing of batch %s: %w", batchID, err)
	}
	if row.PaceNextAt.After(c.Now) {
		return row.PaceNextAt, nil
	}
	policy, err := pacing.Parse(row.Pacing)
	if err != nil {
		return next, err
	}
	tick := policy.Tick(row.PaceNextAt, c.Now)
	next = policy.Next(tick)
	if err := s.q.BatchTick(ctx, tx, db.BatchTickParams{ID: batchID, PacedAt: tick, PaceNextAt: next}); err != nil {
		return next, fmt.Errorf("pace batch %s: %w", batchID, err)
	}
	queues, err := s.q.LaneBatchRelease(ctx, tx, db.LaneBatchReleaseParams{BatchID: batchID, Allowance: policy.Records, LapsesAt: policy.Lapses(tick)})
	if err != nil {
		return next, fmt.Errorf("release records of batch %s: %w", batchID, err)
	}
	for _, q := range queues {
		if q.Ready {
			c.Wake(DueDispatch, DispatchKey(q.Domain, q.Bucket), c.Now)
		}
	}
	return next, c.wake(ctx)
}

// spend takes what pieces carry into calls from the allowances of their queues. ErrMoved: what was chosen is more than is left,
// or too late.
func (c *Change) spend(ctx context.Context, pieces []Piece) error {
	wanted := map[laneKey]int64{}
	var paced []uuid.UUID
	for i := range pieces {
		p := &pieces[i].Part
		if !pieces[i].Decided && c.heads[p.BatchID].Paced {
			wanted[laneKey{p.BatchID, p.StepNo, p.TaskNo}] += int64(p.Records())
			paced = append(paced, p.BatchID)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	rows, err := c.s.q.LaneAllowances(ctx, c.tx, paced)
	if err != nil {
		return fmt.Errorf("read allowances: %w", err)
	}
	for _, r := range rows {
		k := laneKey{r.BatchID, r.StepNo, r.TaskNo}
		if n := wanted[k]; n > r.Allowance || n > 0 && !c.Now.Before(r.LapsesAt) {
			return fmt.Errorf("%w: batch %s is paced", ErrMoved, r.BatchID)
		}
		c.lane(k).claimed += wanted[k]
	}
	return nil
}

package run

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/batch/query"
	"flowlane/internal/pacing"
	"flowlane/internal/pg"
)

// A paced batch has an allowance in each of its queues: how many records calls may still claim, and until when. A tick
// sets it anew, a claim uses it up, both under the batch's lock. A record counts each time that a call claims it.

// firstTick returns the first tick of a policy that a batch gets now. last is its last tick before, whatever policy it
// was of; a batch that waits for its scheduled time needs none before.
func firstTick(p *pacing.Policy, last *time.Time, now time.Time, scheduled *time.Time) time.Time {
	if scheduled != nil && scheduled.After(now) {
		now = *scheduled
	}
	return p.First(pg.Value(last), now)
}

// Tick releases what the policy of a batch allows from now on, where a tick is due, and returns the next one; zero
// where there is none.
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
	if err := s.q.BatchTick(ctx, tx, db.BatchTickParams{BatchID: batchID, PacedAt: tick,
		PaceNextAt: next}); err != nil {
		return next, fmt.Errorf("pace batch %s: %w", batchID, err)
	}
	err = s.q.LaneBatchRelease(ctx, tx, db.LaneBatchReleaseParams{BatchID: batchID, Allowance: policy.Records,
		LapsesAt: policy.Lapses(tick)})
	if err != nil {
		return next, fmt.Errorf("release records of batch %s: %w", batchID, err)
	}
	c.opened = append(c.opened, batchID)
	return next, c.send(ctx)
}

// spend takes what ranges carry into calls from the allowances of their queues. ErrMoved: what was chosen is more than
// is left, or too late.
func (c *Change) spend(ctx context.Context, ranges []ClaimedRange) error {
	wanted := map[queueKey]int64{}
	var paced []uuid.UUID
	for i := range ranges {
		p := &ranges[i].Part
		if !ranges[i].NoCall && c.heads[p.BatchID].Paced {
			wanted[queueKey{p.BatchID, p.StepNo, p.TaskNo}] += int64(p.Records())
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
		k := queueKey{r.BatchID, r.StepNo, r.TaskNo}
		if n := wanted[k]; n > r.Allowance || n > 0 && !c.Now.Before(r.LapsesAt) {
			return fmt.Errorf("%w: batch %s is paced", ErrMoved, r.BatchID)
		}
		c.queue(k).claimed += wanted[k]
	}
	return nil
}

// Updating says how the work of a batch that is not claimed yet shall go on. What is nil stays as it is.
type Updating struct {
	// Priority is normal or high.
	Priority *string
	// Pacing is the new policy. RemovePacing ends pacing; only one of the two may be set.
	Pacing       *pacing.Policy
	RemovePacing bool
}

// Update changes priority and pacing of a batch in the caller's transaction. It touches the batch and its queues,
// whatever its size. A batch that already is as asked keeps its updated_at. Faults: NotFound; Conflict for a batch that
// is over.
func (s *Service) Update(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID, in Updating,
) (*query.BatchRow, error) {
	c, _, err := s.beginOpen(ctx, tx, orgID, batchID)
	if err != nil {
		return nil, err
	}
	row, err := s.ReadBatchIn(ctx, tx, orgID, batchID)
	if err != nil {
		return nil, err
	}
	if err := c.update(ctx, row, &in); err != nil {
		return nil, err
	}
	if err := account.Audit(ctx, tx, auditType, batchID.String()); err != nil {
		return nil, err
	}
	return s.ReadBatchIn(ctx, tx, orgID, batchID)
}

// isHigh reports whether a batch of this priority goes before others of its lane.
func isHigh(priority *string) bool { return priority != nil && *priority == "high" }

// update changes the batch, which was like this.
func (c *Change) update(ctx context.Context, batch *query.BatchRow, in *Updating) error {
	was := &batch.FlowBatchCount
	to := db.BatchSteerParams{BatchID: was.BatchID, Now: c.Now, Priority: was.Priority, Pacing: was.Pacing,
		PaceNextAt: was.PaceNextAt}
	changed := false
	if in.Priority != nil && (to.Priority == nil || *to.Priority != *in.Priority) {
		to.Priority, changed = in.Priority, true
		if err := c.s.q.LaneBatchRank(ctx, c.tx, db.LaneBatchRankParams{BatchID: to.BatchID,
			High: isHigh(in.Priority)}); err != nil {
			return fmt.Errorf("rank the queues of batch %s: %w", to.BatchID, err)
		}
	}
	switch {
	case in.Pacing != nil:
		old, err := pacing.Parse(was.Pacing)
		if err != nil {
			return err
		}
		if !in.Pacing.Equal(old) {
			to.Pacing, changed = in.Pacing.Encode(), true
			if to.PaceNextAt, err = c.pace(ctx, batch, old, in.Pacing); err != nil {
				return err
			}
		}
	case in.RemovePacing && to.Pacing != nil:
		to.Pacing, to.PaceNextAt, changed = nil, nil, true
		if err := c.s.q.LaneBatchUnpace(ctx, c.tx, to.BatchID); err != nil {
			return fmt.Errorf("unpace the queues of batch %s: %w", to.BatchID, err)
		}
		c.opened = append(c.opened, to.BatchID) // what waited for a tick goes at once
	}
	if changed {
		if err := c.s.q.BatchSteer(ctx, c.tx, to); err != nil {
			return fmt.Errorf("steer batch %s: %w", to.BatchID, err)
		}
	}
	return c.send(ctx)
}

// pace puts the batch under a policy, and returns its first tick. What the last tick released under the old one, nil
// for none, stays as far as the new one allows it.
func (c *Change) pace(ctx context.Context, batch *query.BatchRow, old, policy *pacing.Policy) (*time.Time, error) {
	was, now := &batch.FlowBatchCount, c.Now
	args := db.LaneBatchPaceParams{BatchID: was.BatchID, Gives: policy.Records, Until: policy.Until(now,
		now.Add(policy.Period()))}
	if old == nil {
		args.Until = now
	} else {
		args.Was = old.Records
	}
	if err := c.s.q.LaneBatchPace(ctx, c.tx, args); err != nil {
		return nil, fmt.Errorf("pace the queues of batch %s: %w", was.BatchID, err)
	}
	first := firstTick(policy, was.PacedAt, now, batch.FlowBatch.ScheduledAt)
	c.Wake(DuePacing, was.BatchID.String(), first)
	return &first, nil
}

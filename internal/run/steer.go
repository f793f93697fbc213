package run

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/pacing"
)

// Steering says how the work of a batch that is not claimed yet shall go on. What is nil stays as it is.
type Steering struct {
	// Priority is normal or high.
	Priority *string
	// Pacing is the new policy. RemovePacing ends pacing; only one of the two may be set.
	Pacing       *pacing.Policy
	RemovePacing bool
}

// Steer changes priority and pacing of a batch in the caller's transaction. It touches the batch and its queues, whatever its
// size. A batch that already is as asked keeps its updated_at. Faults: NotFound; Conflict for a batch that is over.
func (s *Service) Steer(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID, in Steering) (*BatchRow, error) {
	c, _, err := s.beginOpen(ctx, tx, orgID, batchID)
	if err != nil {
		return nil, err
	}
	row, err := s.readBatch(ctx, tx, orgID, batchID)
	if err != nil {
		return nil, err
	}
	st := steering{c: c, was: row.FlowBatch}
	if err := st.apply(ctx, &in); err != nil {
		return nil, err
	}
	if err := account.Audit(ctx, tx, auditType, batchID.String()); err != nil {
		return nil, err
	}
	return s.readBatch(ctx, tx, orgID, batchID)
}

// isHigh reports whether a batch of this priority goes before others of its lane.
func isHigh(priority *string) bool { return priority != nil && *priority == "high" }

// steering is a change of a batch's priority and pacing under way.
type steering struct {
	c   *Change
	was db.FlowBatch
}

func (st *steering) apply(ctx context.Context, in *Steering) error {
	to := db.BatchSteerParams{ID: st.was.ID, Now: st.c.Now, Priority: st.was.Priority, Pacing: st.was.Pacing, PaceNextAt: st.was.PaceNextAt}
	changed := false
	if in.Priority != nil && (to.Priority == nil || *to.Priority != *in.Priority) {
		to.Priority, changed = in.Priority, true
		if err := st.c.s.q.LaneBatchRank(ctx, st.c.tx, db.LaneBatchRankParams{BatchID: to.ID, High: isHigh(in.Priority)}); err != nil {
			return fmt.Errorf("rank the queues of batch %s: %w", to.ID, err)
		}
	}
	switch {
	case in.Pacing != nil:
		old, err := pacing.Parse(st.was.Pacing)
		if err != nil {
			return err
		}
		if !in.Pacing.Equal(old) {
			to.Pacing, changed = in.Pacing.Encode(), true
			if to.PaceNextAt, err = st.pace(ctx, old, in.Pacing); err != nil {
				return err
			}
		}
	case in.RemovePacing && to.Pacing != nil:
		to.Pacing, to.PaceNextAt, changed = nil, nil, true
		if err := st.unpace(ctx); err != nil {
			return err
		}
	}
	if changed {
		if err := st.c.s.q.BatchSteer(ctx, st.c.tx, to); err != nil {
			return fmt.Errorf("steer batch %s: %w", to.ID, err)
		}
	}
	return st.c.wake(ctx)
}

// pace puts the batch under a policy, and returns its first tick. What the last tick released under the old one, nil for
// none, stays as far as the new one allows it.
func (st *steering) pace(ctx context.Context, old, policy *pacing.Policy) (*time.Time, error) {
	now := st.c.Now
	args := db.LaneBatchPaceParams{BatchID: st.was.ID, Gives: policy.Records, Until: policy.Until(now, now.Add(policy.Period()))}
	if old == nil {
		args.Until = now
	} else {
		args.Was = old.Records
	}
	if err := st.c.s.q.LaneBatchPace(ctx, st.c.tx, args); err != nil {
		return nil, fmt.Errorf("pace the queues of batch %s: %w", st.was.ID, err)
	}
	first := firstTick(policy, st.was.PacedAt, now, st.was.ScheduledAt)
	st.c.Wake(DuePacing, st.was.ID.String(), first)
	return &first, nil
}

// unpace lets everything go that waits for a tick.
func (st *steering) unpace(ctx context.Context) error {
	rows, err := st.c.s.q.LaneBatchUnpace(ctx, st.c.tx, st.was.ID)
	if err != nil {
		return fmt.Errorf("unpace the queues of batch %s: %w", st.was.ID, err)
	}
	for _, r := range rows {
		if r.Ready {
			st.c.Wake(DueDispatch, DispatchKey(r.Domain, r.Bucket), st.c.Now)
		}
	}
	return nil
}

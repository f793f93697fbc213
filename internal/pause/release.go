package pause

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/pg"
	"flowlane/internal/trigger/event"
)

// Release ends every active pause of exactly this target but for those of the operator, wakes what waits, and returns
// the pauses by age.
func (s *Service) Release(ctx context.Context, t Target, by uuid.UUID) ([]*Pause, error) {
	return s.releaseTarget(ctx, t, db.PausesReleaseParams{ReleasedBy: &by})
}

// releaseTarget ends the pauses of a target that in tells.
func (s *Service) releaseTarget(ctx context.Context, t Target, in db.PausesReleaseParams) ([]*Pause, error) {
	in.OrgID, in.Scope, in.Domain, in.Lane = t.OrgID, string(t.scope()), t.TenancyID, t.Lane
	kind, name := "organization", t.OrgID.String()
	if t.TenancyID != nil {
		kind, name = "domain", *t.TenancyID
	}
	return s.release(ctx, kind, name, func(ctx context.Context, tx pgx.Tx) ([]db.FlowPause, time.Time, error) {
		rows, err := s.q.PausesRelease(ctx, tx, in)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("release pauses: %w", err)
		}
		now, err := s.q.Clock(ctx, tx)
		if err != nil || len(rows) == 0 {
			return nil, now, err
		}
		if err := s.wakeCovered(ctx, tx, t.OrgID, t.TenancyID, t.Lane); err != nil {
			return nil, now, err
		}
		return rows, now, event.Publish(ctx, tx, s.due, event.Pauses(event.PauseReleased, rows)...)
	})
}

// ResumeBatch ends the pause of a batch, which goes back to the status that it had, and returns the pause; none for a
// batch that is not paused. Fault: NotFound.
func (s *Service) ResumeBatch(ctx context.Context, orgID, batchID, by uuid.UUID) ([]*Pause, error) {
	return s.release(ctx, "batch", batchID.String(), func(ctx context.Context,
		tx pgx.Tx) ([]db.FlowPause, time.Time, error) {
		var rows []db.FlowPause
		_, now, err := s.runs.Resume(ctx, tx, orgID, batchID, func(now time.Time) ([]event.Event, error) {
			var err error
			rows, err = s.q.PausesOfBatchRelease(ctx, tx, db.PausesOfBatchReleaseParams{BatchID: batchID, Now: now,
				ReleasedBy: &by})
			if err != nil {
				return nil, fmt.Errorf("release the pause of batch %s: %w", batchID, err)
			}
			return event.Pauses(event.PauseReleased, rows), nil
		})
		return rows, now, err
	})
}

// release runs one request to release, which names a resource in the audit log whatever it finds.
func (s *Service) release(ctx context.Context, kind, name string, end func(ctx context.Context,
	tx pgx.Tx) ([]db.FlowPause, time.Time, error)) ([]*Pause, error) {
	var out []*Pause
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		rows, now, err := end(ctx, tx)
		if err != nil {
			return err
		}
		if out, err = pausesOf(rows, now); err != nil {
			return err
		}
		return account.Audit(ctx, tx, kind, name)
	})
	return out, err
}

// Expire ends a pause whose time is over, in the caller's transaction. It returns when to come back where that was
// extended, and the zero time where nothing is left to do.
func (s *Service) Expire(ctx context.Context, tx pgx.Tx, id uuid.UUID) (again time.Time, err error) {
	row, err := s.q.PauseGet(ctx, tx, id)
	if pg.IsNoRows(err) {
		return again, nil
	}
	if err != nil {
		return again, fmt.Errorf("read pause %s: %w", id, err)
	}
	if row.BatchID != nil { // batches are locked before their pauses
		if _, err := s.runs.Begin(ctx, tx, *row.BatchID); err != nil {
			return again, err
		}
	}
	if row, err = s.q.PauseLock(ctx, tx, id); err != nil {
		return again, fmt.Errorf("lock pause %s: %w", id, err)
	}
	now, err := s.q.Clock(ctx, tx)
	if err != nil {
		return again, fmt.Errorf("read the clock: %w", err)
	}
	switch {
	case row.Status != "active" || row.ExpiresAt == nil:
		return again, nil
	case row.ExpiresAt.After(now):
		return *row.ExpiresAt, nil
	case row.BatchID != nil:
		// The batch is paused until now, not until its pause's time was over.
		_, _, err := s.runs.Resume(ctx, tx, *row.OrgID, *row.BatchID, func(time.Time) ([]event.Event, error) {
			return s.end(ctx, tx, &row, now)
		})
		return again, err
	}
	ended, err := s.end(ctx, tx, &row, *row.ExpiresAt)
	if err != nil {
		return again, err
	}
	if err := s.wakeCovered(ctx, tx, *row.OrgID, row.Domain, row.Lane); err != nil {
		return again, err
	}
	return again, event.Publish(ctx, tx, s.due, ended...)
}

// end releases a pause whose time is over, and says so.
func (s *Service) end(ctx context.Context, tx pgx.Tx, row *db.FlowPause, at time.Time) ([]event.Event, error) {
	if err := s.q.PauseEnd(ctx, tx, db.PauseEndParams{ID: row.ID, ReleasedAt: at}); err != nil {
		return nil, fmt.Errorf("end pause %s: %w", row.ID, err)
	}
	row.ReleasedAt = &at
	return []event.Event{event.Pause(event.PauseReleased, row)}, nil
}

package pause

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/cell"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/trigger/event"
)

const (
	// auditType is what the audit log calls a pause.
	auditType = "pause"
	// cause is that of every pause of people.
	cause = "admin_request"
	// most bounds the active pauses of an organization that are not of batches: claims read all of them.
	most = 1000
)

// Target is what people pause or release: the whole organization where nothing is set, else a Domain, or a lane of it.
type Target struct {
	OrgID     uuid.UUID
	TenancyID *string
	Lane      *db.FlowLane
}

func (t *Target) scope() Scope {
	switch {
	case t.TenancyID == nil:
		return Global
	case t.Lane == nil:
		return Domain
	}
	return Lane
}

// Opening says who pauses something, for how long and why.
type Opening struct {
	By uuid.UUID
	// Seconds is after how long the pause ends by itself; nil for one without an end.
	Seconds *int
	Reason  *string
	// operator is set where that is the operator of the service, and no account.
	operator Operator
}

// Open pauses a target. When it returns, no claim that the pause covers commits any more. Faults: NotFound for a Domain
// that the organization does not know; Conflict where there are too many pauses.
func (s *Service) Open(ctx context.Context, t Target, o Opening, hooks ...pg.TxHook[*Pause]) (*Pause, error) {
	var out *Pause
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.q.PauseGateTake(ctx, tx, t.OrgID); err != nil {
			return fmt.Errorf("close the gate of pauses: %w", err)
		}
		if err := s.keepDomain(ctx, tx, t); err != nil {
			return err
		}
		now, err := s.q.Clock(ctx, tx)
		if err != nil {
			return fmt.Errorf("read the clock: %w", err)
		}
		n, err := s.q.PausesCount(ctx, tx, &t.OrgID)
		if err != nil {
			return fmt.Errorf("count pauses: %w", err)
		}
		if n >= most {
			return fault.New(fault.Conflict,
				"The organization has %d active holds, as many as it can have: release some first", n)
		}
		out, err = s.insert(ctx, tx, db.PauseInsertParams{
			OrgID: &t.OrgID, Scope: string(t.scope()), Domain: t.TenancyID,
			Lane: t.Lane}, o, now)
		if err != nil {
			return err
		}
		return pg.RunHooks(ctx, tx, out, hooks)
	})
	return out, err
}

// keepDomain has the organization go on knowing the Domain of a target until tx ends: one that goes ends the pauses
// that it finds.
func (s *Service) keepDomain(ctx context.Context, tx pgx.Tx, t Target) error {
	if t.TenancyID == nil {
		return nil
	}
	_, err := s.q.DomainShare(ctx, tx, db.DomainShareParams{OrgID: t.OrgID, TenancyID: *t.TenancyID})
	if pg.IsNoRows(err) {
		return fault.Missing("Domain")
	}
	if err != nil {
		return fmt.Errorf("keep domain %s: %w", *t.TenancyID, err)
	}
	return nil
}

// PauseBatch pauses a batch. When it returns, nothing of the batch is claimed any more. One that is paused keeps the
// pause that it has, unless that one's time is over. Faults: NotFound; Conflict for a batch that is over.
func (s *Service) PauseBatch(ctx context.Context, orgID, batchID uuid.UUID, o Opening,
	hooks ...pg.TxHook[*Pause]) (*Pause, error) {
	var out *Pause
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		paused, now, err := s.runs.Pause(ctx, tx, orgID, batchID)
		if err != nil {
			return err
		}
		if !paused {
			if out, err = s.ofBatch(ctx, tx, orgID, batchID, now); err != nil {
				return err
			}
		}
		if out == nil {
			in := db.PauseInsertParams{OrgID: &orgID, Scope: string(Batch), BatchID: &batchID}
			if out, err = s.insert(ctx, tx, in, o, now); err != nil {
				return err
			}
		}
		return pg.RunHooks(ctx, tx, out, hooks)
	})
	return out, err
}

// ofBatch returns the pause of a paused batch; nil where its time is over, which it ends: who pauses the batch now
// means it to stay paused.
func (s *Service) ofBatch(ctx context.Context, tx pgx.Tx, orgID, batchID uuid.UUID, now time.Time) (*Pause, error) {
	row, err := s.q.PauseOfBatch(ctx, tx, db.PauseOfBatchParams{BatchID: batchID, OrgID: orgID})
	if err != nil {
		return nil, fmt.Errorf("read the pause of batch %s: %w", batchID, err)
	}
	if row.ExpiresAt != nil && !row.ExpiresAt.After(now) {
		ended, err := s.end(ctx, tx, &row, now)
		if err != nil {
			return nil, err
		}
		return nil, event.Publish(ctx, tx, s.due, ended...)
	}
	if err := account.Audit(ctx, tx, auditType, row.ID.String()); err != nil {
		return nil, err
	}
	return pauseOf(&row, now)
}

// insert opens a pause and plans its end.
func (s *Service) insert(ctx context.Context, tx pgx.Tx, in db.PauseInsertParams, o Opening,
	now time.Time) (*Pause, error) {
	id := cell.NewID()
	in.ID, in.Cause, in.Reason, in.CreatedAt = id, cause, o.Reason, now
	if o.operator == "" {
		in.CreatedBy = &o.By
	} else {
		in.Operator = (*string)(&o.operator)
	}
	if o.Seconds != nil {
		end := now.Add(time.Duration(*o.Seconds) * time.Second)
		in.ExpiresAt = &end
	}
	row, err := s.q.PauseInsert(ctx, tx, in)
	if err != nil {
		return nil, fmt.Errorf("open a pause: %w", err)
	}
	if err := account.Audit(ctx, tx, auditType, id.String()); err != nil {
		return nil, err
	}
	if in.ExpiresAt != nil {
		if err := s.due.Wake(ctx, tx, DueExpiry, id.String(), *in.ExpiresAt); err != nil {
			return nil, err
		}
	}
	if err := event.Publish(ctx, tx, s.due, event.Pause(event.PauseOpened, &row)); err != nil {
		return nil, err
	}
	return pauseOf(&row, now)
}

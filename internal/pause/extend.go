package pause

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// maxExtensions bounds how often the end of a pause is moved.
const maxExtensions = 1000

// Extending says who moves the end of a pause, and whereto.
type Extending struct {
	By uuid.UUID
	// Seconds counts from now. Until wins where both are set; one must be.
	Seconds *int
	Until   *time.Time
}

// lastYear is where the times end that a pause can have.
var lastYear = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Extend moves the end of a pause of a Domain, or of one of its lanes, further away. Faults: Unprocessable where no end
// is given, or none that can be stored; NotFound; Conflict for a pause that is released or has no end, an end that is
// not later, an automatic backoff, and one extension too many.
func (s *Service) Extend(ctx context.Context, orgID uuid.UUID, tenancyID string, id uuid.UUID,
	e Extending) (*Pause, error) {
	switch {
	case e.Seconds == nil && e.Until == nil:
		return nil, fault.Value([]string{"body"}, "Give duration_seconds or expires_at")
	case e.Until != nil && !e.Until.Before(lastYear):
		return nil, fault.Value([]string{"body", "expires_at"}, "Must be before the year 9999")
	}
	var out *Pause
	err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		// As an opening: a claim that saw the pause end must not commit after the answer says that it goes on.
		if err := s.q.PauseGateTake(ctx, tx, orgID); err != nil {
			return fmt.Errorf("close the gate of pauses: %w", err)
		}
		seen, err := s.q.PauseRead(ctx, tx, db.PauseReadParams{ID: id, OrgID: orgID})
		if pg.IsNoRows(err) || err == nil && (seen.FlowPause.Domain == nil || *seen.FlowPause.Domain != tenancyID) {
			return fault.Missing("Pause")
		}
		if err != nil {
			return fmt.Errorf("read pause %s: %w", id, err)
		}
		if Scope(seen.FlowPause.Scope) == Bucket {
			return fault.New(fault.Conflict,
				"An automatic backoff cannot be extended: it ends when the provider takes calls again")
		}
		row, err := s.q.PauseLock(ctx, tx, id)
		if err != nil {
			return fmt.Errorf("lock pause %s: %w", id, err)
		}
		now, err := s.q.Clock(ctx, tx)
		if err != nil {
			return fmt.Errorf("read the clock: %w", err)
		}
		out, err = s.extend(ctx, tx, &row, e, now)
		return err
	})
	return out, err
}

// extend moves the end of a pause whose row is locked.
func (s *Service) extend(ctx context.Context, tx pgx.Tx, row *db.FlowPause, e Extending,
	now time.Time) (*Pause, error) {
	h, err := pauseOf(row, now)
	if err != nil {
		return nil, err
	}
	ext, err := h.extension(e, now)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(append(h.Extensions, ext))
	if err != nil {
		return nil, fmt.Errorf("write the extensions of pause %s: %w", h.ID, err)
	}
	after, err := s.q.PauseExtend(ctx, tx, db.PauseExtendParams{ID: h.ID, ExpiresAt: ext.Expires,
		Extensions: string(text)})
	if err != nil {
		return nil, fmt.Errorf("extend pause %s: %w", h.ID, err)
	}
	if err := account.Audit(ctx, tx, auditType, h.ID.String()); err != nil {
		return nil, err
	}
	return pauseOf(&after, now) // its due row stays: at the old end the scheduler finds the new one
}

// extension is what an extension would be now. Fault: Conflict where there can be none.
func (h *Pause) extension(e Extending, now time.Time) (Extension, error) {
	if !h.Active {
		return Extension{}, fault.New(fault.Conflict, "Pause is already released")
	}
	if h.ExpiresAt == nil {
		return Extension{}, fault.New(fault.Conflict,
			"Pause has no end that could be moved: it lasts until it is released")
	}
	if len(h.Extensions) >= maxExtensions {
		return Extension{}, fault.New(fault.Conflict, "Pause was extended %d times: release it and open another",
			maxExtensions)
	}
	ext := Extension{At: now.UTC(), By: e.By, Previous: h.ExpiresAt.UTC()}
	if e.Until != nil {
		ext.Expires = e.Until.UTC().Truncate(time.Microsecond) // as it is stored
	} else {
		ext.Expires = now.UTC().Add(time.Duration(*e.Seconds) * time.Second)
	}
	if !ext.Expires.After(ext.Previous) {
		return Extension{}, fault.New(fault.Conflict, "Pause ends at %s already: give a later time",
			ext.Previous.Format(time.RFC3339))
	}
	return ext, nil
}

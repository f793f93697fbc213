package event

import (
	"time"

	"github.com/google/uuid"

	"flowlane/gen/db"
)

// Pause is an event of a hold of people.
func Pause(kind string, p *db.FlowPause) Event {
	return Event{OrgID: *p.OrgID, Kind: kind, Payload: struct {
		ID         uuid.UUID    `json:"pause_id"`
		Scope      string       `json:"scope"`
		TenancyID  *string      `json:"tenancy_id"`
		Lane       *db.FlowLane `json:"lane"`
		BatchID    *uuid.UUID   `json:"batch_id"`
		Reason     *string      `json:"reason"`
		CreatedBy  *uuid.UUID   `json:"created_by"`
		CreatedAt  time.Time    `json:"created_at"`
		ExpiresAt  *time.Time   `json:"expires_at"`
		ReleasedBy *uuid.UUID   `json:"released_by"`
		ReleasedAt *time.Time   `json:"released_at"`
	}{p.ID, p.Scope, p.Domain, p.Lane, p.BatchID, p.Reason, p.CreatedBy, p.CreatedAt.UTC(), utc(p.ExpiresAt),
		p.ReleasedBy, utc(p.ReleasedAt)}}
}

// Pauses are events of holds.
func Pauses(kind string, rows []db.FlowPause) []Event {
	out := make([]Event, len(rows))
	for i := range rows {
		out[i] = Pause(kind, &rows[i])
	}
	return out
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.UTC())
}

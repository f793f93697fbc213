package api

import (
	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/pause"
)

// scheduler stands for who released a pause whose time was over.
const scheduler = "scheduler"

// operator stands for the operator of the service.
const operator = "operator"

func pauseOf(h *pause.Pause) oas.Pause {
	out := oas.Pause{
		ID: h.ID.String(), Scope: oas.HoldScope(h.Scope), TenancyID: nilString(h.TenancyID), Lane: nilLane(h.Lane),
		Bucket:  nilString(h.Bucket),
		BatchID: nilID(h.BatchID), Status: oas.PauseStatusReleased, Cause: h.Cause, Reason: nilString(h.Reason),
		CreatedBy: nilID(h.CreatedBy),
		CreatedAt: h.CreatedAt.UTC(), ExpiresAt: nilTime(h.ExpiresAt), ReleasedAt: nilTime(h.ReleasedAt),
		ReleasedBy: nilID(h.ReleasedBy),
		Extensions: make([]oas.PauseExtension, len(h.Extensions)),
	}
	switch {
	case h.Active:
		out.Status = oas.PauseStatusActive
	case h.Operator != "":
		out.ReleasedBy = oas.NewNilString(operator)
	case h.ReleasedBy == nil:
		out.ReleasedBy = oas.NewNilString(scheduler)
	}
	for i, e := range h.Extensions {
		out.Extensions[i] = oas.PauseExtension{
			ExtendedAt: e.At.UTC(), ExtendedBy: e.By.String(), PreviousExpiresAt: e.Previous.UTC(),
			ExpiresAt: e.Expires.UTC(),
		}
	}
	return out
}

func nilLane(lane *db.FlowLane) oas.NilLane {
	if lane == nil {
		return oas.NilLane{Null: true}
	}
	return oas.NewNilLane(oas.Lane(*lane))
}

package definition

import "flowlane/internal/fault"

// The statuses of a definition; only an active one can be triggered.
//
//	draft ──→ active ⇄ archived
//	  └──────────────────↑
const (
	StatusDraft    = "draft"
	StatusActive   = "active"
	StatusArchived = "archived"
)

// move returns a Conflict fault where the diagram has no way from one status to the other. Staying is no move.
func move(from, to string) error {
	switch {
	case from == to,
		from == StatusDraft && (to == StatusActive || to == StatusArchived),
		from == StatusActive && to == StatusArchived,
		from == StatusArchived && to == StatusActive:
		return nil
	}
	return fault.New(fault.Conflict, "Definition cannot go from %s to %s", from, to)
}

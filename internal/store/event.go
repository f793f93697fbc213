package store

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/trigger/event"
)

// Changed is what happened to a record, as the payload of an event has it.
type Changed struct {
	Store string `json:"store"`
	Key   string `json:"key"`
	// Layers are those that were written or deleted, in their order.
	Layers []string `json:"layers"`
	// Change is created, updated or deleted.
	Change string    `json:"change"`
	By     string    `json:"changed_by"`
	At     time.Time `json:"changed_at"`
}

// Events tells of changes; chain is that of the batch that made them, zero where none did.
func Events(orgID uuid.UUID, chain event.Chain, changes []Changed) []event.Event {
	out := make([]event.Event, len(changes))
	for i := range changes {
		out[i] = event.Event{OrgID: orgID, Kind: event.StoreRecordChanged, Chain: chain, Payload: &changes[i]}
	}
	return out
}

// note keeps what happened to a record.
func (w *writer) note(r *record, change string) {
	slices.Sort(r.written)
	w.changes = append(w.changes, Changed{r.store.name, r.key, slices.Compact(r.written), change, w.by, r.now.UTC()})
}

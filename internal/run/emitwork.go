package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"

	"flowlane/internal/event"
	"flowlane/internal/jsonraw"
	"flowlane/internal/store"
)

const (
	// maxEventName is how many characters the name of an emitted event may have, maxEventPayload how many bytes its payload.
	maxEventName    = 200
	maxEventPayload = 64 << 10
)

// emission is an event that a task wants to cause. It happens in the transaction that settles the work, so that it happens once.
type emission struct {
	name    string
	payload json.RawMessage
}

func prepareEmit(r *recordWork, params []byte) error {
	var p struct {
		Name    json.RawMessage
		Payload json.RawMessage
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return errors.New("the parameters must be an object")
	}
	e := emission{payload: p.Payload}
	if n := 0; json.Unmarshal(p.Name, &e.name) != nil || len(e.name) == 0 {
		return errors.New("name must be a string that is not empty")
	} else if n = utf8.RuneCountInString(e.name); n > maxEventName {
		return fmt.Errorf("name has %d characters, and may have %d", n, maxEventName)
	}
	if e.payload == nil {
		e.payload = json.RawMessage("null")
	}
	if n := len(e.payload); n > maxEventPayload {
		return fmt.Errorf("payload takes %d bytes, and may take %d", n, maxEventPayload)
	}
	if jsonraw.HasNUL(params) {
		return errors.New("name and payload must not contain a NUL character")
	}
	r.emit = &e
	return nil
}

// emitted keeps what became of an emission.
func (r *recordWork) emitted(id uuid.UUID) {
	r.output = fmt.Appendf(nil, `{"event_id":%q}`, id)
}

// emitEvents causes the events that tasks want, in the order of the records, behind those of what tasks wrote to stores.
func (c *Change) emitEvents(ctx context.Context, h *head, works []*sliceWork) error {
	events := store.Events(h.OrgID, h.EventDepth, c.changed)
	for _, w := range works {
		for _, r := range w.emits {
			id, err := uuid.NewV7()
			if err != nil {
				return fmt.Errorf("event id: %w", err)
			}
			events = append(events, event.Event{ID: id, OrgID: h.OrgID, Kind: event.FlowEvent, Depth: h.EventDepth, Payload: r.emission(h, w)})
			r.emitted(id)
			w.settle(r)
		}
	}
	return c.tell(ctx, events...)
}

// emission is the payload of the event.
func (r *recordWork) emission(h *head, w *sliceWork) any {
	return struct {
		Name         string          `json:"name"`
		Payload      json.RawMessage `json:"payload"`
		BatchID      uuid.UUID       `json:"batch_id"`
		DefinitionID uuid.UUID       `json:"definition_id"`
		JobID        string          `json:"job_id"`
		StepID       string          `json:"step_id"`
		TaskID       string          `json:"task_id"`
	}{r.emit.name, r.emit.payload, h.ID, h.DefinitionID, JobID(h.ID, w.first+int64(r.offset)), r.of.step.ID, r.of.task.ID}
}

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/batch"
	"flowlane/internal/cell"
	"flowlane/internal/jsonraw"
	"flowlane/internal/store"
	"flowlane/internal/trigger/event"
)

// Tasks that work with stores: reads happen while the work is evaluated, by one query for all records of a slice;
// writes happen in the transaction that settles the work: both or neither, so that a write is done once whatever
// crashes.

func prepareRead(r *recordWork, params []byte) error {
	p, err := storeParamsOf(params)
	r.read = &store.Ref{Store: p.Store, Key: p.key}
	return err
}

func prepareWrite(r *recordWork, params []byte) error {
	p, err := storeParamsOf(params)
	r.write = &store.Write{Store: p.Store, Key: p.key, Layer: p.Layer, Values: p.Values}
	return err
}

type storeParams struct {
	Store, Layer string
	Key, Values  json.RawMessage
	key          string
}

var wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)

func storeParamsOf(params []byte) (p storeParams, err error) {
	if err := json.Unmarshal(params, &p); err != nil {
		return p, errors.New("store and layer must be strings")
	}
	switch {
	case wholeNumber.Match(p.Key):
		p.key = string(p.Key)
	case json.Unmarshal(p.Key, &p.key) != nil || p.key == "":
		return p, errors.New("key must be a string that is not empty, or a whole number")
	}
	return p, nil
}

// carryOut does the reads of a task.
func (t *taskWork) carryOut(ctx context.Context, conn db.DBTX, orgID uuid.UUID) error {
	var refs []store.Ref
	var readers []*recordWork
	for i := range t.records {
		if r := &t.records[i]; r.read != nil {
			refs, readers = append(refs, *r.read), append(readers, r)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	found, err := store.Read(ctx, conn, orgID, refs)
	if err != nil {
		return err
	}
	for i, r := range readers {
		if found[i].Unknown {
			r.fail(CodeStore, fmt.Sprintf("store: There is no store %q", r.read.Store))
			continue
		}
		r.output = found[i].Resolved
	}
	return nil
}

// writeStores does what tasks want written, in the order of the records. A write that is refused fails its task.
func (c *Change) writeStores(ctx context.Context, h *lockedBatch, works []*sliceWork) error {
	var writes []store.Write
	for _, r := range unsettled(works) {
		if r.write != nil {
			writes = append(writes, *r.write)
		}
	}
	if len(writes) == 0 {
		return nil
	}
	outcomes, changes, err := store.WriteAll(ctx, c.tx, h.OrgID, h.ID.String(), writes)
	if errors.Is(err, store.ErrAgain) {
		return ErrMoved
	}
	if err != nil {
		return err
	}
	for w, r := range unsettled(works) {
		if r.write != nil {
			r.wrote(outcomes[0])
			outcomes = outcomes[1:]
			w.settle(r)
		}
	}
	c.changed = changes
	return nil
}

// wrote keeps what became of a record's write.
func (r *recordWork) wrote(o store.Outcome) {
	if len(o.Problems) == 0 {
		r.output = json.RawMessage(fmt.Sprintf(`{"created":%t}`, o.Created))
		return
	}
	said := make([]string, len(o.Problems))
	for i, p := range o.Problems {
		said[i] = strings.Join(p.At, ".") + ": " + p.Msg
	}
	r.fail(CodeStore, strings.Join(said, "; "))
}

const (
	// maxEventName is how many characters the name of an emitted event may have, maxEventPayload how many bytes its
	// payload.
	maxEventName    = 200
	maxEventPayload = 64 << 10
)

// emission is an event that a task wants to cause. It happens in the transaction that settles the work, so that it
// happens once.
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

// emitEvents causes the events that tasks want, in the order of the records, behind those of what tasks wrote to
// stores.
func (c *Change) emitEvents(ctx context.Context, h *lockedBatch, works []*sliceWork) error {
	events := store.Events(h.OrgID, h.chain(), c.changed)
	for w, r := range unsettled(works) {
		if r.emit != nil {
			id := cell.NewID()
			events = append(events, event.Event{ID: id, OrgID: h.OrgID, Kind: event.FlowEvent, Chain: h.chain(),
				Payload: r.emission(h, w)})
			r.emitted(id)
			w.settle(r)
		}
	}
	return c.publish(ctx, events...)
}

// emission is the payload of the event.
func (r *recordWork) emission(h *lockedBatch, w *sliceWork) any {
	return struct {
		Name         string          `json:"name"`
		Payload      json.RawMessage `json:"payload"`
		BatchID      uuid.UUID       `json:"batch_id"`
		DefinitionID uuid.UUID       `json:"definition_id"`
		JobID        string          `json:"job_id"`
		StepID       string          `json:"step_id"`
		TaskID       string          `json:"task_id"`
	}{r.emit.name, r.emit.payload, h.ID, h.DefinitionID, batch.JobID(h.ID, w.First+int64(r.offset)), r.of.step.ID,
		r.of.task.ID}
}

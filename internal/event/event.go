// Package event owns what happens in an organization: the kinds of events, and how the transaction that causes one leaves it for
// those who listen. It promises that an event is there for every subscription that listens exactly if its cause is committed, and
// that what comes of another event has the greater number: its row is drawn while the cause holds its locks. It knows neither what
// starts nor what causes anything, so that whoever causes an event may import it.
package event

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
)

const (
	// Due is the kind of the due rows of subscriptions that events wait for; their key is the subscription's id.
	Due = "event"
	// MaxDepth is how many starts by events and by flows may follow each other.
	MaxDepth = 8
)

// Waker makes (kind, key) due at a time.
type Waker interface {
	Wake(ctx context.Context, tx pgx.Tx, kind, key string, at time.Time) error
}

// Event is something that happened.
type Event struct {
	// ID is nil where its cause needs none: Emit then makes one.
	ID    uuid.UUID
	OrgID uuid.UUID
	Kind  string
	// Depth is the one of the batch that caused it; 0 where none did.
	Depth int16
	// Payload is encoded as the JSON that the schema of the kind describes.
	Payload any
}

// Emit leaves events, in their order, for the subscriptions that listen, and returns which those are. The caller makes each of them
// due (Due) in tx, with its other due rows in their one order; Tell does both.
func Emit(ctx context.Context, tx db.DBTX, events ...Event) ([]uuid.UUID, error) {
	var in db.EventEmitParams
	for i := range events {
		e := &events[i]
		id, err := e.id()
		if err != nil {
			return nil, err
		}
		text, err := encode(e.Payload)
		if err != nil {
			return nil, fmt.Errorf("encode an event %s: %w", e.Kind, err)
		}
		in.Ids, in.OrgIds, in.Kinds = append(in.Ids, id), append(in.OrgIds, e.OrgID), append(in.Kinds, e.Kind)
		in.Depths, in.Payloads = append(in.Depths, e.Depth), append(in.Payloads, text)
	}
	if len(events) == 0 {
		return nil, nil
	}
	heard, err := db.New().EventEmit(ctx, tx, in)
	if err != nil {
		return nil, fmt.Errorf("leave events: %w", err)
	}
	return heard, nil
}

func (e *Event) id() (uuid.UUID, error) {
	if e.ID != uuid.Nil {
		return e.ID, nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return id, fmt.Errorf("event id: %w", err)
	}
	return id, nil
}

// encode writes JSON as it is: < and the like are not escaped.
func encode(payload any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(payload)
	return b.String(), err //nolint:wrapcheck // Emit says what it is
}

// BatchesEnded is Emit for batches that are over in this transaction: their rows say what there is to say.
func BatchesEnded(ctx context.Context, tx db.DBTX, batchIDs []uuid.UUID) ([]uuid.UUID, error) {
	if len(batchIDs) == 0 {
		return nil, nil
	}
	in := db.EventBatchesEndedParams{BatchIds: batchIDs}
	for range batchIDs {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("event id: %w", err)
		}
		in.Ids = append(in.Ids, id)
	}
	heard, err := db.New().EventBatchesEnded(ctx, tx, in)
	if err != nil {
		return nil, fmt.Errorf("leave events of batches: %w", err)
	}
	return heard, nil
}

// Tell leaves events and has those who listen look. It locks due rows until tx ends, so it comes last.
func Tell(ctx context.Context, tx pgx.Tx, waker Waker, events ...Event) error {
	heard, err := Emit(ctx, tx, events...)
	if err != nil {
		return err
	}
	keys := make([]string, len(heard))
	for i, id := range heard {
		keys[i] = id.String()
	}
	slices.Sort(keys) // the order in which due rows are locked
	for _, key := range slices.Compact(keys) {
		if err := waker.Wake(ctx, tx, Due, key, time.Time{}); err != nil {
			return err //nolint:wrapcheck // says everything
		}
	}
	return nil
}

// Package event owns what happens in an organization: the kinds of events, and how the transaction that causes one
// leaves it for those who listen. It promises that an event is there for every subscription that listens, and every
// task that waits, exactly if its cause is committed, and that what comes of another event has the greater number: its
// row is drawn while the cause holds its locks. It knows neither what starts nor what causes anything, so that whoever
// causes an event may import it.
package event

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/cell"
	"flowlane/internal/due"
	"flowlane/internal/pg"
)

const (
	// Due is the kind of the due rows of subscriptions that events wait for; their key is the subscription's id.
	Due = "event"
	// DueArrival is that of organizations in which events came that tasks may wait for; their key is the organization's
	// id.
	DueArrival = "arrival"
	// MaxDepth is how many starts by events and by flows may follow each other.
	MaxDepth = 8
)

// Chain is where a batch stands in what came of one root cause by events and by flows.
type Chain struct {
	// Root is the batch or the event at its head; nil where the batch or event itself is that.
	Root uuid.UUID
	// Depth is how many starts by events and by flows lie between the head and the batch, its own included.
	Depth int16
}

// Next is where a batch stands that is started by one that stands here, or by its events.
func (c Chain) Next() Chain { return Chain{c.Root, c.Depth + 1} }

// RootID is null for none.
func (c Chain) RootID() *uuid.UUID {
	if c.Root == uuid.Nil {
		return nil
	}
	return &c.Root
}

// Event is something that happened.
type Event struct {
	// ID is nil where its cause needs none: Emit then makes one.
	ID    uuid.UUID
	OrgID uuid.UUID
	Kind  string
	// Chain is that of the batch that caused it; zero where none did.
	Chain Chain
	// Payload is encoded as the JSON that the schema of the kind describes.
	Payload any
}

// DueRow is what the cause of events makes due, with its other due rows in their one order.
type DueRow struct{ Kind, Key string }

// Emit leaves events, in their order, for the subscriptions that listen and the tasks that wait, and returns what the
// caller makes due in tx; Tell does both. From here on nobody begins to wait for an event in their organizations until
// tx ends.
func Emit(ctx context.Context, tx db.DBTX, events ...Event) ([]DueRow, error) {
	var in db.EventEmitParams
	for i := range events {
		e := &events[i]
		id := e.id()
		text, err := encode(e.Payload)
		if err != nil {
			return nil, fmt.Errorf("encode an event %s: %w", e.Kind, err)
		}
		in.Ids, in.OrgIds, in.Kinds = append(in.Ids, id), append(in.OrgIds, e.OrgID), append(in.Kinds, e.Kind)
		root := e.Chain.Root
		if root == uuid.Nil {
			root = id
		}
		in.Depths, in.RootIds, in.Payloads = append(in.Depths, e.Chain.Depth), append(in.RootIds, root),
			append(in.Payloads, text)
	}
	if len(events) == 0 {
		return nil, nil
	}
	heard, err := db.New().EventEmit(ctx, tx, in)
	if err != nil {
		return nil, fmt.Errorf("leave events: %w", err)
	}
	arrived, err := arrive(ctx, tx, &in)
	return dueRows(heard, arrived), err
}

// arrive leaves those events for which tasks wait, and returns in which organizations there are any.
func arrive(ctx context.Context, tx db.DBTX, in *db.EventEmitParams) ([]uuid.UUID, error) {
	waited, err := db.New().EventWaited(ctx, tx, db.EventWaitedParams{OrgIds: in.OrgIds, Kinds: in.Kinds})
	if err != nil {
		return nil, fmt.Errorf("look for tasks that wait: %w", err)
	}
	var out db.EventArriveParams
	for i, is := range waited {
		if is {
			out.Ids, out.OrgIds = append(out.Ids, in.Ids[i]), append(out.OrgIds, in.OrgIds[i])
			out.Kinds, out.Payloads = append(out.Kinds, in.Kinds[i]), append(out.Payloads, in.Payloads[i])
		}
	}
	if len(out.Ids) == 0 {
		return nil, nil
	}
	if err := db.New().EventArrive(ctx, tx, out); err != nil {
		return nil, fmt.Errorf("leave events for tasks that wait: %w", err)
	}
	return out.OrgIds, nil
}

// dueRows are those of subscriptions that heard of events, and of organizations in which tasks wait for some.
func dueRows(heard, arrived []uuid.UUID) (out []DueRow) {
	for _, id := range heard {
		out = append(out, DueRow{Due, id.String()})
	}
	for _, id := range arrived {
		out = append(out, DueRow{DueArrival, id.String()})
	}
	return out
}

func (e *Event) id() uuid.UUID {
	if e.ID != uuid.Nil {
		return e.ID
	}
	return cell.NewID()
}

// encode writes JSON as it is: < and the like are not escaped.
func encode(payload any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(payload)
	return b.String(), err //nolint:wrapcheck // Emit says what it is
}

// BatchesEnded is Emit for batches that are over in this transaction: their rows say what there is to say. loss is the
// last one by a restore; nil for none.
func BatchesEnded(ctx context.Context, tx db.DBTX, loss *pg.Loss, batchIDs []uuid.UUID) ([]DueRow, error) {
	if len(batchIDs) == 0 {
		return nil, nil
	}
	in := db.EventBatchesEndedParams{BatchIds: batchIDs}
	if loss != nil {
		in.LostUntil = loss.Until
	}
	for range batchIDs {
		id := cell.NewID()
		in.Ids = append(in.Ids, id)
	}
	q := db.New()
	heard, err := q.EventBatchesEnded(ctx, tx, in)
	if err != nil {
		return nil, fmt.Errorf("leave events of batches: %w", err)
	}
	waited, err := q.EventBatchesWaited(ctx, tx, batchIDs)
	if err != nil {
		return nil, fmt.Errorf("look for tasks that wait: %w", err)
	}
	var out db.EventBatchesArriveParams
	for i, is := range waited {
		if is {
			out.Ids, out.BatchIds = append(out.Ids, in.Ids[i]), append(out.BatchIds, batchIDs[i])
		}
	}
	if len(out.Ids) == 0 {
		return dueRows(heard, nil), nil
	}
	arrived, err := q.EventBatchesArrive(ctx, tx, out)
	if err != nil {
		return nil, fmt.Errorf("leave events of batches for tasks that wait: %w", err)
	}
	return dueRows(heard, arrived), nil
}

// Publish leaves events and has those who listen or wait look. It locks due rows until tx ends, so it comes last.
func Publish(ctx context.Context, tx pgx.Tx, waker due.Waker, events ...Event) error {
	rows, err := Emit(ctx, tx, events...)
	if err != nil {
		return err
	}
	slices.SortFunc(rows, func(a, b DueRow) int { // the order in which due rows are locked
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Key, b.Key))
	})
	for _, r := range slices.Compact(rows) {
		if err := waker.Wake(ctx, tx, r.Kind, r.Key, time.Time{}); err != nil {
			return err //nolint:wrapcheck // says everything
		}
	}
	return nil
}

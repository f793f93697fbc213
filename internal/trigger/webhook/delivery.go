package webhook

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/listing"
	"flowlane/internal/pg"
)

// Delivery is what became of a message.
type Delivery = db.DeliveryListRow

// dispatched is the status of a delivery that started a batch.
const dispatched = "dispatched"

// BatchOf is the batch that a delivery started, which has the delivery's id unless it is said; nil for none.
func BatchOf(d *Delivery) *uuid.UUID {
	if d.BatchID == nil && d.Status == dispatched {
		return &d.ID
	}
	return d.BatchID
}

// DeliveryFilter says which deliveries of a webhook a list shows: those in one status or, where that is nil, in any.
type DeliveryFilter struct {
	Status   *string
	Received listing.Range
}

// Deliveries returns a page of the deliveries of a webhook, and how many there are on all pages. Fault: NotFound.
func (s *Service) Deliveries(ctx context.Context, orgID, id uuid.UUID, f DeliveryFilter,
	at listing.Page) ([]Delivery, int64, error) {
	w, err := s.Get(ctx, orgID, id)
	if err != nil {
		return nil, 0, err
	}
	rows, err := s.deliveries(ctx, db.DeliveryListParams{WebhookID: id, OrgID: orgID, Least: at.Least, Most: at.Most,
		Status:       f.Status,
		CreatedAfter: at.CreatedAfter, CreatedBefore: at.CreatedBefore, MaxRows: at.MaxRows}, at.Newest)
	if err != nil {
		return nil, 0, fmt.Errorf("list deliveries: %w", err)
	}
	total, err := s.deliveryTotal(ctx, w, f)
	if err != nil {
		return nil, 0, fmt.Errorf("count deliveries: %w", err)
	}
	return rows, total, nil
}

func (s *Service) deliveries(ctx context.Context, in db.DeliveryListParams, newest bool) ([]Delivery, error) {
	conn := pg.CustomPlan{Pool: s.Pool}
	if !newest {
		return s.q.DeliveryList(ctx, conn, in)
	}
	rows, err := s.q.DeliveryListNewest(ctx, conn, db.DeliveryListNewestParams(in))
	out := make([]Delivery, len(rows))
	for i, row := range rows {
		out[i] = Delivery(row)
	}
	return out, err
}

// deliveryTotal counts rows only where a time is asked for: the webhook knows how many it has, and few of them wait or
// are dead.
func (s *Service) deliveryTotal(ctx context.Context, w *Webhook, f DeliveryFilter) (int64, error) {
	r := f.Received
	if r.CreatedAfter != nil || r.CreatedBefore != nil {
		return s.q.DeliveryTotal(ctx, pg.CustomPlan{Pool: s.Pool}, db.DeliveryTotalParams{
			WebhookID: w.ID, OrgID: w.OrgID, Least: r.Least, Most: r.Most, Status: f.Status,
			CreatedAfter: r.CreatedAfter, CreatedBefore: r.CreatedBefore})
	}
	if f.Status == nil {
		return w.DeliveryCount, nil
	}
	n, err := s.q.DeliveryCounts(ctx, pg.CustomPlan{Pool: s.Pool}, db.DeliveryCountsParams{WebhookID: w.ID,
		OrgID: w.OrgID})
	if err != nil {
		return 0, err
	}
	dispatched := max(w.DeliveryCount-n.Accepted-n.Failed-n.Dead, 0)
	return map[string]int64{"accepted": n.Accepted, "failed": n.Failed, "dead": n.Dead,
		"dispatched": dispatched}[*f.Status], nil
}

// maxShown is how many bytes of a body are shown.
const maxShown = 64 << 10

// DeliveryDetail is a delivery with the beginning of its body as text.
type DeliveryDetail struct {
	Delivery

	Encoding *string
	Body     string
	// Truncated is set where the body is longer.
	Truncated bool
}

// Delivery returns one delivery. Fault: NotFound.
func (s *Service) Delivery(ctx context.Context, orgID, id, delivery uuid.UUID) (*DeliveryDetail, error) {
	if _, err := s.Get(ctx, orgID, id); err != nil {
		return nil, err
	}
	row, err := s.q.DeliveryGet(ctx, s.Pool, db.DeliveryGetParams{WebhookID: id, OrgID: orgID, ID: delivery})
	if pg.IsNoRows(err) {
		return nil, fault.Missing("Delivery")
	}
	if err != nil {
		return nil, fmt.Errorf("read delivery %s: %w", delivery, err)
	}
	body, err := bodyOf(&row)
	if err != nil {
		return nil, err
	}
	out := &DeliveryDetail{Encoding: row.ContentEncoding, Delivery: Delivery{
		ID: row.ID, MessageID: row.MessageID, ReceivedAt: row.ReceivedAt, Status: row.Status,
		Duplicates: row.Duplicates, ContentType: row.ContentType,
		SizeBytes: row.SizeBytes, BatchID: row.BatchID, Attempts: row.Attempts, LastError: row.LastError,
	}}
	out.Body, out.Truncated = shown(textOf(row.ContentEncoding), body)
	return out, nil
}

// shown is the beginning of a body as text that can be answered, and whether there is more of it.
func shown(contentEncoding string, body []byte) (text string, truncated bool) {
	if plain, ok := unpack(contentEncoding, body); ok {
		body = plain
	}
	if len(body) > maxShown {
		body, truncated = body[:maxShown], true
	}
	return strings.ToValidUTF8(strings.ReplaceAll(string(body), "\x00", "\ufffd"), "\ufffd"), truncated
}

// Replay has the start of a delivery tried again that has none yet, with as many attempts as a new one. Faults:
// NotFound; Conflict.
func (s *Service) Replay(ctx context.Context, orgID, id, delivery uuid.UUID) (Delivery, error) {
	var out Delivery
	err := pg.InTx(ctx, s.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := s.read(ctx, tx, orgID, id); err != nil {
			return err
		}
		row, err := s.q.DeliveryLock(ctx, tx, db.DeliveryLockParams{WebhookID: id, OrgID: orgID, ID: delivery})
		if pg.IsNoRows(err) {
			return fault.Missing("Delivery")
		}
		if err != nil {
			return fmt.Errorf("lock delivery %s: %w", delivery, err)
		}
		if row.Status == dispatched {
			return fault.New(fault.Conflict, "Delivery already started a batch")
		}
		replayed, err := s.q.DeliveryReplay(ctx, tx, db.DeliveryReplayParams{OrgID: orgID, WebhookID: id, ID: delivery})
		if err != nil {
			return fmt.Errorf("replay delivery %s: %w", delivery, err)
		}
		out = Delivery(replayed)
		if err := account.Audit(ctx, tx, "webhook_delivery", delivery.String()); err != nil {
			return err
		}
		return s.Due.Wake(ctx, tx, Due, id.String(), time.Time{})
	})
	return out, err
}

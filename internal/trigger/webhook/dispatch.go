package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/due"
	"flowlane/internal/expr"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/internal/run"
)

// Due is the kind of due rows for the deliveries of a webhook that wait for their start (key: the webhook's id).
const Due = "webhook"

const (
	// startRows and startBytes bound the deliveries that are started in one transaction: their bodies together, and
	// their records but for the last one.
	startRows  = 64
	startBytes = 2 << 20
	// turn is how long one webhook's deliveries go on before others get theirs.
	turn = time.Second
	// sameIDFor is for how long a delivery gives its id to its batch, which saves both the other's. Ids order batches
	// by their start: one that starts later has a new one.
	sameIDFor = 10 * time.Second
	// fullPause is how long the deliveries of a webhook wait whose organization has as many open batches as it may
	// have. That is no attempt: what was accepted is started once there is room.
	fullPause = 5 * time.Second
)

// reasonLost is why a delivery is not started that waited when a restore began to lose commits.
const reasonLost = "A restore of the service's database has lost whether its batch was started before; " +
	"where it was not, replay the delivery"

// waiting is a delivery whose start is due.
type waiting struct {
	id uuid.UUID
	// record is what the batch works on.
	record []byte
}

// Group says who the key of a due row of kind Due belongs to, for due.Grouped: the organization, which this process
// knows of webhooks that it has lately received messages for, else the webhook alone.
func (s *Service) Group(key string) string {
	id, err := uuid.Parse(key)
	if err != nil {
		return key
	}
	if org, ok := s.copies.owner(id); ok {
		return org.String()
	}
	return key
}

// Dispatch is the handler of due rows of kind Due: it starts the batches of deliveries. The transaction that starts a
// batch moves its delivery, so that a process that dies leaves both or neither, and a second one finds nothing to
// start.
func (s *Service) Dispatch(ctx context.Context, l *due.Lease) (time.Time, error) {
	id, err := l.ID()
	if err != nil {
		return time.Time{}, err
	}
	for began := time.Now(); time.Since(began) < turn; {
		more, err := s.dispatchSome(ctx, id, began)
		if orgquota.IsExceeded(err) {
			return s.Runs.In(ctx, fullPause)
		}
		if err != nil {
			return time.Time{}, err
		}
		if !more {
			return s.next(ctx, id)
		}
	}
	return due.Now(), nil
}

// next is when the next start of a webhook is due; the zero time for never.
func (s *Service) next(ctx context.Context, id uuid.UUID) (time.Time, error) {
	at, err := s.q.DeliveryNext(ctx, s.Pool, id)
	if pg.IsNoRows(err) || err == nil && at == nil {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("look for deliveries that wait: %w", err)
	}
	return *at, nil
}

// dispatchSome starts some deliveries in the turn that began then; more is false where no other was due. What comes
// meanwhile wakes the webhook again.
func (s *Service) dispatchSome(ctx context.Context, id uuid.UUID, began time.Time) (more bool, err error) {
	var rows []db.FlowWebhookDelivery
	var row db.FlowWebhook
	err = pg.GenericPlan(ctx, s.Pool, func(tx pg.DB) (err error) {
		rows, err = s.q.DeliveryWaiting(ctx, tx, db.DeliveryWaitingParams{WebhookID: id, MaxRows: startRows,
			MaxBytes: startBytes})
		return err
	}, func(tx pg.DB) (err error) {
		row, err = s.q.WebhookForDispatch(ctx, tx, id)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("read webhook %s and the deliveries that wait: %w", id, err)
	}
	if len(rows) == 0 {
		return false, nil
	}
	w, err := seen(row)
	if err != nil {
		return false, err
	}
	template, err := compileTemplate(w.InputTemplate)
	if err != nil {
		return false, fmt.Errorf("the template of webhook %s: %w", id, err)
	}
	all, err := s.startSome(ctx, w, template, rows, began)
	if err != nil {
		return false, err
	}
	size := 0
	for i := range rows {
		size += int(rows[i].SizeBytes)
	}
	return !all || len(rows) == startRows || size >= startBytes, nil
}

// startSome starts deliveries, or notes why they cannot be. A body may become many times what it was as it was sent,
// which is what rows were chosen by: as soon as the records of some are more than startBytes these are started, so that
// the others' are not in memory beside them. all is false where the turn, which began then, ended before: the rest is
// still due.
func (s *Service) startSome(ctx context.Context, w *Webhook, template *run.InputTemplate,
	rows []db.FlowWebhookDelivery, began time.Time) (all bool, err error) {
	var ready []waiting
	size := 0
	for i := range rows {
		if next := rows[i].NextAt; next != nil && s.Losses.Last().MayHaveGone(*next) {
			if err := s.failed(ctx, w, rows[i].ID, reasonLost, nil); err != nil {
				return false, err
			}
			continue
		}
		record, err := recordOf(template, &rows[i])
		if err != nil {
			if err := s.failed(ctx, w, rows[i].ID, "input_template: "+err.Error(), w.Retry); err != nil {
				return false, err
			}
			continue
		}
		ready = append(ready, waiting{rows[i].ID, record})
		if size += len(record); size <= startBytes || i == len(rows)-1 {
			continue
		}
		if err := s.startAll(ctx, w, ready); err != nil {
			return false, err
		}
		if time.Since(began) >= turn {
			return false, nil
		}
		ready, size = nil, 0
	}
	return true, s.startAll(ctx, w, ready)
}

// recordOf makes the record of a delivery; template is nil where the payload is passed whole. The error is for people.
func recordOf(template *run.InputTemplate, d *db.FlowWebhookDelivery) ([]byte, error) {
	body, err := bodyOf(d)
	if err != nil {
		return nil, err
	}
	payload := json.RawMessage(Payload(textOf(d.ContentType), textOf(d.ContentEncoding), body))
	if template == nil && payload[0] != '{' {
		payload = append(append([]byte(`{"payload":`), payload...), '}')
	}
	record, err := template.Record(payload)
	if err != nil && len(payload) > expr.MaxResult {
		return nil, fmt.Errorf("%w; the payload takes %d bytes as JSON, because it escapes characters of the body, "+
			"and an expression may yield %d: use parts of it, or no template", err, len(payload), expr.MaxResult)
	}
	return record, err
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// startAll starts deliveries together, or else one by one, so that none suffers for another.
func (s *Service) startAll(ctx context.Context, w *Webhook, all []waiting) error {
	if len(all) == 0 {
		return nil
	}
	err := pg.InTxGenericPlan(ctx, s.Pool, func(ctx context.Context, tx pgx.Tx) error {
		return s.start(ctx, tx, w, all)
	})
	if err == nil || ctx.Err() != nil || pg.IsTransient(err) {
		return err
	}
	if orgquota.IsExceeded(err) && len(all) == 1 {
		return err
	}
	if len(all) > 1 {
		for i := range all {
			if err := s.startAll(ctx, w, all[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	// The start was refused, and rolled back.
	reason, inside := run.Refusal(err)
	if inside {
		s.Log.ErrorContext(ctx, "start of a webhook", "webhook", w.ID, "delivery", all[0].id, "error", err)
	}
	return s.failed(ctx, w, all[0].id, reason, w.Retry)
}

// start starts the batches of those deliveries that still wait.
func (s *Service) start(ctx context.Context, tx pgx.Tx, w *Webhook, all []waiting) error {
	active, err := s.Definitions.Active(ctx, tx, w.OrgID, w.DefinitionID)
	if err != nil {
		return err
	}
	records, in := map[uuid.UUID][]byte{}, db.DeliveryLockWaitingParams{OrgID: w.OrgID, WebhookID: w.ID}
	for _, d := range all {
		records[d.id], in.Ids = d.record, append(in.Ids, d.id)
	}
	open, err := s.q.DeliveryLockWaiting(ctx, tx, in)
	if err != nil {
		return fmt.Errorf("lock deliveries of webhook %s: %w", w.ID, err)
	}
	if len(open) == 0 {
		return nil
	}
	group, done := groupOf(&w.FlowWebhook, active.Version), db.DeliveryDispatchedParams{OrgID: w.OrgID, WebhookID: w.ID}
	for _, d := range open {
		id := d.ID
		if d.Attempts > 0 || d.Now.Sub(d.ReceivedAt) > sameIDFor {
			id = uuid.Nil
		}
		if err := addTo(group, records[d.ID], d.ID, id); err != nil {
			return err
		}
	}
	if err := s.Runs.StartGroups(ctx, tx, time.Time{}, group); err != nil {
		return err
	}
	if group.Refused != nil {
		return group.Refused
	}
	for i, started := range group.Out {
		done.Ids, done.BatchIds = append(done.Ids, open[i].ID), append(done.BatchIds, started.BatchID)
	}
	if err := s.q.DeliveryDispatched(ctx, tx, done); err != nil {
		return fmt.Errorf("note the batches of webhook %s: %w", w.ID, err)
	}
	return nil
}

// failed notes that a start failed, and when it is tried again; retry is nil for never.
func (s *Service) failed(ctx context.Context, w *Webhook, id uuid.UUID, reason string, retry *Retry) error {
	return pg.InTx(ctx, s.Pool, func(ctx context.Context, tx pgx.Tx) error {
		open, err := s.q.DeliveryLockWaiting(ctx, tx, db.DeliveryLockWaitingParams{OrgID: w.OrgID, WebhookID: w.ID,
			Ids: []uuid.UUID{id}})
		if err != nil {
			return fmt.Errorf("lock delivery %s: %w", id, err)
		}
		if len(open) == 0 {
			return nil
		}
		note := db.DeliveryFailedParams{OrgID: w.OrgID, WebhookID: w.ID, ID: id, LastError: reason}
		if pause, again := retry.After(int(open[0].Attempts) + 1); again {
			at := open[0].Now.Add(pause)
			note.NextAt = &at
		}
		if err := s.q.DeliveryFailed(ctx, tx, note); err != nil {
			return fmt.Errorf("note that delivery %s failed: %w", id, err)
		}
		return nil
	})
}

package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
	"flowlane/internal/recordset"
	"flowlane/internal/run"
)

// startingMost is how many of the connections may be in use for starts with acknowledgements: the others keep
// acknowledging.
const startingMost = atOnce / 2

// errLeft rolls back what accepted messages and cannot start their batches: it is left to Dispatch, which also notes
// why.
var errLeft = errors.New("webhook: not started")

// add writes messages down, and starts the batches of a few in the same commit.
func (s *Service) add(ctx context.Context, in db.WebhookAcceptParams) (rows []db.WebhookAcceptRow, err error) {
	bytes := 0
	for _, size := range in.Sizes { // as they were sent: a body that is stored in little may be made large to hurt
		bytes += int(size)
	}
	if s.crowds.few(in.ID, len(in.Ids), bytes, time.Now()) && len(s.writers) <= startingMost {
		if rows, err = s.addStarted(ctx, in); err == nil || ctx.Err() != nil || pg.IsUnavailable(err) {
			return rows, err
		}
	}
	return s.q.WebhookAccept(ctx, s.Pool, in) //nolint:wrapcheck // write does
}

// addStarted writes messages down with the batches of those that are new, or does nothing at all.
func (s *Service) addStarted(ctx context.Context, in db.WebhookAcceptParams) (rows []db.WebhookAcceptRow, err error) {
	defer fault.Recovered(&err) // of an expression: Dispatch meets it where it fails that webhook alone
	in.Started = true
	for range in.Ids {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make an id: %w", err)
		}
		in.BatchIds = append(in.BatchIds, id)
	}
	err = pg.InTxShared(ctx, s.Pool, func(ctx context.Context, tx pgx.Tx) error {
		var hook db.WebhookStartRow
		startable := true
		err := pg.Together(ctx, tx, func(conn pg.DB) (err error) {
			rows, err = s.q.WebhookAccept(ctx, conn, in)
			return err
		}, func(conn pg.DB) (err error) {
			if hook, err = s.q.WebhookStart(ctx, conn, in.ID); pg.IsNoRows(err) {
				startable, err = false, nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("write deliveries: %w", err)
		}
		fresh := freshOf(rows, &in)
		switch {
		case len(fresh) == 0:
			return nil
		case !startable:
			return errLeft
		}
		return s.startFresh(ctx, tx, &hook, fresh)
	})
	return rows, err
}

// freshOf are the deliveries that were added.
func freshOf(rows []db.WebhookAcceptRow, in *db.WebhookAcceptParams) (out []db.FlowWebhookDelivery) {
	at := make(map[string]int, len(in.MessageIds))
	for i, id := range in.MessageIds {
		at[id] = i
	}
	for i := range rows {
		if r := &rows[i]; r.New {
			n := at[r.MessageID]
			out = append(out, db.FlowWebhookDelivery{ID: r.DeliveryID, BatchID: &in.BatchIds[n], ReceivedAt: r.Now,
				Body:   in.Bodies[n],
				Packed: in.Packed[n], SizeBytes: in.Sizes[n], ContentType: &in.ContentTypes[n],
				ContentEncoding: &in.ContentEncodings[n]})
		}
	}
	return out
}

// startFresh starts the batches of deliveries that were just added.
func (s *Service) startFresh(ctx context.Context, tx pgx.Tx, hook *db.WebhookStartRow,
	fresh []db.FlowWebhookDelivery) error {
	template, err := compileTemplate(hook.FlowWebhook.InputTemplate)
	if err != nil {
		return err
	}
	group := groupOf(&hook.FlowWebhook, hook.Version)
	for i := range fresh {
		d := &fresh[i]
		record, err := recordOf(template, d)
		if err != nil {
			return err
		}
		if err := addTo(group, record, d.ID, *d.BatchID); err != nil {
			return err
		}
	}
	if err := s.Runs.StartAlike(ctx, tx, fresh[0].ReceivedAt, group); err != nil {
		return err
	}
	return group.Refused
}

// groupOf is a group of starts for deliveries of a webhook, which is empty yet.
func groupOf(w *db.FlowWebhook, version int32) *run.Alike {
	source := FormatID(w.ID)
	return &run.Alike{In: run.StartInput{OrgID: w.OrgID, DefinitionID: w.DefinitionID, Version: version,
		TriggerType: db.FlowTriggerTypeWebhook, TriggerSource: &source, CreatedBy: &w.CreatedBy}}
}

// addTo adds the start of a delivery to a group; batch is the id that it has, zero for a new one.
func addTo(group *run.Alike, record []byte, delivery, batch uuid.UUID) error {
	sheet := recordset.OneSheet([][]byte{record})
	if sheet == nil {
		return fmt.Errorf("a record of %d bytes fits no page", len(record))
	}
	metadata := fmt.Appendf(nil, `{"webhook_id":%q,"delivery_id":%q}`, *group.In.TriggerSource, delivery)
	group.Each = append(group.Each, run.Small{ID: batch, Sheet: sheet, Metadata: metadata})
	return nil
}

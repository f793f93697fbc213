package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/fault"
	"flowlane/internal/moment"
	"flowlane/internal/pg"
	"flowlane/internal/recordset"
	"flowlane/internal/run"
)

// errLeft rolls back what accepted messages and cannot start their batches: it is left to Dispatch, which also notes
// why.
var errLeft = errors.New("webhook: not started")

// add writes messages down, and starts the batches of a few in the same commit.
func (s *Service) add(ctx context.Context, in db.WebhookAcceptParams,
	traces map[string][]byte) ([]db.WebhookAcceptRow, error) {
	size := 0
	// As they were sent: a body that is stored in little may be made large to hurt. What they become, startsOf counts.
	for _, n := range in.Sizes {
		size += int(n)
	}
	if s.bursts.few(in.ID, len(in.Ids), size, time.Now()) && s.groups.Waiting() < waitingMost {
		rows, err := s.join(ctx, in, size, traces)
		if err == nil || ctx.Err() != nil || pg.IsUnavailable(err) {
			return rows, err
		}
	}
	s.writers <- struct{}{}
	defer func() { <-s.writers }()
	return s.q.WebhookAccept(ctx, s.Pool, in) //nolint:wrapcheck // write does
}

// addGroup writes messages of several webhooks down with their batches, or else those of each by themselves, so that
// none suffers for another: once more without those that cannot be started, which are left to Dispatch for a while,
// which also notes why.
func (s *Service) addGroup(group []*joined) {
	s.writers <- struct{}{}
	defer func() { <-s.writers }()
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	err := s.addStarted(ctx, group)
	if rest := startable(group); err != nil && len(rest) > 0 && len(rest) < len(group) {
		if err = s.addStarted(ctx, rest); err == nil {
			s.leaveAlone(group)
			return
		}
	}
	if err == nil || pg.IsUnavailable(err) {
		setErr(group, err)
		return
	}
	for _, j := range group {
		if j.err = err; len(group) > 1 {
			j.err = s.addStarted(ctx, []*joined{j})
		}
	}
	s.leaveAlone(group)
}

// startable are those of a group that keep nobody's batches from being started.
func startable(group []*joined) []*joined {
	return slices.DeleteFunc(slices.Clone(group), func(j *joined) bool { return j.err != nil })
}

// leaveAlone keeps the webhooks out of groups that could not be started.
func (s *Service) leaveAlone(group []*joined) {
	for _, j := range group {
		if j.err != nil && !pg.IsUnavailable(j.err) {
			s.bursts.alone(j.in.ID, time.Now())
		}
	}
}

func setErr(group []*joined, err error) {
	for _, j := range group {
		j.err = err
	}
}

// addStarted writes messages down with the batches of those that are new, or does nothing at all. Webhooks are locked
// in the order of their ids.
func (s *Service) addStarted(ctx context.Context, group []*joined) (err error) {
	defer fault.Recovered(&err) // of an expression: Dispatch meets it where it fails that webhook alone
	slices.SortFunc(group, func(a, b *joined) int { return bytes.Compare(a.in.ID[:], b.in.ID[:]) })
	for _, j := range group {
		j.in.Started, j.startable = true, true
	}
	return pg.InTxShared(ctx, s.Pool, func(ctx context.Context, tx pgx.Tx) error {
		var asks []pg.Query
		for _, j := range group {
			asks = append(asks, func(conn pg.DB) (err error) {
				j.rows, err = s.q.WebhookAccept(ctx, conn, j.in)
				return err
			}, func(conn pg.DB) (err error) {
				if j.hook, err = s.q.WebhookStart(ctx, conn, j.in.ID); pg.IsNoRows(err) {
					j.startable, err = false, nil
				}
				return err
			})
		}
		if err := pg.QueryBatch(ctx, tx, asks...); err != nil {
			return fmt.Errorf("write deliveries: %w", err)
		}
		return s.startFresh(ctx, tx, group)
	})
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
			out = append(out, db.FlowWebhookDelivery{ID: r.DeliveryID, MessageID: r.MessageID, ReceivedAt: r.Now,
				Body:   in.Bodies[n],
				Packed: in.Packed[n], SizeBytes: in.Sizes[n], ContentType: &in.ContentTypes[n],
				ContentEncoding: &in.ContentEncodings[n]})
		}
	}
	return out
}

// startFresh starts the batches of deliveries that were just added, or none: err says of whose that cannot be.
func (s *Service) startFresh(ctx context.Context, tx pgx.Tx, group []*joined) error {
	var all []*run.StartGroup
	var whose []*joined
	var now time.Time
	for _, j := range group {
		fresh := freshOf(j.rows, &j.in)
		if len(fresh) == 0 {
			continue
		}
		began := time.Now()
		var starts *run.StartGroup
		if j.err = errLeft; j.startable {
			starts, j.err = startsOf(&j.hook, fresh, j.traces)
		}
		if time.Since(began) > templateSlow {
			s.bursts.alone(j.in.ID, time.Now())
		}
		all, whose, now = append(all, starts), append(whose, j), moment.Later(now, fresh[0].ReceivedAt)
	}
	if len(startable(whose)) < len(whose) {
		return errLeft
	}
	if len(all) == 0 {
		return nil
	}
	if err := s.Runs.StartAndClaim(ctx, tx, now, nil, all...); err != nil {
		return err
	}
	for i, starts := range all {
		whose[i].err = starts.Refused
	}
	if len(startable(whose)) < len(whose) {
		return errLeft
	}
	return nil
}

// startsOf are the starts of deliveries of a webhook, with the traces of their messages. Records of more than
// startedBytes are left to Dispatch, which does not have all of them in memory at once: gzip, escapes and templates
// make them of little, for each webhook of a group.
func startsOf(hook *db.WebhookStartRow, fresh []db.FlowWebhookDelivery,
	traces map[string][]byte) (*run.StartGroup, error) {
	template, err := compileTemplate(hook.FlowWebhook.InputTemplate)
	if err != nil {
		return nil, err
	}
	group := groupOf(&hook.FlowWebhook, hook.Version)
	size := 0
	for i := range fresh {
		d := &fresh[i]
		record, err := recordOf(template, d)
		if err != nil {
			return nil, err
		}
		if size += len(record); size > startedBytes {
			return nil, errLeft
		}
		if err := addTo(group, record, d.ID, d.ID); err != nil {
			return nil, err
		}
		group.Each[i].Trace = traces[d.MessageID]
	}
	return group, nil
}

// groupOf is a group of starts for deliveries of a webhook, which is empty yet.
func groupOf(w *db.FlowWebhook, version int32) *run.StartGroup {
	source := FormatID(w.ID)
	return &run.StartGroup{In: run.StartInput{OrgID: w.OrgID, DefinitionID: w.DefinitionID, Version: version,
		TriggerType: run.TriggerWebhook, TriggerSource: &source, CreatedBy: &w.CreatedBy}}
}

// addTo adds the start of a delivery to a group; batch is the id that it has: the delivery's, or zero for a new one.
func addTo(group *run.StartGroup, record []byte, delivery, batch uuid.UUID) error {
	sheet := recordset.OneSheet([][]byte{record})
	if sheet == nil {
		return fmt.Errorf("a record of %d bytes fits no page", len(record))
	}
	metadata := fmt.Appendf(nil, `{"webhook_id":%q,"delivery_id":%q}`, *group.In.TriggerSource, delivery)
	group.Each = append(group.Each, run.Small{ID: batch, Sheet: sheet, Metadata: metadata,
		MetadataByID: batch == delivery})
	return nil
}

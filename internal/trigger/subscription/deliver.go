package subscription

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/expr"
	"flowlane/internal/orgquota"
	"flowlane/internal/pg"
	"flowlane/internal/run"
	"flowlane/internal/trigger/event"
)

const (
	// atOnce is how many events are decided in one transaction, clearAtOnce how many of nobody are cleared.
	atOnce      = 16
	clearAtOnce = 1000
)

// reasonDepth is why the batch of the last start in a row causes no other.
var reasonDepth = fmt.Sprintf("The event comes of a batch that is the last of %d starts by events "+
	"and flows in a row, which is the most", event.MaxDepth)

// Deliver decides the oldest events that wait for a subscription, and returns whether there may be more. Each is gone
// in the transaction that decides it, under the lock of the subscription, so that a second process finds what the first
// left. A start that is refused takes its transaction with it; that is done again with the event noted as a failure, so
// that the ones behind it do not wait. Only failures of the database are returned, and tried again.
func (s *Service) Deliver(ctx context.Context, id uuid.UUID) (more bool, err error) {
	refused := map[int64]string{}
	for {
		d := deciding{s: s, refused: refused}
		err := pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error { return d.decide(ctx, tx, id) })
		if err == nil {
			return d.more, nil
		}
		if d.starting == 0 || ctx.Err() != nil || pg.IsTransient(err) {
			return false, err
		}
		reason, inside := run.Refusal(err)
		if inside {
			s.log.ErrorContext(ctx, "start by an event", "subscription", id, "error", err)
		}
		refused[d.starting] = reason
	}
}

// deciding is one transaction over the oldest events of a subscription.
type deciding struct {
	s *Service
	// refused are events whose start failed before, with the reason.
	refused map[int64]string

	tx     pgx.Tx
	sub    Subscription
	chains run.Chains
	rules
	// starting is the event whose start is under way; 0 for none.
	starting int64
	started  int64
	failed   int64
	reason   *string
	// full tells that a start was refused for a full quota, and listed: one of those that are decided together tells of
	// all.
	full bool
	more bool
}

func (d *deciding) decide(ctx context.Context, tx pgx.Tx, id uuid.UUID) (err error) {
	d.tx = tx
	d.sub, err = d.s.q.EventSubscriptionLockDue(ctx, tx, id)
	if pg.IsNoRows(err) || err == nil && !d.sub.Enabled {
		n, err := d.s.q.EventDeliveryClear(ctx, tx, db.EventDeliveryClearParams{SubscriptionID: id,
			MaxRows: clearAtOnce})
		if err != nil {
			return fmt.Errorf("clear the events of subscription %s: %w", id, err)
		}
		d.more = n == clearAtOnce
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock event subscription %s: %w", id, err)
	}
	rows, err := d.s.q.EventDeliveries(ctx, tx, db.EventDeliveriesParams{SubscriptionID: id, MaxRows: atOnce})
	if err != nil {
		return fmt.Errorf("read the events of subscription %s: %w", id, err)
	}
	if len(rows) == 0 {
		return nil
	}
	d.more = len(rows) == atOnce
	in := inputOf(&d.sub)
	if d.rules, err = in.rules(); err != nil {
		return fmt.Errorf("the expressions of event subscription %s: %w", id, err)
	}
	all, decided, err := d.prepare(ctx, rows)
	if err != nil {
		return err
	}
	for i := range all {
		if err := d.one(ctx, &all[i]); err != nil {
			return err
		}
	}
	return d.write(ctx, decided)
}

// candidate is an event, and the record that it starts a batch with; nil where it starts none, with the reason where it
// should.
type candidate struct {
	*db.EventDeliveriesRow

	record []byte
	reason string
}

// begins tells whether the event is at the head of its chain. So it starts one batch at most for each subscription, and
// none of them needs to be counted.
func (h *candidate) begins() bool { return h.RootID == h.EventID }

// prepare makes the records of events, and locks the chains in which they are to start batches.
func (d *deciding) prepare(ctx context.Context,
	rows []db.EventDeliveriesRow) (all []candidate, decided []int64, err error) {
	var roots []uuid.UUID
	for i := range rows {
		h := candidate{EventDeliveriesRow: &rows[i]}
		h.record, h.reason = d.record(h.EventDeliveriesRow)
		if h.record != nil && !h.begins() {
			roots = append(roots, h.RootID)
		}
		all, decided = append(all, h), append(decided, h.ID)
	}
	d.chains, err = d.s.runs.LockChains(ctx, d.tx, d.sub.OrgID, roots...)
	return all, decided, err
}

// one decides one event.
func (d *deciding) one(ctx context.Context, e *candidate) error {
	record, reason, listed := e.record, e.reason, e.reason == reasonDepth
	if record != nil && !e.begins() {
		if reason, listed = d.chains.Take(e.RootID); reason != "" {
			record = nil
		}
	}
	if record == nil {
		return d.refuse(ctx, reason, listed)
	}
	d.starting = e.ID
	err := d.start(ctx, e.EventDeliveriesRow, record)
	if err != nil && !orgquota.IsExceeded(err) {
		return err
	}
	d.starting = 0
	if err != nil { // it wrote nothing
		d.chains.Return(e.RootID)
		listed, d.full = !d.full, true
		reason, _ = run.Refusal(err)
		return d.refuse(ctx, reason, listed)
	}
	d.started++
	return nil
}

// refuse notes why an event started nothing, where it should have, and lists that among the triggers.
func (d *deciding) refuse(ctx context.Context, reason string, listed bool) error {
	if reason != "" {
		d.failed++
		d.reason = &reason
	}
	if !listed {
		return nil
	}
	return d.s.runs.NoteRefused(ctx, d.tx, run.Refused{OrgID: d.sub.OrgID, DefinitionID: d.sub.DefinitionID,
		TriggerType:   run.TriggerEvent,
		TriggerSource: d.sub.ID.String(), CreatedBy: d.sub.CreatedBy, Reason: reason})
}

// record makes the record that an event starts a batch with. It is nil where it starts none, with the reason where it
// should.
func (d *deciding) record(e *db.EventDeliveriesRow) (record []byte, reason string) {
	if e.EventKind != d.sub.EventKind { // it was changed since
		return nil, ""
	}
	if d.filter != nil {
		passes, err := d.filter.Eval(&expr.Env{Payload: e.Payload})
		if err != nil {
			return nil, "filter: " + err.Error()
		}
		if !passes {
			return nil, ""
		}
	}
	if reason, ok := d.refused[e.ID]; ok {
		return nil, reason
	}
	if e.Depth >= event.MaxDepth {
		return nil, reasonDepth
	}
	record, err := d.input.Record(e.Payload)
	if err != nil {
		return nil, "input_template: " + err.Error()
	}
	return record, ""
}

// start starts the batch of an event.
func (d *deciding) start(ctx context.Context, e *db.EventDeliveriesRow, record []byte) error {
	active, err := d.s.definitions.Active(ctx, d.tx, d.sub.OrgID, d.sub.DefinitionID)
	if err != nil {
		return err
	}
	source := d.sub.ID.String()
	metadata, err := json.Marshal(map[string]string{"subscription_id": source, "event_id": e.EventID.String(),
		"event_kind": e.EventKind})
	if err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	_, err = d.s.runs.Start(ctx, d.tx, run.StartInput{
		OrgID: d.sub.OrgID, DefinitionID: d.sub.DefinitionID, Version: active.Version,
		Source: run.Source{Records: [][]byte{record}}, Metadata: metadata,
		TriggerType: run.TriggerEvent, TriggerSource: &source, CreatedBy: &d.sub.CreatedBy,
		Chain: event.Chain{Root: e.RootID, Depth: e.Depth}.Next(),
	})
	return err
}

// write takes the decided events away, and notes what became of them.
func (d *deciding) write(ctx context.Context, decided []int64) error {
	n, err := d.s.q.EventDeliveryDelete(ctx, d.tx, decided)
	if err != nil {
		return fmt.Errorf("delete the events of subscription %s: %w", d.sub.ID, err)
	}
	if int(n) != len(decided) {
		return fmt.Errorf("delete the events of subscription %s: %d of %d are there", d.sub.ID, n, len(decided))
	}
	if d.started == 0 && d.failed == 0 {
		return nil
	}
	if err := d.chains.Note(ctx, d.tx); err != nil {
		return err
	}
	now, err := d.s.q.Clock(ctx, d.tx)
	if err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	note := db.EventSubscriptionNoteParams{ID: d.sub.ID, Started: d.started, Failed: d.failed, Now: now,
		LastError: d.reason}
	if err := d.s.q.EventSubscriptionNote(ctx, d.tx, note); err != nil {
		return fmt.Errorf("note the starts of subscription %s: %w", d.sub.ID, err)
	}
	return nil
}

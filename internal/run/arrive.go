package run

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/expr"
	"flowlane/internal/pg"
)

// askAtOnce bounds the waits that are asked about an event together.
const askAtOnce = 256

// Arrive holds the oldest event that came in an organization against a bounded number of the waits for its kind, and reports
// whether there is more to do. Those that it ends get it, in the order in which they began; their batches go on with it (EndWaits).
func (s *Service) Arrive(ctx context.Context, orgID uuid.UUID) (more bool, err error) {
	a, err := s.q.ArrivalNext(ctx, s.pool, orgID)
	if pg.IsNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the next event: %w", err)
	}
	event := eventOutput(&db.ArrivalsReadRow{No: a.No, EventID: a.EventID, EventKind: a.EventKind, Payload: a.Payload, OccurredAt: a.OccurredAt})
	rows, err := s.q.WaitCandidates(ctx, s.pool, db.WaitCandidatesParams{OrgID: orgID, EventKind: a.EventKind, MatchKeys: expr.EventKeys(event),
		After: a.DoneUpto, Before: a.No, OccurredAt: a.OccurredAt, MaxRows: askAtOnce})
	if err != nil {
		return false, fmt.Errorf("read what waits for event %s: %w", a.EventID, err)
	}
	ended, err := s.ask(ctx, rows, event)
	if err != nil {
		return false, err
	}
	upto := db.ArrivalAdvanceParams{No: a.No, Was: a.DoneUpto, DoneUpto: a.No, Delivered: len(rows) < askAtOnce}
	if !upto.Delivered {
		upto.DoneUpto = rows[len(rows)-1].No
	}
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error { return s.hand(ctx, tx, upto, ended) })
	return true, err
}

// hand gives an event to the waits that it ends, and notes how far it has come. Where another worker has done that, it does nothing.
func (s *Service) hand(ctx context.Context, tx pgx.Tx, upto db.ArrivalAdvanceParams, ended []int64) error {
	n, err := s.q.ArrivalAdvance(ctx, tx, upto)
	if err != nil || n == 0 {
		return wrap(err, "note how far an event has come")
	}
	var keys []dueKey
	if len(ended) > 0 {
		batches, err := s.q.WaitHand(ctx, tx, db.WaitHandParams{Nos: ended, EventNo: upto.No})
		if err != nil {
			return fmt.Errorf("hand an event to what waits: %w", err)
		}
		for _, id := range batches {
			keys = append(keys, dueKey{DueWait, id.String()})
		}
	}
	if upto.Delivered {
		if err := s.q.ArrivalDelete(ctx, tx, []int64{upto.No}); err != nil {
			return fmt.Errorf("delete an event that nobody waits for: %w", err)
		}
	}
	now, err := s.q.Clock(ctx, tx)
	if err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	return s.wakeAll(ctx, tx, keys, now)
}

// ask returns those of the waits that an event ends. One whose condition has no value for the event goes on waiting.
func (s *Service) ask(ctx context.Context, rows []db.WaitCandidatesRow, event json.RawMessage) (ended []int64, err error) {
	type place struct {
		batch uuid.UUID
		slice int32
		step  int16
		task  int16
	}
	by, order := map[place][]db.WaitCandidatesRow{}, []place{}
	for _, r := range rows {
		p := place{r.BatchID, r.SliceNo, r.StepNo, r.TaskNo}
		if by[p] == nil {
			order = append(order, p)
		}
		by[p] = append(by[p], r)
	}
	for _, p := range order {
		nos, err := s.askSlice(ctx, by[p], event)
		if err != nil {
			return nil, err
		}
		ended = append(ended, nos...)
	}
	return ended, nil
}

// askSlice is ask for waits of one task in one slice.
func (s *Service) askSlice(ctx context.Context, rows []db.WaitCandidatesRow, event json.RawMessage) (ended []int64, err error) {
	first := rows[0]
	b, err := s.Batch(ctx, s.pool, first.BatchID)
	if err != nil {
		return nil, err
	}
	task := &b.Plan.Steps[first.StepNo].Tasks[first.TaskNo]
	if task.Gone != "" {
		return nil, fmt.Errorf("batch %s, task %s waits for a catalog that has its action: %s", b.ID, task.ID, task.Gone)
	}
	if task.Match == nil {
		for _, r := range rows {
			ended = append(ended, r.No)
		}
		return ended, nil
	}
	env := func(db.WaitCandidatesRow) expr.Env {
		return expr.Env{Metadata: b.Metadata, Vars: b.Vars, Batch: b.facts}
	}
	if !task.Match.Static() {
		slice, err := s.sliceRow(ctx, s.pool, b.ID, first.SliceNo)
		if err != nil {
			return nil, err
		}
		recs, err := s.Open(ctx, s.pool, b, []SliceRef{{No: first.SliceNo, First: slice.First}}, first.StepNo, task.Match.Refs().Steps)
		if err != nil {
			return nil, err
		}
		defer recs[0].Release()
		env = func(r db.WaitCandidatesRow) expr.Env { return recs[0].Env(int32(r.Position - slice.First)) }
	}
	for _, r := range rows {
		sees := env(r)
		sees.Event = event
		if yes, err := task.Match.Eval(&sees); err == nil && yes {
			ended = append(ended, r.No)
		}
	}
	return ended, nil
}

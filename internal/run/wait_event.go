package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flowlane/gen/db"
	"flowlane/internal/expr"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

// MaxUnkeyed is how many waits an organization may have for events of one kind that every such event has to be held
// against: those whose match does not say which field of the event must equal something of the record.
const MaxUnkeyed = 10_000

func prepareEventWait(r *recordWork, params []byte) error {
	var p struct {
		Kind    string   `json:"event_kind"`
		Seconds *float64 `json:"timeout_seconds"`
	}
	if err := json.Unmarshal(params, &p); err != nil || p.Seconds == nil {
		return errors.New("timeout_seconds must be a number")
	}
	lasts, err := secondsOf("timeout_seconds", *p.Seconds, 1)
	r.wait = &wait{lasts: lasts, kind: p.Kind}
	return err
}

// eventOutput is an event as tasks and conditions see it.
func eventOutput(a *db.FlowEventArrival) json.RawMessage {
	out := fmt.Appendf(nil, `{"id":%q,"kind":%q,"occurred_at":%q,"payload":`, a.EventID, a.EventKind,
		a.OccurredAt.UTC().Format(time.RFC3339Nano))
	return append(append(out, bytes.TrimSpace(a.Payload)...), '}')
}

// admitWaits lets the waits of works begin, as many as there may be. From here on no event happens in the organization
// until the transaction ends if some wait for one, so that each event comes whole before them or after them.
func (c *Change) admitWaits(ctx context.Context, h *lockedBatch, works []*sliceWork) error {
	room := map[string]int64{}
	for _, w := range works {
		w.beginWaits(c.Now)
		for _, open := range w.waiting {
			for _, o := range open {
				if o.kind != "" {
					room[o.kind] = 0
				}
			}
		}
	}
	if len(room) == 0 {
		return nil
	}
	if err := c.s.q.EventGateTake(ctx, c.tx, h.OrgID); err != nil {
		return fmt.Errorf("take the gate of events: %w", err)
	}
	for kind := range room {
		n, err := c.s.q.WaitsUnkeyed(ctx, c.tx, db.WaitsUnkeyedParams{OrgID: h.OrgID, EventKind: kind,
			Most: MaxUnkeyed})
		if err != nil {
			return fmt.Errorf("count what waits: %w", err)
		}
		room[kind] = MaxUnkeyed - n
	}
	for _, w := range works {
		w.fit(room)
	}
	return nil
}

// unkeyed reports whether every event of its kind has to be held against the wait.
func (w *wait) unkeyed() bool { return w.kind != "" && w.key == "" }

// fit fails the tasks whose waits have no room.
func (w *sliceWork) fit(room map[string]int64) {
	if w.fitTogether(room) {
		return
	}
	for _, r := range unsettled([]*sliceWork{w}) {
		open := w.waiting[r.offset]
		at := slices.IndexFunc(open, func(o wait) bool { return o.task == r.of.no })
		if at < 0 || !open[at].unkeyed() {
			continue
		}
		if room[open[at].kind]--; room[open[at].kind] >= 0 {
			continue
		}
		r.fail(CodeWaits, fmt.Sprintf("There are %d waits for events %s already that only their whole condition tells "+
			"apart, which is the most; let match require that a field of the event equals something of the record",
			MaxUnkeyed, open[at].kind))
		w.settle(r)
		w.waiting[r.offset] = slices.Delete(open, at, at+1)
		if w.failed[r.offset] != nil {
			delete(w.waiting, r.offset)
		}
	}
}

// fitTogether takes room for a slice that waits as a whole; false where it does not, or where there is none.
func (w *sliceWork) fitTogether(room map[string]int64) bool {
	all, left := w.together(), maps.Clone(room)
	for i := range all {
		if kind := all[i].kind; all[i].unkeyed() {
			if left[kind]--; left[kind] < 0 {
				return false
			}
		}
	}
	maps.Copy(room, left)
	return len(all) > 0
}

// fitting reads the events that ended waits, and returns how many of the waits end together: each leaves its event with
// its record.
func (e *ending) fitting(ctx context.Context, rows []db.WaitsOverRow) (int, error) {
	var nos []int64
	for _, r := range rows {
		if r.EventNo != nil {
			nos = append(nos, *r.EventNo)
		}
	}
	if len(nos) == 0 {
		return len(rows), nil
	}
	found, err := e.c.s.q.ArrivalsRead(ctx, e.c.tx, nos)
	if err != nil {
		return 0, fmt.Errorf("read events: %w", err)
	}
	e.arrivals = map[int64]*db.FlowEventArrival{}
	for i := range found {
		e.arrivals[found[i].No] = &found[i]
	}
	size := 0
	for i, r := range rows {
		if r.EventNo == nil {
			continue
		}
		a := e.arrivals[*r.EventNo]
		if a == nil {
			return 0, fmt.Errorf("wait %d of batch %s has an event that is not there", r.No, e.h.ID)
		}
		if size += len(a.Payload); size > turnBytes && i > 0 {
			return i, nil
		}
	}
	return len(rows), nil
}

// candidatesAtOnce bounds the waits that an event is held against together.
const candidatesAtOnce = 256

// MatchEvent holds the oldest event that came in an organization against a bounded number of the waits for its kind,
// and reports whether there is more to do. Those that it ends get it, in the order in which they began; their batches
// go on with it (EndWaits).
func (s *Service) MatchEvent(ctx context.Context, orgID uuid.UUID) (more bool, err error) {
	a, err := s.q.ArrivalNext(ctx, s.pool, orgID)
	if pg.IsNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the next event: %w", err)
	}
	event := eventOutput(&a)
	rows, err := s.q.WaitCandidates(ctx, s.pool, db.WaitCandidatesParams{OrgID: orgID, EventKind: a.EventKind,
		MatchKeys: expr.EventKeys(event),
		After:     a.DoneUpto, Before: a.No, OccurredAt: a.OccurredAt, MaxRows: candidatesAtOnce})
	if err != nil {
		return false, fmt.Errorf("read what waits for event %s: %w", a.EventID, err)
	}
	ended, err := s.matching(ctx, rows, event)
	if err != nil {
		return false, err
	}
	upto := db.ArrivalAdvanceParams{OrgID: orgID, No: a.No, Was: a.DoneUpto, DoneUpto: a.No,
		Delivered: len(rows) < candidatesAtOnce}
	if !upto.Delivered {
		upto.DoneUpto = rows[len(rows)-1].No
	}
	err = pg.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error { return s.matchSome(ctx, tx, upto, ended) })
	return true, err
}

// matchSome gives an event to the waits that it ends, and notes how far it has come. Where another worker has done
// that, it does nothing.
func (s *Service) matchSome(ctx context.Context, tx pgx.Tx, upto db.ArrivalAdvanceParams, ended []int64) error {
	n, err := s.q.ArrivalAdvance(ctx, tx, upto)
	if err != nil || n == 0 {
		return fault.Wrap(err, "note how far an event has come")
	}
	wakes := wakeUps{}
	if len(ended) > 0 {
		batches, err := s.q.WaitHand(ctx, tx, db.WaitHandParams{Nos: ended, EventNo: upto.No})
		if err != nil {
			return fmt.Errorf("hand an event to what waits: %w", err)
		}
		for _, id := range batches {
			wakes.add(DueWait, id.String(), immediately)
		}
	}
	if upto.Delivered {
		if err := s.q.ArrivalDelete(ctx, tx, []int64{upto.No}); err != nil {
			return fmt.Errorf("delete an event that nobody waits for: %w", err)
		}
	}
	return s.send(ctx, tx, new(pg.Pipeline), wakes, immediately, nil, nil)
}

// matching returns those of the waits that an event ends. One whose condition has no value for the event goes on
// waiting.
func (s *Service) matching(ctx context.Context, rows []db.WaitCandidatesRow,
	event json.RawMessage) (ended []int64, err error) {
	type place struct {
		batch      uuid.UUID
		slice      int32
		step, task int16
	}
	by := map[place][]db.WaitCandidatesRow{}
	for _, r := range rows {
		p := place{r.BatchID, r.SliceNo, r.StepNo, r.TaskNo}
		by[p] = append(by[p], r)
	}
	for _, rows := range by {
		nos, err := s.matchingOf(ctx, rows, event)
		if err != nil {
			return nil, err
		}
		ended = append(ended, nos...)
	}
	return ended, nil
}

// matchingOf is matching for waits of one task in one slice.
func (s *Service) matchingOf(ctx context.Context, rows []db.WaitCandidatesRow,
	event json.RawMessage) (ended []int64, err error) {
	first := rows[0]
	b, err := s.Batch(ctx, s.pool, first.BatchID)
	if err != nil {
		return nil, err
	}
	task := &b.Plan.Steps[first.StepNo].Tasks[first.TaskNo]
	if task.Gone != "" {
		return nil, fmt.Errorf("batch %s, task %s waits for a catalog that has its action: %s", b.ID, task.ID,
			task.Gone)
	}
	if task.Match == nil {
		for _, r := range rows {
			ended = append(ended, r.No)
		}
		return ended, nil
	}
	env := func(db.WaitCandidatesRow) expr.Env { return b.env() }
	if !task.Match.Static() {
		slice, err := s.sliceRow(ctx, s.pool, b.ID, first.SliceNo)
		if err != nil {
			return nil, err
		}
		ref := SliceRef{No: first.SliceNo, First: slice.First}
		recs, err := s.Open(ctx, s.pool, b, []SliceRef{ref}, first.StepNo, task.Match.Refs().Tasks)
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
